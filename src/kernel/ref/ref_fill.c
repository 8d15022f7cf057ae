#include "kernel/ref/ref.h"

#include <math.h>

/* Box, Muller 1958: with u, v uniform, sqrt(-2 log u) is the radius and 2 pi v the angle of a point whose two
 * coordinates are normal and independent. u = 1 - unit is in (0, 1], so the logarithm is finite. */
static double normal_at(ps_rng_key key, uint64_t index)
{
    const uint64_t pair = index / 2;
    const double u = 1.0 - (double)ps_rng_unit(ps_rng_u32(key, 2 * pair));
    const double angle = 2.0 * M_PI * (double)ps_rng_unit(ps_rng_u32(key, 2 * pair + 1));
    return sqrt(-2.0 * log(u)) * (index % 2 == 0 ? cos(angle) : sin(angle));
}

static double uniform_at(ps_rng_key key, uint64_t index)
{
    return 2.0 * (double)ps_rng_unit(ps_rng_u32(key, index)) - 1.0;
}

static ps_status fill(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_fill_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const uint64_t index = (uint64_t)(a->first_index + i);
        const double z = a->std == 0.0f ? 0.0 : a->is_uniform ? uniform_at(a->key, index) : normal_at(a->key, index);
        a->dst[i] = (float)((double)a->mean + (double)a->std * z);
    }
    return PS_OK;
}

static ps_cost fill_cost(const void *args)
{
    const ps_fill_args *const a = args;
    return (ps_cost){.flops = (double)a->n * 40, .bytes = (double)a->n * 4};
}

static void fill_uses(const void *args, ps_uses *out)
{
    const ps_fill_args *const a = args;
    PS_REF_WRITES(dst, ps_ref_bytes(PS_DTYPE_F32, a->n));
}

const ps_operator ps_operator_fill = {.reference = {.run = fill}, .cost = fill_cost, .uses = fill_uses};
