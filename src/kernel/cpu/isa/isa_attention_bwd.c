/* Attention backward: probabilities of a tile are recomputed from lse, then
 *   dV += P^T dY;  dP = dY V^T;  dS = P (dP - rowsum(dY Y));  dK += dS^T Q;  dQ += dS K
 * with dropout factors on P in the first and on dP in the third, and the scale on dK and dQ when they are done. All
 * tiles are transposed, [key][query].
 *
 * Where there are enough heads, a key and value head is one unit of work. Else its keys and its queries are divided
 * into n_pieces pieces each, and processed in n_pieces phases. In a phase each piece of the keys is combined with a
 * different piece of the queries, so that units of a phase are independent.
 *
 *                  keys
 *           q      0 . . .      phase of each pair, of 4 pieces; causal: those above the diagonal are empty
 *           u      1 0 . .
 *           e      2 1 0 .
 *           ries   3 2 1 0
 *
 * A tile of keys sums over queries in ascending order, and a tile of queries over keys in descending order, however
 * many pieces there are: so where attention is causal the number of pieces may depend on that of threads. Otherwise the
 * piece of the queries above the diagonal comes last, and the number of pieces depends on the shape only. */
#include "kernel/cpu/cpu_attention.h"

/* Scratch of one thread, and its present work. */
typedef struct attention_bwd_work {
    int64_t b, head, query0;
    int64_t key_lo, key_hi; /* the keys of this piece */
    const int32_t *mask;    /* of the sequence */
    void *k, *v;            /* cells [rows of a piece][width] */
    void *kt;               /* cells [tiles of a piece][width][tile] */
    void *row;              /* cells [tile][width] */
    void *qt, *dyt;         /* right operands [width][tile] */
    void *q, *dy;           /* right operands [tile][width] */
    float *s, *dp;          /* [tile][tile] */
    void *p, *ds;           /* cells [tile][tile] */
    void *ds_right;         /* right operand [tile][tile] */
    float *dq;              /* [tile][width] */
    float *keep;            /* [tile][tile] */
    float lse[TILE];        /* as a power of two */
    float delta[TILE];
    float *dk, *dv; /* [rows][width] of the key and value head: sums so far */
    float *dqt;     /* [width][tile] of the tile of queries, likewise */
} attention_bwd_work;

/* A call. */
typedef struct attention_bwd_job {
    const ps_attention_bwd_args *a;
    attention_shape h;
    int64_t n_pieces, phase, thread_bytes;
    float *dk, *dv; /* [B][KV][rows][width]; NULL with one piece: each thread has those of one head */
    float *dqt;     /* [B][H][rows / tile][width][tile], likewise of a tile */
} attention_bwd_job;

static int64_t attention_bwd_pieces(const attention_shape *h, int64_t n_threads)
{
    const int64_t wanted = ps_ceil_div(h->causal ? 4 * n_threads : 16, ps_max_i64(h->B * h->KV, 1));
    return ps_min_i64(wanted, ps_max_i64(h->rows / h->tile, 1));
}

/* First row of a piece. */
static int64_t attention_bwd_row(const attention_bwd_job *job, int64_t piece)
{
    return job->h.rows / job->h.tile * piece / job->n_pieces * job->h.tile;
}

/* Lay out a thread's scratch from `at` on; returns its end. */
static char *attention_bwd_carve(const attention_bwd_job *job, attention_bwd_work *w, char *at)
{
    const attention_shape *const h = &job->h;
    const int64_t cell = tile_cell_bytes(h->kind), tile = h->tile * h->width, n_tiles = h->rows / h->tile;
    const int64_t piece_cells = ps_ceil_div(n_tiles, job->n_pieces) * tile;
    w->k = ps_cpu_take(&at, piece_cells * cell);
    w->v = ps_cpu_take(&at, piece_cells * cell);
    w->kt = ps_cpu_take(&at, piece_cells * cell);
    w->row = ps_cpu_take(&at, tile * cell);
    w->qt = ps_cpu_take(&at, tile * cell);
    w->dyt = ps_cpu_take(&at, tile * cell);
    w->q = ps_cpu_take(&at, tile * cell);
    w->dy = ps_cpu_take(&at, tile * cell);
    w->s = ps_cpu_take(&at, h->tile * h->tile * 4);
    w->dp = ps_cpu_take(&at, h->tile * h->tile * 4);
    w->p = ps_cpu_take(&at, h->tile * h->tile * cell);
    w->ds = ps_cpu_take(&at, h->tile * h->tile * cell);
    w->ds_right = tile_is_paired(h->kind) ? ps_cpu_take(&at, h->tile * h->tile * cell) : w->ds;
    w->dq = ps_cpu_take(&at, tile * 4);
    w->keep = ps_cpu_take(&at, h->dropout_p > 0.0f ? h->tile * h->tile * 4 : 0);
    if (job->n_pieces > 1) return at;
    w->dk = ps_cpu_take(&at, h->rows * h->width * 4);
    w->dv = ps_cpu_take(&at, h->rows * h->width * 4);
    w->dqt = ps_cpu_take(&at, tile * 4);
    return at;
}

