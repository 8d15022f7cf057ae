#include "settings/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/machine.h"

/* Length of the rise when the configuration leaves it to the type: DeepSpeed's schedulers take 1000, Hugging Face's none. */
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
                                  .initial_scale_power = (int)o->fp16_initial_scale_power,
                                  .loss_scale_window = o->fp16_loss_scale_window,
                                  .hysteresis = (int)o->fp16_hysteresis,
                                  .consecutive_hysteresis = o->fp16_consecutive_hysteresis,
                                  .min_loss_scale = (float)o->fp16_min_loss_scale,
                                  .max_loss_scale = (float)o->fp16_max_loss_scale};
}

ps_cpu_isa ps_settings_isa(const ps_options *o)
{
    switch (o->train_isa) {
    case PS_CONFIG_ISA_AUTO: break;
    case PS_CONFIG_ISA_PORTABLE: return PS_CPU_PORTABLE;
    case PS_CONFIG_ISA_AVX2: return PS_CPU_AVX2;
    case PS_CONFIG_ISA_AVX512: return PS_CPU_AVX512;
    case PS_CONFIG_ISA_AVX512_BF16: return PS_CPU_AVX512_BF16;
    case PS_CONFIG_ISA_AMX: return PS_CPU_AMX;
    }
    return ps_cpu_isa_detect();
}

static ps_status read_backend(const ps_options *o, ps_settings *s)
{
    const ps_cpu_isa best = ps_cpu_isa_detect();
    s->backend_kind = o->train_backend == PS_CONFIG_BACKEND_REF ? PS_BACKEND_REF : PS_BACKEND_CPU;
    s->same_bits = o->train_reproducible == PS_CONFIG_REPRODUCIBLE_MACHINE;
    if (s->same_bits && s->backend_kind == PS_BACKEND_REF)
        return PS_FAIL(PS_EINVAL, "train.reproducible = machine: the ref backend calls the machine's C library; set "
                                  "train.backend = cpu, or train.reproducible = run");
    if (s->backend_kind == PS_BACKEND_REF) return PS_OK;
    s->isa = ps_settings_isa(o);
    if (s->isa > best)
        return PS_FAIL(PS_ENOSYS, "train.isa = %s, but this processor goes up to %s: leave train.isa out",
                       ps_cpu_isa_name(s->isa), ps_cpu_isa_name(best));
    if (!s->same_bits || s->isa >= PS_CPU_AVX2) return PS_OK;
    if (best >= PS_CPU_AVX2)
        return PS_FAIL(PS_EINVAL,
                       "train.reproducible = machine needs AVX2 with FMA, which the kernels of train.isa = %s do "
                       "without: leave train.isa out, or set train.reproducible = run",
                       ps_cpu_isa_name(s->isa));
    return PS_FAIL(PS_ENOSYS, "train.reproducible = machine needs AVX2 with FMA, which this processor has not: set "
                              "train.reproducible = run");
}

ps_status ps_settings_open_backend(ps_settings *s)
{
    switch (s->backend_kind) {
    case PS_BACKEND_REF: return ps_backend_create_ref(&s->backend);
    case PS_BACKEND_SIM: return ps_backend_create_sim(&s->backend);
    case PS_BACKEND_CPU: break;
    }
    const ps_status st = s->same_bits    ? ps_backend_create_cpu_same(s->isa, s->threads, s->plans_only, &s->backend)
                         : s->plans_only ? ps_backend_create_cpu_for_plans(s->isa, s->threads, &s->backend)
                                         : ps_backend_create_cpu(s->isa, s->threads, &s->backend);
    return st == PS_ENOSYS ? PS_FAIL(st, "train.threads = %d: %s", s->threads, ps_last_error()) : st;
}

void ps_settings_close_backend(ps_settings *s)
{
    ps_backend_destroy(s->backend);
    s->backend = NULL;
}

