/* settings_ranks.c - settings that depend on the number of ranks: shares of the machine, micro-batches, the
 * communicator. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "chunk/comm/agree.h"
#include "train/settings/settings_impl.h"

/* ColossalAI's value for gradient_predivide_factor None: a power of 2 near the root of n. */
static double predivide_for(int32_t n)
{
    double f = 1;
    while (fmod(n, f) == 0 && n / f > f) f *= 2;
    return f;
}

ps_status ps_settings_check_ranks(const ps_settings *s, int32_t n)
{
    if (n == 1 || !s->embedding_on_host) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "use_cpu_embedding is for one rank: %d ranks gather embeddings on the device, as all else; set "
                   "use_cpu_embedding = false, which gives the same results",
                   n);
}

ps_status ps_settings_check_batch(const ps_settings *s, const ps_options *o, int32_t n)
{
    const int64_t batch = s->B * o->gradient_accumulation_steps * n;
    if (s->training && o->train_batch_size != 0 && o->train_batch_size != batch)
        return PS_FAIL(
            PS_EINVAL,
            "train_batch_size is %lld, but train_micro_batch_size_per_gpu %lld times gradient_accumulation_steps %lld "
            "times %d rank%s is %lld; leave train_batch_size out or make them agree",
            (long long)o->train_batch_size, (long long)s->B, (long long)o->gradient_accumulation_steps, n,
            n == 1 ? "" : "s", (long long)batch);
    return PS_OK;
}

ps_status ps_settings_set_ranks(ps_settings *s, const ps_config *config, int32_t rank, int32_t n)
{
    const ps_options *o = ps_config_options(config);
    PS_TRY(ps_settings_check_batch(s, o, n));
    PS_TRY(ps_settings_check_ranks(s, n));
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

static void tell_ranks(void *comm, const char *text)
{
    if (comm != NULL) ps_comm_fail(comm, text);
}

ps_status ps_settings_watch(const ps_settings *s, ps_stall_watch **out)
{
    *out = NULL;
    if (s->stall_ns == 0) return PS_OK;
    return ps_stall_open(&(ps_stall_options){.stall_ns = s->stall_ns, .tell = tell_ranks, .user = s->ranks.comm}, out);
}

ps_comm_options ps_settings_comm_options(const ps_config *config)
{
    static const ps_comm_backend backends[] = {[PS_CONFIG_COMM_AUTO] = PS_COMM_AUTO,
                                               [PS_CONFIG_COMM_SINGLE] = PS_COMM_SINGLE,
                                               [PS_CONFIG_COMM_MPI] = PS_COMM_MPI};
    static const int64_t usual_bytes = 4000000;
    const ps_options *o = ps_config_options(config);
    return (ps_comm_options){.backend = backends[o->comm_backend],
                             .timeout_s = o->comm_timeout_s,
                             .staging_bytes = o->comm_staging != PS_BYTES_AUTO ? o->comm_staging : usual_bytes};
}

/* The machine has `here` ranks: each gets its share of the memory and of the cores that the configuration leaves
 * open. */
static void share_machine(ps_settings *s, const ps_options *o, int32_t here)
{
    ps_settings_share_memory(s, here);
    if (o->train_threads == 0) s->threads = s->threads > here ? s->threads / here : 1;
    s->throughput.topology.ranks_per_node = here;
    ps_throughput_share(&s->throughput, here);
}

ps_status ps_settings_plan_as_rank(ps_settings *s, const ps_config *config, int32_t rank, int32_t n)
{
    const ps_options *o = ps_config_options(config);
    if (n < 1 || rank < 0 || rank >= n) return PS_FAIL(PS_EINVAL, "there is no rank %d of %d", rank, n);
    share_machine(s, o, n);
    if (s->backend_kind == PS_BACKEND_CUDA) {
        ps_gpu_choice_use_local_rank(&s->gpu, (ps_gpu_local_rank){rank, n});
        if (o->memory_device == PS_BYTES_AUTO) s->budgets.bytes[PS_TIER_DEVICE] = ps_settings_gpu_bytes(s, o);
    }
    s->throughput.topology.n_ranks = n;
    PS_TRY(ps_settings_choose_nccl(s, o, NULL, n));
    return ps_settings_set_ranks(s, config, rank, n);
}

/* All ranks must use the same kind of backend. */
static ps_status agree_on_backend(const ps_settings *s, ps_comm *comm)
{
    const double kind = (double)s->backend_kind;
    double least, most;
    PS_TRY(ps_comm_find_range(comm, &kind, 1, &least, &most));
    if (least == most) return PS_OK;
    const bool says_why = s->backend_kind == PS_BACKEND_CPU && s->gpu.why_not[0] != '\0';
    const ps_status st =
        PS_FAIL(PS_EINVAL, "train.backend is not the same on all ranks: %s on this one%s%s; set it, the same on all",
                ps_backend_kind_name(s->backend_kind), says_why ? ", as " : "", says_why ? s->gpu.why_not : "");
    PS_TRY(ps_comm_agree(comm, says_why ? st : PS_OK));
    return st;
}

ps_status ps_settings_join(ps_settings *s, const ps_config *config, ps_comm *comm)
{
    const ps_options *o = ps_config_options(config);
    const int32_t here = ps_comm_local_size(comm);
    share_machine(s, o, here);
    PS_TRY(agree_on_backend(s, comm));
    if (s->backend_kind == PS_BACKEND_CUDA) {
        PS_TRY(ps_comm_agree(comm, ps_gpu_choice_check(&s->gpu)));
        PS_TRY(ps_gpu_choice_agree(&s->gpu, comm));
    }
    PS_TRY(ps_settings_agree_on_memory(s, comm));
    if (ps_comm_size(comm) > 1) s->ranks.comm = comm;
    s->comm_staging_bytes = ps_comm_staging_bytes(comm);
    PS_TRY(ps_settings_choose_nccl(s, o, comm, ps_comm_size(comm)));
    s->throughput.topology.n_ranks = ps_comm_size(comm);
    return ps_settings_set_ranks(s, config, ps_comm_rank(comm), ps_comm_size(comm));
}
