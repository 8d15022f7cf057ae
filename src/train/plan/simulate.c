#include "train/plan/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "train/plan/model_data_min.h"
#include "train/plan/refusal.h"
#include "train/plan/staging.h"
#include "train/record/profile_write.h"
#include "train/settings/params.h"

typedef struct simulating {
    ps_settings settings;
    ps_program *program;
    ps_code *code;
    ps_exec_plan *exec_plan;
    ps_simulation *out;
} simulating;

static ps_status take_refusal(ps_simulation *s, ps_status st)
{
    if (st != PS_EBUDGET) return st;
    s->fits = false;
    strncpy(s->refusal, ps_last_error(), sizeof s->refusal - 1);
    return PS_OK;
}

/* Does this machine, which runs one of the plan's ranks or several, have the resources? The room of a missing folder is
 * that of its parent. */
static ps_status look_at_machine(const simulating *m)
{
    ps_simulation *o = m->out;
    const ps_status st =
        ps_settings_check_capacity(&m->settings, o->forecast.peak_bytes, o->throughput.topology.ranks_per_node);
    if (st == PS_EBUDGET) snprintf(o->machine_refusal, sizeof o->machine_refusal, "%s", ps_last_error());
    return st == PS_EBUDGET || st == PS_EIO ? PS_OK : st;
}

/* For a described machine. Without GPUs its device is a part of its memory. */
static void look_at_described(const simulating *m, const ps_hardware *hw)
{
    ps_simulation *o = m->out;
    const int64_t *peaks = o->forecast.peak_bytes, per_node = ps_hardware_devices_per_node(hw);
    const int64_t ram = (peaks[PS_TIER_HOST] + (o->device_is_ram ? peaks[PS_TIER_DEVICE] : 0)) * per_node;
    const struct {
        const char *name;
        int64_t asked_bytes, bytes, usable_bytes;
    } parts[] = {
        {"memory on a node", ram, hw->host.bytes, ps_hardware_host_bytes(hw)},
        {"memory of a GPU", o->device_is_ram ? 0 : peaks[PS_TIER_DEVICE], hw->device.bytes,
         ps_hardware_device_bytes(hw)},
        {"disk on a node", hw->disk.present ? peaks[PS_TIER_DISK] * per_node : 0, hw->disk.bytes, hw->disk.bytes}};
    for (size_t i = 0; i < PS_ARRAY_LEN(parts); i++) {
        char asked[PS_BYTES_TEXT_MAX], there[PS_BYTES_TEXT_MAX], usable[PS_BYTES_TEXT_MAX];
        if (parts[i].asked_bytes <= parts[i].usable_bytes) continue;
        (void)ps_bytes_format(parts[i].usable_bytes, usable);
        snprintf(o->machine_refusal, sizeof o->machine_refusal, "the plan takes %s of %s, which has %s%s%s%s",
                 ps_bytes_format(parts[i].asked_bytes, asked), parts[i].name, ps_bytes_format(parts[i].bytes, there),
                 parts[i].usable_bytes < parts[i].bytes ? ", of which " : "",
                 parts[i].usable_bytes < parts[i].bytes ? usable : "",
                 parts[i].usable_bytes < parts[i].bytes ? " are not reserved" : "");
        return;
    }
}

static void describe_request(const simulating *m)
{
    const ps_settings *s = &m->settings;
    ps_simulation *o = m->out;
    o->B = s->B;
    o->T = s->T;
    o->accumulation = s->accumulation;
    o->dtype = s->dtype;
    o->ranks = s->ranks;
    o->budgets = s->budgets;
    o->throughput = s->throughput;
    o->checkpointing = s->checkpointing;
    o->total_bytes = !ps_settings_is_total(s)          ? 0
                     : ps_settings_is_total_used_up(s) ? s->memory.process_bytes
                                                       : s->memory.total_bytes;
    o->device_is_ram = !ps_settings_has_gpu(s);
}

static void describe_code(const simulating *m, const ps_code *code)
{
    ps_simulation *o = m->out;
    o->keeps_logits = code->keeps_logits;
    o->lists = ps_lists_of(&m->settings, code->n_offloaded, code->offload_bytes);
    o->non_model_bytes = code->non_model_bytes;
    o->step_flops = 0;
    for (int32_t i = 0; i < code->n_instrs; i++)
        o->step_flops += code->instrs[i].flops * (double)m->settings.accumulation;
}

