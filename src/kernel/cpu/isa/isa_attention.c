/* Attention, a block of queries at a time: the scores of a block against all keys it may see are one strip, made by a
 * product, worked on row by row and used up by the next product. The largest strip is [ATTENTION_ROWS, T]; no [T, T]
 * matrix exists. Backward makes the strip again from the saved log-sum-exp (Dao et al. 2022).
 *
 * Tasks (batch, head[, block]) run in parallel, the products inside a task on its thread alone; gradients of keys and values
 * are summed in float in the order of blocks, within one task, so the bits do not depend on timing. */
#include "kernel/cpu/cpu_matmul.h"
#include "kernel/cpu/cpu_random.h"
#include "kernel/cpu/cpu_vec.h"
#include "kernel/ref/ref.h"

#define ATTENTION_ROWS 64

/* What both directions need to know, and where a task's scratch lies. */
typedef struct attention {
    int64_t B, T, H, D;
    float scale;
    bool causal;
    float dropout_p;
    ps_rng_key key;
    ps_dtype dtype;
    const void *qkv;
} attention;

/* One block of queries of one head. */
typedef struct attention_block {
    int64_t b, h;
    int64_t q0, rows; /* queries */
    int64_t keys;     /* keys 0 .. keys - 1 are seen by some of them */
} attention_block;

static attention_block block_at(const attention *a, int64_t b, int64_t h, int64_t q0)
{
    const int64_t rows = ps_min_i64(ATTENTION_ROWS, a->T - q0);
    return (attention_block){.b = b, .h = h, .q0 = q0, .rows = rows, .keys = a->causal ? q0 + rows : a->T};
}

/* Element offset of row t of q (0), k (1) or v (2) of a head. */
static int64_t qkv_offset(const attention *a, const attention_block *k, int64_t t, int which)
{
    return (((k->b * a->T + t) * 3 + which) * a->H + k->h) * a->D;
}

static int64_t y_offset(const attention *a, const attention_block *k, int64_t t)
{
    return ((k->b * a->T + t) * a->H + k->h) * a->D;
}

static const void *qkv_at(const attention *a, const attention_block *k, int64_t t, int which)
{
    return a->qkv == NULL ? NULL : ps_cpu_at_const(a->dtype, a->qkv, qkv_offset(a, k, t, which));
}

/* strip[rows, keys] (rows at T) = x y^T: queries by keys, or dy by values. */
static ps_matmul strip_product(const attention *a, const attention_block *k, const void *x, int64_t ldx, const void *y,
                               float *strip)
{
    return (ps_matmul){.c = strip,
                       .a = x,
                       .b = y,
                       .m = k->rows,
                       .n = k->keys,
                       .k = a->D,
                       .lda = ldx,
                       .ldb = 3 * a->H * a->D,
                       .ldc = a->T,
                       .b_transposed = true,
                       .ab_dtype = a->dtype,
                       .c_dtype = PS_DTYPE_F32};
}

/* out[rows, D] = strip[rows, keys] y[keys, D]: probabilities by values, or score gradients by keys. */
static ps_matmul row_product(const attention *a, const attention_block *k, const void *strip, const void *y, void *out,
                             int64_t ldout, ps_dtype out_dtype)
{
    return (ps_matmul){.c = out,
                       .a = strip,
                       .b = y,
                       .m = k->rows,
                       .n = a->D,
                       .k = k->keys,
                       .lda = a->T,
                       .ldb = 3 * a->H * a->D,
                       .ldc = ldout,
                       .ab_dtype = a->dtype,
                       .c_dtype = out_dtype};
}

/* sums[keys, D] += strip^T x[rows, D]: what a block adds to the gradients of values or keys. */
static ps_matmul key_product(const attention *a, const attention_block *k, const void *strip, const void *x,
                             int64_t ldx, float *sums)
{
    return (ps_matmul){.c = sums,
                       .a = strip,
                       .b = x,
                       .m = k->keys,
                       .n = a->D,
                       .k = k->rows,
                       .lda = a->T,
                       .ldb = ldx,
                       .ldc = a->D,
                       .a_transposed = true,
                       .accumulate = true,
                       .ab_dtype = a->dtype,
                       .c_dtype = PS_DTYPE_F32};
}