/* Everything about a call; *bytes: its scratch. */
static attention_bwd_job attention_bwd_job_of(ps_backend *self, const ps_attention_bwd_args *a, int64_t *bytes)
{
    const int64_t n_threads = ps_cpu_of(self)->n_threads;
    attention_bwd_job job = {.a = a, .h = ATTENTION_SHAPE_OF(self, a)};
    attention_bwd_work unused;
    job.n_pieces = attention_bwd_pieces(&job.h, n_threads);
    char *const base = (char *)64; /* any address: only the distance is used */
    job.thread_bytes = attention_bwd_carve(&job, &unused, base) - base;
    *bytes = n_threads * job.thread_bytes;
    if (job.n_pieces == 1) return job;
    const int64_t head = job.h.B * job.h.rows * job.h.width * 4, from = *bytes;
    *bytes += head * (2 * job.h.KV + job.h.H);
    if (a->workspace == NULL) return job; /* measured only */
    char *const shared = (char *)a->workspace + from;
    job.dk = (float *)(void *)shared;
    job.dv = (float *)(void *)(shared + head * job.h.KV);
    job.dqt = (float *)(void *)(shared + 2 * head * job.h.KV);
    return job;
}

static ps_status attention_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    int64_t bytes;
    (void)attention_bwd_job_of(self, args, &bytes);
    *out = (size_t)bytes;
    return PS_OK;
}

static void attention_bwd_load_keys(const attention_shape *h, attention_bwd_work *w, int64_t group)
{
    const int64_t cell = tile_cell_bytes(h->kind), n = ps_min_i64(w->key_hi, h->T) - w->key_lo;
    const int64_t at = attention_kv_offset(h, w->b, group, w->key_lo);
    const void *const k = ps_cpu_at_const(h->dtype, h->k, at), *const v = ps_cpu_at_const(h->dtype, h->v, at);
    const int32_t *const mask = w->mask == NULL ? NULL : w->mask + w->key_lo;
    tile_gather(h->kind, w->k, h->width, w->key_hi - w->key_lo, h->dtype, k, h->kv_stride, n, h->D, mask);
    tile_gather(h->kind, w->v, h->width, w->key_hi - w->key_lo, h->dtype, v, h->kv_stride, n, h->D, mask);
    for (int64_t t = 0; t < w->key_hi - w->key_lo; t += h->tile)
        attention_pack_columns(h, (char *)w->kt + t * h->width * cell, (char *)w->k + t * h->width * cell, w->q);
}

/* Sum of x y over the D elements from `at` on. */
PS_CPU_INLINE float attention_bwd_dot(ps_dtype t, const void *x, const void *y, int64_t at, int64_t D)
{
    vf sum[VF_SUMS] = {{0}};
    for (int64_t d0 = 0; d0 < D; d0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t d = d0 + s * VF_LANES;
            sum[s] = vf_fma(vf_get(t, x, at + d, D - d), vf_get(t, y, at + d, D - d), sum[s]);
        }
    return vf_fold(sum);
}