static void describe_model(const simulating *m)
{
    ps_simulation *o = m->out;
    for (int32_t t = 0; t < m->program->n_params; t++) {
        const int64_t n = m->program->params[t].elements;
        const int64_t grad_list_bytes = m->code->grad_overwrites_param[t]
                                            ? ps_settings_separate_gradient_bytes(&m->settings)
                                            : (int64_t)sizeof(float);
        const bool is_frozen = m->program->params[t].is_frozen;
        o->n_params += n;
        o->model_data_bytes += ps_param_stored_elements(&m->program->params[t], m->settings.dtype) *
                               (int64_t)ps_dtype_bytes(m->settings.dtype);
        if (!m->program->params[t].is_left_out)
            o->checkpoint_bytes +=
                ps_optimizer_checkpoint_bytes(&m->settings.optimizer, n, !is_frozen, m->program->params[t].is_whole);
        if (is_frozen) {
            o->frozen_saves_bytes += ps_optimizer_bytes(&m->settings.optimizer, n);
            continue;
        }
        o->n_trained_params += n;
        o->model_data_bytes +=
            ps_optimizer_bytes_of(&m->settings.optimizer,
                                  ps_optimizer_states_of(&m->settings.optimizer, m->program->params[t].is_whole), n) +
            n * grad_list_bytes;
    }
    o->model_data_min_bytes = ps_model_data_min_bytes(&m->settings, m->program);
    describe_code(m, m->code);
}

static void describe_plan(const simulating *m)
{
    const ps_exec_plan *b = m->exec_plan;
    ps_simulation *o = m->out;
    o->fits = true;
    o->bound = ps_bound_of_plan(b, &o->forecast);
    describe_code(m, b->code);
    o->chunk_elements = b->layout->chunk_elements;
    o->n_chunks = b->layout->n_chunks;
    o->chunk_waste = ps_layout_waste(b->layout);
    o->candidate = b->candidate;
    o->staging_bytes = m->settings.staging_bytes;
    if (!m->settings.nccl.is_used) o->staging_bytes += ps_settings_comm_bytes(&m->settings);
    o->staging_tier = ps_tiers_staging_tier(ps_backend_space(m->settings.backend), &m->settings.budgets);
    for (int32_t c = 0; c < b->layout->n_chunks; c++) {
        if (!ps_exec_plan_owns(b, c)) continue;
        o->n_local_chunks++;
        o->n_local_updates += ps_exec_plan_trains(b, c);
        o->n_host_updates += b->update_tier[c] == PS_TIER_HOST;
    }
    o->n_resident_updates = b->n_resident_updates;
    o->n_deferred_updates = b->n_deferred;
    o->speculates = b->speculates;
    o->recomputes = b->recompute != NULL;
    (void)ps_exec_plan_why_not_speculating(b, &m->settings.budgets, o->why_not_speculating);
    for (int32_t c = 0; c < b->layout->n_chunks && b->speculates; c++) {
        if (!b->is_early[c]) continue;
        o->kept_bytes += ps_kept_payload_bytes(b->settings, b->layout->chunk_elements);
        if (ps_exec_plan_keeps_grad(b, c)) o->kept_bytes += ps_exec_plan_chunk_bytes(b, ps_lists_kept_grad(&b->lists));
    }
}

static ps_status take_site(ps_settings *s, const ps_config *config, const ps_site *site)
{
    s->takes_first_plan = site->takes_first_plan;
    if (site->hardware != NULL) PS_TRY(ps_settings_use_hardware(s, config, site->hardware));
    if (site->n_ranks > 0 && s->ranks.n == 1 && (site->hardware == NULL || site->hardware->gpus_per_node == 0))
        return ps_settings_plan_as_rank(s, config, site->rank, site->n_ranks);
    if (site->n_ranks > 0 && site->n_ranks != s->ranks.n)
        return PS_FAIL(
            PS_EINVAL,
            "%d ranks are asked for, but '%s' has a rank for each of its devices, %d: change hardware.n_nodes "
            "or hardware.gpus_per_node",
            site->n_ranks, site->hardware->name, s->ranks.n);
    if (site->rank < 0 || site->rank >= s->ranks.n)
        return PS_FAIL(PS_EINVAL, "there is no rank %d of %d", site->rank, s->ranks.n);
    s->ranks.rank = site->rank;
    return PS_OK;
}