/* Factors of dropout for `n` keys from j0 on of query i: 0 or 1 / (1 - p). */
static void keep_factors(const attention *a, const attention_block *k, int64_t i, int64_t n, float *out)
{
    const uint64_t first = (uint64_t)(((k->b * a->H + k->h) * a->T + i) * a->T);
    const uint32_t threshold = ps_dropout_threshold(a->dropout_p);
    const float factor = 1.0f / (1.0f - a->dropout_p);
    float words[PS_RANDOM_WORDS];
    uint64_t have = UINT64_MAX; /* which group of words is in `words` */
    for (int64_t j = 0; j < n; j++) {
        const uint64_t at = first + (uint64_t)j, group = at / PS_RANDOM_WORDS;
        if (group != have) ps_random_keep(words, a->key, group * (PS_RANDOM_WORDS / 4), threshold, factor);
        have = group;
        out[j] = words[at % PS_RANDOM_WORDS];
    }
}

/* ---- scratch -------------------------------------------------------------------------------------------------------*/

typedef struct attention_scratch {
    float *strip, *strip2; /* [ROWS, T] scores; gradients of probabilities */
    void *p, *ds;          /* [ROWS, T] of dtype */
    float *rows;           /* [ROWS, D] */
    float *dk, *dv;        /* [T, D] */
    float *keep;           /* [T] */
    char *matmul;
} attention_scratch;

static int64_t strip_rows(const attention *a)
{
    return ps_min_i64(ATTENTION_ROWS, a->T);
}

