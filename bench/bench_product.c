/* bench_product.c - GFLOP/s of matrix products by every kernel that runs here, on the shapes of GPT-2 124M.
 *
 * usage: bench_product [ROUNDS [WORD]]     (default 5 rounds, of which the best counts; WORD: only rows that contain it)
 *
 * fwd, dx, dW are those of a layer [rows, in x out] whose weight is stored [out, in] (oi) or [in, out] (io). Kernels: tiles of AMX, tiles of
 * vdpbf16ps, FMA of each instruction set. One thread, then one a core. */
#include <string.h>

#include "bench.h"
#include "kernel/cpu/cpu_matmul.h"

#define MATMUL(isa)                                                                                                    \
    ps_status ps_cpu_matmul_##isa(ps_cpu *cpu, const ps_matmul *p, void *workspace, size_t workspace_bytes);           \
    ps_status ps_cpu_matmul_bytes_##isa(ps_cpu *cpu, const ps_matmul *p, size_t *out);
MATMUL(portable)
MATMUL(avx2)
MATMUL(avx512)
MATMUL(avx512_bf16)

typedef struct kernel {
    const char *name;
    ps_cpu_isa isa;
    bool by_dpbf16;
    ps_status (*run)(ps_cpu *, const ps_matmul *, void *, size_t);
    ps_status (*bytes)(ps_cpu *, const ps_matmul *, size_t *);
} kernel;

static const kernel kernels[] = {
    {"amx", PS_CPU_AMX, false, ps_cpu_matmul_avx512_bf16, ps_cpu_matmul_bytes_avx512_bf16},
    {"dpbf16", PS_CPU_AVX512_BF16, true, ps_cpu_matmul_avx512_bf16, ps_cpu_matmul_bytes_avx512_bf16},
    {"avx512", PS_CPU_AVX512, false, ps_cpu_matmul_avx512, ps_cpu_matmul_bytes_avx512},
    {"avx2", PS_CPU_AVX2, false, ps_cpu_matmul_avx2, ps_cpu_matmul_bytes_avx2},
    {"portable", PS_CPU_PORTABLE, false, ps_cpu_matmul_portable, ps_cpu_matmul_bytes_portable},
};

typedef enum { FWD, DX, DW } pass;

static const char *const pass_names[] = {"fwd", "dx", "dW"};

static ps_matmul product(pass which, bool out_in, int64_t rows, int64_t n_in, int64_t n_out, ps_dtype t)
{
    ps_matmul p = {.ab_dtype = t, .c_dtype = t, .n = n_in};
    switch (which) {
    case FWD:
        p.m = rows, p.n = n_out, p.k = n_in, p.lda = n_in, p.b_transposed = out_in, p.ldb = out_in ? n_in : n_out;
        break;
    case DX: p.m = rows, p.k = n_out, p.lda = n_out, p.b_transposed = !out_in, p.ldb = out_in ? n_in : n_out; break;
    case DW:
        p.m = out_in ? n_out : n_in, p.n = out_in ? n_in : n_out, p.k = rows;
        p.a_transposed = true, p.lda = p.m, p.ldb = p.n;
        break;
    }
    p.ldc = p.n;
    return p;
}

static void *filled(int64_t n)
{
    uint32_t *const x = aligned_alloc(PS_PAGE_BYTES, (size_t)ps_round_up(n * 4, PS_PAGE_BYTES));
    for (int64_t i = 0; i < n; i++) /* ordinary numbers, read as f32 or as two bf16 */
        x[i] = 0x3c003c00U | (uint32_t)(i * 2654435761U & 0x83ff83ffU);
    return x;
}

static double rate(const kernel *k, ps_backend *b, const ps_matmul *p, int rounds)
{
    size_t bytes;
    bench_check(k->bytes(ps_cpu_of(b), p, &bytes));
    void *const workspace = filled((int64_t)bytes / 4);
    bench_samples s = {.n = 0};
    for (int r = 0; r <= rounds; r++) {
        const double begin = bench_now();
        bench_check(k->run(ps_cpu_of(b), p, workspace, bytes));
        if (r > 0) bench_add(&s, bench_now() - begin);
    }
    free(workspace);
    return 2e-9 * (double)p->m * (double)p->n * (double)p->k / bench_least(&s);
}

typedef struct bench {
    ps_backend *backends[PS_ARRAY_LEN(kernels)][2];
    int rounds;
    const char *only;
} bench;

static void bench_shape(const bench *b, pass which, bool out_in, int64_t rows, int64_t n_in, int64_t n_out, ps_dtype t)
{
    char row[96];
    ps_matmul p = product(which, out_in, rows, n_in, n_out, t);
    snprintf(row, sizeof row, "%-4s %5lld, %4lld x %-5lld %s %-3s", ps_dtype_name(t), (long long)rows, (long long)n_in,
             (long long)n_out, out_in ? "oi" : "io", pass_names[which]);
    if (b->only != NULL && strstr(row, b->only) == NULL) return;
    void *const x = filled(p.m * p.k), *const y = filled(p.k * p.n), *const c = filled(p.m * p.n);
    p.a = x, p.b = y, p.c = c;
    printf("| %s |", row);
    for (size_t k = 0; k < PS_ARRAY_LEN(kernels); k++) {
        if (b->backends[k][0] == NULL || (t == PS_DTYPE_F32 && k < 2)) continue;
        printf(" %s %6.0f %6.0f |", kernels[k].name, rate(&kernels[k], b->backends[k][0], &p, b->rounds),
               rate(&kernels[k], b->backends[k][1], &p, b->rounds));
    }
    printf("\n");
    fflush(stdout);
    free(x), free(y), free(c);
}

int main(int argc, char **argv)
{
    static const int64_t layers[][2] = {{768, 768}, {768, 2304}, {768, 3072}, {3072, 768}, {768, 16384}};
    static const int64_t rows[] = {256, 1024, 1, 4, 16};
    bench b = {.rounds = argc > 1 ? atoi(argv[1]) : 5, .only = argc > 2 ? argv[2] : NULL};
    if (b.rounds < 1 || b.rounds > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "usage: bench_product [ROUNDS [WORD]], 1 to %d rounds\n", BENCH_SAMPLES_MAX);
        return 2;
    }
    for (size_t k = 0; k < PS_ARRAY_LEN(kernels); k++)
        for (int t = 0; t < 2 && kernels[k].isa <= ps_cpu_isa_detect(); t++) {
            bench_check(ps_backend_create_cpu(kernels[k].isa, t == 0 ? 1 : ps_cpu_threads(), &b.backends[k][t]));
            ps_cpu_of(b.backends[k][t])->has_fast_dpbf16 = kernels[k].by_dpbf16;
        }
    for (int t = 0; t < 2; t++)
        for (size_t r = 0; r < PS_ARRAY_LEN(rows); r++)
            for (size_t l = 0; l < PS_ARRAY_LEN(layers); l++)
                for (int which = FWD; which <= (rows[r] > 16 ? (int)DW : (int)FWD); which++)
                    for (int layout = 0; layout < 2; layout++)
                        bench_shape(&b, (pass)which, layout == 0, rows[r], layers[l][0], layers[l][1],
                                    t == 0 ? PS_DTYPE_BF16 : PS_DTYPE_F32);
    for (size_t k = 0; k < PS_ARRAY_LEN(kernels); k++)
        for (int t = 0; t < 2; t++) ps_backend_destroy(b.backends[k][t]);
    return 0;
}