/* Make the operands of the queries of a tile, and their rowsum(dY Y). */
static void attention_bwd_load_queries(const attention_shape *h, attention_bwd_work *w, const ps_attention_bwd_args *a)
{
    const int64_t n = ps_min_i64(h->tile, h->T - w->query0), ld = h->H * h->D;
    const int64_t at = attention_y_offset(h, w->b, w->head, w->query0);
    const void *const q = ps_cpu_at_const(h->dtype, h->q, attention_q_offset(h, w->b, w->head, w->query0));
    const void *const dy = ps_cpu_at_const(h->dtype, a->dy, at), *const y = ps_cpu_at_const(h->dtype, a->y, at);
    const float *const lse = a->lse + attention_lse_offset(h, w->b, w->head, w->query0);
    tile_gather(h->kind, w->row, h->width, h->tile, h->dtype, q, h->q_stride, n, h->D, NULL);
    attention_pack_transposed(h, w->qt, w->row);
    tile_interleave(h->kind, w->q, w->row, h->tile, h->width);
    tile_gather(h->kind, w->row, h->width, h->tile, h->dtype, dy, ld, n, h->D, NULL);
    attention_pack_transposed(h, w->dyt, w->row);
    tile_interleave(h->kind, w->dy, w->row, h->tile, h->width);
    for (int64_t i = 0; i < h->tile; i++) {
        w->delta[i] = i < n ? attention_bwd_dot(h->dtype, dy, y, i * ld, h->D) : 0.0f;
        w->lse[i] = i < n ? lse[i] * ATTENTION_LOG2_E : INFINITY; /* no weight */
    }
}

/* From scores and dP to the operands of the other multiplications, for one vector of queries. */
PS_CPU_INLINE void attention_bwd_softmax(const attention_shape *h, attention_bwd_work *w, bool masked, int64_t key0,
                                         int64_t j)
{
    const vf lse = vf_load(w->lse + j), delta = vf_load(w->delta + j), zero = vf_set1(0.0f);
    const vf scale = vf_set1(h->scale * ATTENTION_LOG2_E);
    for (int64_t k = 0; k < h->tile; k += 2) {
        vf p[2], ds[2];
        for (int64_t i = 0; i < 2; i++) {
            const int64_t at = (k + i) * h->tile + j;
            vf dp = vf_load(w->dp + at);
            p[i] = attention_exp2(vf_load(w->s + at) * scale - lse);
            if (h->dropout_p > 0.0f) dp *= vf_load(w->keep + at);
            ds[i] = p[i] * (dp - delta);
            if (h->dropout_p > 0.0f) p[i] *= vf_load(w->keep + at);
            if (!masked) continue;
            const vi visible = attention_visible(h, w->mask, w->query0 + j, key0 + k + i);
            p[i] = vf_where(visible, p[i], zero), ds[i] = vf_where(visible, ds[i], zero);
        }
        tile_store_rows(h->kind, NULL, w->p, h->tile, k, j, p[0], p[1]);
        tile_store_rows(h->kind, w->ds_right, w->ds, h->tile, k, j, ds[0], ds[1]);
    }
}

static void attention_bwd_tile(const attention_shape *h, attention_bwd_work *w, int64_t key0)
{
    const int64_t cell = tile_cell_bytes(h->kind), at = key0 * h->width, from = (key0 - w->key_lo) * h->width * cell;
    const attention_mask_kind mask_kind = attention_mask_kind_of(h, w->mask, w->query0, key0);
    if (mask_kind == ATTENTION_NONE) return;
    tile_gemm(h->kind, w->s, h->tile, (char *)w->k + from, h->width, w->qt, h->tile, h->tile, h->width, false);
    tile_gemm(h->kind, w->dp, h->tile, (char *)w->v + from, h->width, w->dyt, h->tile, h->tile, h->width, false);
    if (h->dropout_p > 0.0f) attention_keep(h, w->keep, w->b, w->head, w->query0, key0);
    for (int64_t j = 0; j < h->tile; j += VF_LANES)
        if (mask_kind == ATTENTION_ALL)
            attention_bwd_softmax(h, w, false, key0, j);
        else
            attention_bwd_softmax(h, w, true, key0, j);
    tile_gemm(h->kind, w->dv + at, h->width, w->p, h->tile, w->dy, h->tile, h->width, h->tile, true);
    tile_gemm(h->kind, w->dk + at, h->width, w->ds, h->tile, w->q, h->tile, h->width, h->tile, true);
    tile_gemm(h->kind, w->dqt, h->tile, (char *)w->kt + from, h->tile, w->ds_right, h->width, h->tile, h->tile, true);
}

