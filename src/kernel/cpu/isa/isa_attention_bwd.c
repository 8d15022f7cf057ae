/* Attention backward: probabilities of a tile are recomputed from lse, then
 *   dV += P^T dY;  dP = dY V^T;  dS = P (dP - rowsum(dY Y)) scale;  dK += dS^T Q;  dQ += dS K
 * with dropout factors on P in the first and on dP in the third. All tiles are transposed, [key][query].
 *
 * A key and value head is one unit of work: its gradients are summed in float over the query heads that share it and over
 * their tiles, always in the same order. */
#include "kernel/cpu/cpu_attention.h"

/* Scratch of one thread, and what it works on. */
typedef struct attention_bwd_work {
    int64_t b, head, query0;
    const int32_t *mask; /* of the sequence */
    bool has_begun;      /* dqt holds something */
    void *k, *v;         /* cells [rows][width] */
    void *kt;            /* cells [width][rows] */
    float *dk, *dv;      /* [rows][width] */
    void *row;           /* cells [tile][width] */
    void *qt, *dyt;      /* right operands [width][tile] */
    void *q, *dy;        /* right operands [tile][width] */
    float *s, *dp;       /* [tile][tile] */
    void *p, *ds;        /* cells [tile][tile] */
    void *ds_right;      /* right operand [tile][tile] */
    float *dqt;          /* [width][tile] */
    float *dq;           /* [tile][width] */
    float *keep;         /* [tile][tile] */
    float lse[TILE], delta[TILE];
} attention_bwd_work;

/* Lays out the scratch from `at` on; returns its end. */
static char *attention_bwd_carve(const attention_shape *h, attention_bwd_work *w, char *at)
{
    const int64_t cell = tile_cell_bytes(h->paired), head = h->rows * h->width, tile = h->tile * h->width;
    w->k = ps_cpu_take(&at, head * cell);
    w->v = ps_cpu_take(&at, head * cell);
    w->kt = ps_cpu_take(&at, head * cell);
    w->dk = ps_cpu_take(&at, head * 4);
    w->dv = ps_cpu_take(&at, head * 4);
    w->row = ps_cpu_take(&at, tile * cell);
    w->qt = ps_cpu_take(&at, tile * cell);
    w->dyt = ps_cpu_take(&at, tile * cell);
    w->q = ps_cpu_take(&at, tile * cell);
    w->dy = ps_cpu_take(&at, tile * cell);
    w->s = ps_cpu_take(&at, h->tile * h->tile * 4);
    w->dp = ps_cpu_take(&at, h->tile * h->tile * 4);
    w->p = ps_cpu_take(&at, h->tile * h->tile * cell);
    w->ds = ps_cpu_take(&at, h->tile * h->tile * cell);
    w->ds_right = h->paired ? ps_cpu_take(&at, h->tile * h->tile * cell) : w->ds;
    w->dqt = ps_cpu_take(&at, tile * 4);
    w->dq = ps_cpu_take(&at, tile * 4);
    w->keep = ps_cpu_take(&at, h->dropout_p > 0.0f ? h->tile * h->tile * 4 : 0);
    return at;
}

static int64_t attention_bwd_thread_bytes(const attention_shape *h)
{
    attention_bwd_work unused;
    char *const base = (char *)64; /* only the distance matters */
    return attention_bwd_carve(h, &unused, base) - base;
}

ps_status PS_CPU_NAME(attention_bwd_bytes)(ps_backend *self, const void *args, size_t *out)
{
    const ps_attention_bwd_args *const a = args;
    const attention_shape h = ATTENTION_SHAPE_OF(a);
    *out = (size_t)(ps_cpu_of(self)->n_threads * attention_bwd_thread_bytes(&h));
    return PS_OK;
}

