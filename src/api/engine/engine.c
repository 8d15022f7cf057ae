#include "api/engine/engine.h"

#include <stdio.h>

#include "api/engine/recompute.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "chunk/store_stats.h"
#include "train/run/memory_dump.h"

static ps_status open_tiers(ps_engine *e, bool draws)
{
    ps_tiers_desc o = ps_exec_plan_tiers(e->exec_plan, &e->settings.budgets);
    o.profile = e->profiling.recorder;
    PS_TRY(ps_settings_watch(&e->settings, &e->watch));
    if (e->settings.checks_order) PS_TRY(ps_order_create(false, &e->order));
    o.order = e->order;
    PS_TRY(ps_tiers_open(&o, &e->tiers));
    PS_TRY(ps_recompute_init(e));
    const ps_runner_options runs = {.compute = true, .keeps_dump = true};
    PS_TRY(ps_runner_create(e->exec_plan, &e->tiers, &runs, &e->runner));
    ps_runner_set_max_wrong_share(e->runner, e->shape->forecast.max_wrong_share);
    if (e->settings.backend_kind == PS_BACKEND_CUDA && e->settings.training) PS_TRY(ps_runner_warm_up(e->runner));
    if (!draws) PS_TRY(ps_mem_alloc((size_t)e->program->n_params, sizeof *e->is_filled, &e->is_filled));
    return ps_runner_create_params(e->runner, draws);
}

static ps_status take_config(ps_engine *e, const ps_config *config)
{
    PS_TRY(ps_config_dump_json(config, &e->config_json));
    PS_TRY(ps_settings_open_backend(&e->settings));
    e->loss_average = e->settings.loss_average;
    PS_TRY(ps_loss_scaler_init(&e->scaler, &e->settings.scaler));
    e->last_step.loss_scale = (double)e->scaler.scale;
    return ps_param_groups_init(&e->groups, &e->settings);
}

/* Ranks of a machine share its memory and its disks. To be checked before any of them allocates. */
static ps_status check_capacity(const ps_engine *e)
{
    const ps_comm *comm = e->settings.ranks.comm;
    const int32_t n_sharers = comm != NULL ? ps_comm_local_size(comm) : 1;
    return ps_settings_check_capacity(&e->settings, e->shape->forecast.peak_bytes, n_sharers);
}

/* Waits for no other rank, as it may fail on one of them. */
static ps_status open_memory(ps_engine *e, bool draws)
{
    PS_TRY(ps_profiling_open(e));
    return open_tiers(e, draws);
}

/* With several ranks the part that this one does alone. */
static ps_status read_settings(const ps_config *config, ps_purpose purpose, ps_comm *comm, ps_settings *s)
{
    PS_TRY(ps_settings_read_of_rank(config, purpose == PS_FOR_TRAINING, comm, s));
    if (purpose == PS_FOR_GENERATION) ps_settings_use_cache(s, config);
    return PS_OK;
}

static void log_plan(const ps_engine *e)
{
    const ps_forecast *f = &e->shape->forecast;
    const ps_layout *l = e->exec_plan->layout;
    char peak[PS_TIER_COUNT][PS_BYTES_TEXT_MAX];
    for (int t = 0; t < PS_TIER_COUNT; t++) ps_bytes_format(f->peak_bytes[t], peak[t]);
    ps_log(
        PS_LOG_INFO,
        "planned for %s: %d chunks a list of %lld elements; at most %s of the device, %s of the host, %s of the disk; "
        "%.3g s a step, estimated; critical: %s",
        ps_backend_name(e->settings.backend), (int)l->n_chunks, (long long)l->chunk_elements, peak[PS_TIER_DEVICE],
        peak[PS_TIER_HOST], peak[PS_TIER_DISK], (double)f->step.all_ns * 1e-9, ps_step_time_critical(&f->step));
}

