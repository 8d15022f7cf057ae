/* settings_machine.c - backend and throughput: instruction set, threads, throughput; of this machine or another. */
#include "base/bytes.h"
#include "base/machine.h"
#include "device/cuda/cudnn_attention.h"
#include "train/settings/settings_impl.h"

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

const char *ps_backend_kind_name(ps_backend_kind kind)
{
    static const char *const names[] = {
        [PS_BACKEND_CPU] = "cpu", [PS_BACKEND_CUDA] = "cuda", [PS_BACKEND_REF] = "ref", [PS_BACKEND_SIM] = "sim"};
    return names[kind];
}

/* Does the processor, whose best level is `best`, support the requested one? `processor`: its name, for messages. */
static ps_status check_isa(const ps_settings *s, ps_cpu_isa best, const char *processor)
{
    if (s->isa > best)
        return PS_FAIL(PS_ENOSYS, "train.isa = %s, but %s goes up to %s: leave train.isa out", ps_cpu_isa_name(s->isa),
                       processor, ps_cpu_isa_name(best));
    if (!s->same_bits || s->isa >= PS_CPU_AVX2) return PS_OK;
    if (best >= PS_CPU_AVX2)
        return PS_FAIL(PS_EINVAL,
                       "train.reproducible = machine needs AVX2 with FMA, which the kernels of train.isa = %s do "
                       "without: leave train.isa out, or set train.reproducible = run",
                       ps_cpu_isa_name(s->isa));
    return PS_FAIL(PS_ENOSYS,
                   "train.reproducible = machine needs AVX2 with FMA, which %s has not: set "
                   "train.reproducible = run",
                   processor);
}

ps_status ps_settings_read_backend(const ps_options *o, ps_settings *s)
{
    static const ps_backend_kind kinds[] = {[PS_CONFIG_BACKEND_AUTO] = PS_BACKEND_CPU, /* or a GPU, if found */
                                            [PS_CONFIG_BACKEND_CPU] = PS_BACKEND_CPU,
                                            [PS_CONFIG_BACKEND_CUDA] = PS_BACKEND_CUDA,
                                            [PS_CONFIG_BACKEND_REF] = PS_BACKEND_REF};
    ps_cpu_kind own;
    PS_TRY(ps_cpu_kind_detect(&own));
    s->backend_kind = kinds[o->train_backend];
    s->gpu.attention = ps_settings_attention(o);
    s->same_bits = o->train_reproducible == PS_CONFIG_REPRODUCIBLE_MACHINE;
    if (s->same_bits && s->backend_kind == PS_BACKEND_CUDA)
        return PS_FAIL(PS_EINVAL, "train.reproducible = machine: a GPU adds in another order than processors do; set "
                                  "train.backend = cpu, or train.reproducible = run");
    if (o->train_backend == PS_CONFIG_BACKEND_AUTO || s->backend_kind == PS_BACKEND_CUDA) ps_settings_find_gpu(o, s);
    if (s->same_bits && s->backend_kind == PS_BACKEND_REF)
        return PS_FAIL(PS_EINVAL, "train.reproducible = machine: the ref backend calls the machine's C library; set "
                                  "train.backend = cpu, or train.reproducible = run");
    if (s->backend_kind == PS_BACKEND_REF) return PS_OK;
    s->isa = ps_settings_isa(o);
    return check_isa(s, own.isa, "this processor");
}

static ps_status create_cpu(const ps_settings *s, ps_backend **out)
{
    if (s->is_described) return ps_backend_create_cpu_described(&s->processor, s->threads, s->same_bits, out);
    const ps_status st = s->same_bits    ? ps_backend_create_cpu_same(s->isa, s->threads, s->plans_only, out)
                         : s->plans_only ? ps_backend_create_cpu_for_plans(s->isa, s->threads, out)
                                         : ps_backend_create_cpu(s->isa, s->threads, out);
    return st == PS_ENOSYS ? PS_FAIL(st, "train.threads = %d: %s", s->threads, ps_last_error()) : st;
}

/* train.attention requires cuDNN. A plan for described GPUs does not need it on this machine. */
static ps_status check_attention(const ps_settings *s)
{
    if (s->gpu.attention != PS_CUDA_ATTENTION_CUDNN || ps_settings_has_gpu(s)) return PS_OK;
    if (s->gpu.why_not[0] != '\0') return PS_FAIL(s->gpu.status, "no GPU computes attention: %s", s->gpu.why_not);
    return PS_FAIL(PS_EINVAL,
                   "train.attention = cudnn, but it is not a GPU that computes: set train.backend = cuda, or "
                   "leave train.attention out");
}

