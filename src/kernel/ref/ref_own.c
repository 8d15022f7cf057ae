#include "kernel/own.h"
#include "kernel/ref/ref.h"

static ps_status own_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_own_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const ps_own_call call = ps_own_call_of(a, PS_DEVICE_CPU, false);
    return ps_own_run(a, &call);
}

static ps_status own_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_own_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const ps_own_call call = ps_own_call_of(a, PS_DEVICE_CPU, true);
    PS_TRY(ps_own_run(a, &call));
    for (int k = 0; k < PS_OWN_PARAMETERS_MAX; k++)
        for (int64_t i = 0; call.dw[k] != NULL && i < call.w_elements[k]; i++)
            ps_ref_store(a->grad_dtype, a->dw[k], i, (double)call.dw[k][i], a->accumulate_grad);
    return PS_OK;
}

static ps_status own_fwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    (void)self;
    *out = (size_t)ps_own_workspace_bytes(args, PS_DEVICE_CPU, false);
    return PS_OK;
}

static ps_status own_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    (void)self;
    *out = (size_t)ps_own_workspace_bytes(args, PS_DEVICE_CPU, true);
    return PS_OK;
}

/* ---- cost and uses: each array once; of backward, whose dx are not known here, all of them ---- */

static int64_t x_elements(const ps_own_args *a, int i)
{
    return a->call.rows * a->call.x_columns[i];
}

static int64_t y_elements(const ps_own_args *a)
{
    return a->call.rows * a->call.y_columns;
}

static ps_cost cost(const ps_own_args *a, bool is_backward)
{
    int64_t elements = y_elements(a), floats = 0, of_parameters = 0, of_gradients = 0;
    for (int i = 0; i < PS_OWN_INPUTS_MAX; i++) elements += x_elements(a, i);
    for (int k = 0; k < PS_OWN_PARAMETERS_MAX; k++) {
        of_parameters += a->call.w_elements[k];
        if (is_backward && !a->skips_dw[k]) of_gradients += a->call.w_elements[k];
    }
    for (int i = 0; i < PS_OWN_SAVED_MAX; i++) floats += a->call.rows * a->saved_columns[i];
    const int64_t streams = elements * (is_backward ? 2 : 1) + of_parameters + of_gradients;
    ps_own_call call = a->call;
    call.options = a->options;
    const double flops = a->op.flops != NULL ? a->op.flops(&call, is_backward) : (double)elements;
    return (ps_cost){.flops = flops, .bytes = (double)ps_ref_bytes(a->call.dtype, streams) + 4.0 * (double)floats};
}

static ps_cost own_fwd_cost(const void *args)
{
    return cost(args, false);
}

static ps_cost own_bwd_cost(const void *args)
{
    return cost(args, true);
}

static void uses(const ps_own_args *a, ps_uses *out, bool is_backward)
{
    const ps_own_call *c = &a->call;
    const int64_t row_bytes = c->rows * (int64_t)sizeof(int32_t);
    for (int i = 0; i < PS_OWN_INPUTS_MAX; i++) {
        ps_ref_use(out, "x", c->x[i], ps_ref_bytes(c->dtype, x_elements(a, i)), false);
        ps_ref_use(out, "dx", c->dx[i], ps_ref_bytes(c->dtype, x_elements(a, i)), true);
    }
    for (int k = 0; k < PS_OWN_PARAMETERS_MAX; k++) {
        ps_ref_use(out, "w", c->w[k], ps_ref_bytes(c->dtype, c->w_elements[k]), false);
        if (!a->skips_dw[k]) ps_ref_use(out, "dw", a->dw[k], ps_ref_bytes(a->grad_dtype, c->w_elements[k]), true);
    }
    for (int i = 0; i < PS_OWN_SAVED_MAX; i++)
        ps_ref_use(out, "saved", c->saved[i], ps_ref_bytes(PS_DTYPE_F32, c->rows * a->saved_columns[i]), !is_backward);
    ps_ref_use(out, "y", c->y, ps_ref_bytes(c->dtype, y_elements(a)), !is_backward);
    ps_ref_use(out, "dy", c->dy, ps_ref_bytes(c->dtype, y_elements(a)), false);
    ps_ref_use(out, "targets", c->targets, row_bytes, false);
    ps_ref_use(out, "row_loss", c->row_loss, row_bytes, true);
    ps_ref_use(out, "predicted", c->predicted, row_bytes, true);
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

static void own_fwd_uses(const void *args, ps_uses *out)
{
    uses(args, out, false);
}

static void own_bwd_uses(const void *args, ps_uses *out)
{
    uses(args, out, true);
}

const ps_operator ps_operator_own_fwd = {
    .reference = {.run = own_fwd, .workspace_bytes = own_fwd_bytes}, .cost = own_fwd_cost, .uses = own_fwd_uses};
const ps_operator ps_operator_own_bwd = {
    .reference = {.run = own_bwd, .workspace_bytes = own_bwd_bytes}, .cost = own_bwd_cost, .uses = own_bwd_uses};