static void tell_unused(ps_engine *e, const ps_config *config)
{
    char text[PS_CONFIG_IGNORED_TEXT_MAX];
    ps_settings_list_unused(&e->settings, ps_config_options(config), text, sizeof text);
    if (text[0] != '\0') ps_engine_report(e, text);
    if (ps_exec_plan_why_not_speculating(e->exec_plan, &e->settings.budgets, text)[0] != '\0')
        ps_engine_report(e, text);
    if (ps_config_describe_ignored(config, text)[0] != '\0') ps_engine_report(e, text);
}

static ps_status describe_tensors(ps_engine *e)
{
    const int32_t n = e->program->n_params;
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *e->tensors, &e->tensors));
    for (int32_t t = 0; t < n; t++) {
        const ps_param *p = &e->program->params[t];
        e->tensors[t] = (ps_state_tensor){.name = p->name,
                                          .shape = p->shape,
                                          .n_dims = p->n_dims,
                                          .in_layout = t,
                                          .elements = p->elements,
                                          .is_trained = !p->is_frozen,
                                          .is_whole = p->is_whole,
                                          .is_left_out = p->is_left_out};
    }
    return PS_OK;
}

static ps_status create(ps_model_func model, void *user, const ps_config *config, ps_purpose purpose, ps_comm *comm,
                        bool draws, ps_engine **out)
{
    *out = NULL;
    if (model == NULL || config == NULL) return PS_FAIL(PS_EINVAL, "ps_initialize_engine: model and config are needed");
    ps_status st = PS_OK;
    ps_engine *e = NULL;
    ps_memory_dump_forget();
    PS_TRY_GOTO(ps_comm_agree(comm, ps_mem_alloc(1, sizeof *e, &e)));
    e->comm = comm;
    if (comm != NULL) ps_comm_keep(comm);
    PS_TRY_GOTO(ps_comm_agree(comm, read_settings(config, purpose, comm, &e->settings)));
    PS_TRY_GOTO(comm != NULL ? ps_settings_join(&e->settings, config, comm)
                             : ps_settings_set_ranks(&e->settings, config, 0, 1));
    PS_TRY_GOTO(ps_comm_agree(comm, take_config(e, config)));
    PS_TRY_GOTO(ps_shapes_open(&e->shapes, &e->settings, config, model, user));
    e->shape = e->shapes.all[0];
    e->program = e->shape->program;
    e->exec_plan = e->shape->exec_plan;
    PS_TRY_GOTO(ps_comm_agree(comm, describe_tensors(e)));
    PS_TRY_GOTO(ps_comm_agree(comm, check_capacity(e)));
    tell_unused(e, config);
    ps_settings_describe_memory(&e->settings, e->memory_text);
    PS_TRY_GOTO(ps_comm_agree(comm, open_memory(e, draws)));
    PS_TRY_GOTO(ps_comm_agree(comm, ps_runner_join(e->runner)));
    log_plan(e);
    *out = e;
    e = NULL;
out:
    ps_engine_destroy(e);
    return st;
}

ps_status ps_engine_create(ps_model_func model, void *user, const ps_config *config, ps_purpose purpose, ps_comm *comm,
                           ps_engine **out)
{
    return create(model, user, config, purpose, comm, true, out);
}

ps_status ps_engine_create_empty(ps_model_func model, void *user, const ps_config *config, ps_purpose purpose,
                                 ps_comm *comm, ps_engine **out)
{
    return create(model, user, config, purpose, comm, false, out);
}

void ps_engine_end_filling(ps_engine *e)
{
    ps_mem_free(e->is_filled);
    e->is_filled = NULL;
}

void ps_engine_destroy(ps_engine *e)
{
    if (e == NULL) return;
    ps_engine_end_filling(e);
    ps_saver_close(e->saver);
    ps_runner_destroy(e->runner);
    ps_param_groups_deinit(&e->groups);
    ps_profiling_finish(e);
    ps_free(e->config_json);
    ps_mem_free(e->tensors);
    ps_mem_free(e->passes);
    ps_tiers_close(&e->tiers);
    ps_order_destroy(e->order);
    ps_profiling_close(e);
    ps_shapes_close(&e->shapes);
    ps_settings_close_backend(&e->settings);
    ps_stall_close(e->watch);
    ps_comm_close(e->comm);
    ps_mem_free(e);
}

