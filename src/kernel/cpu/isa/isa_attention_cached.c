/* Attention with a KV cache: a few queries at the end of a text. A unit of work is a group of query heads of one query
 * that share a key and value head, so that each key is read once for all of them.
 *
 * Scores of a unit are kept in float, then the maximum, the exponentials and their sum, then the sum of values: results
 * do not depend on the assignment of units to threads. */
#include "kernel/cpu/cpu_vec.h"

/* Query heads of a unit. */
#define CACHED_GROUP 4

/* Scratch of one thread: scores of a group of query heads, [CACHED_GROUP][positions]; their queries and sums,
 * [CACHED_GROUP][D]. */
typedef struct cached_work {
    float *scores, *q, *y;
    int64_t stride, width; /* of scores; of q and y */
} cached_work;

static int64_t cached_carve(const ps_attention_cached_args *a, cached_work *w, char *base)
{
    char *at = base;
    w->stride = ps_round_up(a->n_positions, VF_SUM);
    w->width = ps_round_up(a->D, VF_SUM);
    w->scores = ps_cpu_take(&at, CACHED_GROUP * w->stride * 4);
    w->q = ps_cpu_take(&at, CACHED_GROUP * w->width * 4);
    w->y = ps_cpu_take(&at, CACHED_GROUP * w->width * 4);
    return at - base;
}

static ps_status attention_cached_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_attention_cached_args *const a = args;
    cached_work unused;
    *out = (size_t)(ps_cpu_of(self)->n_threads * cached_carve(a, &unused, (char *)64)); /* any address: only the
                                                                                           distance is used */
    return PS_OK;
}

static void cached_append(const ps_attention_cached_args *a)
{
    const int64_t bytes = a->D * (int64_t)ps_dtype_bytes(a->dtype);
    for (int64_t kv = 0; kv < a->KV; kv++)
        for (int64_t t = 0; t < a->T; t++) {
            const int64_t from = t * a->kv_stride + kv * a->D, to = (kv * a->n_positions + a->first + t) * a->D;
            memcpy(ps_cpu_at(a->dtype, a->k_cache, to), ps_cpu_at_const(a->dtype, a->k, from), (size_t)bytes);
            memcpy(ps_cpu_at(a->dtype, a->v_cache, to), ps_cpu_at_const(a->dtype, a->v, from), (size_t)bytes);
        }
}

/* Scaled scores of n query heads against the keys [begin, end). */
PS_CPU_INLINE void cached_scores(ps_dtype t, const ps_attention_cached_args *a, const cached_work *w, int64_t n,
                                 int64_t kv, int64_t begin, int64_t end)
{
    for (int64_t j = begin; j < end; j++) {
        const int64_t at = (kv * a->n_positions + j) * a->D;
        vf sum[CACHED_GROUP][VF_SUMS] = {{{0}}};
        for (int64_t d0 = 0; d0 < a->D; d0 += VF_SUM)
            for (int s = 0; s < VF_SUMS; s++) {
                const int64_t d = d0 + s * VF_LANES;
                const vf k = vf_get(t, a->k_cache, at + d, a->D - d);
                for (int64_t i = 0; i < n; i++) sum[i][s] = vf_fma(vf_load(w->q + i * w->width + d), k, sum[i][s]);
            }
        for (int64_t i = 0; i < n; i++) w->scores[i * w->stride + j - begin] = vf_fold(sum[i]) * a->scale;
    }
}

/* Scores [n] become exp(score - max); their sum. Lanes past the last score have weight 0. */
static float cached_softmax(float *scores, int64_t n)
{
    vf max = vf_set1(-INFINITY), sum[VF_SUMS] = {{0}};
    for (int64_t j = n; j < ps_round_up(n, VF_SUM); j++) scores[j] = -INFINITY;
    for (int64_t j = 0; j < n; j += VF_LANES) max = vf_max(max, vf_load(scores + j));
    const float most = vf_max_lane(max);
    for (int64_t j0 = 0; j0 < n; j0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t j = j0 + s * VF_LANES;
            vf p = vf_exp(vf_load(scores + j) - most);
            if (n - j < VF_LANES) p = vf_where(vi_lanes() < (int32_t)(n - j), p, vf_set1(0.0f));
            vf_store(scores + j, p);
            sum[s] += p;
        }
    return vf_fold(sum);
}

