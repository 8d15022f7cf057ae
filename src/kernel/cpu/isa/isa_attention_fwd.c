/* Attention forward: for each tile of queries an online softmax over tiles of keys (Dao et al. 2022). A unit of work is
 * a range of query tiles for all query heads that share a key and value head, whose keys and values are packed once for
 * them. */
#include "kernel/cpu/cpu_attention.h"

/* Number of ranges of query tiles of a sequence: several, when there are too few heads for the threads. A query's
 * result does not depend on it. */
static int64_t attention_fwd_cuts(const attention_shape *h, int64_t n_threads)
{
    const int64_t wanted = ps_ceil_div(4 * n_threads, ps_max_i64(h->B * h->KV, 1));
    return ps_min_i64(wanted, ps_max_i64(h->rows / h->tile, 1));
}

/* Weights are relative to a maximum that may be too small by this power of two, so that sums are rarely rescaled. */
#define FWD_SLACK 8.0f

/* Scratch of one thread, and its present work. */
typedef struct attention_fwd_work {
    int64_t b, head, query0;
    const int32_t *mask; /* of the sequence */
    bool has_begun;      /* yt has values */
    void *k;             /* cells [rows][width] */
    void *vt;            /* cells [rows / tile][width][tile] */
    void *row;           /* cells [tile][width] */
    void *qt;            /* right operand [width][tile] */
    void *p;             /* right operand [tile][tile] */
    float *s;            /* [tile][tile] */
    float *yt;           /* [width][tile] */
    float *y;            /* [tile][width] */
    float *keep;         /* [tile][tile] */
    float max[TILE];     /* to which sum and yt are relative, of the scaled scores, as powers of two */
    float sum[TILE];
} attention_fwd_work;

/* A call. */
typedef struct attention_fwd_job {
    const ps_attention_fwd_args *a;
    attention_shape h;
    int64_t n_cuts, thread_bytes;
} attention_fwd_job;

/* Lay out the scratch from `at` on; returns its end. */
static char *attention_fwd_carve(const attention_shape *h, attention_fwd_work *w, char *at)
{
    const int64_t cell = tile_cell_bytes(h->kind), tile = h->tile * h->width;
    w->k = ps_cpu_take(&at, h->rows * h->width * cell);
    w->vt = ps_cpu_take(&at, h->rows * h->width * cell);
    w->row = ps_cpu_take(&at, tile * cell);
    w->qt = ps_cpu_take(&at, tile * cell);
    w->p = ps_cpu_take(&at, h->tile * h->tile * cell);
    w->s = ps_cpu_take(&at, h->tile * h->tile * 4);
    w->yt = ps_cpu_take(&at, tile * 4);
    w->y = ps_cpu_take(&at, tile * 4);
    w->keep = ps_cpu_take(&at, h->dropout_p > 0.0f ? h->tile * h->tile * 4 : 0);
    return at;
}

static int64_t attention_fwd_thread_bytes(const attention_shape *h)
{
    attention_fwd_work unused;
    char *const base = (char *)64; /* any address: only the distance is used */
    return attention_fwd_carve(h, &unused, base) - base;
}

static ps_status attention_fwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_attention_fwd_args *const a = args;
    const attention_shape h = ATTENTION_SHAPE_OF(self, a);
    *out = (size_t)(ps_cpu_of(self)->n_threads * attention_fwd_thread_bytes(&h));
    return PS_OK;
}

/* Keys and transposed values [first, end) of a head, whole tiles from `first` on. */
static void attention_fwd_load(const attention_shape *h, attention_fwd_work *w, int64_t group, int64_t first,
                               int64_t end)
{
    const int64_t cell = tile_cell_bytes(h->kind);
    for (int64_t t = first; t < end; t += h->tile) {
        const int64_t n = ps_min_i64(h->tile, h->T - t), at = attention_kv_offset(h, w->b, group, t);
        const int32_t *const mask = w->mask == NULL ? NULL : w->mask + t;
        const void *const k = ps_cpu_at_const(h->dtype, h->k, at), *const v = ps_cpu_at_const(h->dtype, h->v, at);
        char *const tile = (char *)w->k + t * h->width * cell;
        tile_gather(h->kind, tile, h->width, h->tile, h->dtype, k, h->kv_stride, n, h->D, mask);
        tile_gather(h->kind, w->row, h->width, h->tile, h->dtype, v, h->kv_stride, n, h->D, mask);
        attention_pack_columns(h, (char *)w->vt + t * h->width * cell, w->row, w->qt);
    }
}