static ps_status read_disk(const ps_options *o, ps_settings *s)
{
    const char *tmp = getenv("TMPDIR");
    const char *folder = o->memory_disk_path[0] ? o->memory_disk_path : tmp != NULL && tmp[0] ? tmp : "/tmp";
    if (strlen(folder) >= sizeof s->disk_folder)
        return PS_FAIL(PS_EINVAL, "memory.disk_path is longer than %zu characters", sizeof s->disk_folder - 1);
    strcpy(s->disk_folder, folder);
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

/* Some of the model data has its home on the host, whatever the device could hold. */
static bool needs_host(const ps_settings *s)
{
    return s->embedding_on_host || (s->training && !s->hybrid_updates);
}

/* The device's share of memory that both tiers draw on. When both are automatic the device has all of it, because on this backend both
 * are the same memory and copies between them would gain nothing; but half where the host is needed. */
static double automatic_device(const ps_options *o, const ps_settings *s, double available)
{
    const bool halves = o->memory_host == PS_BYTES_AUTO && needs_host(s);
    return (halves ? available / 2 : available) * o->client_mem_tracer_overall_gpu_mem_ratio;
}

static int64_t automatic_host(const ps_options *o, const ps_settings *s, double available)
{
    const double ratio = o->client_mem_tracer_overall_cpu_mem_ratio;
    if (o->memory_device == PS_BYTES_AUTO) return needs_host(s) ? (int64_t)(available / 2 * ratio) : 0;
    const double rest = available - (double)o->memory_device;
    return rest > 0 ? (int64_t)(rest * ratio) : 0;
}

static ps_status check_host(const ps_settings *s)
{
    if (s->budgets.bytes[PS_TIER_HOST] > 0 || !needs_host(s)) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%s needs a host tier, and memory.host is 0: give it memory, or leave both memory.device and "
                   "memory.host out",
                   s->embedding_on_host ? "use_cpu_embedding" : "optimizer.params.use_hybrid_adam = false");
}

/* "auto": the device takes its share of what the machine has left; the host its share of the rest. */
static ps_status read_budgets(const ps_options *o, ps_settings *s)
{
    int64_t *b = s->budgets.bytes;
    b[PS_TIER_DEVICE] = o->memory_device;
    b[PS_TIER_HOST] = o->memory_host;
    b[PS_TIER_DISK] = o->memory_disk;
    if (o->zero_tensor_placement_policy == PS_CONFIG_PLACEMENT_CUDA) b[PS_TIER_HOST] = 0;
    if (b[PS_TIER_DEVICE] == PS_BYTES_AUTO || b[PS_TIER_HOST] == PS_BYTES_AUTO) {
        ps_machine_memory_info memory;
        PS_TRY(ps_machine_memory(NULL, &memory));
        const double available = (double)memory.available_bytes;
        if (b[PS_TIER_HOST] == PS_BYTES_AUTO) b[PS_TIER_HOST] = automatic_host(o, s, available);
        if (b[PS_TIER_DEVICE] == PS_BYTES_AUTO) b[PS_TIER_DEVICE] = (int64_t)automatic_device(o, s, available);
    }
    if (b[PS_TIER_DISK] == PS_BYTES_AUTO) {
        struct statvfs fs;
        if (statvfs(s->disk_folder, &fs) != 0)
            return PS_FAIL(PS_EIO, "memory.disk_path: %s is not a folder that can be used", s->disk_folder);
        b[PS_TIER_DISK] = (int64_t)((double)fs.f_bavail * (double)fs.f_frsize * 0.8);
    }
    return check_host(s);
}

/* Of this process, which is alone: a description of many devices gives the rates of one. */
static ps_status read_rates(const ps_options *o, ps_settings *s)
{
    ps_hardware hw;
    if (o->hardware[0] == '\0') return PS_OK;
    PS_TRY(ps_hardware_load(o->hardware, &hw));
    PS_TRY(ps_rates_of(&hw, s->dtype, &s->rates));
    s->rates.topology.n_ranks = s->rates.topology.ranks_per_node = 1;
    return PS_OK;
}

