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

static void matmul_load(float *dst, ps_dtype t, const void *src, int64_t rows, int64_t cols, int64_t ld)
{
#pragma omp parallel for schedule(static) if (rows * cols >= PS_CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
#define CALL(t) matmul_load_row(t, dst, src, r, ld, cols)
        PS_CPU_BY_DTYPE(t, CALL);
#undef CALL
    }
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

static void matmul_store(const ps_matmul *p, int64_t i, int64_t j, int64_t m, int64_t n, const float *sum)
{
#pragma omp parallel for schedule(static) if (m * n >= PS_CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < m; r++) {
#define CALL(t) matmul_store_row(t, p, i + r, j, n, sum + r * n)
        PS_CPU_BY_DTYPE(p->c_dtype, CALL);
#undef CALL
    }
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
                matmul_load(a, p->ab_dtype, ps_cpu_at_const(p->ab_dtype, p->a, a0), p->a_transposed ? k : m, block.lda,
                            p->lda);
                matmul_load(b, p->ab_dtype, ps_cpu_at_const(p->ab_dtype, p->b, b0), p->b_transposed ? n : k, block.ldb,
                            p->ldb);
                block.a = a, block.b = b, block.c = c;
                PS_TRY(ps_dnnl_matmul(cpu->dnnl, &block, at, rest));
            }
            matmul_store(p, i, j, m, n, c);
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

void PS_CPU_NAME(column_sums)(void *out, ps_dtype out_dtype, const void *x, ps_dtype dtype, int64_t rows, int64_t n,
                              int64_t ld, bool accumulate)
{
#pragma omp parallel for schedule(static) if (rows * n >= PS_CPU_PARALLEL_MIN)
    for (int64_t j = 0; j < n; j += COLUMN_BLOCK) {
        const int64_t width = ps_min_i64(COLUMN_BLOCK, n - j);
        float sum[COLUMN_BLOCK] = {0};
#define CALL(t) column_sums_add(t, sum, x, rows, ld, j, width)
        PS_CPU_BY_DTYPE(dtype, CALL);
#undef CALL
        for (int64_t c = 0; c < width; c += VF_LANES) {
            vf v = vf_load(sum + c);
            if (accumulate) v += vf_get(out_dtype, out, j + c, width - c);
            vf_put(out_dtype, out, j + c, width - c, v);
        }
    }
}
