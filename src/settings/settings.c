/* settings.c - ps_settings_read: which option sets what. */
#include "settings/settings_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"

/* Steps of warm-up when the configuration names none: DeepSpeed's schedulers take 1000, Hugging Face's none. */
#define DEEPSPEED_WARMUP_STEPS 1000

static ps_status read_lr(const ps_options *o, ps_lr_schedule *lr)
{
    static const ps_lr_type types[] = {
        [PS_CONFIG_SCHEDULER_CONSTANT] = PS_LR_CONSTANT,
        [PS_CONFIG_SCHEDULER_CONSTANT_WITH_WARMUP] = PS_LR_CONSTANT_WITH_WARMUP,
        [PS_CONFIG_SCHEDULER_LINEAR] = PS_LR_LINEAR,
        [PS_CONFIG_SCHEDULER_COSINE] = PS_LR_COSINE,
        [PS_CONFIG_SCHEDULER_WARMUP_LR] = PS_LR_WARMUP_LR,
        [PS_CONFIG_SCHEDULER_WARMUP_DECAY_LR] = PS_LR_WARMUP_DECAY_LR,
        [PS_CONFIG_SCHEDULER_WARMUP_COSINE_LR] = PS_LR_WARMUP_COSINE_LR,
    };
    const ps_lr_type type = types[o->scheduler_type];
    const bool deepspeed = type == PS_LR_WARMUP_LR || type == PS_LR_WARMUP_DECAY_LR || type == PS_LR_WARMUP_COSINE_LR;
    const int64_t warmup = o->scheduler_params_warmup_num_steps;
    *lr = (ps_lr_schedule){
        .type = type,
        .lr = o->optimizer_params_lr,
        .warmup_num_steps = warmup >= 0 ? warmup
                            : deepspeed ? DEEPSPEED_WARMUP_STEPS
                                        : 0,
        .total_num_steps = o->scheduler_params_total_num_steps > 0
                               ? o->scheduler_params_total_num_steps
                               : ps_max_i64(1, o->train_steps), /* 0: none is taken */
        .min_lr_ratio = o->scheduler_params_min_lr_ratio,
        .warmup_type = o->scheduler_params_warmup_type == PS_CONFIG_WARMUP_LOG ? PS_LR_RAMP_LOG : PS_LR_RAMP_LINEAR,
        .warmup_min_lr = o->scheduler_params_warmup_min_lr,
        .warmup_max_lr = o->scheduler_params_warmup_max_lr,
        .warmup_min_ratio = o->scheduler_params_warmup_min_ratio,
        .cos_min_ratio = o->scheduler_params_cos_min_ratio,
    };
    return ps_lr_schedule_check(lr);
}

static void read_scaler(const ps_options *o, ps_loss_scaler_options *s)
{
    if (!o->fp16_enabled) {
        *s = (ps_loss_scaler_options){.loss_scale = 1};
        return;
    }
    *s = (ps_loss_scaler_options){.loss_scale = (float)o->fp16_loss_scale,
                                  .initial_scale = o->fp16_initial_scale > 0
                                                       ? (float)o->fp16_initial_scale
                                                       : ldexpf(1.0f, (int)o->fp16_initial_scale_power),
                                  .growth_factor = (float)o->fp16_growth_factor,
                                  .backoff_factor = (float)o->fp16_backoff_factor,
                                  .loss_scale_window = o->fp16_loss_scale_window,
                                  .hysteresis = (int)o->fp16_hysteresis,
                                  .consecutive_hysteresis = o->fp16_consecutive_hysteresis,
                                  .min_loss_scale = (float)o->fp16_min_loss_scale,
                                  .max_loss_scale = (float)o->fp16_max_loss_scale};
}

ps_dtype ps_settings_dtype(const ps_options *o)
{
    return o->bf16_enabled ? PS_DTYPE_BF16 : o->fp16_enabled ? PS_DTYPE_F16 : PS_DTYPE_F32;
}

const char *ps_settings_disk_folders(const ps_options *o)
{
    const char *tmp = getenv("TMPDIR");
    return o->memory_disk_path[0] ? o->memory_disk_path : tmp != NULL && tmp[0] ? tmp : "/tmp";
}

static ps_status read_disk(const ps_options *o, ps_settings *s)
{
    const char *text = ps_settings_disk_folders(o);
    ps_disk_folders folders;
    PS_TRY(ps_disk_folders_read(text, &folders));
    strcpy(s->disk_folders, text);
    s->queue_depth = (int)o->memory_queue_depth;
    switch (o->memory_disk_backend) {
    case PS_CONFIG_DISK_BACKEND_AUTO: s->disk_backend = PS_DISK_AUTO; break;
    case PS_CONFIG_DISK_BACKEND_IO_URING: s->disk_backend = PS_DISK_URING; break;
    case PS_CONFIG_DISK_BACKEND_THREADS: s->disk_backend = PS_DISK_THREADS; break;
    }
    return PS_OK;
}