static ps_status begin(simulating *m, const ps_config *config, const ps_site *site, ps_simulation *out)
{
    *m = (simulating){.out = out};
    *out = (ps_simulation){0};
    ps_settings *s = &m->settings;
    PS_TRY(ps_settings_read(config, true, s));
    if (site != NULL) PS_TRY(take_site(s, config, site));
    s->plans_only = true;
    PS_TRY(ps_settings_open_backend(s));
    describe_request(m);
    const ps_code_options o = ps_settings_code_options(s);
    PS_TRY(ps_settings_build_program(s, ps_model_from_config, (void *)(uintptr_t)config, s->B, s->T, &m->program));
    PS_TRY(ps_code_create(m->program, &o, &m->code));
    describe_model(m);
    return PS_OK;
}

static void end(simulating *m)
{
    ps_exec_plan_destroy(m->exec_plan);
    ps_code_destroy(m->code);
    ps_program_destroy(m->program);
    ps_settings_close_backend(&m->settings);
}

ps_status ps_simulate_sizes(const ps_config *config, const ps_site *site, ps_simulation *out)
{
    simulating m;
    const ps_status st = begin(&m, config, site, out);
    end(&m);
    return st;
}

ps_status ps_simulate(const ps_config *config, const ps_site *site, bool explain, ps_deadline *deadline,
                      ps_simulation *out)
{
    simulating m;
    ps_status st = begin(&m, config, site, out);
    ps_settings *s = &m.settings;
    if (st == PS_OK) st = ps_staging_find_exec_plan(s, m.program, m.code, deadline, &m.exec_plan, &out->forecast);
    out->budgets = s->budgets; /* the disk tier may have been added */
    out->timed_out = ps_deadline_timed_out(deadline);
    if (st == PS_EBUDGET && explain && !out->timed_out && m.code != NULL)
        st = ps_refusal_describe(s, m.program, m.code, deadline);
    if (st == PS_OK) describe_plan(&m);
    if (st == PS_OK && site != NULL && site->hardware != NULL)
        look_at_described(&m, site->hardware);
    else if (st == PS_OK)
        st = look_at_machine(&m);
    end(&m);
    return take_refusal(out, st);
}

ps_status ps_simulate_least_budget(const ps_config *config, const ps_site *site, ps_tier tier, ps_deadline *deadline,
                                   int64_t *bytes)
{
    simulating m;
    ps_simulation out;
    *bytes = 0;
    ps_status st = begin(&m, config, site, &out);
    const bool is_refused = st == PS_EBUDGET;                        /* memory.total, whatever the tiers have */
    if (st == PS_OK) (void)ps_settings_take_spare_disk(&m.settings); /* RAM alone has not sufficed */
    if (st == PS_OK) st = ps_refusal_least_budget(&m.settings, m.program, m.code, tier, deadline, bytes);
    end(&m);
    return is_refused ? PS_OK : st;
}

static ps_status write_profile(const simulating *m, const char *title, const char *path)
{
    ps_profile *p = NULL;
    const ps_settings *s = &m->settings;
    const ps_profile_facts facts = {.title = title,
                                    .simulated = true,
                                    .rank = s->ranks.rank,
                                    .n_ranks = s->ranks.n,
                                    .exec_plan = m->exec_plan,
                                    .budgets = s->budgets,
                                    .forecast = &m->out->forecast};
    PS_TRY(ps_profile_create(NULL, &p));
    /* the last two steps: from there on the state repeats */
    const int64_t last = ps_max_i64(2, m->out->forecast.steps);
    ps_status st = ps_trial_record(m->exec_plan, &s->budgets, last - 1, last, p);
    if (st == PS_OK) st = ps_profile_write(p, &facts, path);
    ps_profile_destroy(p);
    return st;
}

ps_status ps_simulate_profile(const ps_config *config, const ps_site *site, const char *title, const char *path)
{
    simulating m;
    ps_simulation out;
    ps_settings *s = &m.settings;
    ps_status st = begin(&m, config, site, &out);
    if (st == PS_OK) st = ps_staging_find_exec_plan(s, m.program, m.code, NULL, &m.exec_plan, &out.forecast);
    if (st == PS_OK) st = write_profile(&m, title, path);
    end(&m);
    return st;
}

double ps_simulation_step_s(const ps_simulation *s)
{
    return (double)s->forecast.step.all_ns * 1e-9;
}

double ps_simulation_tokens_per_s(const ps_simulation *s)
{
    return (double)(s->B * s->T * s->accumulation * s->ranks.n) / ps_simulation_step_s(s);
}

double ps_simulation_flops_per_s(const ps_simulation *s, int factor)
{
    return (double)factor * (double)s->n_params * ps_simulation_tokens_per_s(s) / (double)s->ranks.n;
}
