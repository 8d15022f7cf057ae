#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

static ps_status rmsnorm_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_rmsnorm_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t row = r * a->cols;
        double avg = 0.0;
        for (int64_t c = 0; c < a->cols; c++) avg += pow(ps_ref_load(a->dtype, a->x, row + c), 2.0) / (double)a->cols;
        const double rstd = 1.0 / sqrt(avg + (double)a->eps);
        for (int64_t c = 0; c < a->cols; c++)
            ps_ref_store(a->dtype, a->y, row + c,
                         ps_ref_load(a->dtype, a->x, row + c) * rstd * ps_ref_load(a->dtype, a->w, c), false);
        a->rstd[r] = (float)rstd;
    }
    return PS_OK;
}

static ps_cost rmsnorm_fwd_cost(const void *args)
{
    const ps_rmsnorm_fwd_args *const a = args;
    return ps_cost_of_stream(a->rows * a->cols, 2, 4, a->dtype);
}

static void rmsnorm_fwd_uses(const void *args, ps_uses *out)
{
    const ps_rmsnorm_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->rows * a->cols));
    PS_REF_WRITES(rstd, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->rows * a->cols));
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->cols));
}

const ps_operator ps_operator_rmsnorm_fwd = {
    .reference = {.run = rmsnorm_fwd}, .cost = rmsnorm_fwd_cost, .uses = rmsnorm_fwd_uses};

static ps_status rmsnorm_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_rmsnorm_bwd_args *const a = args;
    (void)self;
    *out = (size_t)a->cols * sizeof(double);
    return PS_OK;
}

/* dw is summed in the workspace and stored at the end, as it may overwrite w, which every row reads; the sums of a row
 * precede its dx, which may overwrite dy. */
static ps_status rmsnorm_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_rmsnorm_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    double *dw = a->workspace;
    memset(dw, 0, (size_t)a->cols * sizeof(double));
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t row = r * a->cols;
        const double rstd = (double)a->rstd[r];
        double avg_gn = 0.0;
        for (int64_t c = 0; c < a->cols; c++) {
            const double dy = ps_ref_load(a->dtype, a->dy, row + c);
            const double normal = ps_ref_load(a->dtype, a->x, row + c) * rstd;
            avg_gn += dy * ps_ref_load(a->dtype, a->w, c) * normal / (double)a->cols;
            dw[c] += dy * normal;
        }
        for (int64_t c = 0; c < a->cols; c++) {
            const double normal = ps_ref_load(a->dtype, a->x, row + c) * rstd;
            const double g = ps_ref_load(a->dtype, a->dy, row + c) * ps_ref_load(a->dtype, a->w, c);
            ps_ref_store(a->dtype, a->dx, row + c, rstd * (g - normal * avg_gn), a->accumulate_dx);
        }
    }
    for (int64_t c = 0; c < a->cols; c++) ps_ref_store(a->grad_dtype, a->dw, c, dw[c], a->accumulate_grad);
    return PS_OK;
}

static ps_cost rmsnorm_bwd_cost(const void *args)
{
    const ps_rmsnorm_bwd_args *const a = args;
    return ps_cost_of_stream(a->rows * a->cols, 3, 10, a->dtype);
}

static void rmsnorm_bwd_uses(const void *args, ps_uses *out)
{
    const ps_rmsnorm_bwd_args *const a = args;
    const int64_t bytes = ps_ref_bytes(a->dtype, a->rows * a->cols);
    PS_REF_WRITES(dx, bytes);
    PS_REF_WRITES(dw, ps_ref_bytes(a->grad_dtype, a->cols));
    PS_REF_READS(dy, bytes);
    PS_REF_READS(x, bytes);
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->cols));
    PS_REF_READS(rstd, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_rmsnorm_bwd = {.reference = {.run = rmsnorm_bwd, .workspace_bytes = rmsnorm_bwd_bytes},
                                             .cost = rmsnorm_bwd_cost,
                                             .uses = rmsnorm_bwd_uses};