static void attention_bwd_load(const attention_shape *h, attention_bwd_work *w, int64_t group)
{
    const int64_t cell = tile_cell_bytes(h->paired);
    const void *const k = ps_cpu_at_const(h->dtype, h->k, attention_kv_offset(h, w->b, group, 0));
    const void *const v = ps_cpu_at_const(h->dtype, h->v, attention_kv_offset(h, w->b, group, 0));
    tile_gather(h->paired, w->k, h->width, h->rows, h->dtype, k, h->kv_stride, h->T, h->D, w->mask);
    tile_gather(h->paired, w->v, h->width, h->rows, h->dtype, v, h->kv_stride, h->T, h->D, w->mask);
    for (int64_t t = 0; t < h->rows; t += h->tile)
        attention_pack_columns(h, w->kt, t, (char *)w->k + t * h->width * cell, w->q);
    memset(w->dk, 0, (size_t)(h->rows * h->width) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(h->rows * h->width) * sizeof *w->dv);
}

/* Operands made of the queries of a tile, and their rowsum(dY Y). */
static void attention_bwd_load_queries(const attention_shape *h, attention_bwd_work *w, const ps_attention_bwd_args *a)
{
    const int64_t n = ps_min_i64(h->tile, h->T - w->query0), ld = h->H * h->D;
    const int64_t at = attention_y_offset(h, w->b, w->head, w->query0);
    const void *const q = ps_cpu_at_const(h->dtype, h->q, attention_q_offset(h, w->b, w->head, w->query0));
    const void *const dy = ps_cpu_at_const(h->dtype, a->dy, at), *const y = ps_cpu_at_const(h->dtype, a->y, at);
    const float *const lse = a->lse + attention_lse_offset(h, w->b, w->head, w->query0);
    tile_gather(h->paired, w->row, h->width, h->tile, h->dtype, q, h->q_stride, n, h->D, NULL);
    attention_pack_transposed(h, w->qt, w->row);
    tile_interleave(h->paired, w->q, w->row, h->tile, h->width);
    tile_gather(h->paired, w->row, h->width, h->tile, h->dtype, dy, ld, n, h->D, NULL);
    attention_pack_transposed(h, w->dyt, w->row);
    tile_interleave(h->paired, w->dy, w->row, h->tile, h->width);
    for (int64_t i = 0; i < h->tile; i++) {
        vf sum = {0};
        for (int64_t d = 0; i < n && d < h->D; d += VF_LANES)
            sum = vf_fma(vf_get(h->dtype, dy, i * ld + d, h->D - d), vf_get(h->dtype, y, i * ld + d, h->D - d), sum);
        w->delta[i] = vf_sum(sum);
        w->lse[i] = i < n ? lse[i] : INFINITY; /* no weight */
    }
}

/* From scores and dP to what the other products need, for one vector of queries. */
PS_CPU_INLINE void attention_bwd_softmax(const attention_shape *h, attention_bwd_work *w, bool masked, int64_t key0,
                                         int64_t j)
{
    const vf lse = vf_load(w->lse + j), delta = vf_load(w->delta + j), scale = vf_set1(h->scale), zero = vf_set1(0.0f);
    for (int64_t k = 0; k < h->tile; k += 2) {
        vf p[2], ds[2];
        for (int64_t i = 0; i < 2; i++) {
            const int64_t at = (k + i) * h->tile + j;
            vf dp = vf_load(w->dp + at);
            p[i] = vf_exp(vf_load(w->s + at) * scale - lse);
            if (h->dropout_p > 0.0f) dp *= vf_load(w->keep + at);
            ds[i] = p[i] * (dp - delta) * scale;
            if (h->dropout_p > 0.0f) p[i] *= vf_load(w->keep + at);
            if (!masked) continue;
            const vi visible = attention_visible(h, w->mask, w->query0 + j, key0 + k + i);
            p[i] = vf_where(visible, p[i], zero), ds[i] = vf_where(visible, ds[i], zero);
        }
        tile_store_rows(h->paired, NULL, w->p, h->tile, k, j, p[0], p[1]);
        tile_store_rows(h->paired, w->ds_right, w->ds, h->tile, k, j, ds[0], ds[1]);
    }
}

