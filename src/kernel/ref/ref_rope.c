#include "kernel/ref/ref.h"

#include <math.h>

static ps_status rope(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_rope_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const int64_t half = a->D / 2;
    for (int64_t row = 0; row < a->B * a->T; row++)
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t i = 0; i < half; i++) {
                const double angle = (double)(a->first + row % a->T) * (double)a->inv_freq[i];
                const double scale = (double)a->scale;
                const double c = scale * cos(angle), sn = scale * (a->inverse ? -sin(angle) : sin(angle));
                const int64_t first = (row * a->H + h) * a->D + i, second = first + half;
                const double x0 = ps_ref_load(a->dtype, a->x, first), x1 = ps_ref_load(a->dtype, a->x, second);
                ps_ref_store(a->dtype, a->y, first, x0 * c - x1 * sn, a->accumulate);
                ps_ref_store(a->dtype, a->y, second, x1 * c + x0 * sn, a->accumulate);
            }
    return PS_OK;
}

static ps_cost rope_cost(const void *args)
{
    const ps_rope_args *const a = args;
    return ps_cost_of_stream(a->B * a->T * a->H * a->D, 2, 3, a->dtype);
}

static void rope_uses(const void *args, ps_uses *out)
{
    const ps_rope_args *const a = args;
    const int64_t bytes = ps_ref_bytes(a->dtype, a->B * a->T * a->H * a->D);
    PS_REF_WRITES(y, bytes);
    PS_REF_READS(x, bytes);
    PS_REF_READS(inv_freq, ps_ref_bytes(PS_DTYPE_F32, a->D / 2));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_rope = {.reference = {.run = rope}, .cost = rope_cost, .uses = rope_uses};
