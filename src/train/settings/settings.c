/* settings.c - ps_settings_read: from options to settings. */
#include "train/settings/settings_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "config/option/head.h"

/* Warm-up steps when the configuration has none: DeepSpeed's schedulers use 1000, Hugging Face's none. */
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
        .total_num_steps = o->scheduler_params_total_num_steps > 0 ? o->scheduler_params_total_num_steps
                                                                   : ps_max_i64(1, o->train_steps), /* 0: no steps */
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
    const bool is_discrete = !ps_backend_space(s->backend)->device->host_can_touch;
    return (ps_code_options){.backend = s->backend,
                             .throughput = &s->throughput.compute,
                             .softmax_throughput = s->throughput.softmax,
                             .embedding_backend =
                                 s->embedding_on_host && is_discrete ? ps_backend_host(s->backend) : NULL,
                             .embedding_throughput = s->embedding_on_host ? &s->throughput.host : NULL,
                             .dtype = s->dtype,
                             .training = s->training,
                             .checkpointing = s->checkpointing,
                             .n_checkpoints = s->n_checkpoints,
                             .offloads_inputs = s->offloads_inputs,
                             .may_overwrite_params = s->accumulation == 1 && !s->fp32_gradients,
                             /* several ranks have separate sums: ps_exec_plan_has_separate_sums */
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

/* Placement "cpu": chunks use only as much device memory as the largest moment needs, and updates run on the host. */
static void read_placement(const ps_options *o, ps_settings *s)
{
    if (o->zero_tensor_placement_policy != PS_CONFIG_PLACEMENT_CPU) return;
    s->hybrid_updates = false;
    s->static_partition = true;
    s->unscheduled_share = 0;
}

/* Clipping needs the norm; a step that may be skipped, all gradients; config_check.c reports it where early updates are
 * requested. */
static bool may_update_early(const ps_options *o)
{
    return o->memory_update_in_backward != PS_CONFIG_EARLY_UPDATES_NEVER && o->gradient_clipping <= 0 &&
           !o->fp16_enabled && o->train_max_nonfinite_steps == 1;
}

/* Updates that turn out to be wrong are made again before the next forward pass. */
static bool may_speculate(const ps_config *config)
{
    const ps_options *o = ps_config_options(config);
    const bool is_wanted =
        o->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_SPECULATE ||
        (o->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_AUTO && ps_config_allows_speculation(config));
    return is_wanted && !may_update_early(o) && o->memory_defer_updates;
}

/* PS_TEST_WRONG_STEPS, by which tests have either way whatever is faster. */
static ps_status read_wrong_steps(ps_settings *s)
{
    const char *forced = getenv("PS_TEST_WRONG_STEPS");
    if (forced == NULL || forced[0] == '\0') return PS_OK;
    if (strcmp(forced, "keep") != 0 && strcmp(forced, "recompute") != 0)
        return PS_FAIL(PS_EINVAL, "PS_TEST_WRONG_STEPS = %s: expected keep or recompute", forced);
    s->wrong_steps = forced[0] == 'k' ? PS_WRONG_STEPS_KEEP_GRADS : PS_WRONG_STEPS_RECOMPUTE;
    return PS_OK;
}

static ps_status read_group(const ps_config_param_group *g, ps_settings *s)
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
    group->of_whole = g->of_whole;
    group->of_elements = g->of_elements;
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
    ps_config_param_groups groups;
    s->groups[0] = (ps_settings_group){.optimizer = s->optimizer};
    s->n_groups = 1;
    PS_TRY(read_lr(ps_config_options(config), &s->groups[0].lr));
    PS_TRY(ps_config_param_groups_read(config, &groups));
    ps_status st = PS_OK;
    for (int32_t i = 0; i < groups.n && st == PS_OK; i++) st = read_group(&groups.group[i], s);
    ps_config_param_groups_free(&groups);
    return st;
}

static ps_status read_patterns(const char *key, const char *text, char *patterns, size_t n)
{
    if (strlen(text) >= n)
        return PS_FAIL(PS_EINVAL, "%s has %zu bytes of patterns, at most %zu are taken: use * and ?", key, strlen(text),
                       n - 1);
    strcpy(patterns, text);
    return PS_OK;
}

/* The heads that peft trains of the task's class. */
static ps_status read_adapters(const ps_options *o, ps_adapter_choice *a)
{
    *a = (ps_adapter_choice){.r = o->lora_r,
                             .alpha = o->lora_lora_alpha,
                             .dropout = (float)o->lora_lora_dropout,
                             .is_rank_stabilised = o->lora_use_rslora,
                             .is_gaussian = o->lora_init_lora_weights == PS_CONFIG_ADAPTER_INIT_GAUSSIAN};
    if (a->r == 0) return PS_OK;
    if (ps_head_has_labels(o)) strcpy(a->saved_heads, "score,classifier");
    if (o->model_head == PS_CONFIG_HEAD_QUESTION_ANSWERING) strcpy(a->saved_heads, "qa_outputs");
    PS_TRY(read_patterns("lora.target_modules", o->lora_target_modules, a->targets, sizeof a->targets));
    PS_TRY(read_patterns("lora.rank_pattern", o->lora_rank_pattern, a->ranks, sizeof a->ranks));
    PS_TRY(read_patterns("lora.alpha_pattern", o->lora_alpha_pattern, a->alphas, sizeof a->alphas));
    return read_patterns("lora.modules_to_save", o->lora_modules_to_save, a->saved, sizeof a->saved);
}

