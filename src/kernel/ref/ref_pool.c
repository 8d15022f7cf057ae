#include "kernel/ref/ref.h"

/* Position that represents sequence b. */
static int64_t pool_position(ps_pool_kind kind, const int32_t *mask, int64_t b, int64_t T)
{
    if (kind == PS_POOL_FIRST) return 0;
    int64_t t = T - 1;
    while (mask != NULL && t > 0 && mask[b * T + t] == 0) t--;
    return t;
}

static ps_status pool_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_pool_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t b = 0; b < a->B; b++) {
        const int64_t from = (b * a->T + pool_position(a->kind, a->mask, b, a->T)) * a->cols;
        for (int64_t c = 0; c < a->cols; c++)
            ps_ref_store(a->dtype, a->y, b * a->cols + c, ps_ref_load(a->dtype, a->x, from + c), false);
    }
    return PS_OK;
}

static ps_cost pool_fwd_cost(const void *args)
{
    const ps_pool_fwd_args *const a = args;
    return ps_cost_of_stream(a->B * a->cols, 2, 0, a->dtype);
}

static void pool_fwd_uses(const void *args, ps_uses *out)
{
    const ps_pool_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->B * a->cols));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->B * a->T * a->cols));
    PS_REF_READS(mask, ps_ref_bytes(PS_DTYPE_F32, a->B * a->T));
}

const ps_operator ps_operator_pool_fwd = {.reference = {.run = pool_fwd}, .cost = pool_fwd_cost, .uses = pool_fwd_uses};

static ps_status pool_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_pool_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t t = 0; t < a->T; t++) {
            const bool here = t == pool_position(a->kind, a->mask, b, a->T);
            for (int64_t c = 0; c < a->cols; c++)
                ps_ref_store(a->dtype, a->dx, (b * a->T + t) * a->cols + c,
                             here ? ps_ref_load(a->dtype, a->dy, b * a->cols + c) : 0.0, a->accumulate_dx);
        }
    return PS_OK;
}

static ps_cost pool_bwd_cost(const void *args)
{
    const ps_pool_bwd_args *const a = args;
    return ps_cost_of_stream(a->B * a->T * a->cols, 1, 0, a->dtype);
}

static void pool_bwd_uses(const void *args, ps_uses *out)
{
    const ps_pool_bwd_args *const a = args;
    PS_REF_WRITES(dx, ps_ref_bytes(a->dtype, a->B * a->T * a->cols));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->B * a->cols));
    PS_REF_READS(mask, ps_ref_bytes(PS_DTYPE_F32, a->B * a->T));
}

const ps_operator ps_operator_pool_bwd = {.reference = {.run = pool_bwd}, .cost = pool_bwd_cost, .uses = pool_bwd_uses};
