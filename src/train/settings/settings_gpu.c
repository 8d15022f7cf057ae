/* settings_gpu.c - options for GPUs; device/cuda/gpu_choice.h and nccl_choice.h decide. */
#include <stdio.h>

#include "base/bytes.h"
#include "train/settings/settings_impl.h"

ps_cuda_attention_choice ps_settings_attention(const ps_options *o)
{
    static const ps_cuda_attention_choice choices[] = {[PS_CONFIG_ATTENTION_AUTO] = PS_CUDA_ATTENTION_AUTO,
                                                       [PS_CONFIG_ATTENTION_OWN] = PS_CUDA_ATTENTION_OWN,
                                                       [PS_CONFIG_ATTENTION_CUDNN] = PS_CUDA_ATTENTION_CUDNN};
    return choices[o->train_attention];
}

/* "auto": a usable GPU is used. The reason why none is usable is kept: as the error of opening the backend if a GPU was
 * requested, since plans for other machines need none; else for a notice. */
void ps_settings_find_gpu(const ps_options *o, ps_settings *s)
{
    const bool is_auto = o->train_backend == PS_CONFIG_BACKEND_AUTO;
    s->backend_kind = is_auto ? PS_BACKEND_CPU : PS_BACKEND_CUDA;
    s->gpu.attention = ps_settings_attention(o);
    if (is_auto && (s->same_bits || !ps_cuda_is_expected())) return;
    ps_gpu_choice_find(&s->gpu);
    if (s->gpu.status == PS_OK) s->backend_kind = PS_BACKEND_CUDA;
    s->checks_order = s->backend_kind == PS_BACKEND_CUDA && ps_cuda_get_parts()->checks_order;
}

int64_t ps_settings_gpu_bytes(const ps_settings *s, const ps_options *o)
{
    return (int64_t)((double)ps_gpu_choice_share_bytes(&s->gpu, s->nccl.is_used) *
                     o->client_mem_tracer_overall_gpu_mem_ratio);
}

static ps_status look_for_nccl(const ps_settings *s)
{
    if (s->backend_kind == PS_BACKEND_SIM) return PS_OK; /* a rank for each GPU */
    if (s->backend_kind != PS_BACKEND_CUDA)
        return PS_FAIL(PS_EINVAL, "it is for GPUs, and train.backend is %s", ps_backend_kind_name(s->backend_kind));
    return ps_nccl_check(&s->gpu);
}

ps_status ps_settings_choose_nccl(ps_settings *s, const ps_options *o, ps_comm *comm, int32_t n_ranks)
{
    const bool is_required = o->comm_collectives == PS_CONFIG_COLLECTIVES_NCCL;
    int64_t *device_bytes = &s->budgets.bytes[PS_TIER_DEVICE];
    if (n_ranks == 1) return PS_OK;
    if (is_required || (o->comm_collectives == PS_CONFIG_COLLECTIVES_AUTO && ps_settings_has_gpu(s)))
        PS_TRY(ps_nccl_choice_make(&s->nccl, look_for_nccl(s), is_required, comm));
    if (!s->nccl.is_used) return PS_OK;
    ps_throughput_use_gpu_link(&s->throughput);
    if (s->backend_kind == PS_BACKEND_CUDA && o->memory_device == PS_BYTES_AUTO)
        *device_bytes = ps_max_i64(0, *device_bytes - ps_cuda_get_parts()->nccl_bytes);
    if (o->comm_staging == PS_BYTES_AUTO) s->comm_staging_bytes = ps_nccl_staging_bytes(*device_bytes, n_ranks);
    return PS_OK;
}

void ps_settings_list_unused(const ps_settings *s, const ps_options *o, char *out, size_t out_bytes)
{
    const struct {
        bool is_given;
        const char *text;
    } all[] = {{o->comm_collectives == PS_CONFIG_COLLECTIVES_NCCL, "comm.collectives = nccl"}};
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < PS_ARRAY_LEN(all) && !ps_settings_has_gpu(s); i++) {
        if (!all[i].is_given || n >= out_bytes) continue;
        const int length = snprintf(out + n, out_bytes - n, "%s%s", n > 0 ? ", " : "", all[i].text);
        n += length > 0 ? (size_t)length : 0;
    }
    if (n > 0 && n < out_bytes)
        snprintf(out + n, out_bytes - n, ": without effect, as train.backend is %s",
                 ps_backend_kind_name(s->backend_kind));
}
