/* Attention forward: for each tile of queries an online softmax over tiles of keys (Dao et al. 2022). A unit of work is a
 * run of query tiles for all query heads that share a key and value head, which is brought into shape once for them. */
#include "kernel/cpu/cpu_attention.h"

/* Sequences are cut in this many runs of query tiles when there are too few heads for the threads. A query's result does
 * not depend on the cut. */
static int64_t attention_fwd_cuts(const attention_shape *h, int64_t n_threads)
{
    const int64_t wanted = ps_ceil_div(4 * n_threads, ps_max_i64(h->B * h->KV, 1));
    return ps_min_i64(wanted, ps_max_i64(h->rows / h->tile, 1));
}

/* Scratch of one thread, and what it works on. */
typedef struct attention_fwd_work {
    int64_t b, head, query0;
    const int32_t *mask; /* of the sequence */
    bool has_begun;      /* yt holds something */
    void *k;             /* cells [rows][width] */
    void *vt;            /* cells [width][rows] */
    void *row;           /* cells [tile][width] */
    void *qt;            /* right operand [width][tile] */
    void *p;             /* right operand [tile][tile] */
    float *s;            /* [tile][tile] */
    float *yt;           /* [width][tile] */
    float *y;            /* [tile][width] */
    float *keep;         /* [tile][tile] */
    float max[TILE], sum[TILE];
} attention_fwd_work;

/* Lays out the scratch from `at` on; returns its end. */
static char *attention_fwd_carve(const attention_shape *h, attention_fwd_work *w, char *at)
{
    const int64_t cell = tile_cell_bytes(h->paired), tile = h->tile * h->width;
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
    char *const base = (char *)64; /* only the distance matters */
    return attention_fwd_carve(h, &unused, base) - base;
}

ps_status PS_CPU_NAME(attention_fwd_bytes)(ps_backend *self, const void *args, size_t *out)
{
    const ps_attention_fwd_args *const a = args;
    const attention_shape h = ATTENTION_SHAPE_OF(a);
    *out = (size_t)(ps_cpu_of(self)->n_threads * attention_fwd_thread_bytes(&h));
    return PS_OK;
}

/* Keys and transposed values [first, end) of a head, whole tiles from `first` on. */
static void attention_fwd_load(const attention_shape *h, attention_fwd_work *w, int64_t group, int64_t first,
                               int64_t end)
{
    const int64_t cell = tile_cell_bytes(h->paired);
    for (int64_t t = first; t < end; t += h->tile) {
        const int64_t n = ps_min_i64(h->tile, h->T - t), at = attention_kv_offset(h, w->b, group, t);
        const int32_t *const mask = w->mask == NULL ? NULL : w->mask + t;
        const void *const k = ps_cpu_at_const(h->dtype, h->k, at), *const v = ps_cpu_at_const(h->dtype, h->v, at);
        char *const tile = (char *)w->k + t * h->width * cell;
        tile_gather(h->paired, tile, h->width, h->tile, h->dtype, k, h->kv_stride, n, h->D, mask);
        tile_gather(h->paired, w->row, h->width, h->tile, h->dtype, v, h->kv_stride, n, h->D, mask);
        attention_pack_columns(h, w->vt, t, w->row, w->qt);
    }
}

/* One vector of queries against the keys of a tile: probabilities relative to the new maximum go to p. Returns the
 * factor that brings what was summed before to the new maximum. A query that has seen no key yet has a maximum of minus
 * infinity, and sums of zero whatever they are multiplied with. */
PS_CPU_INLINE vf attention_fwd_softmax(const attention_shape *h, attention_fwd_work *w, bool masked, int64_t key0,
                                       int64_t j)
{
    const vf old_max = vf_load(w->max + j), scale = vf_set1(h->scale), zero = vf_set1(0.0f);
    const int64_t query = w->query0 + j;
    vf max = old_max, sum = zero;
    for (int64_t k = 0; k < h->tile; k++) {
        const vf z = vf_load(w->s + k * h->tile + j) * scale;
        max = masked ? vf_where(attention_visible(h, w->mask, query, key0 + k), vf_max(max, z), max) : vf_max(max, z);
    }
    const vf base = vf_where(max > -INFINITY, max, zero); /* no infinity minus infinity */
    for (int64_t k = 0; k < h->tile; k += 2) {
        vf p[2];
        for (int64_t i = 0; i < 2; i++) {
            p[i] = vf_exp(vf_load(w->s + (k + i) * h->tile + j) * scale - base);
            if (masked) p[i] = vf_where(attention_visible(h, w->mask, query, key0 + k + i), p[i], zero);
            sum += p[i];
            if (h->dropout_p > 0.0f) p[i] *= vf_load(w->keep + (k + i) * h->tile + j);
        }
        tile_store_rows(h->paired, w->p, NULL, h->tile, k, j, p[0], p[1]);
    }
    const vf factor = vf_exp(old_max - base);
    vf_store(w->sum + j, vf_fma(vf_load(w->sum + j), factor, sum));
    vf_store(w->max + j, max);
    return factor;
}

