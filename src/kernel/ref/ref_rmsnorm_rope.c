/* The references of both operators in sequence. */
#include "kernel/ref/ref.h"

static ps_rope_args rope_of_fwd(const ps_rmsnorm_rope_fwd_args *a)
{
    return (ps_rope_args){.y = a->y,
                          .x = a->y,
                          .inv_freq = a->inv_freq,
                          .B = a->B,
                          .T = a->T,
                          .H = a->H,
                          .D = a->D,
                          .first = a->first,
                          .scale = a->scale,
                          .dtype = a->dtype};
}

static ps_status rmsnorm_rope_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_rmsnorm_rope_fwd_args *const a = args;
    const ps_rmsnorm_fwd_args norm = {.y = a->y,
                                      .rstd = a->rstd,
                                      .x = a->x,
                                      .w = a->w,
                                      .rows = a->B * a->T * a->H,
                                      .cols = a->D,
                                      .eps = a->eps,
                                      .dtype = a->dtype};
    const ps_rope_args rope = rope_of_fwd(a);
    PS_TRY(ps_operator_rmsnorm_fwd.reference.run(self, queue, &norm, workspace_bytes));
    return ps_operator_rope.reference.run(self, queue, &rope, workspace_bytes);
}

static ps_cost rmsnorm_rope_fwd_cost(const void *args)
{
    const ps_rmsnorm_rope_fwd_args *const a = args;
    return ps_cost_of_stream(a->B * a->T * a->H * a->D, 2, 7, a->dtype);
}

static void rmsnorm_rope_fwd_uses(const void *args, ps_uses *out)
{
    const ps_rmsnorm_rope_fwd_args *const a = args;
    const int64_t rows = a->B * a->T * a->H, bytes = ps_ref_bytes(a->dtype, rows * a->D);
    PS_REF_WRITES(y, bytes);
    PS_REF_WRITES(rstd, ps_ref_bytes(PS_DTYPE_F32, rows));
    PS_REF_READS(x, bytes);
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->D));
    PS_REF_READS(inv_freq, ps_ref_bytes(PS_DTYPE_F32, a->D / 2));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_rmsnorm_rope_fwd = {
    .reference = {.run = rmsnorm_rope_fwd}, .cost = rmsnorm_rope_fwd_cost, .uses = rmsnorm_rope_fwd_uses};

/* dx has the intermediate gradient. */
static ps_rmsnorm_bwd_args norm_of_bwd(const ps_rmsnorm_rope_bwd_args *a)
{
    return (ps_rmsnorm_bwd_args){.dx = a->dx,
                                 .dw = a->dw,
                                 .dy = a->dx,
                                 .x = a->x,
                                 .w = a->w,
                                 .rstd = a->rstd,
                                 .rows = a->B * a->T * a->H,
                                 .cols = a->D,
                                 .dtype = a->dtype,
                                 .grad_dtype = a->grad_dtype,
                                 .accumulate_grad = a->accumulate_grad,
                                 .workspace = a->workspace};
}

static ps_status rmsnorm_rope_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_rmsnorm_bwd_args norm = norm_of_bwd(args);
    return ps_operator_rmsnorm_bwd.reference.workspace_bytes(self, &norm, out);
}

static ps_status rmsnorm_rope_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_rmsnorm_rope_bwd_args *const a = args;
    const ps_rope_args rope = {.y = a->dx,
                               .x = a->dy,
                               .inv_freq = a->inv_freq,
                               .B = a->B,
                               .T = a->T,
                               .H = a->H,
                               .D = a->D,
                               .first = a->first,
                               .scale = a->scale,
                               .inverse = true,
                               .dtype = a->dtype};
    const ps_rmsnorm_bwd_args norm = norm_of_bwd(a);
    PS_TRY(ps_operator_rope.reference.run(self, queue, &rope, 0));
    return ps_operator_rmsnorm_bwd.reference.run(self, queue, &norm, workspace_bytes);
}

static ps_cost rmsnorm_rope_bwd_cost(const void *args)
{
    const ps_rmsnorm_rope_bwd_args *const a = args;
    return ps_cost_of_stream(a->B * a->T * a->H * a->D, 3, 13, a->dtype);
}

static void rmsnorm_rope_bwd_uses(const void *args, ps_uses *out)
{
    const ps_rmsnorm_rope_bwd_args *const a = args;
    const int64_t rows = a->B * a->T * a->H, bytes = ps_ref_bytes(a->dtype, rows * a->D);
    PS_REF_WRITES(dx, bytes);
    PS_REF_WRITES(dw, ps_ref_bytes(a->grad_dtype, a->D));
    PS_REF_READS(dy, bytes);
    PS_REF_READS(x, bytes);
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->D));
    PS_REF_READS(rstd, ps_ref_bytes(PS_DTYPE_F32, rows));
    PS_REF_READS(inv_freq, ps_ref_bytes(PS_DTYPE_F32, a->D / 2));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_rmsnorm_rope_bwd = {
    .reference = {.run = rmsnorm_rope_bwd, .workspace_bytes = rmsnorm_rope_bwd_bytes},
    .cost = rmsnorm_rope_bwd_cost,
    .uses = rmsnorm_rope_bwd_uses};