ps_status ps_engine_expect(const ps_engine *e, ps_engine_state wanted, const char *call)
{
    static const char *const after[] = {[PS_ENGINE_READY] = "ps_step or initialisation",
                                        [PS_ENGINE_FORWARD] = "ps_forward",
                                        [PS_ENGINE_BACKWARD] = "ps_backward"};
    if (e->state == wanted) return PS_OK;
    if (e->state == PS_ENGINE_FAILED)
        return PS_FAIL(PS_ESTATE, "%s is not allowed after a failure inside a step: %s", call, e->failure);
    return PS_FAIL(PS_ESTATE, "%s is not allowed after %s; it follows %s", call, after[e->state], after[wanted]);
}

ps_status ps_engine_expect_values(const ps_engine *e, const char *call)
{
    if (e->is_filled == NULL) return PS_OK;
    return PS_FAIL(PS_ESTATE,
                   "%s: the engine began empty; ps_engine_load_checkpoint, ps_engine_load_pretrained or "
                   "ps_engine_begin_weights gives its parameters values",
                   call);
}

void ps_engine_get_ranks(const ps_engine *e, int32_t *rank, int32_t *size)
{
    const ps_comm *comm = e->settings.ranks.comm;
    if (rank != NULL) *rank = comm != NULL ? ps_comm_rank(comm) : 0;
    if (size != NULL) *size = comm != NULL ? ps_comm_size(comm) : 1;
}

ps_status ps_engine_check_agreed(ps_engine *e, ps_status st)
{
    if (st == PS_OK) return st;
    if (e->state != PS_ENGINE_FAILED) snprintf(e->failure, sizeof e->failure, "%s", ps_last_error());
    e->state = PS_ENGINE_FAILED;
    return st;
}

static ps_status expect_order(const ps_engine *e)
{
    const ps_order *o = e->order;
    if (o == NULL || ps_order_get_stats(o).n_reports == 0) return PS_OK;
    return PS_FAIL(PS_EDEVICE, "%s.check_order: %s", ps_backend_kind_name(e->settings.backend_kind),
                   ps_order_text(o, 0));
}

ps_status ps_engine_check_device(ps_engine *e, ps_status st)
{
    const bool is_asynchronous = ps_device_is_asynchronous(e->tiers.ram[PS_TIER_DEVICE]);
    return st == PS_EDEVICE && is_asynchronous ? ps_engine_check(e, st) : st;
}

ps_status ps_engine_check(ps_engine *e, ps_status st)
{
    if (st == PS_OK) st = expect_order(e);
    if (ps_engine_check_agreed(e, st) == PS_OK) return st;
    if (e->settings.ranks.comm != NULL && st != PS_ECOMM) ps_comm_fail(e->settings.ranks.comm, ps_last_error());
    return st;
}

/* ---- reports ---- */

ps_status ps_engine_get_step_info(const ps_engine *e, ps_step_info *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    ps_step_info info = e->last_step;
    info.next_loss_scale = (double)e->scaler.scale;
    return PS_SIZED_GIVE(ps_step_info, &info, out);
}

void ps_engine_get_shape(const ps_engine *e, int64_t *batch, int64_t *sequence, int64_t *accumulation,
                         int64_t *n_outputs)
{
    if (batch != NULL) *batch = e->shape->program->B;
    if (sequence != NULL) *sequence = e->shape->program->T;
    if (accumulation != NULL) *accumulation = e->settings.accumulation;
    if (n_outputs != NULL) *n_outputs = e->program->n_outputs;
}

void ps_engine_reset_peaks(ps_engine *e)
{
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) ps_device_reset_peak(e->tiers.ram[t]);
}