static ps_status open_gpu(ps_settings *s)
{
    ps_backend *host;
    PS_TRY(create_cpu(s, &host));
    return ps_gpu_choice_open(&s->gpu, s->nccl.is_used, s->budgets.bytes[PS_TIER_DEVICE], s->plans_only, host,
                              &s->backend);
}

ps_status ps_settings_open_backend(ps_settings *s)
{
    PS_TRY(ps_settings_check_memory(s));
    PS_TRY(check_attention(s));
    switch (s->backend_kind) {
    case PS_BACKEND_CUDA: return open_gpu(s);
    case PS_BACKEND_REF: return ps_backend_create_ref(&s->backend);
    case PS_BACKEND_SIM: return ps_backend_create_sim(&s->sim, &s->backend);
    case PS_BACKEND_CPU: break;
    }
    return create_cpu(s, &s->backend);
}

void ps_settings_close_backend(ps_settings *s)
{
    ps_backend_destroy(s->backend);
    s->backend = NULL;
}

/* For a single process: a description of many devices gives the throughput of one. A description without a GPU has no
 * figures for it, nor for copies to it. */
ps_status ps_settings_read_throughput(const ps_config *config, ps_settings *s)
{
    ps_hardware room;
    const ps_hardware *hw;
    PS_TRY(ps_config_hardware(config, &room, &hw));
    if (hw == NULL) return PS_OK;
    PS_TRY(ps_throughput_of(hw, s->dtype, &s->throughput));
    if (s->backend_kind == PS_BACKEND_CUDA && hw->gpus_per_node == 0) ps_throughput_reset_device(&s->throughput);
    s->throughput.topology.n_ranks = s->throughput.topology.ranks_per_node = 1;
    return PS_OK;
}

static ps_status check_disk(const ps_settings *s, const ps_hardware *hw)
{
    char asked[PS_BYTES_TEXT_MAX];
    if (hw->disk.present || s->budgets.bytes[PS_TIER_DISK] == 0) return PS_OK;
    return PS_FAIL(PS_EINVAL, "memory.disk = %s, but '%s' has no disk: set memory.disk = 0, or describe its disk",
                   ps_bytes_format(s->budgets.bytes[PS_TIER_DISK], asked), hw->name);
}

/* For a node without GPUs: its processor computes, with the instruction set and threads that the configuration leaves
 * open. */
static ps_status use_processor(ps_settings *s, const ps_options *o, const ps_hardware *hw)
{
    char name[PS_HARDWARE_NAME_MAX + 32];
    if (o->train_threads == 0 && hw->host.cores > 0) s->threads = (int)hw->host.cores;
    if (hw->host.isa == PS_HARDWARE_ISA_AUTO || s->backend_kind == PS_BACKEND_REF) return PS_OK;
    PS_TRY(ps_cpu_kind_read(ps_hardware_isa_names[hw->host.isa], &s->processor));
    if (o->train_isa == PS_CONFIG_ISA_AUTO) s->isa = s->processor.isa;
    snprintf(name, sizeof name, "the processor of '%s'", hw->name);
    PS_TRY(check_isa(s, s->processor.isa, name));
    s->is_described = true;
    s->processor.isa = s->isa;
    return PS_OK;
}

static void simulate_cudnn_attention(ps_sim_options *sim)
{
    ps_cuda_attention guess;
    ps_cudnn_attention_guess(&guess);
    sim->attention = guess.measure;
    sim->attention_self = guess.self;
}

ps_status ps_settings_use_hardware(ps_settings *s, const ps_config *config, const ps_hardware *hw)
{
    PS_TRY(ps_throughput_of(hw, s->dtype, &s->throughput));
    s->ranks.n = s->throughput.topology.n_ranks;
    PS_TRY(ps_settings_check_ranks(s, s->ranks.n));
    if (hw->gpus_per_node > 0) {
        s->backend_kind = PS_BACKEND_SIM;
        s->sim =
            (ps_sim_options){.page_bytes = hw->device.page_bytes, .gemm_bytes = hw->device.product_workspace_bytes};
        if (s->gpu.attention == PS_CUDA_ATTENTION_CUDNN) simulate_cudnn_attention(&s->sim);
    } else {
        PS_TRY(use_processor(s, ps_config_options(config), hw));
    }
    PS_TRY(ps_settings_use_memory(s, ps_config_options(config), hw));
    if (hw->gpus_per_node > 0) PS_TRY(ps_settings_choose_nccl(s, ps_config_options(config), NULL, s->ranks.n));
    return check_disk(s, hw);
}