/* Lay out the scratch of one task from `at` on; returns its end. */
static char *scratch_lay(const attention *a, bool backward, char *at, attention_scratch *s)
{
    const int64_t n = strip_rows(a) * a->T;
    s->strip = ps_cpu_take(&at, n * 4);
    s->p = ps_cpu_take(&at, n * (int64_t)ps_dtype_bytes(a->dtype));
    s->keep = ps_cpu_take(&at, ps_round_up(a->T, VF_LANES) * 4);
    s->rows = ps_cpu_take(&at, strip_rows(a) * a->D * 4);
    if (backward) {
        s->strip2 = ps_cpu_take(&at, n * 4);
        s->ds = ps_cpu_take(&at, n * (int64_t)ps_dtype_bytes(a->dtype));
        s->dk = ps_cpu_take(&at, a->T * a->D * 4);
        s->dv = ps_cpu_take(&at, a->T * a->D * 4);
    }
    s->matmul = at;
    return at;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Scratch of the products of every block. */
static size_t product_bytes(const attention *a, bool backward)
{
    size_t bytes = 0;
    for (int64_t q0 = 0; q0 < a->T; q0 += ATTENTION_ROWS) {
        const attention_block k = block_at(a, 0, 0, q0);
        const int64_t ld = 3 * a->H * a->D, ldy = a->H * a->D;
        const ps_matmul s = strip_product(a, &k, NULL, ld, NULL, NULL);
        bytes = most(bytes, PS_CPU_NAME(matmul_bytes)(&s));
        if (!backward) {
            const ps_matmul y = row_product(a, &k, NULL, NULL, NULL, a->D, PS_DTYPE_F32);
            bytes = most(bytes, PS_CPU_NAME(matmul_bytes)(&y));
            continue;
        }
        const ps_matmul dp = strip_product(a, &k, NULL, ldy, NULL, NULL);
        const ps_matmul dv = key_product(a, &k, NULL, NULL, ldy, NULL), dk = key_product(a, &k, NULL, NULL, ld, NULL);
        const ps_matmul dq = row_product(a, &k, NULL, NULL, NULL, ld, a->dtype);
        bytes = most(bytes, PS_CPU_NAME(matmul_bytes)(&dp));
        bytes = most(bytes, PS_CPU_NAME(matmul_bytes)(&dv));
        bytes = most(bytes, PS_CPU_NAME(matmul_bytes)(&dk));
        bytes = most(bytes, PS_CPU_NAME(matmul_bytes)(&dq));
    }
    return bytes;
}

static int64_t task_bytes(const attention *a, bool backward)
{
    attention_scratch unused;
    char *const base = (char *)64; /* only the distance matters */
    return ps_round_up((scratch_lay(a, backward, base, &unused) - base) + (int64_t)product_bytes(a, backward), 64);
}

static attention of_forward(const ps_attention_fwd_args *f)
{
    return (attention){.B = f->B,
                       .T = f->T,
                       .H = f->H,
                       .D = f->D,
                       .scale = f->scale,
                       .causal = f->causal,
                       .dropout_p = f->dropout_p,
                       .key = f->dropout_key,
                       .dtype = f->dtype,
                       .qkv = f->q};
}

static attention of_backward(const ps_attention_bwd_args *f)
{
    return (attention){.B = f->B,
                       .T = f->T,
                       .H = f->H,
                       .D = f->D,
                       .scale = f->scale,
                       .causal = f->causal,
                       .dropout_p = f->dropout_p,
                       .key = f->dropout_key,
                       .dtype = f->dtype,
                       .qkv = f->q};
}

static bool is_packed(int64_t H, int64_t KV, int64_t D, int64_t q_stride, int64_t kv_stride)
{
    return H == KV && q_stride == 3 * H * D && kv_stride == q_stride;
}

/* ---- forward -------------------------------------------------------------------------------------------------------*/

/* One row of scores -> probabilities times their sum, rounded to t; returns log-sum-exp, 1 / sum in *inverse. Keys from
 * `seen` to `keys` are masked. */
PS_CPU_INLINE float softmax_row(ps_dtype t, float *s, int64_t seen, int64_t keys, float scale, const float *keep,
                                void *p, float *inverse)
{
    vf top = vf_set1(-INFINITY);
    int64_t j = 0;
    for (; j + VF_LANES <= seen; j += VF_LANES) top = vf_max(top, vf_load(s + j));
    float max = vf_max_lane(top);
    for (; j < seen; j++) max = s[j] > max ? s[j] : max;
    vf sum = {0};
    for (j = 0; j < keys; j += VF_LANES) {
        vf e = vf_exp((vf_get(PS_DTYPE_F32, s, j, keys - j) - max) * scale);
        if (seen - j < VF_LANES) e = vf_where(vi_lanes() < (int32_t)(seen - j), e, vf_set1(0.0f));
        sum += e;
        if (keep != NULL) e *= vf_load(keep + j);
        vf_put(t, p, j, keys - j, e);
    }
    const float total = vf_sum(sum);
    *inverse = 1.0f / total;
    return max * scale + logf(total);
}

PS_CPU_INLINE void forward_rows(ps_dtype t, const attention *a, const ps_attention_fwd_args *f,
                                const attention_block *k, const attention_scratch *s, float *inverse)
{
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t i = k->q0 + r, seen = a->causal ? i + 1 : a->T;
        if (a->dropout_p > 0) keep_factors(a, k, i, k->keys, s->keep);
        f->lse[(k->b * a->H + k->h) * a->T + i] =
            softmax_row(t, s->strip + r * a->T, seen, k->keys, a->scale, a->dropout_p > 0 ? s->keep : NULL,
                        ps_cpu_at(t, s->p, r * a->T), &inverse[r]);
    }
}

PS_CPU_INLINE void store_rows(ps_dtype t, void *dst, int64_t ld, const float *src, const float *factor, int64_t rows,
                              int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += VF_LANES) {
            vf v = vf_get(PS_DTYPE_F32, src, r * cols + c, cols - c);
            if (factor != NULL) v *= factor[r];
            vf_put(t, dst, r * ld + c, cols - c, v);
        }
}