ps_status ps_engine_get_memory_info(const ps_engine *e, ps_memory_info *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    const ps_layout *l = e->exec_plan->layout;
    const ps_device_stats device = ps_device_get_stats(e->tiers.ram[PS_TIER_DEVICE]);
    const ps_device_stats host = ps_device_get_stats(e->tiers.ram[PS_TIER_HOST]);
    const ps_store_stats store = ps_store_get_stats(e->tiers.store);
    ps_memory_info info = {
        .model_data_bytes = ps_exec_plan_model_data_bytes(e->exec_plan),
        .chunk_elements = l->chunk_elements,
        .n_chunks = l->n_chunks,
        .chunk_waste = ps_layout_waste(l),
        .device_budget_bytes = e->settings.budgets.bytes[PS_TIER_DEVICE],
        .host_budget_bytes = e->settings.budgets.bytes[PS_TIER_HOST],
        .disk_budget_bytes = e->settings.budgets.bytes[PS_TIER_DISK],
        .device_peak_bytes = device.peak_bytes,
        .host_peak_bytes = host.peak_bytes,
        .disk_peak_bytes = store.disk_peak_bytes,
        .device_used_bytes = device.used_bytes,
        .host_used_bytes = host.used_bytes,
        .disk_used_bytes = store.disk_bytes,
        .non_model_peak_bytes = e->exec_plan->code->non_model_bytes + e->exec_plan->code->cache_bytes,
        .kept_logits_bytes = ps_code_kept_logits_bytes(e->exec_plan->code),
        .host_to_device_bytes = store.moved_bytes[PS_LINK_HOST_TO_DEVICE],
        .device_to_host_bytes = store.moved_bytes[PS_LINK_DEVICE_TO_HOST],
        .disk_read_bytes = store.moved_bytes[PS_LINK_DISK_READ],
        .disk_write_bytes = store.moved_bytes[PS_LINK_DISK_WRITE],
        .wait_ns = store.wait_ns,
        .planned_device_peak_bytes = e->shape->forecast.peak_bytes[PS_TIER_DEVICE],
        .planned_host_peak_bytes = e->shape->forecast.peak_bytes[PS_TIER_HOST],
        .planned_step = e->shape->forecast.steps,
        .planned_disk_peak_bytes = e->shape->forecast.peak_bytes[PS_TIER_DISK],
        .planned_sent_bytes = e->shape->forecast.moved_bytes[PS_LINK_COLLECTIVES],
    };
    for (int32_t t = 0; t < e->program->n_params; t++) {
        const ps_param *p = &e->program->params[t];
        info.parameters += p->elements;
        if (!e->settings.training) continue;
        if (!p->is_frozen) info.trained_parameters += p->elements;
        if (!p->is_left_out)
            info.checkpoint_bytes +=
                ps_optimizer_checkpoint_bytes(&e->settings.optimizer, p->elements, !p->is_frozen, p->is_whole);
    }
    if (e->settings.ranks.comm != NULL) {
        const ps_comm_stats sent = ps_comm_get_stats(e->settings.ranks.comm);
        info.sent_bytes = sent.sent_bytes;
        info.comm_wait_ns = sent.wait_ns;
    }
    for (int link = 0; link < PS_LINK_COLLECTIVES; link++)
        info.planned_moved_bytes += e->shape->forecast.moved_bytes[link];
    return PS_SIZED_GIVE(ps_memory_info, &info, out);
}

ps_status ps_engine_get_memory_use(const ps_engine *e, int index, ps_memory_use *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    ps_memory_use uses[PS_MEMORY_USES_MAX];
    const int n = ps_memory_uses(&e->exec_plan->lists, &e->tiers, uses);
    if (index < 0 || index >= n) return PS_FAIL(PS_EINVAL, "ps_engine_get_memory_use: number %d of %d", index, n);
    return PS_SIZED_GIVE(ps_memory_use, &uses[index], out);
}

ps_status ps_engine_dump_memory(const ps_engine *e, char **out)
{
    PS_TRY(PS_NEED_FOR(out, "engine out", e, out));
    char text[PS_MEMORY_DUMP_MAX];
    ps_memory_dump_write(e->exec_plan, &e->tiers, text);
    return ps_mem_strdup(text, out);
}
