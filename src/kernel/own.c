#include "kernel/own.h"

#include <string.h>

#include "base/base.h"

#define PART_ALIGN 256

ps_own_functions ps_own_functions_of(const ps_own_operator *op, bool is_backward)
{
    return (ps_own_functions){.name = op->name,
                              .cpu = is_backward ? op->backward : op->forward,
                              .cuda = is_backward ? op->cuda_backward : op->cuda_forward,
                              .scratch_bytes = op->scratch_bytes,
                              .flops = op->flops};
}

static int64_t dw_bytes(const ps_own_args *a, int k)
{
    return a->skips_dw[k] ? 0 : a->call.w_elements[k] * (int64_t)sizeof(float);
}

/* All members except pointers into the workspace. */
static ps_own_call begin_call(const ps_own_args *a, ps_device_type device)
{
    ps_own_call call = a->call;
    call.struct_size = sizeof call;
    call.device = device;
    call.stream = NULL;
    call.options = a->options;
    call.scratch = NULL;
    for (int k = 0; k < PS_OWN_PARAMETERS_MAX; k++) call.dw[k] = NULL;
    return call;
}

static int64_t scratch_bytes(const ps_own_args *a, const ps_own_call *call, bool is_backward)
{
    ps_own_call sizes = *call;
    memset(sizes.x, 0, sizeof sizes.x);
    memset(sizes.w, 0, sizeof sizes.w);
    memset(sizes.saved, 0, sizeof sizes.saved);
    memset(sizes.dx, 0, sizeof sizes.dx);
    sizes.y = sizes.scratch = NULL;
    sizes.dy = NULL;
    sizes.targets = NULL;
    sizes.row_loss = NULL;
    sizes.predicted = NULL;
    sizes.scratch_bytes = 0;
    return a->op.scratch_bytes != NULL ? a->op.scratch_bytes(&sizes, is_backward) : 0;
}

ps_status ps_own_check_scratch(const ps_own_args *a, ps_device_type device, bool is_backward)
{
    const ps_own_call call = begin_call(a, device);
    const int64_t bytes = scratch_bytes(a, &call, is_backward);
    if (bytes >= 0 && bytes <= PS_OWN_SCRATCH_MAX) return PS_OK;
    return PS_FAIL(PS_EINVAL, "operator %s: scratch_bytes gives %lld for %s of %lld rows, expected 0 to %lld",
                   a->op.name, (long long)bytes, is_backward ? "backward" : "forward", (long long)call.rows,
                   (long long)PS_OWN_SCRATCH_MAX);
}

int64_t ps_own_workspace_bytes(const ps_own_args *a, ps_device_type device, bool is_backward)
{
    const ps_own_call call = begin_call(a, device);
    int64_t bytes = ps_round_up(scratch_bytes(a, &call, is_backward), PART_ALIGN);
    for (int k = 0; k < PS_OWN_PARAMETERS_MAX && is_backward; k++) bytes += ps_round_up(dw_bytes(a, k), PART_ALIGN);
    return bytes;
}

ps_own_call ps_own_call_of(const ps_own_args *a, ps_device_type device, bool is_backward)
{
    ps_own_call call = begin_call(a, device);
    char *at = a->workspace;
    call.scratch_bytes = scratch_bytes(a, &call, is_backward);
    call.scratch = call.scratch_bytes > 0 ? at : NULL;
    if (!is_backward) return call;
    at += ps_round_up(call.scratch_bytes, PART_ALIGN);
    for (int k = 0; k < PS_OWN_PARAMETERS_MAX; k++) {
        if (dw_bytes(a, k) == 0) continue;
        call.dw[k] = (float *)(void *)at;
        at += ps_round_up(dw_bytes(a, k), PART_ALIGN);
    }
    return call;
}

ps_status ps_own_run(const ps_own_args *a, const ps_own_call *call)
{
    const ps_own_func f = call->device == PS_DEVICE_CUDA ? a->op.cuda : a->op.cpu;
    if (f == NULL) return PS_FAIL(PS_ENOSYS, "operator %s has no function for this device", a->op.name);
    const unsigned n_told = ps_fail_count();
    const ps_status st = f(call);
    if (st == PS_OK) return PS_OK;
    const bool has_told = ps_fail_count() != n_told; /* by ps_set_last_error */
    return PS_FAIL(ps_status_is_known(st) ? st : PS_EINVAL, "operator %s: its function returned %d (%s)%s%s",
                   a->op.name, (int)st, ps_status_text(st), has_told ? ": " : "", has_told ? ps_last_error() : "");
}