static ps_status forward_block(const attention *a, const ps_attention_fwd_args *f, const attention_block *k,
                               char *scratch)
{
    attention_scratch s;
    float inverse[ATTENTION_ROWS];
    scratch_lay(a, false, scratch, &s);
    const ps_matmul qk = strip_product(a, k, qkv_at(a, k, k->q0, 0), 3 * a->H * a->D, qkv_at(a, k, 0, 1), s.strip);
    PS_TRY(PS_CPU_NAME(matmul)(&qk, s.matmul));
#define CALL(t) forward_rows(t, a, f, k, &s, inverse)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
    const ps_matmul pv = row_product(a, k, s.p, qkv_at(a, k, 0, 2), s.rows, a->D, PS_DTYPE_F32);
    PS_TRY(PS_CPU_NAME(matmul)(&pv, s.matmul));
    void *const y = ps_cpu_at(a->dtype, f->y, y_offset(a, k, k->q0));
#define CALL(t) store_rows(t, y, a->H * a->D, s.rows, inverse, k->rows, a->D)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
    return PS_OK;
}

size_t PS_CPU_NAME(attention_fwd_bytes)(const ps_attention_fwd_args *f)
{
    const attention a = of_forward(f);
    return most((size_t)(ps_cpu_n_threads() * task_bytes(&a, false)), ps_ref_attention_fwd_bytes(f));
}

ps_status PS_CPU_NAME(attention_fwd)(ps_stream *stream, const ps_attention_fwd_args *f)
{
    if (!is_packed(f->H, f->KV, f->D, f->q_stride, f->kv_stride) || f->mask != NULL || f->window > 0)
        return ps_ref_attention_fwd(stream, f);
    const attention a = of_forward(f);
    const int64_t n_blocks = ps_ceil_div(a.T, ATTENTION_ROWS), bytes = task_bytes(&a, false);
    ps_status st = PS_OK;
#pragma omp parallel for schedule(static, 1)
    for (int64_t task = 0; task < a.B * a.H * n_blocks; task++) {
        const int64_t head = task % (a.B * a.H), q0 = task / (a.B * a.H) * ATTENTION_ROWS;
        const attention_block k = block_at(&a, head / a.H, head % a.H, q0);
        const ps_status failed = forward_block(&a, f, &k, (char *)f->workspace + ps_cpu_thread_index() * bytes);
        if (failed != PS_OK) {
#pragma omp critical
            st = failed;
        }
    }
    return st == PS_OK ? PS_OK : PS_FAIL(st, "attention: a product failed (T = %lld)", (long long)a.T);
}

/* ---- backward ------------------------------------------------------------------------------------------------------*/

PS_CPU_INLINE float dot(ps_dtype t, const void *x, const void *y, int64_t n)
{
    vf sum = {0};
    for (int64_t c = 0; c < n; c += VF_LANES) sum += vf_get(t, x, c, n - c) * vf_get(t, y, c, n - c);
    return vf_sum(sum);
}

/* Strips of scores and of dP -> P (dropped out, for dV) and dS, both rounded to t. */
PS_CPU_INLINE void backward_rows(ps_dtype t, const attention *a, const ps_attention_bwd_args *f,
                                 const attention_block *k, const attention_scratch *s)
{
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t i = k->q0 + r, seen = a->causal ? i + 1 : a->T, at = y_offset(a, k, i);
        const float lse = f->lse[(k->b * a->H + k->h) * a->T + i];
        const float delta = dot(t, ps_cpu_at_const(t, f->dy, at), ps_cpu_at_const(t, f->y, at), a->D);
        const float *const scores = s->strip + r * a->T, *const dp = s->strip2 + r * a->T;
        if (a->dropout_p > 0) keep_factors(a, k, i, k->keys, s->keep);
        for (int64_t j = 0; j < k->keys; j += VF_LANES) {
            const int64_t n = k->keys - j;
            vf p = vf_exp(vf_get(PS_DTYPE_F32, scores, j, n) * a->scale - lse);
            if (seen - j < VF_LANES) p = vf_where(vi_lanes() < (int32_t)(seen - j), p, vf_set1(0.0f));
            const vf keep = a->dropout_p > 0 ? vf_load(s->keep + j) : vf_set1(1.0f);
            const vf ds = p * (vf_get(PS_DTYPE_F32, dp, j, n) * keep - delta) * a->scale;
            vf_put(t, s->p, r * a->T + j, n, p * keep);
            vf_put(t, s->ds, r * a->T + j, n, vf_where(p > 0.0f, ds, vf_set1(0.0f)));
        }
    }
}