static void attention_fwd_tile(const attention_shape *h, attention_fwd_work *w, int64_t key0)
{
    const int64_t cell = tile_cell_bytes(h->paired);
    const attention_sight sight = attention_sight_of(h, w->mask, w->query0, key0);
    if (sight == ATTENTION_NONE) return;
    tile_product(h->paired, w->s, h->tile, (char *)w->k + key0 * h->width * cell, h->width, w->qt, h->tile, h->tile,
                 h->width, false);
    if (h->dropout_p > 0.0f) attention_keep(h, w->keep, w->b, w->head, w->query0, key0);
    for (int64_t j = 0; j < h->tile; j += VF_LANES) {
        const vf factor = sight == ATTENTION_ALL ? attention_fwd_softmax(h, w, false, key0, j)
                                                 : attention_fwd_softmax(h, w, true, key0, j);
        for (int64_t d = 0; w->has_begun && d < h->width; d++)
            vf_store(w->yt + d * h->tile + j, vf_load(w->yt + d * h->tile + j) * factor);
    }
    tile_product(h->paired, w->yt, h->tile, (char *)w->vt + key0 * cell, h->rows, w->p, h->width, h->tile, h->tile,
                 w->has_begun);
    w->has_begun = true;
}

/* y and lse from the sums of all tiles; zeros for queries that saw no key. */
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
                 w->y, h->width, n, h->D);
    float *const lse = a->lse + attention_lse_offset(h, w->b, w->head, w->query0);
    for (int64_t i = 0; i < n; i++) lse[i] = w->sum[i] == 0.0f ? 0.0f : w->max[i] + logf(w->sum[i]);
}

static void attention_fwd_queries(const attention_shape *h, attention_fwd_work *w, const ps_attention_fwd_args *a)
{
    const int64_t n = ps_min_i64(h->tile, h->T - w->query0), end = attention_end_key(h, w->query0 + n);
    const void *const q = ps_cpu_at_const(h->dtype, h->q, attention_q_offset(h, w->b, w->head, w->query0));
    tile_gather(h->paired, w->row, h->width, h->tile, h->dtype, q, h->q_stride, n, h->D, NULL);
    attention_pack_transposed(h, w->qt, w->row);
    for (int64_t i = 0; i < h->tile; i++) w->max[i] = -INFINITY, w->sum[i] = 0.0f;
    w->has_begun = false;
    for (int64_t key0 = attention_first_key(h, w->query0); key0 < end; key0 += h->tile) attention_fwd_tile(h, w, key0);
    attention_fwd_finish(h, w, a);
}

ps_status PS_CPU_NAME(attention_fwd)(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_attention_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    const attention_shape h = ATTENTION_SHAPE_OF(a);
    const int64_t n_tiles = h.rows / h.tile, n_cuts = attention_fwd_cuts(&h, ps_cpu_of(self)->n_threads),
                  bytes = attention_fwd_thread_bytes(&h);
#pragma omp parallel for schedule(dynamic)
    for (int64_t item = 0; item < h.B * h.KV * n_cuts; item++) {
        const int64_t cut = item % n_cuts, group = item / n_cuts % h.KV, b = item / n_cuts / h.KV;
        const int64_t lo = n_tiles * cut / n_cuts * h.tile, hi = n_tiles * (cut + 1) / n_cuts * h.tile;
        attention_fwd_work w = {.b = b, .mask = attention_mask(&h, b)};
        attention_fwd_carve(&h, &w, (char *)a->workspace + ps_cpu_thread_index() * bytes);
        attention_fwd_load(&h, &w, group, attention_first_key(&h, lo), attention_end_key(&h, hi));
        for (w.head = group * (h.H / h.KV); w.head < (group + 1) * (h.H / h.KV); w.head++)
            for (w.query0 = lo; w.query0 < hi; w.query0 += h.tile) attention_fwd_queries(&h, &w, a);
    }
    return PS_OK;
}