static ps_status read_profile(const ps_config *config, ps_settings *s)
{
    const ps_options *o = ps_config_options(config);
    if (strlen(o->profile_path) >= sizeof s->profile_path)
        return PS_FAIL(PS_EINVAL, "profile.path is longer than %zu characters", sizeof s->profile_path - 1);
    strcpy(s->profile_path, o->profile_path);
    memcpy(s->profile_steps, o->profile_steps, sizeof s->profile_steps);
    snprintf(s->config_name, sizeof s->config_name, "%s", ps_config_name(config));
    return PS_OK;
}

ps_code_options ps_settings_code_options(const ps_settings *s)
{
    const bool is_apart = !ps_backend_space(s->backend)->device->host_can_touch;
    return (ps_code_options){.backend = s->backend,
                             .rates = &s->rates.compute,
                             .softmax_rates = s->rates.softmax,
                             .embedding_backend = s->embedding_on_host && is_apart ? ps_backend_host(s->backend) : NULL,
                             .embedding_rates = s->embedding_on_host ? &s->rates.host : NULL,
                             .dtype = s->dtype,
                             .training = s->training,
                             .checkpointing = s->checkpointing,
                             .n_checkpoints = s->n_checkpoints,
                             .offloads_inputs = s->offloads_inputs,
                             .may_overwrite_params = s->accumulation == 1 && !s->fp32_gradients,
                             /* several ranks have sums apart: ps_blueprint_sums_apart */
                             .adds_up_micro_batches = s->accumulation > 1 && s->ranks.n == 1,
                             .keep_logits = s->keep_logits,
                             .cache_positions = s->cache_positions};
}

void ps_settings_use_cache(ps_settings *s, const ps_config *config)
{
    const int64_t wanted = ps_config_options(config)->generation_max_length;
    s->cache_positions = wanted > 0 ? wanted : s->T;
    s->B = 1;
    s->T = ps_min_i64(s->cache_positions, PS_DECODE_ROWS_MAX);
}

/* Placement "cpu": chunks take only as much device memory as the largest moment needs, and updates run on the host. */
static void read_placement(const ps_options *o, ps_settings *s)
{
    if (o->zero_tensor_placement_policy != PS_CONFIG_PLACEMENT_CPU) return;
    s->hybrid_updates = false;
    s->static_partition = true;
    s->unscheduled_share = 0;
}

static ps_status read_products(const ps_config *config, ps_settings *s)
{
    const ps_config_product_algorithms asked = ps_config_options(config)->train_product_algorithms;
    const char *folder = ps_config_cache(config);
    s->asks_for_first_products = asked == PS_CONFIG_PRODUCT_ALGORITHMS_FIRST;
    s->measures_products = !s->asks_for_first_products;
    s->keeps_products = asked == PS_CONFIG_PRODUCT_ALGORITHMS_AUTO;
    if (folder == NULL) return PS_OK;
    if (strlen(folder) >= sizeof s->cache_folder)
        return PS_FAIL(PS_EINVAL, "the cache folder has a name of %zu bytes, at most %zu are taken", strlen(folder),
                       sizeof s->cache_folder - 1);
    strcpy(s->cache_folder, folder);
    return PS_OK;
}

/* Clipping needs the norm; a step that may be skipped, all gradients; config_check.c says so where it is asked for. */
static bool may_update_early(const ps_options *o)
{
    return o->memory_update_in_backward != PS_CONFIG_EARLY_UPDATES_NEVER && o->gradient_clipping <= 0 &&
           !o->fp16_enabled && o->train_max_nonfinite_steps == 1;
}

static ps_status read_group(const ps_param_group *g, ps_settings *s)
{
    ps_settings_group *group = &s->groups[s->n_groups];
    const size_t n = strlen(g->patterns) + 1;
    size_t at = 0;
    for (int32_t i = 0; i < s->n_groups; i++) at += strlen(s->group_patterns + at) + 1;
    if (n > sizeof s->group_patterns - at)
        return PS_FAIL(PS_EINVAL, "optimizer.param_groups has more than %zu bytes of patterns: use * and ?",
                       sizeof s->group_patterns - 1);
    memcpy(s->group_patterns + at, g->patterns, n);
    group->patterns = (int32_t)at;
    group->decays_all = g->gives_weight_decay;
    PS_TRY(ps_optimizer_read(&g->options, &group->optimizer));
    if (group->optimizer.n_states != s->optimizer.n_states)
        return PS_FAIL(PS_EINVAL,
                       "optimizer.param_groups: group %d keeps %d states of each element, and optimizer.params %d: "
                       "momentum must be 0 in all groups, or in none",
                       s->n_groups, group->optimizer.n_states, s->optimizer.n_states);
    PS_TRY(read_lr(&g->options, &group->lr));
    s->n_groups++;
    return PS_OK;
}

