/* config_check.c - rules that span several options. */
#include "config/config_param_groups.h"
#include "config/config_state.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/option/optimizer_params.h"

static ps_status check_numbers(const ps_config *config)
{
    const ps_options *o = &config->options;
    if (o->fp16_enabled && o->bf16_enabled)
        return ps_config_fail_for(config, PS_OPTION_bf16_enabled,
                                  "fp16.enabled and bf16.enabled exclude each other; keep one");
    if (o->fp16_min_loss_scale > o->fp16_max_loss_scale)
        return ps_config_fail_for(config, PS_OPTION_fp16_min_loss_scale,
                                  "fp16.min_loss_scale %g exceeds fp16.max_loss_scale %g", o->fp16_min_loss_scale,
                                  o->fp16_max_loss_scale);
    const bool by_power = o->fp16_initial_scale == 0;
    const ps_option_id by = by_power ? PS_OPTION_fp16_initial_scale_power : PS_OPTION_fp16_initial_scale;
    const double first = by_power ? ldexp(1, (int)o->fp16_initial_scale_power) : o->fp16_initial_scale;
    if (!by_power && !ps_config_has_default(config, PS_OPTION_fp16_initial_scale_power))
        return ps_config_fail_for(config, by,
                                  "fp16.initial_scale %g is in place of fp16.initial_scale_power %lld; keep one", first,
                                  (long long)o->fp16_initial_scale_power);
    if (o->fp16_enabled && o->fp16_loss_scale == 0 &&
        (first < o->fp16_min_loss_scale || first > o->fp16_max_loss_scale))
        return ps_config_fail_for(config, by,
                                  "%s %g begins at %g, outside fp16.min_loss_scale %g to fp16.max_loss_scale %g",
                                  ps_config_key(config, by), by_power ? (double)o->fp16_initial_scale_power : first,
                                  first, o->fp16_min_loss_scale, o->fp16_max_loss_scale);
    return PS_OK;
}

/* The number of ranks is not known here: ps_settings_set_ranks checks again. */
static ps_status check_batch(const ps_config *config)
{
    const ps_options *o = &config->options;
    const int64_t batch = o->train_micro_batch_size_per_gpu * o->gradient_accumulation_steps;
    if (o->train_batch_size % batch != 0)
        return ps_config_fail_for(
            config, PS_OPTION_train_batch_size,
            "train_batch_size is %lld, but train_micro_batch_size_per_gpu %lld times gradient_accumulation_steps %lld "
            "is %lld, which does not divide it; leave one of them out or make them agree",
            (long long)o->train_batch_size, (long long)o->train_micro_batch_size_per_gpu,
            (long long)o->gradient_accumulation_steps, (long long)batch);
    return PS_OK;
}

/* Options without effect under a fixed placement. */
static ps_status check_placement(const ps_config *config)
{
    const ps_options *o = &config->options;
    const ps_config_placement placement = o->zero_tensor_placement_policy;
    const char *name = ps_config_placement_names[placement];
    if (placement == PS_CONFIG_PLACEMENT_AUTO) return PS_OK;
    const ps_option_id margin = PS_OPTION_client_mem_tracer_margin_use_ratio;
    if (o->client_mem_tracer_margin_use_ratio > 0 && !ps_config_has_default(config, margin))
        return ps_config_fail_for(config, margin, "%s has no effect with zero.tensor_placement_policy %s",
                                  ps_config_key(config, margin), name);
    if (placement == PS_CONFIG_PLACEMENT_CPU) {
        if (o->memory_host != 0) return PS_OK;
        return ps_config_fail_for(config, PS_OPTION_zero_tensor_placement_policy,
                                  "zero.tensor_placement_policy cpu needs a host tier; give memory.host memory");
    }
    const struct {
        ps_option_id id;
        bool is_set;
    } unused[] = {{PS_OPTION_memory_host, o->memory_host != 0 && o->memory_host != PS_BYTES_AUTO},
                  {PS_OPTION_memory_disk, o->memory_disk != 0},
                  {PS_OPTION_use_cpu_embedding, o->use_cpu_embedding},
                  {PS_OPTION_optimizer_params_use_hybrid_adam, !o->optimizer_params_use_hybrid_adam}};
    for (size_t i = 0; i < PS_ARRAY_LEN(unused); i++)
        if (unused[i].is_set)
            return ps_config_fail_for(config, unused[i].id,
                                      "%s: with zero.tensor_placement_policy %s nothing leaves the device; remove it",
                                      ps_config_key(config, unused[i].id), name);
    return PS_OK;
}

