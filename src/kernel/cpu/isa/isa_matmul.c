#include "kernel/cpu/cpu_matmul.h"
#include "kernel/cpu/cpu_vec.h"

/* Block of the converted product: operands of two mebibytes each, work enough to hide their conversion. */
#define MATMUL_M 512
#define MATMUL_N 512
#define MATMUL_K 1024

#ifdef PS_ISA_avx512_bf16
#define MATMUL_HAS_BF16 true
#else
#define MATMUL_HAS_BF16 false
#endif

static bool matmul_is_native(const ps_matmul *p)
{
    if (p->ab_dtype == PS_DTYPE_F32) return p->c_dtype == PS_DTYPE_F32;
    return MATMUL_HAS_BF16 && p->ab_dtype == PS_DTYPE_BF16 && p->c_dtype != PS_DTYPE_F16;
}

/* dst[rows, cols], dense, = src, rows at ld. */
PS_CPU_INLINE void matmul_load_row(ps_dtype t, float *dst, const void *src, int64_t r, int64_t ld, int64_t cols)
{
    for (int64_t c = 0; c < cols; c += VF_LANES)
        vf_put(PS_DTYPE_F32, dst, r * cols + c, cols - c, vf_get(t, src, r * ld + c, cols - c));
}

typedef struct matmul_loading {
    float *dst;
    ps_dtype dtype;
    const void *src;
    int64_t cols, ld;
} matmul_loading;

static void matmul_load_rows(const void *args, int64_t lo, int64_t hi)
{
    const matmul_loading *const l = args;
#define CALL(t)                                                                                                        \
    for (int64_t r = lo; r < hi; r++) matmul_load_row(t, l->dst, l->src, r, l->ld, l->cols)
    PS_CPU_BY_DTYPE(l->dtype, CALL);
#undef CALL
}

static void matmul_load(ps_cpu *cpu, float *dst, ps_dtype t, const void *src, int64_t rows, int64_t cols, int64_t ld)
{
    const matmul_loading l = {dst, t, src, cols, ld};
    ps_cpu_for_rows(&cpu->base, rows, cols, matmul_load_rows, &l);
}

/* Row r of c, from column j on, (+)= the finished sums + bias. */
PS_CPU_INLINE void matmul_store_row(ps_dtype t, const ps_matmul *p, int64_t r, int64_t j, int64_t n, const float *sum)
{
    for (int64_t c = 0; c < n; c += VF_LANES) {
        vf v = vf_get(PS_DTYPE_F32, sum, c, n - c);
        if (p->bias) v += vf_get(p->ab_dtype, p->bias, j + c, n - c);
        if (p->accumulate) v += vf_get(t, p->c, r * p->ldc + j + c, n - c);
        vf_put(t, p->c, r * p->ldc + j + c, n - c, v);
    }
}

typedef struct matmul_storing {
    const ps_matmul *p;
    int64_t i, j, n;
    const float *sum;
} matmul_storing;

static void matmul_store_rows(const void *args, int64_t lo, int64_t hi)
{
    const matmul_storing *const s = args;
#define CALL(t)                                                                                                        \
    for (int64_t r = lo; r < hi; r++) matmul_store_row(t, s->p, s->i + r, s->j, s->n, s->sum + r * s->n)
    PS_CPU_BY_DTYPE(s->p->c_dtype, CALL);
#undef CALL
}

static void matmul_store(ps_cpu *cpu, const ps_matmul *p, int64_t i, int64_t j, int64_t m, int64_t n, const float *sum)
{
    const matmul_storing s = {p, i, j, n, sum};
    ps_cpu_for_rows(&cpu->base, m, n, matmul_store_rows, &s);
}

/* The f32 product of one block; operands dense, stored as the whole ones are. */
static ps_matmul matmul_block(const ps_matmul *p, int64_t m, int64_t n, int64_t k, bool accumulate)
{
    return (ps_matmul){.m = m,
                       .n = n,
                       .k = k,
                       .lda = p->a_transposed ? m : k,
                       .ldb = p->b_transposed ? k : n,
                       .ldc = n,
                       .a_transposed = p->a_transposed,
                       .b_transposed = p->b_transposed,
                       .accumulate = accumulate,
                       .ab_dtype = PS_DTYPE_F32,
                       .c_dtype = PS_DTYPE_F32};
}

/* Bytes of the converted operands and the sums. */
static void matmul_buffers(const ps_matmul *p, int64_t bytes[3])
{
    const int64_t m = ps_min_i64(p->m, MATMUL_M), n = ps_min_i64(p->n, MATMUL_N), k = ps_min_i64(p->k, MATMUL_K);
    bytes[0] = m * k * 4, bytes[1] = k * n * 4, bytes[2] = m * n * 4;
}