ps_status ps_settings_use_hardware(ps_settings *s, const ps_config *config, const ps_hardware *hw)
{
    const ps_options *o = ps_config_options(config);
    const int64_t per_node = ps_hardware_devices_per_node(hw);
    int64_t *b = s->budgets.bytes;
    PS_TRY(ps_rates_of(hw, s->dtype, &s->rates));
    s->ranks.n = s->rates.topology.n_ranks;
    if (hw->gpus_per_node > 0) s->backend_kind = PS_BACKEND_SIM;
    const double device = (double)(hw->device.bytes - hw->device.reserved_bytes);
    const double host = (double)(hw->host.bytes - hw->host.reserved_bytes) / (double)per_node;
    const bool is_gpu = hw->gpus_per_node > 0;
    if (o->memory_device == PS_BYTES_AUTO)
        b[PS_TIER_DEVICE] =
            (int64_t)(is_gpu ? device * o->client_mem_tracer_overall_gpu_mem_ratio : automatic_device(o, s, device));
    /* a processor's device memory is the host's: no second tier of it unless somebody asks */
    if (o->memory_host == PS_BYTES_AUTO)
        b[PS_TIER_HOST] = is_gpu          ? (int64_t)(host * o->client_mem_tracer_overall_cpu_mem_ratio)
                          : needs_host(s) ? (int64_t)(device / 2 * o->client_mem_tracer_overall_cpu_mem_ratio)
                                          : 0;
    if (o->zero_tensor_placement_policy == PS_CONFIG_PLACEMENT_CUDA) b[PS_TIER_HOST] = 0;
    if (o->memory_disk == PS_BYTES_AUTO) b[PS_TIER_DISK] = hw->disk.present ? hw->disk.bytes / per_node : 0;
    return PS_OK;
}