static void attention_bwd_tile(const attention_shape *h, attention_bwd_work *w, int64_t key0)
{
    const int64_t cell = tile_cell_bytes(h->paired), at = key0 * h->width;
    const attention_sight sight = attention_sight_of(h, w->mask, w->query0, key0);
    if (sight == ATTENTION_NONE) return;
    tile_product(h->paired, w->s, h->tile, (char *)w->k + at * cell, h->width, w->qt, h->tile, h->tile, h->width,
                 false);
    tile_product(h->paired, w->dp, h->tile, (char *)w->v + at * cell, h->width, w->dyt, h->tile, h->tile, h->width,
                 false);
    if (h->dropout_p > 0.0f) attention_keep(h, w->keep, w->b, w->head, w->query0, key0);
    for (int64_t j = 0; j < h->tile; j += VF_LANES)
        if (sight == ATTENTION_ALL)
            attention_bwd_softmax(h, w, false, key0, j);
        else
            attention_bwd_softmax(h, w, true, key0, j);
    tile_product(h->paired, w->dv + at, h->width, w->p, h->tile, w->dy, h->tile, h->width, h->tile, true);
    tile_product(h->paired, w->dk + at, h->width, w->ds, h->tile, w->q, h->tile, h->width, h->tile, true);
    tile_product(h->paired, w->dqt, h->tile, (char *)w->kt + key0 * cell, h->rows, w->ds_right, h->width, h->tile,
                 h->tile, w->has_begun);
    w->has_begun = true;
}

static void attention_bwd_queries(const attention_shape *h, attention_bwd_work *w, const ps_attention_bwd_args *a)
{
    const int64_t n = ps_min_i64(h->tile, h->T - w->query0), end = attention_end_key(h, w->query0 + n);
    attention_bwd_load_queries(h, w, a);
    w->has_begun = false;
    for (int64_t key0 = attention_first_key(h, w->query0); key0 < end; key0 += h->tile) attention_bwd_tile(h, w, key0);
    if (!w->has_begun) memset(w->dqt, 0, (size_t)(h->width * h->tile) * sizeof *w->dqt);
    tile_transpose(w->dq, h->width, w->dqt, h->tile, h->width, h->tile);
    void *const dq = ps_cpu_at(h->dtype, a->dq, attention_q_offset(h, w->b, w->head, w->query0));
    tile_scatter(h->dtype, dq, h->q_stride, w->dq, h->width, n, h->D);
}

ps_status PS_CPU_NAME(attention_bwd)(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_attention_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const attention_shape h = ATTENTION_SHAPE_OF(a);
    const int64_t bytes = attention_bwd_thread_bytes(&h);
#pragma omp parallel for schedule(dynamic)
    for (int64_t item = 0; item < h.B * h.KV; item++) {
        const int64_t group = item % h.KV, b = item / h.KV, at = attention_kv_offset(&h, b, group, 0);
        attention_bwd_work w = {.b = b, .mask = attention_mask(&h, b)};
        attention_bwd_carve(&h, &w, (char *)a->workspace + ps_cpu_thread_index() * bytes);
        attention_bwd_load(&h, &w, group);
        for (w.head = group * (h.H / h.KV); w.head < (group + 1) * (h.H / h.KV); w.head++)
            for (w.query0 = 0; w.query0 < h.T; w.query0 += h.tile) attention_bwd_queries(&h, &w, a);
        tile_scatter(h.dtype, ps_cpu_at(h.dtype, a->dk, at), h.kv_stride, w.dk, h.width, h.T, h.D);
        tile_scatter(h.dtype, ps_cpu_at(h.dtype, a->dv, at), h.kv_stride, w.dv, h.width, h.T, h.D);
    }
    return PS_OK;
}