ps_status PS_CPU_NAME(matmul_bytes)(ps_cpu *cpu, const ps_matmul *p, size_t *out)
{
    *out = 0;
    if (p->m == 0 || p->n == 0) return PS_OK;
    if (matmul_is_native(p) && p->k > 0) return ps_dnnl_matmul_bytes(cpu->dnnl, p, out);
    int64_t bytes[3];
    matmul_buffers(p, bytes);
    size_t scratch = 0;
    /* whole and rest blocks: at most two sizes in each direction */
    for (int i = 0; p->k > 0 && i < 16; i++) {
        const int64_t m = i & 1 ? p->m % MATMUL_M : ps_min_i64(p->m, MATMUL_M);
        const int64_t n = i & 2 ? p->n % MATMUL_N : ps_min_i64(p->n, MATMUL_N);
        const int64_t k = i & 4 ? p->k % MATMUL_K : ps_min_i64(p->k, MATMUL_K);
        if (m == 0 || n == 0 || k == 0) continue;
        const ps_matmul block = matmul_block(p, m, n, k, (i & 8) != 0);
        size_t need;
        PS_TRY(ps_dnnl_matmul_bytes(cpu->dnnl, &block, &need));
        scratch = need > scratch ? need : scratch;
    }
    *out = (size_t)(ps_round_up(bytes[0], 64) + ps_round_up(bytes[1], 64) + ps_round_up(bytes[2], 64)) + scratch;
    return PS_OK;
}

ps_status PS_CPU_NAME(matmul_most)(ps_cpu *cpu, const ps_matmul *p, size_t *most)
{
    size_t need;
    PS_TRY(PS_CPU_NAME(matmul_bytes)(cpu, p, &need));
    *most = need > *most ? need : *most;
    return PS_OK;
}

static ps_status matmul_converted(ps_cpu *cpu, const ps_matmul *p, void *workspace, size_t workspace_bytes)
{
    int64_t bytes[3];
    matmul_buffers(p, bytes);
    char *at = workspace;
    float *const a = ps_cpu_take(&at, bytes[0]), *const b = ps_cpu_take(&at, bytes[1]);
    float *const c = ps_cpu_take(&at, bytes[2]);
    const size_t rest = ps_cpu_rest(workspace, workspace_bytes, at);
    for (int64_t j = 0; j < p->n; j += MATMUL_N)
        for (int64_t i = 0; i < p->m; i += MATMUL_M) {
            const int64_t m = ps_min_i64(MATMUL_M, p->m - i), n = ps_min_i64(MATMUL_N, p->n - j);
            if (p->k == 0) memset(c, 0, (size_t)(m * n) * sizeof *c);
            for (int64_t l = 0; l < p->k; l += MATMUL_K) {
                const int64_t k = ps_min_i64(MATMUL_K, p->k - l);
                ps_matmul block = matmul_block(p, m, n, k, l > 0);
                const int64_t a0 = p->a_transposed ? l * p->lda + i : i * p->lda + l;
                const int64_t b0 = p->b_transposed ? j * p->ldb + l : l * p->ldb + j;
                matmul_load(cpu, a, p->ab_dtype, ps_cpu_at_const(p->ab_dtype, p->a, a0), p->a_transposed ? k : m,
                            block.lda, p->lda);
                matmul_load(cpu, b, p->ab_dtype, ps_cpu_at_const(p->ab_dtype, p->b, b0), p->b_transposed ? n : k,
                            block.ldb, p->ldb);
                block.a = a, block.b = b, block.c = c;
                PS_TRY(ps_dnnl_matmul(cpu->dnnl, &block, at, rest));
            }
            matmul_store(cpu, p, i, j, m, n, c);
        }
    return PS_OK;
}

ps_status PS_CPU_NAME(matmul)(ps_cpu *cpu, const ps_matmul *p, void *workspace, size_t workspace_bytes)
{
    if (p->m == 0 || p->n == 0) return PS_OK;
    if (matmul_is_native(p) && p->k > 0) return ps_dnnl_matmul(cpu->dnnl, p, workspace, workspace_bytes);
    return matmul_converted(cpu, p, workspace, workspace_bytes);
}

/* Columns summed together: their sums stay in the first-level cache while rows stream by. */
#define COLUMN_BLOCK 128

PS_CPU_INLINE void column_sums_add(ps_dtype t, float *sum, const void *x, int64_t rows, int64_t ld, int64_t j,
                                   int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c += VF_LANES)
            vf_store(sum + c, vf_load(sum + c) + vf_get(t, x, r * ld + j + c, n - c));
}

typedef struct column_work {
    void *out;
    const void *x;
    ps_dtype out_dtype, dtype;
    int64_t rows, n, ld;
    bool accumulate;
} column_work;

static void column_sums_block(const void *args, int64_t block, int64_t thread)
{
    const column_work *const w = args;
    const int64_t j = block * COLUMN_BLOCK, width = ps_min_i64(COLUMN_BLOCK, w->n - j);
    (void)thread;
    float sum[COLUMN_BLOCK] = {0};
#define CALL(t) column_sums_add(t, sum, w->x, w->rows, w->ld, j, width)
    PS_CPU_BY_DTYPE(w->dtype, CALL);
#undef CALL
    for (int64_t c = 0; c < width; c += VF_LANES) {
        vf v = vf_load(sum + c);
        if (w->accumulate) v += vf_get(w->out_dtype, w->out, j + c, width - c);
        vf_put(w->out_dtype, w->out, j + c, width - c, v);
    }
}

void PS_CPU_NAME(column_sums)(ps_cpu *cpu, void *out, ps_dtype out_dtype, const void *x, ps_dtype dtype, int64_t rows,
                              int64_t n, int64_t ld, bool accumulate)
{
    const column_work w = {out, x, out_dtype, dtype, rows, n, ld, accumulate};
    ps_cpu_pool_run_if(cpu->pool, rows * n >= PS_CPU_PARALLEL_MIN, ps_ceil_div(n, COLUMN_BLOCK), column_sums_block, &w);
}
