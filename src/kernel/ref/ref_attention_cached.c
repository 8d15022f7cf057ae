#include "kernel/ref/ref.h"

#include <math.h>

/* Index in a cache of element d of head `kv` at a position. */
static int64_t cache_index(const ps_attention_cached_args *a, int64_t kv, int64_t position, int64_t d)
{
    return (kv * a->n_positions + position) * a->D + d;
}

static void append(const ps_attention_cached_args *a)
{
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t kv = 0; kv < a->KV; kv++)
            for (int64_t d = 0; d < a->D; d++) {
                const int64_t from = t * a->kv_stride + kv * a->D + d, to = cache_index(a, kv, a->first + t, d);
                ps_ref_store(a->dtype, a->k_cache, to, ps_ref_load(a->dtype, a->k, from), false);
                ps_ref_store(a->dtype, a->v_cache, to, ps_ref_load(a->dtype, a->v, from), false);
            }
}

static double score(const ps_attention_cached_args *a, int64_t t, int64_t h, int64_t position)
{
    double sum = 0.0;
    for (int64_t d = 0; d < a->D; d++)
        sum += ps_ref_load(a->dtype, a->q, t * a->q_stride + h * a->D + d) *
               ps_ref_load(a->dtype, a->k_cache, cache_index(a, h / (a->H / a->KV), position, d));
    return sum * (double)a->scale;
}

static ps_status attention_cached_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_attention_cached_args *const a = args;
    (void)self;
    *out = (size_t)a->n_positions * sizeof(double);
    return PS_OK;
}

static void attend(const ps_attention_cached_args *a, int64_t t, int64_t h, double *p)
{
    const int64_t last = a->first + t, begin = a->window > 0 ? ps_max_i64(0, last + 1 - a->window) : 0;
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = begin; j <= last; j++) {
        p[j] = score(a, t, h, j);
        max = fmax(max, p[j]);
    }
    for (int64_t j = begin; j <= last; j++) {
        p[j] = exp(p[j] - max);
        sum += p[j];
    }
    for (int64_t d = 0; d < a->D; d++) {
        double y = 0.0;
        for (int64_t j = begin; j <= last; j++)
            y += p[j] / sum * ps_ref_load(a->dtype, a->v_cache, cache_index(a, h / (a->H / a->KV), j, d));
        ps_ref_store(a->dtype, a->y, (t * a->H + h) * a->D + d, y, false);
    }
}

static ps_status attention_cached(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_attention_cached_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    append(a);
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t h = 0; h < a->H; h++) attend(a, t, h, a->workspace);
    return PS_OK;
}

/* Assumes that half of the positions are in use. */
static ps_cost attention_cached_cost(const void *args)
{
    const ps_attention_cached_args *const a = args;
    const double half = (double)a->n_positions / 2;
    const double seen = a->window > 0 && (double)a->window < half ? (double)a->window : half;
    return (ps_cost){.flops = 4 * (double)(a->T * a->H * a->D) * seen,
                     .bytes = 2 * (double)(a->KV * a->D) * seen * (double)ps_dtype_bytes(a->dtype)};
}

static void attention_cached_uses(const void *args, ps_uses *out)
{
    const ps_attention_cached_args *const a = args;
    const int64_t cache = ps_ref_bytes(a->dtype, a->KV * a->n_positions * a->D);
    const int64_t kv = ps_ref_rows_bytes(a->dtype, a->T, a->kv_stride, a->KV * a->D);
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->T * a->H * a->D));
    PS_REF_WRITES(k_cache, cache);
    PS_REF_WRITES(v_cache, cache);
    PS_REF_READS(q, ps_ref_rows_bytes(a->dtype, a->T, a->q_stride, a->H * a->D));
    PS_REF_READS(k, kv);
    PS_REF_READS(v, kv);
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_attention_cached = {
    .reference = {.run = attention_cached, .workspace_bytes = attention_cached_bytes},
    .cost = attention_cached_cost,
    .uses = attention_cached_uses};