/* y = sum of weight and value over [begin, end) for n query heads. */
PS_CPU_INLINE void cached_values(ps_dtype t, const ps_attention_cached_args *a, const cached_work *w, int64_t n,
                                 int64_t kv, int64_t begin, int64_t end)
{
    for (int64_t d = 0; d < a->D; d += VF_LANES) {
        vf sum[CACHED_GROUP] = {{0}};
        for (int64_t j = begin; j < end; j++) {
            const vf v = vf_get(t, a->v_cache, (kv * a->n_positions + j) * a->D + d, a->D - d);
            for (int64_t i = 0; i < n; i++) sum[i] = vf_fma(vf_set1(w->scores[i * w->stride + j - begin]), v, sum[i]);
        }
        for (int64_t i = 0; i < n; i++) vf_store(w->y + i * w->width + d, sum[i]);
    }
}

/* Query heads [head, head + n) of query t, which share a key and value head. */
PS_CPU_INLINE void cached_attend(ps_dtype dtype, const ps_attention_cached_args *a, const cached_work *w, int64_t t,
                                 int64_t head, int64_t n)
{
    const int64_t kv = head / (a->H / a->KV), end = a->first + t + 1;
    const int64_t begin = a->window > 0 ? ps_max_i64(0, end - a->window) : 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < w->width; d += VF_LANES)
            vf_store(w->q + i * w->width + d, vf_get(dtype, a->q, t * a->q_stride + (head + i) * a->D + d, a->D - d));
    cached_scores(dtype, a, w, n, kv, begin, end);
    float inverse[CACHED_GROUP];
    for (int64_t i = 0; i < n; i++) inverse[i] = 1.0f / cached_softmax(w->scores + i * w->stride, end - begin);
    cached_values(dtype, a, w, n, kv, begin, end);
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < a->D; d += VF_LANES)
            vf_put(dtype, a->y, (t * a->H + head + i) * a->D + d, a->D - d,
                   vf_load(w->y + i * w->width + d) * inverse[i]);
}

/* The number of heads as a constant, so that their sums stay in registers. */
PS_CPU_INLINE void cached_attend_group(ps_dtype dtype, const ps_attention_cached_args *a, const cached_work *w,
                                       int64_t t, int64_t head, int64_t n)
{
    switch (n) {
    case 1: cached_attend(dtype, a, w, t, head, 1); break;
    case 2: cached_attend(dtype, a, w, t, head, 2); break;
    case 3: cached_attend(dtype, a, w, t, head, 3); break;
    default: cached_attend(dtype, a, w, t, head, CACHED_GROUP); break;
    }
}

typedef struct cached_job {
    const ps_attention_cached_args *a;
    int64_t groups, bytes; /* of query heads that share a key and value head; scratch of a thread */
} cached_job;

static void cached_item(const void *args, int64_t item, int64_t thread)
{
    const cached_job *const job = args;
    const ps_attention_cached_args *const a = job->a;
    const int64_t per_kv = a->H / a->KV, group = item % job->groups;
    const int64_t kv = item / job->groups % a->KV, t = item / job->groups / a->KV;
    const int64_t head = kv * per_kv + group * CACHED_GROUP,
                  n = ps_min_i64(CACHED_GROUP, per_kv - group * CACHED_GROUP);
    cached_work w;
    cached_carve(a, &w, (char *)a->workspace + thread * job->bytes);
#define CALL(dtype) cached_attend_group(dtype, a, &w, t, head, n)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status attention_cached(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_attention_cached_args *const a = args;
    (void)queue, (void)workspace_bytes;
    cached_append(a);
    cached_work unused;
    const cached_job job = {a, ps_ceil_div(a->H / a->KV, CACHED_GROUP), cached_carve(a, &unused, (char *)64)};
    const bool is_worthwhile = a->T * (a->first + a->T) * a->H * a->D >= PS_CPU_PARALLEL_MIN;
    ps_cpu_pool_run_if(ps_cpu_of(self)->pool, is_worthwhile, a->T * a->KV * job.groups, cached_item, &job);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(attention_cached) = {.run = attention_cached, .workspace_bytes = attention_cached_bytes};