/* Conditions for updating weights before all gradients are known. */
ps_status ps_config_check_early_updates(const ps_config *config)
{
    const ps_options *o = &config->options;
    const ps_option_id id = PS_OPTION_memory_update_in_backward;
    const char *key = ps_config_key(config, id);
    if (o->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_SPECULATE && !o->memory_defer_updates)
        return ps_config_fail_for(config, id,
                                  "%s = speculate: updates that turn out to be wrong are made again before the next "
                                  "forward pass uses them; set memory.defer_updates = true, or never here",
                                  key);
    if (o->memory_update_in_backward != PS_CONFIG_EARLY_UPDATES_ALWAYS) return PS_OK;
    if (o->gradient_clipping > 0)
        return ps_config_fail_for(config, id,
                                  "%s = always: gradient_clipping %g needs the norm of all gradients before the first "
                                  "update; set gradient_clipping = 0, or auto here",
                                  key, o->gradient_clipping);
    if (o->fp16_enabled)
        return ps_config_fail_for(config, id,
                                  "%s = always: fp16 skips steps whose gradients overflow, which is known after the "
                                  "backward pass only; use bf16.enabled, or auto here",
                                  key);
    if (o->train_max_nonfinite_steps != 1)
        return ps_config_fail_for(config, id,
                                  "%s = always: a step whose gradients are not finite could not be skipped, but "
                                  "train.max_nonfinite_steps is %lld; set it to 1, which ends the run then, or auto "
                                  "here",
                                  key, (long long)o->train_max_nonfinite_steps);
    return PS_OK;
}

/* Formats without whole masters. */
ps_status ps_config_check_state_format(const ps_config *config)
{
    const ps_options *o = &config->options;
    const ps_option_id id = PS_OPTION_optimizer_params_state_format;
    const ps_config_state_format format = o->optimizer_params_state_format;
    const char *const name = ps_config_state_format_names[format];
    if (ps_config_format_has_whole_masters(format)) return PS_OK;
    if (o->optimizer_type != PS_CONFIG_OPTIMIZER_ADAM && o->optimizer_type != PS_CONFIG_OPTIMIZER_ADAMW)
        return ps_config_fail_for(config, id,
                                  "%s = %s needs optimizer.type Adam or AdamW, found %s; set compact here (SGD: with "
                                  "optimizer.params.momentum), or remove it",
                                  ps_config_key(config, id), name, ps_config_optimizer_names[o->optimizer_type]);
    if (!o->bf16_enabled)
        return ps_config_fail_for(
            config, id, "%s = %s keeps %s, but parameters are %s; set bf16.enabled = true, or compact here",
            ps_config_key(config, id), name,
            format == PS_CONFIG_STATE_FORMAT_COMPACT_SPLIT ? "masters as bf16 parameters and 16 bits beside them"
                                                           : "bf16 parameters without masters",
            o->fp16_enabled ? "fp16" : "fp32");
    return PS_OK;
}

static ps_status check_activations(const ps_config *config)
{
    const ps_option_id offload = PS_OPTION_client_opts_with_activation_offload;
    if (!config->options.client_opts_with_activation_offload || config->options.activation_checkpointing_enabled)
        return PS_OK;
    return ps_config_fail_for(config, offload,
                              "%s moves what is kept for each checkpoint segment, and there are none: it needs "
                              "activation_checkpointing.enabled true",
                              ps_config_key(config, offload));
}

/* Optimizer parameters that this optimizer does not have. */
static ps_status check_optimizer(const ps_config *config)
{
    const ps_config_optimizer type = config->options.optimizer_type;
    for (int i = PS_OPTION_optimizer_type; i < PS_OPTION_optimizer_param_groups; i++) {
        const ps_option_id id = (ps_option_id)i;
        if (!ps_optimizer_has_param(type, id) && !ps_config_has_default(config, id))
            return ps_config_fail_for(config, id, "%s has no effect with optimizer.type %s; remove it",
                                      ps_config_key(config, id), ps_config_optimizer_names[type]);
    }
    double coefficients[3];
    char problem[PS_NS_PROBLEM_MAX];
    const ps_option_id ns = PS_OPTION_optimizer_params_ns_coefficients;
    if (type == PS_CONFIG_OPTIMIZER_MUON && !ps_ns_coefficients_read(&config->options, coefficients, problem))
        return ps_config_fail_for(config, ns, "%s %s", ps_config_key(config, ns), problem);
    ps_config_param_groups groups;
    const ps_status st = ps_config_param_groups_read(config, &groups);
    ps_config_param_groups_free(&groups);
    return st;
}

