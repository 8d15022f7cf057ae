/* cuda_own.c - a user's operator on a GPU: its function launches kernels on the stream; gradients of parameters, which
 * it writes as floats to scratch, are then rounded into place, or added. */
#include "kernel/cuda/cuda_operator.h"
#include "kernel/own.h"

static ps_status own_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_own_call call = ps_own_call_of(args, PS_DEVICE_CUDA, false);
    return to->own(to->self, args, &call);
}

static ps_status own_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_own_args *a = args;
    const ps_own_call call = ps_own_call_of(a, PS_DEVICE_CUDA, true);
    PS_TRY(to->own(to->self, a, &call));
    for (int k = 0; k < PS_OWN_PARAMETERS_MAX; k++)
        if (call.dw[k] != NULL)
            PS_TRY(ps_cuda_column_sums(to, call.dw[k], 1, call.w_elements[k], a->dw[k], a->grad_dtype,
                                       a->accumulate_grad));
    return PS_OK;
}

static int64_t own_fwd_bytes(const void *args, int64_t gemm_bytes)
{
    (void)gemm_bytes;
    return ps_own_workspace_bytes(args, PS_DEVICE_CUDA, false);
}

static int64_t own_bwd_bytes(const void *args, int64_t gemm_bytes)
{
    (void)gemm_bytes;
    return ps_own_workspace_bytes(args, PS_DEVICE_CUDA, true);
}

const ps_cuda_operator ps_cuda_own_fwd = {.run = own_fwd, .workspace_bytes = own_fwd_bytes};
const ps_cuda_operator ps_cuda_own_bwd = {.run = own_bwd, .workspace_bytes = own_bwd_bytes};