/* Rescale the sums of one vector of queries by `factor`, exp2 of the difference of maxima. */
static void attention_fwd_rescale(const attention_shape *h, attention_fwd_work *w, int64_t j, vf factor)
{
    vf_store(w->sum + j, vf_load(w->sum + j) * factor);
    for (int64_t d = 0; w->has_begun && d < h->width; d++)
        vf_store(w->yt + d * h->tile + j, vf_load(w->yt + d * h->tile + j) * factor);
}

/* The largest scaled score of each of one vector of queries: minus infinity where all keys are masked. */
PS_CPU_INLINE vf attention_fwd_max(const attention_shape *h, const attention_fwd_work *w, bool masked, int64_t key0,
                                   int64_t j)
{
    const vf scale = vf_set1(h->scale * ATTENTION_LOG2_E), least = vf_set1(-INFINITY);
    vf max[4] = {least, least, least, least}; /* independent chains */
    for (int64_t k = 0; k < h->tile; k += 4)
        for (int64_t i = 0; i < 4; i++) {
            const vf z = vf_load(w->s + (k + i) * h->tile + j) * scale;
            const vi visible = masked ? attention_visible(h, w->mask, w->query0 + j, key0 + k + i) : (vi){0};
            max[i] = vf_max(max[i], masked ? vf_where(visible, z, least) : z);
        }
    return vf_max(vf_max(max[0], max[1]), vf_max(max[2], max[3]));
}

/* One vector of queries against the keys of a tile: probabilities relative to the maximum go to p. A query without
 * unmasked keys so far has a maximum of minus infinity, and sums of zero, which any factor leaves zero. */
PS_CPU_INLINE void attention_fwd_softmax(const attention_shape *h, attention_fwd_work *w, bool masked, int64_t key0,
                                         int64_t j)
{
    const vf scale = vf_set1(h->scale * ATTENTION_LOG2_E), zero = vf_set1(0.0f), old = vf_load(w->max + j);
    const vf found = attention_fwd_max(h, w, masked, key0, j);
    const vi grows = found > old + FWD_SLACK;
    const vf max = vf_where(grows, found, old),
             base = vf_where(max > -INFINITY, max, zero); /* no infinity minus infinity */
    if (vi_any(grows)) attention_fwd_rescale(h, w, j, vf_where(grows, attention_exp2(old - base), vf_set1(1.0f)));
    vf sum[2] = {zero, zero};
    for (int64_t k = 0; k < h->tile; k += 2) {
        vf p[2];
        for (int64_t i = 0; i < 2; i++) {
            p[i] = attention_exp2(vf_load(w->s + (k + i) * h->tile + j) * scale - base);
            if (masked) p[i] = vf_where(attention_visible(h, w->mask, w->query0 + j, key0 + k + i), p[i], zero);
            sum[i] += p[i];
            if (h->dropout_p > 0.0f) p[i] *= vf_load(w->keep + (k + i) * h->tile + j);
        }
        tile_store_rows(h->kind, w->p, NULL, h->tile, k, j, p[0], p[1]);
    }
    vf_store(w->sum + j, vf_load(w->sum + j) + (sum[0] + sum[1]));
    vf_store(w->max + j, max);
}

static void attention_fwd_tile(const attention_shape *h, attention_fwd_work *w, int64_t key0)
{
    const int64_t at = key0 * h->width * tile_cell_bytes(h->kind);
    const attention_mask_kind mask_kind = attention_mask_kind_of(h, w->mask, w->query0, key0);
    if (mask_kind == ATTENTION_NONE) return;
    tile_gemm(h->kind, w->s, h->tile, (char *)w->k + at, h->width, w->qt, h->tile, h->tile, h->width, false);
    if (h->dropout_p > 0.0f) attention_keep(h, w->keep, w->b, w->head, w->query0, key0);
    for (int64_t j = 0; j < h->tile; j += VF_LANES)
        if (mask_kind == ATTENTION_ALL)
            attention_fwd_softmax(h, w, false, key0, j);
        else
            attention_fwd_softmax(h, w, true, key0, j);
    tile_gemm(h->kind, w->yt, h->tile, (char *)w->vt + at, h->tile, w->p, h->width, h->tile, h->tile, w->has_begun);
    w->has_begun = true;
}