/* Settings that decide which values a step keeps, besides the micro-batch. */
static void read_kept(const ps_options *o, ps_settings *s)
{
    static const ps_keep_logits keep_logits[] = {[PS_CONFIG_KEEP_LOGITS_AUTO] = PS_KEEP_LOGITS_AUTO,
                                                 [PS_CONFIG_KEEP_LOGITS_ALWAYS] = PS_KEEP_LOGITS_ALWAYS,
                                                 [PS_CONFIG_KEEP_LOGITS_NEVER] = PS_KEEP_LOGITS_NEVER};
    s->checkpointing = o->activation_checkpointing_enabled;
    s->offloads_inputs = o->client_opts_with_activation_offload;
    s->keep_logits = keep_logits[o->memory_keep_logits];
}

static ps_quant read_frozen_format(const ps_options *o)
{
    static const ps_quant of[] = {[PS_CONFIG_FROZEN_FORMAT_NONE] = PS_QUANT_NONE,
                                  [PS_CONFIG_FROZEN_FORMAT_INT8] = PS_QUANT_INT8,
                                  [PS_CONFIG_FROZEN_FORMAT_NF4] = PS_QUANT_NF4};
    return of[o->model_frozen_format];
}

static ps_status read_all(const ps_config *config, bool training, const ps_gpu_local_rank *local_rank, ps_settings *out)
{
    const ps_options *o = ps_config_options(config);
    *out = (ps_settings){
        .training = training,
        .gpu = {.local_rank = *local_rank},
        .B = o->train_micro_batch_size_per_gpu,
        .T = ps_config_sequence_length(o),
        .accumulation = training ? o->gradient_accumulation_steps : 1,
        .loss_average = o->train_loss_average,
        .dtype = ps_settings_dtype(o),
        .seed = (uint64_t)o->train_seed,
        .stall_ns = (int64_t)(o->train_stall_s * 1e9),
        .threads = o->train_threads > 0 ? (int)o->train_threads : ps_cpu_threads(),
        .ranks = {.n = 1, .saves_memory = o->client_opts_with_mem_saving_comm},
        .throughput = ps_throughput_default(),
        .chunk_elements = o->default_chunk_size,
        .embedding_on_host = o->use_cpu_embedding,
        .hybrid_updates = o->optimizer_params_use_hybrid_adam,
        .unscheduled_share = o->client_mem_tracer_warmup_gpu_chunk_mem_ratio,
        .margin_share = o->client_mem_tracer_margin_use_ratio,
        .n_checkpoints = (int32_t)o->activation_checkpointing_number_checkpoints,
        .clip_norm = o->gradient_clipping,
        .defer_updates = o->memory_defer_updates,
        .may_update_early = training && may_update_early(o),
        .may_speculate = training && may_speculate(config),
        .wants_speculation = o->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_SPECULATE,
        .always_updates_early = training && o->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_ALWAYS,
        .max_nonfinite_steps = o->train_max_nonfinite_steps,
        .save_buffer_bytes = training && o->train_save_interval > 0 ? o->memory_save_buffer : 0,
        .keep_checkpoints = o->train_keep_last,
        .frozen_format = read_frozen_format(o),
        .fp32_gradients = !o->zero_reuse_fp16_shard || o->zero_fp32_reduce_scatter,
        .gradient_predivide = o->zero_gradient_predivide_factor > 0 ? o->zero_gradient_predivide_factor : 1,
        .comm_staging_bytes = ps_settings_comm_options(config).staging_bytes,
    };
    if (training) PS_TRY(ps_config_check_early_updates(config)); /* the configuration may not have been validated */
    if (training) PS_TRY(ps_config_check_state_format(config));
    read_kept(o, out);
    read_placement(o, out);
    read_scaler(o, &out->scaler);
    PS_TRY(read_wrong_steps(out));
    PS_TRY(ps_optimizer_read(o, &out->optimizer));
    PS_TRY(read_groups(config, out));
    PS_TRY(read_patterns("train.freeze", o->train_freeze, out->frozen, sizeof out->frozen));
    PS_TRY(read_patterns("optimizer.params.adamw_names", o->optimizer_params_adamw_names, out->updated_by_elements,
                         sizeof out->updated_by_elements));
    PS_TRY(read_adapters(o, &out->adapters));
    out->names_updated_by_elements =
        ps_optimizer_has_whole(&out->optimizer) && ps_config_gives(config, PS_OPTION_optimizer_params_adamw_names);
    PS_TRY(ps_settings_read_backend(o, out));
    PS_TRY(ps_tier_options_read(o, &out->tiers));
    PS_TRY(ps_settings_read_throughput(config, out));
    PS_TRY(read_profile(config, out));
    return ps_settings_read_budgets(config, out);
}

ps_status ps_settings_read(const ps_config *config, bool training, ps_settings *out)
{
    return ps_settings_read_of_rank(config, training, NULL, out);
}

ps_status ps_settings_read_of_rank(const ps_config *config, bool training, ps_comm *comm, ps_settings *out)
{
    ps_gpu_local_rank local_rank;
    PS_TRY(ps_gpu_local_rank_find(comm, &local_rank));
    return read_all(config, training, &local_rank, out);
}

ps_status ps_settings_change(ps_settings *s, const ps_config *config, const ps_config *changed)
{
    const ps_options *now = ps_config_options(config), *o = ps_config_options(changed);
    /* else B may be that of another shape, or of decoding */
    if (o->train_micro_batch_size_per_gpu != now->train_micro_batch_size_per_gpu)
        s->B = o->train_micro_batch_size_per_gpu;
    read_kept(o, s);
    PS_TRY(ps_tier_options_read(o, &s->tiers));
    PS_TRY(ps_settings_change_budgets(changed, s));
    return ps_settings_check_batch(s, o, s->ranks.n);
}
