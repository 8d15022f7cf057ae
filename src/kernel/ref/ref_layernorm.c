#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

static ps_status layernorm_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_layernorm_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const double n = (double)a->cols;
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t row = r * a->cols;
        double mean = 0.0, var = 0.0;
        for (int64_t c = 0; c < a->cols; c++) mean += ps_ref_load(a->dtype, a->x, row + c) / n;
        for (int64_t c = 0; c < a->cols; c++) var += pow(ps_ref_load(a->dtype, a->x, row + c) - mean, 2.0) / n;
        const double rstd = 1.0 / sqrt(var + (double)a->eps);
        for (int64_t c = 0; c < a->cols; c++) {
            const double normal = (ps_ref_load(a->dtype, a->x, row + c) - mean) * rstd;
            ps_ref_store(a->dtype, a->y, row + c,
                         normal * ps_ref_load(a->dtype, a->w, c) + ps_ref_load(a->dtype, a->b, c), false);
        }
        a->mean[r] = (float)mean;
        a->rstd[r] = (float)rstd;
    }
    return PS_OK;
}

static ps_cost layernorm_fwd_cost(const void *args)
{
    const ps_layernorm_fwd_args *const a = args;
    return ps_cost_of_stream(a->rows * a->cols, 2, 8, a->dtype);
}

static void layernorm_fwd_uses(const void *args, ps_uses *out)
{
    const ps_layernorm_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->rows * a->cols));
    PS_REF_WRITES(mean, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_WRITES(rstd, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->rows * a->cols));
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->cols));
    PS_REF_READS(b, ps_ref_bytes(a->dtype, a->cols));
}

const ps_operator ps_operator_layernorm_fwd = {
    .reference = {.run = layernorm_fwd}, .cost = layernorm_fwd_cost, .uses = layernorm_fwd_uses};

static ps_status layernorm_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_layernorm_bwd_args *const a = args;
    (void)self;
    *out = 2 * (size_t)a->cols * sizeof(double);
    return PS_OK;
}

/* dw and db are summed in the workspace and stored at the end: dw may overwrite w, which every row reads, and dx may
 * overwrite dy, which the sums read. */
static ps_status layernorm_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_layernorm_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const double n = (double)a->cols;
    double *dw = a->workspace, *db = dw + a->cols;
    memset(dw, 0, 2 * (size_t)a->cols * sizeof(double));
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t row = r * a->cols;
        const double mean = (double)a->mean[r], rstd = (double)a->rstd[r];
        double avg_g = 0.0, avg_gn = 0.0;
        for (int64_t c = 0; c < a->cols; c++) {
            const double dy = ps_ref_load(a->dtype, a->dy, row + c);
            const double normal = (ps_ref_load(a->dtype, a->x, row + c) - mean) * rstd;
            const double g = dy * ps_ref_load(a->dtype, a->w, c);
            avg_g += g / n;
            avg_gn += g * normal / n;
            dw[c] += dy * normal;
            db[c] += dy;
        }
        for (int64_t c = 0; c < a->cols; c++) {
            const double normal = (ps_ref_load(a->dtype, a->x, row + c) - mean) * rstd;
            const double g = ps_ref_load(a->dtype, a->dy, row + c) * ps_ref_load(a->dtype, a->w, c);
            ps_ref_store(a->dtype, a->dx, row + c, rstd * (g - avg_g - normal * avg_gn), a->accumulate_dx);
        }
    }
    for (int64_t c = 0; c < a->cols; c++) {
        ps_ref_store(a->grad_dtype, a->dw, c, dw[c], a->accumulate_grad);
        ps_ref_store(a->grad_dtype, a->db, c, db[c], a->accumulate_grad);
    }
    return PS_OK;
}

static ps_cost layernorm_bwd_cost(const void *args)
{
    const ps_layernorm_bwd_args *const a = args;
    return ps_cost_of_stream(a->rows * a->cols, 3, 14, a->dtype);
}

static void layernorm_bwd_uses(const void *args, ps_uses *out)
{
    const ps_layernorm_bwd_args *const a = args;
    const int64_t bytes = ps_ref_bytes(a->dtype, a->rows * a->cols);
    PS_REF_WRITES(dx, bytes);
    PS_REF_WRITES(dw, ps_ref_bytes(a->grad_dtype, a->cols));
    PS_REF_WRITES(db, ps_ref_bytes(a->grad_dtype, a->cols));
    PS_REF_READS(dy, bytes);
    PS_REF_READS(x, bytes);
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->cols));
    PS_REF_READS(mean, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_READS(rstd, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_layernorm_bwd = {
    .reference = {.run = layernorm_bwd, .workspace_bytes = layernorm_bwd_bytes},
    .cost = layernorm_bwd_cost,
    .uses = layernorm_bwd_uses};