/* y and lse from the sums of all tiles; zeros for queries whose keys are all masked. */
static void attention_fwd_finish(const attention_shape *h, attention_fwd_work *w, const ps_attention_fwd_args *a)
{
    const int64_t n = ps_min_i64(h->tile, h->T - w->query0);
    if (!w->has_begun) memset(w->yt, 0, (size_t)(h->width * h->tile) * sizeof *w->yt);
    for (int64_t j = 0; j < h->tile; j += VF_LANES) {
        const vf sum = vf_load(w->sum + j), inverse = vf_where(sum == 0.0f, vf_set1(0.0f), 1.0f / sum);
        for (int64_t d = 0; d < h->width; d++)
            vf_store(w->yt + d * h->tile + j, vf_load(w->yt + d * h->tile + j) * inverse);
    }
    tile_transpose(w->y, h->width, w->yt, h->tile, h->width, h->tile);
    tile_scatter(h->dtype, ps_cpu_at(h->dtype, a->y, attention_y_offset(h, w->b, w->head, w->query0)), h->H * h->D,
                 w->y, h->width, n, h->D, 1.0f);
    float *const lse = a->lse + attention_lse_offset(h, w->b, w->head, w->query0);
    for (int64_t j = 0; j < n; j += VF_LANES) {
        const vf sum = vf_load(w->sum + j), log = vf_load(w->max + j) * ATTENTION_LN_2 + vf_log(sum);
        vf_put(PS_DTYPE_F32, lse, j, n - j, vf_where(sum == 0.0f, vf_set1(0.0f), log));
    }
}

static void attention_fwd_queries(const attention_shape *h, attention_fwd_work *w, const ps_attention_fwd_args *a)
{
    const int64_t n = ps_min_i64(h->tile, h->T - w->query0), end = attention_end_key(h, w->query0 + n);
    const void *const q = ps_cpu_at_const(h->dtype, h->q, attention_q_offset(h, w->b, w->head, w->query0));
    tile_gather(h->kind, w->row, h->width, h->tile, h->dtype, q, h->q_stride, n, h->D, NULL);
    attention_pack_transposed(h, w->qt, w->row);
    for (int64_t i = 0; i < h->tile; i++) w->max[i] = -INFINITY, w->sum[i] = 0.0f;
    w->has_begun = false;
    for (int64_t key0 = attention_first_key(h, w->query0); key0 < end; key0 += h->tile) attention_fwd_tile(h, w, key0);
    attention_fwd_finish(h, w, a);
}

/* The ranges with most keys come first. */
static void attention_fwd_item(const void *args, int64_t item, int64_t thread)
{
    const attention_fwd_job *const job = args;
    const attention_shape *const h = &job->h;
    const int64_t n_tiles = h->rows / h->tile, cut = job->n_cuts - 1 - item / (h->B * h->KV);
    const int64_t b = item / h->KV % h->B, group = item % h->KV;
    const int64_t lo = n_tiles * cut / job->n_cuts * h->tile, hi = n_tiles * (cut + 1) / job->n_cuts * h->tile;
    attention_fwd_work w = {.b = b, .mask = attention_mask(h, b)};
    attention_fwd_carve(h, &w, (char *)job->a->workspace + thread * job->thread_bytes);
    const unsigned before = tile_begin(h->kind);
    attention_fwd_load(h, &w, group, attention_first_key(h, lo), attention_end_key(h, hi));
    for (w.head = group * (h->H / h->KV); w.head < (group + 1) * (h->H / h->KV); w.head++)
        for (w.query0 = lo; w.query0 < hi; w.query0 += h->tile) attention_fwd_queries(h, &w, job->a);
    tile_end(h->kind, before);
}

static ps_status attention_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_attention_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    attention_fwd_job job = {.a = a, .h = ATTENTION_SHAPE_OF(self, a)};
    job.n_cuts = attention_fwd_cuts(&job.h, ps_cpu_of(self)->n_threads);
    job.thread_bytes = attention_fwd_thread_bytes(&job.h);
    ps_cpu_pool_run(ps_cpu_of(self)->pool, job.h.B * job.h.KV * job.n_cuts, attention_fwd_item, &job);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(attention_fwd) = {.run = attention_fwd, .workspace_bytes = attention_fwd_bytes};