ps_code_options ps_settings_code_options(const ps_settings *s)
{
    return (ps_code_options){.backend = s->backend,
                             .rates = &s->rates.compute,
                             .embedding_rates = s->embedding_on_host ? &s->rates.host : NULL,
                             .dtype = s->dtype,
                             .training = s->training,
                             .checkpointing = s->checkpointing,
                             .n_checkpoints = s->n_checkpoints,
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

/* ColossalAI's gradient_predivide_factor None. */
static double predivide_for(int32_t n)
{
    double f = 1;
    while (fmod(n, f) == 0 && n / f > f) f *= 2;
    return f;
}

ps_status ps_settings_set_ranks(ps_settings *s, const ps_config *config, int32_t rank, int32_t n)
{
    const ps_options *o = ps_config_options(config);
    const int64_t batch = s->B * o->gradient_accumulation_steps * n;
    if (s->training && o->train_batch_size != 0 && o->train_batch_size != batch)
        return PS_FAIL(
            PS_EINVAL,
            "train_batch_size is %lld, but train_micro_batch_size_per_gpu %lld times gradient_accumulation_steps %lld "
            "times %d rank%s is %lld; leave train_batch_size out or make them agree",
            (long long)o->train_batch_size, (long long)s->B, (long long)o->gradient_accumulation_steps, n,
            n == 1 ? "" : "s", (long long)batch);
    if (n > 1 && s->embedding_on_host)
        return PS_FAIL(PS_EINVAL,
                       "use_cpu_embedding is for one rank: %d ranks gather embeddings on the device, as all else; set "
                       "use_cpu_embedding = false, which gives the same results",
                       n);
    s->ranks.rank = rank;
    s->ranks.n = n;
    s->gradient_predivide =
        o->zero_gradient_predivide_factor > 0 ? o->zero_gradient_predivide_factor : predivide_for(n);
    if (n == 1 || s->profile_path[0] == '\0') return PS_OK;
    const size_t used = strlen(s->profile_path);
    if (snprintf(s->profile_path + used, sizeof s->profile_path - used, ".rank-%d", rank) >=
        (int)(sizeof s->profile_path - used))
        return PS_FAIL(PS_EINVAL, "profile.path is longer than %zu characters", sizeof s->profile_path - 16);
    return PS_OK;
}

ps_comm_options ps_settings_comm_options(const ps_config *config)
{
    static const ps_comm_backend backends[] = {[PS_CONFIG_COMM_AUTO] = PS_COMM_AUTO,
                                               [PS_CONFIG_COMM_SINGLE] = PS_COMM_SINGLE,
                                               [PS_CONFIG_COMM_MPI] = PS_COMM_MPI};
    const ps_options *o = ps_config_options(config);
    return (ps_comm_options){
        .backend = backends[o->comm_backend], .timeout_s = o->comm_timeout_s, .staging_bytes = o->comm_staging};
}

/* `here` ranks of a machine have its memory and its cores. */
static void share_machine(ps_settings *s, const ps_options *o, int32_t here)
{
    int64_t *b = s->budgets.bytes;
    if (o->memory_device == PS_BYTES_AUTO) b[PS_TIER_DEVICE] /= here;
    if (o->memory_host == PS_BYTES_AUTO) b[PS_TIER_HOST] /= here;
    if (o->memory_disk == PS_BYTES_AUTO) b[PS_TIER_DISK] /= here;
    if (o->train_threads == 0) s->threads = s->threads > here ? s->threads / here : 1;
    s->rates.topology.ranks_per_node = here;
}

ps_status ps_settings_imagine(ps_settings *s, const ps_config *config, int32_t rank, int32_t n)
{
    if (n < 1 || rank < 0 || rank >= n) return PS_FAIL(PS_EINVAL, "there is no rank %d of %d", rank, n);
    share_machine(s, ps_config_options(config), n);
    s->rates.topology.n_ranks = n;
    return ps_settings_set_ranks(s, config, rank, n);
}

ps_status ps_settings_join(ps_settings *s, const ps_config *config, ps_comm *comm)
{
    int64_t *b = s->budgets.bytes;
    share_machine(s, ps_config_options(config), ps_comm_local_size(comm));
    double least[PS_TIER_COUNT];
    for (int t = 0; t < PS_TIER_COUNT; t++) least[t] = (double)b[t];
    PS_TRY(ps_comm_all_reduce(comm, least, PS_TIER_COUNT, PS_COMM_MIN));
    for (int t = 0; t < PS_TIER_COUNT; t++) b[t] = ps_min_i64(b[t], (int64_t)least[t]);
    if (ps_comm_size(comm) > 1) s->ranks.comm = comm;
    s->comm_staging_bytes = ps_comm_staging_bytes(comm);
    s->rates.topology.n_ranks = ps_comm_size(comm);
    return ps_settings_set_ranks(s, config, ps_comm_rank(comm), ps_comm_size(comm));
}

/* cpu: of the device, chunks have only what the largest moment needs, and updates run on the host. */
static void read_placement(const ps_options *o, ps_settings *s)
{
    if (o->zero_tensor_placement_policy != PS_CONFIG_PLACEMENT_CPU) return;
    s->hybrid_updates = false;
    s->static_partition = true;
    s->unscheduled_share = 0;
}

ps_status ps_settings_read(const ps_config *config, bool training, ps_settings *out)
{
    static const ps_keep_logits keep_logits[] = {[PS_CONFIG_KEEP_LOGITS_AUTO] = PS_KEEP_LOGITS_AUTO,
                                                 [PS_CONFIG_KEEP_LOGITS_ALWAYS] = PS_KEEP_LOGITS_ALWAYS,
                                                 [PS_CONFIG_KEEP_LOGITS_NEVER] = PS_KEEP_LOGITS_NEVER};
    const ps_options *o = ps_config_options(config);
    *out = (ps_settings){
        .training = training,
        .B = o->train_micro_batch_size_per_gpu,
        .T = ps_config_sequence_length(o),
        .accumulation = training ? o->gradient_accumulation_steps : 1,
        .dtype = o->bf16_enabled   ? PS_DTYPE_BF16
                 : o->fp16_enabled ? PS_DTYPE_F16
                                   : PS_DTYPE_F32,
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
        .clip_norm = o->gradient_clipping,
        .defer_updates = o->memory_defer_updates,
        .keep_logits = keep_logits[o->memory_keep_logits],
        .max_nonfinite_steps = o->train_max_nonfinite_steps,
        .placement_trials = (int32_t)o->memory_placement_trials,
        .save_buffer_bytes = training && o->train_save_interval > 0 ? o->memory_save_buffer : 0,
        .keep_checkpoints = o->train_keep_last,
        .fp32_gradients = !o->zero_reuse_fp16_shard || o->zero_fp32_reduce_scatter,
        .gradient_predivide = o->zero_gradient_predivide_factor > 0 ? o->zero_gradient_predivide_factor : 1,
        .comm_staging_bytes = o->comm_staging,
    };
    out->policy = ps_policy_find(ps_config_policy_names[o->memory_policy]);
    if (out->policy == NULL) return PS_FAIL(PS_EINVAL, "memory.policy is not known");
    read_placement(o, out);
    read_scaler(o, &out->scaler);
    PS_TRY(ps_optimizer_read(o, &out->optimizer));
    PS_TRY(read_lr(o, &out->lr));
    PS_TRY(read_backend(o, out));
    PS_TRY(read_disk(o, out));
    PS_TRY(read_rates(o, out));
    PS_TRY(read_profile(config, out));
    return read_budgets(o, out);
}
