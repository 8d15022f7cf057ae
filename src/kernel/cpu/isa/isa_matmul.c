/* Matrix multiplication of all types: by tiles of AMX, by vdpbf16ps, or by FMA, selected by a table. Nothing is timed,
 * as the bits depend on the choice. */
#include "kernel/cpu/cpu_gemm.h"
#include "kernel/cpu/cpu_gemm_epilogue.h"

#ifdef PS_ISA_avx512_bf16
#define MATMUL_TILED PS_CPU_NAME(gemm_tiles)
#else
#define MATMUL_TILED PS_CPU_NAME(gemm_panels)
#endif

/* The plan of p, and its kernel. vdpbf16ps has twice the throughput of FMA on AMD and half on Intel, where FMA in the
 * order of tiles is used instead. */
static ps_gemm_kernel matmul_kernel(const ps_cpu *cpu, const ps_matmul *p)
{
    if (p->ab_dtype != PS_DTYPE_BF16) return PS_GEMM_F32;
#ifdef PS_ISA_avx512_bf16
    if (cpu->isa == PS_CPU_AMX) return PS_GEMM_TILES;
    if (cpu->uses_dpbf16) return PS_GEMM_DPBF16;
#else
    (void)cpu;
#endif
    return PS_GEMM_PAIRS;
}

static ps_gemm_plan matmul_plan(const ps_cpu *cpu, const ps_matmul *p)
{
    return ps_gemm_plan_make(p, matmul_kernel(cpu, p), PS_CPU_NAME(gemm_panel_block), cpu->n_threads);
}

ps_status PS_CPU_NAME(matmul_bytes)(ps_cpu *cpu, const ps_matmul *p, size_t *out)
{
    *out = 0;
    if (p->m == 0 || p->n == 0 || p->k == 0) return PS_OK;
    const ps_gemm_plan plan = matmul_plan(cpu, p);
    *out = ps_gemm_plan_bytes(&plan);
    return PS_OK;
}

ps_status PS_CPU_NAME(matmul_most)(ps_cpu *cpu, const ps_matmul *p, size_t *most)
{
    size_t need;
    PS_TRY(PS_CPU_NAME(matmul_bytes)(cpu, p, &need));
    *most = need > *most ? need : *most;
    return PS_OK;
}

/* k == 0: empty sums. */
static void matmul_finish_zeros(const void *args, int64_t row, int64_t thread)
{
    static const float zeros[32];
    const ps_matmul *const p = args;
    (void)thread;
    for (int64_t j = 0; j < p->n; j += 32) gemm_epilogue(p, row, j, ps_min_i64(32, p->n - j), zeros, false);
}

ps_status PS_CPU_NAME(matmul)(ps_cpu *cpu, const ps_matmul *p, void *workspace, size_t workspace_bytes)
{
    if (p->m == 0 || p->n == 0) return PS_OK;
    if (p->k == 0) {
        ps_cpu_pool_run_if(cpu->pool, p->m * p->n >= PS_CPU_PARALLEL_MIN, p->m, matmul_finish_zeros, p);
        return PS_OK;
    }
    const ps_gemm_plan plan = matmul_plan(cpu, p);
    const size_t need = ps_gemm_plan_bytes(&plan);
    if (workspace_bytes < need)
        return PS_FAIL(PS_EINVAL,
                       "matrix multiplication of %lld x %lld x %lld needs %zu bytes of workspace, and has %zu",
                       (long long)p->m, (long long)p->n, (long long)p->k, need, workspace_bytes);
    ps_gemm_run(cpu->pool, p, &plan, ps_gemm_is_tiled(plan.kernel) ? &MATMUL_TILED : &PS_CPU_NAME(gemm_panels),
                workspace);
    return PS_OK;
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