static ps_status read_groups(const ps_config *config, ps_settings *s)
{
    ps_param_groups groups;
    s->groups[0] = (ps_settings_group){.optimizer = s->optimizer};
    s->n_groups = 1;
    PS_TRY(read_lr(ps_config_options(config), &s->groups[0].lr));
    PS_TRY(ps_param_groups_read(config, &groups));
    ps_status st = PS_OK;
    for (int32_t i = 0; i < groups.n && st == PS_OK; i++) st = read_group(&groups.group[i], s);
    ps_param_groups_free(&groups);
    return st;
}

static ps_status read_frozen(const ps_options *o, ps_settings *s)
{
    if (strlen(o->train_freeze) >= sizeof s->frozen)
        return PS_FAIL(PS_EINVAL, "train.freeze has %zu bytes of patterns, at most %zu are taken: use * and ?",
                       strlen(o->train_freeze), sizeof s->frozen - 1);
    strcpy(s->frozen, o->train_freeze);
    return PS_OK;
}

static ps_status read_all(const ps_config *config, bool training, const ps_gpu_turn *turn, ps_settings *out)
{
    static const ps_keep_logits keep_logits[] = {[PS_CONFIG_KEEP_LOGITS_AUTO] = PS_KEEP_LOGITS_AUTO,
                                                 [PS_CONFIG_KEEP_LOGITS_ALWAYS] = PS_KEEP_LOGITS_ALWAYS,
                                                 [PS_CONFIG_KEEP_LOGITS_NEVER] = PS_KEEP_LOGITS_NEVER};
    const ps_options *o = ps_config_options(config);
    *out = (ps_settings){
        .training = training,
        .gpu = {.turn = *turn},
        .B = o->train_micro_batch_size_per_gpu,
        .T = ps_config_sequence_length(o),
        .accumulation = training ? o->gradient_accumulation_steps : 1,
        .loss_average = o->train_loss_average,
        .dtype = ps_settings_dtype(o),
        .seed = (uint64_t)o->train_seed,
        .threads = o->train_threads > 0 ? (int)o->train_threads : ps_cpu_threads(),
        .ranks = {.n = 1, .saves_memory = o->client_opts_with_mem_saving_comm},
        .rates = ps_rates_default(),
        .prefetch = (int32_t)o->memory_prefetch,
        .wait_at_once = !o->client_opts_with_async_move,
        .keep_freed_memory = o->client_opts_with_mem_cache,
        .chunk_elements = o->default_chunk_size,
        .embedding_on_host = o->use_cpu_embedding,
        .hybrid_updates = o->optimizer_params_use_hybrid_adam,
        .unscheduled_share = o->client_mem_tracer_warmup_gpu_chunk_mem_ratio,
        .static_partition = o->client_mem_tracer_with_static_partition,
        .margin_share = o->client_mem_tracer_margin_use_ratio,
        .checkpointing = o->activation_checkpointing_enabled,
        .n_checkpoints = (int32_t)o->activation_checkpointing_number_checkpoints,
        .offloads_inputs = o->client_opts_with_activation_offload,
        .clip_norm = o->gradient_clipping,
        .defer_updates = o->memory_defer_updates,
        .may_update_early = training && may_update_early(o),
        .always_updates_early = training && o->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_ALWAYS,
        .keep_logits = keep_logits[o->memory_keep_logits],
        .max_nonfinite_steps = o->train_max_nonfinite_steps,
        .placement_trials = (int32_t)o->memory_placement_trials,
        .save_buffer_bytes = training && o->train_save_interval > 0 ? o->memory_save_buffer : 0,
        .keep_checkpoints = o->train_keep_last,
        .fp32_gradients = !o->zero_reuse_fp16_shard || o->zero_fp32_reduce_scatter,
        .gradient_predivide = o->zero_gradient_predivide_factor > 0 ? o->zero_gradient_predivide_factor : 1,
        .comm_staging_bytes = ps_settings_comm_options(config).staging_bytes,
    };
    if (training) PS_TRY(ps_config_check_early_updates(config)); /* nobody need have validated it */
    out->policy = ps_policy_find(ps_config_policy_names[o->memory_policy]);
    if (out->policy == NULL) return PS_FAIL(PS_EINVAL, "memory.policy is not known");
    read_placement(o, out);
    read_scaler(o, &out->scaler);
    PS_TRY(ps_optimizer_read(o, &out->optimizer));
    PS_TRY(read_groups(config, out));
    PS_TRY(read_frozen(o, out));
    PS_TRY(ps_settings_read_backend(o, out));
    PS_TRY(read_disk(o, out));
    PS_TRY(read_products(config, out));
    PS_TRY(ps_settings_read_rates(config, out));
    PS_TRY(read_profile(config, out));
    return ps_settings_read_budgets(config, out);
}

ps_status ps_settings_read(const ps_config *config, bool training, ps_settings *out)
{
    return ps_settings_read_of_rank(config, training, NULL, out);
}

ps_status ps_settings_read_of_rank(const ps_config *config, bool training, ps_comm *comm, ps_settings *out)
{
    ps_gpu_turn turn;
    PS_TRY(ps_settings_find_turn(comm, &turn));
    return read_all(config, training, &turn, out);
}