/* The keys of the piece for a tile of queries. */
static void attention_bwd_queries(const attention_bwd_job *job, attention_bwd_work *w)
{
    const attention_shape *const h = &job->h;
    const int64_t n = ps_min_i64(h->tile, h->T - w->query0), tile = h->tile * h->width;
    const int64_t first = ps_max_i64(w->key_lo, attention_first_key(h, w->query0));
    const int64_t end = ps_round_up(ps_min_i64(w->key_hi, attention_end_key(h, w->query0 + n)), h->tile);
    if (job->n_pieces > 1)
        w->dqt = job->dqt + (w->b * h->H + w->head) * h->rows * h->width + w->query0 / h->tile * tile;
    if (job->phase == 0) memset(w->dqt, 0, (size_t)tile * sizeof *w->dqt);
    if (first < end) attention_bwd_load_queries(h, w, job->a);
    for (int64_t key0 = end - h->tile; key0 >= first; key0 -= h->tile) attention_bwd_tile(h, w, key0);
    if (job->phase < job->n_pieces - 1) return;
    tile_transpose(w->dq, h->width, w->dqt, h->tile, h->width, h->tile);
    void *const dq = ps_cpu_at(h->dtype, job->a->dq, attention_q_offset(h, w->b, w->head, w->query0));
    tile_scatter(h->dtype, dq, h->q_stride, w->dq, h->width, n, h->D, h->scale);
}

/* Room for the sums of the keys of the piece. */
static void attention_bwd_begin_keys(const attention_bwd_job *job, attention_bwd_work *w, int64_t group)
{
    const attention_shape *const h = &job->h;
    const int64_t head = (w->b * h->KV + group) * h->rows * h->width;
    if (job->n_pieces > 1) w->dk = job->dk + head, w->dv = job->dv + head;
    if (job->phase > 0) return;
    const size_t bytes = (size_t)((w->key_hi - w->key_lo) * h->width) * sizeof(float);
    memset(w->dk + w->key_lo * h->width, 0, bytes);
    memset(w->dv + w->key_lo * h->width, 0, bytes);
}

static void attention_bwd_end_keys(const attention_bwd_job *job, attention_bwd_work *w, int64_t group)
{
    const attention_shape *const h = &job->h;
    const int64_t n = ps_min_i64(w->key_hi, h->T) - w->key_lo, from = w->key_lo * h->width;
    const int64_t at = attention_kv_offset(h, w->b, group, w->key_lo);
    if (job->phase < job->n_pieces - 1) return;
    tile_scatter(h->dtype, ps_cpu_at(h->dtype, job->a->dk, at), h->kv_stride, w->dk + from, h->width, n, h->D,
                 h->scale);
    tile_scatter(h->dtype, ps_cpu_at(h->dtype, job->a->dv, at), h->kv_stride, w->dv + from, h->width, n, h->D, 1.0f);
}

static void attention_bwd_item(const void *args, int64_t item, int64_t thread)
{
    const attention_bwd_job *const job = args;
    const attention_shape *const h = &job->h;
    const int64_t piece = item % job->n_pieces, group = item / job->n_pieces % h->KV, b = item / job->n_pieces / h->KV;
    const int64_t queries = (piece + job->phase) % job->n_pieces, per_kv = h->H / h->KV;
    const int64_t lo = attention_bwd_row(job, queries), hi = attention_bwd_row(job, queries + 1);
    attention_bwd_work w = {.b = b,
                            .mask = attention_mask(h, b),
                            .key_lo = attention_bwd_row(job, piece),
                            .key_hi = attention_bwd_row(job, piece + 1)};
    attention_bwd_carve(job, &w, (char *)job->a->workspace + thread * job->thread_bytes);
    const unsigned before = tile_begin(h->kind);
    attention_bwd_begin_keys(job, &w, group);
    if (attention_first_key(h, lo) < w.key_hi && attention_end_key(h, hi) > w.key_lo)
        attention_bwd_load_keys(h, &w, group);
    for (w.query0 = lo; w.query0 < hi; w.query0 += h->tile)
        for (w.head = group * per_kv; w.head < (group + 1) * per_kv; w.head++) attention_bwd_queries(job, &w);
    attention_bwd_end_keys(job, &w, group);
    tile_end(h->kind, before);
}

static ps_status attention_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    (void)queue, (void)workspace_bytes;
    int64_t bytes;
    attention_bwd_job job = attention_bwd_job_of(self, args, &bytes);
    for (job.phase = 0; job.phase < job.n_pieces; job.phase++)
        ps_cpu_pool_run(ps_cpu_of(self)->pool, job.h.B * job.h.KV * job.n_pieces, attention_bwd_item, &job);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(attention_bwd) = {.run = attention_bwd, .workspace_bytes = attention_bwd_bytes};