/* For each parameter, a bit for each scheduler type that uses it. */
static ps_status check_scheduler(const ps_config *config)
{
    enum {
        RISE = 1 << PS_CONFIG_SCHEDULER_WARMUP_LR,
        DECAY = 1 << PS_CONFIG_SCHEDULER_WARMUP_DECAY_LR,
        DS_COSINE = 1 << PS_CONFIG_SCHEDULER_WARMUP_COSINE_LR,
        HOLD = 1 << PS_CONFIG_SCHEDULER_CONSTANT_WITH_WARMUP,
        FALL = 1 << PS_CONFIG_SCHEDULER_LINEAR | 1 << PS_CONFIG_SCHEDULER_COSINE,
    };
    static const struct {
        ps_option_id id;
        unsigned types;
    } uses[] = {
        {PS_OPTION_scheduler_params_warmup_min_lr, RISE | DECAY},
        {PS_OPTION_scheduler_params_warmup_max_lr, RISE | DECAY},
        {PS_OPTION_scheduler_params_warmup_num_steps, RISE | DECAY | DS_COSINE | HOLD | FALL},
        {PS_OPTION_scheduler_params_warmup_type, RISE | DECAY | DS_COSINE},
        {PS_OPTION_scheduler_params_warmup_min_ratio, DS_COSINE},
        {PS_OPTION_scheduler_params_cos_min_ratio, DS_COSINE},
        {PS_OPTION_scheduler_params_total_num_steps, DECAY | DS_COSINE | FALL},
        {PS_OPTION_scheduler_params_min_lr_ratio, FALL},
    };
    const ps_options *o = &config->options;
    for (size_t i = 0; i < PS_ARRAY_LEN(uses); i++)
        if (!(uses[i].types >> o->scheduler_type & 1) && !ps_config_has_default(config, uses[i].id))
            return ps_config_fail_for(config, uses[i].id, "%s has no effect with scheduler.type %s; remove it",
                                      ps_config_key(config, uses[i].id), ps_config_scheduler_names[o->scheduler_type]);
    if (o->scheduler_params_warmup_min_lr > o->scheduler_params_warmup_max_lr)
        return ps_config_fail_for(config, PS_OPTION_scheduler_params_warmup_min_lr,
                                  "scheduler.params.warmup_min_lr %g exceeds scheduler.params.warmup_max_lr %g",
                                  o->scheduler_params_warmup_min_lr, o->scheduler_params_warmup_max_lr);
    if (o->scheduler_params_total_num_steps != 0 &&
        o->scheduler_params_warmup_num_steps > o->scheduler_params_total_num_steps)
        return ps_config_fail_for(
            config, PS_OPTION_scheduler_params_warmup_num_steps,
            "scheduler.params.warmup_num_steps %lld exceeds scheduler.params.total_num_steps %lld",
            (long long)o->scheduler_params_warmup_num_steps, (long long)o->scheduler_params_total_num_steps);
    return PS_OK;
}

#define HEAD(name) (1u << PS_CONFIG_HEAD_##name)

/* "causal_lm or masked_lm" */
static void list_heads(unsigned heads, char *text, size_t bytes)
{
    size_t n = 0;
    for (int head = 0; head <= PS_CONFIG_HEAD_NONE && n < bytes; head++)
        if (heads >> head & 1)
            n += (size_t)snprintf(text + n, bytes - n, "%s%s", n > 0 ? " or " : "", ps_config_head_names[head]);
}