static ps_status backward_block(const attention *a, const ps_attention_bwd_args *f, const attention_block *k,
                                const attention_scratch *s)
{
    const int64_t ld = 3 * a->H * a->D, ldy = a->H * a->D;
    const void *const dy = ps_cpu_at_const(a->dtype, f->dy, y_offset(a, k, k->q0));
    const void *const q = qkv_at(a, k, k->q0, 0);
    const ps_matmul scores = strip_product(a, k, q, ld, qkv_at(a, k, 0, 1), s->strip);
    const ps_matmul dp = strip_product(a, k, dy, ldy, qkv_at(a, k, 0, 2), s->strip2);
    PS_TRY(PS_CPU_NAME(matmul)(&scores, s->matmul));
    PS_TRY(PS_CPU_NAME(matmul)(&dp, s->matmul));
#define CALL(t) backward_rows(t, a, f, k, s)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
    const ps_matmul dv = key_product(a, k, s->p, dy, ldy, s->dv);
    const ps_matmul dk = key_product(a, k, s->ds, q, ld, s->dk);
    const ps_matmul dq = row_product(a, k, s->ds, qkv_at(a, k, 0, 1),
                                     ps_cpu_at(a->dtype, f->dq, qkv_offset(a, k, k->q0, 0)), ld, a->dtype);
    PS_TRY(PS_CPU_NAME(matmul)(&dv, s->matmul));
    PS_TRY(PS_CPU_NAME(matmul)(&dk, s->matmul));
    return PS_CPU_NAME(matmul)(&dq, s->matmul);
}

static ps_status backward_head(const attention *a, const ps_attention_bwd_args *f, int64_t b, int64_t h, char *scratch)
{
    attention_scratch s;
    scratch_lay(a, true, scratch, &s);
    memset(s.dk, 0, (size_t)(a->T * a->D) * 4);
    memset(s.dv, 0, (size_t)(a->T * a->D) * 4);
    attention_block k = {0};
    for (int64_t q0 = 0; q0 < a->T; q0 += ATTENTION_ROWS) {
        k = block_at(a, b, h, q0);
        PS_TRY(backward_block(a, f, &k, &s));
    }
    void *const dk = ps_cpu_at(a->dtype, f->dq, qkv_offset(a, &k, 0, 1));
    void *const dv = ps_cpu_at(a->dtype, f->dq, qkv_offset(a, &k, 0, 2));
#define CALL(t)                                                                                                        \
    do {                                                                                                               \
        store_rows(t, dk, 3 * a->H * a->D, s.dk, NULL, a->T, a->D);                                                    \
        store_rows(t, dv, 3 * a->H * a->D, s.dv, NULL, a->T, a->D);                                                    \
    } while (0)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
    return PS_OK;
}

size_t PS_CPU_NAME(attention_bwd_bytes)(const ps_attention_bwd_args *f)
{
    const attention a = of_backward(f);
    return most((size_t)(ps_cpu_n_threads() * task_bytes(&a, true)), ps_ref_attention_bwd_bytes(f));
}

ps_status PS_CPU_NAME(attention_bwd)(ps_stream *stream, const ps_attention_bwd_args *f)
{
    if (!is_packed(f->H, f->KV, f->D, f->q_stride, f->kv_stride) || f->mask != NULL || f->window > 0)
        return ps_ref_attention_bwd(stream, f);
    const attention a = of_backward(f);
    const int64_t bytes = task_bytes(&a, true);
    ps_status st = PS_OK;
    if (a.T == 0) return PS_OK;
#pragma omp parallel for schedule(static)
    for (int64_t head = 0; head < a.B * a.H; head++) {
        const ps_status failed =
            backward_head(&a, f, head / a.H, head % a.H, (char *)f->workspace + ps_cpu_thread_index() * bytes);
        if (failed != PS_OK) {
#pragma omp critical
            st = failed;
        }
    }
    return st == PS_OK ? PS_OK : PS_FAIL(st, "attention backward: a product failed (T = %lld)", (long long)a.T);
}