/* Options that only some models use. */
static ps_status check_data(const ps_config *config)
{
    static const struct {
        ps_option_id id;
        unsigned heads;
    } uses[] = {
        {PS_OPTION_model_problem_type, HEAD(SEQUENCE_CLASSIFICATION)},
        {PS_OPTION_data_labels, HEAD(SEQUENCE_CLASSIFICATION) | HEAD(TOKEN_CLASSIFICATION)},
        {PS_OPTION_data_label_key, HEAD(SEQUENCE_CLASSIFICATION) | HEAD(TOKEN_CLASSIFICATION)},
        {PS_OPTION_data_doc_stride, HEAD(QUESTION_ANSWERING)},
        {PS_OPTION_data_text_pair_key, HEAD(SEQUENCE_CLASSIFICATION)},
        {PS_OPTION_data_mlm_probability, HEAD(MASKED_LM)},
        {PS_OPTION_data_jsonl_form, HEAD(CAUSAL_LM)},
        {PS_OPTION_data_messages_key, HEAD(CAUSAL_LM)},
        {PS_OPTION_data_prompt_key, HEAD(CAUSAL_LM)},
        {PS_OPTION_data_completion_key, HEAD(CAUSAL_LM)},
        {PS_OPTION_data_chat_format, HEAD(CAUSAL_LM)},
    };
    const ps_config_head head = config->options.model_head;
    char known[200];
    for (size_t i = 0; i < PS_ARRAY_LEN(uses); i++) {
        if (head == PS_CONFIG_HEAD_NONE || (uses[i].heads >> head & 1)) continue;
        if (ps_config_has_default(config, uses[i].id)) continue;
        list_heads(uses[i].heads, known, sizeof known);
        return ps_config_fail_for(config, uses[i].id, "%s has no effect with model.head %s, only with %s; remove it",
                                  ps_config_key(config, uses[i].id), ps_config_head_names[head], known);
    }
    return PS_OK;
}

/* Names between commas, blanks around them ignored. */
static ps_status check_log_to(const ps_config *config)
{
    static const char name[] = "tensorboard";
    for (const char *at = config->options.train_log_to; *at != '\0';) {
        at += strspn(at, " ");
        int n = (int)strcspn(at, ",");
        const char *next = at + n + (at[n] == ',');
        while (n > 0 && at[n - 1] == ' ') n--;
        if (n != (int)sizeof name - 1 || strncmp(at, name, sizeof name - 1) != 0)
            return ps_config_fail_for(config, PS_OPTION_train_log_to,
                                      "train.log_to: '%.*s' is no program to log for; expected %s, or nothing: "
                                      "metrics.jsonl is always written",
                                      n < 80 ? n : 80, at, name);
        at = next;
    }
    return PS_OK;
}

static ps_status check_run(const ps_config *config)
{
    const ps_options *o = &config->options;
    const bool has_file = o->data_validation[0] != '\0', has_split = o->data_validation_split > 0;
    if (has_file && has_split)
        return ps_config_fail_for(config, PS_OPTION_data_validation_split,
                                  "data.validation_split has no effect beside data.validation; keep one");
    if (o->train_eval_interval > 0 && !has_file && !has_split)
        return ps_config_fail_for(config, PS_OPTION_train_eval_interval,
                                  "train.eval_interval needs data.validation or data.validation_split to evaluate on");
    if (o->train_epochs > 0 && ps_config_gives(config, PS_OPTION_train_steps))
        return ps_config_fail_for(config, PS_OPTION_train_epochs,
                                  "train.epochs %g and train.steps %lld both say how long to train; keep one (on the "
                                  "command line, train.steps=null or train.epochs=null takes the file's away)",
                                  o->train_epochs, (long long)o->train_steps);
    if (o->profile_path[0] == '\0' && !ps_config_has_default(config, PS_OPTION_profile_steps))
        return ps_config_fail_for(config, PS_OPTION_profile_steps,
                                  "profile.steps has no effect without profile.path; give the file's name");
    return check_log_to(config);
}

ps_status ps_config_validate(const ps_config *config)
{
    PS_TRY(PS_NEED("config", config));
    PS_TRY(check_numbers(config));
    PS_TRY(check_batch(config));
    PS_TRY(check_placement(config));
    PS_TRY(check_activations(config));
    PS_TRY(ps_config_check_early_updates(config));
    PS_TRY(ps_config_check_state_format(config));
    PS_TRY(check_optimizer(config));
    PS_TRY(check_scheduler(config));
    PS_TRY(ps_config_check_model(config));
    PS_TRY(ps_config_check_adapters(config));
    PS_TRY(check_data(config));
    return check_run(config);
}
