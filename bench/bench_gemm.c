/* bench_gemm.c - GFLOP/s of matrix products by every kernel that runs here, on the shapes of GPT-2 124M; of tiles of
 * AMX also in per cent of what the tile unit gives in the same moment: where it is shared with others, its rate
 * changes by a factor of five.
 *
 * usage: bench_gemm [ROUNDS [WORD [KERNEL]]]     (default 5 rounds, of which the median counts; only rows that contain WORD, only KERNEL)
 *
 * fwd, dx, dW are those of a layer [rows, in x out] whose weight is stored [out, in] (oi) or [in, out] (io). Kernels:
 * tiles of AMX, tiles of vdpbf16ps, FMA of each instruction set. One thread, then one a core. Each round has another
 * weight (or place for its gradient), as in a step: more of them than the caches hold. */
#include <string.h>

#include "bench.h"
#include "device/device.h"
#include "kernel/cpu/cpu_amx.h"
#include "kernel/cpu/cpu_matmul.h"
#include "kernel/cpu/cpu_pool.h"

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

static ps_matmul gemm(pass which, bool out_in, int64_t rows, int64_t n_in, int64_t n_out, ps_dtype t)
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

/* Steps of a loop that does nothing but products of tiles out of the first-level cache: some 0.3 ms where the unit is
 * free. */
#define BARE_STEPS 10000

static void bare_tiles(const void *args, int64_t item, int64_t thread)
{
    _Alignas(64) static const char zeros[PS_TILE_BYTES * 4];
    (void)args, (void)item, (void)thread;
    ps_tiles_begin();
    for (int s = 0; s < BARE_STEPS; s++) {
        PS_TILE_LOAD(6, zeros, PS_TILE_ROW_BYTES);
        PS_TILE_LOAD(4, zeros + PS_TILE_BYTES, PS_TILE_ROW_BYTES);
        PS_TILE_DP(0, 4, 6);
        PS_TILE_LOAD(7, zeros + 2 * PS_TILE_BYTES, PS_TILE_ROW_BYTES);
        PS_TILE_DP(1, 4, 7);
        PS_TILE_LOAD(5, zeros + 3 * PS_TILE_BYTES, PS_TILE_ROW_BYTES);
        PS_TILE_DP(2, 5, 6);
        PS_TILE_DP(3, 5, 7);
    }
    ps_tiles_end();
}

/* FLOP a second of all threads together. */
static double bare_rate(ps_cpu *cpu)
{
    const int64_t n = 4 * cpu->n_threads;
    const double begin = bench_now();
    ps_cpu_pool_run(cpu->pool, n, bare_tiles, NULL);
    return (double)n * BARE_STEPS * 4 * 2 * 16 * 16 * 32 / (bench_now() - begin);
}

/* Weights of a shape together. */
#define WEIGHTS_BYTES (256 * PS_MIB)

/* The product of round r, with a weight of its own. */
static ps_matmul gemm_of_round(const ps_matmul *p, pass which, int r)
{
    ps_matmul x = *p;
    const int64_t bytes = (which == DW ? p->m : p->k) * p->n * (int64_t)ps_dtype_bytes(p->ab_dtype);
    const int64_t at = r % ps_max_i64(WEIGHTS_BYTES / bytes, 1) * bytes;
    if (which == DW)
        x.c = (char *)p->c + at;
    else
        x.b = (const char *)p->b + at;
    return x;
}

#define TRIES_A_ROUND 8

/* Rounds during which others had the tile unit, which gave less than *best, do not count, while enough are left to be
 * tried. */
static void print_rate(const kernel *k, ps_backend *b, const ps_matmul *p, pass which, int rounds, double *best)
{
    const bool has_unit = k->isa == PS_CPU_AMX;
    size_t bytes;
    bench_check(k->bytes(ps_cpu_of(b), p, &bytes));
    void *const workspace = filled((int64_t)bytes / 4);
    const double flop = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    bench_samples seconds = {.n = 0}, all = {.n = 0}, of_bare = {.n = 0};
    for (int r = 0; r <= rounds * (has_unit ? TRIES_A_ROUND : 1) && seconds.n < rounds; r++) {
        const ps_matmul x = gemm_of_round(p, which, r);
        const double before = has_unit ? bare_rate(ps_cpu_of(b)) : 0, begin = bench_now();
        bench_check(k->run(ps_cpu_of(b), &x, workspace, bytes));
        const double took = bench_now() - begin, after = has_unit ? bare_rate(ps_cpu_of(b)) : 0;
        const double least = before < after ? before : after, most = before < after ? after : before;
        if (most > *best) *best = most;
        if (r == 0) continue;
        bench_add(&all, took), bench_add(&of_bare, flop / took / (0.5 * (before + after) + 1));
        if (least >= 0.8 * *best) bench_add(&seconds, took);
    }
    free(workspace);
    if (!has_unit || seconds.n == 0) {
        printf(" %6.0f", 1e-9 * flop / bench_median(&all));
        if (has_unit) printf(" (%2.0f %% of %4.0f)", 100 * bench_median(&of_bare), 1e-9 * *best);
        return;
    }
    const double rate = flop / bench_median(&seconds);
    printf(" %6.0f (%2.0f %%, %d alone)", 1e-9 * rate, 100 * rate / *best, seconds.n);
}

typedef struct bench {
    ps_backend *backends[PS_ARRAY_LEN(kernels)][2];
    int rounds;
    const char *only_row, *only_kernel;
} bench;

static void bench_shape(const bench *b, pass which, bool out_in, int64_t rows, int64_t n_in, int64_t n_out, ps_dtype t)
{
    static double best[2]; /* of the tile unit, so far, by one thread and by all */
    char row[96];
    ps_matmul p = gemm(which, out_in, rows, n_in, n_out, t);
    snprintf(row, sizeof row, "%-4s %5lld, %4lld x %-5lld %s %-3s", ps_dtype_name(t), (long long)rows, (long long)n_in,
             (long long)n_out, out_in ? "oi" : "io", pass_names[which]);
    if (b->only_row != NULL && strstr(row, b->only_row) == NULL) return;
    void *const x = filled(p.m * p.k), *const y = filled(p.k * p.n + (which == DW ? 0 : WEIGHTS_BYTES / 4)),
                *const c = filled(p.m * p.n + (which == DW ? WEIGHTS_BYTES / 4 : 0));
    p.a = x, p.b = y, p.c = c;
    printf("| %s |", row);
    for (size_t k = 0; k < PS_ARRAY_LEN(kernels); k++) {
        if (b->backends[k][0] == NULL || (t == PS_DTYPE_F32 && k < 2)) continue;
        if (b->only_kernel != NULL && strcmp(kernels[k].name, b->only_kernel) != 0) continue;
        printf(" %s", kernels[k].name);
        for (int threads = 0; threads < 2; threads++)
            print_rate(&kernels[k], b->backends[k][threads], &p, which, b->rounds, &best[threads]);
        printf(" |");
    }
    printf("\n");
    fflush(stdout);
    free(x), free(y), free(c);
}

int main(int argc, char **argv)
{
    static const int64_t layers[][2] = {{768, 768}, {768, 2304}, {768, 3072}, {3072, 768}, {768, 16384}};
    static const int64_t rows[] = {256, 1024, 1, 4, 16};
    bench b = {.rounds = argc > 1 ? atoi(argv[1]) : 5,
               .only_row = argc > 2 ? argv[2] : NULL,
               .only_kernel = argc > 3 ? argv[3] : NULL};
    if (b.rounds < 1 || b.rounds > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "usage: bench_gemm [ROUNDS [WORD [KERNEL]]], 1 to %d rounds\n", BENCH_SAMPLES_MAX);
        return 2;
    }
    for (size_t k = 0; k < PS_ARRAY_LEN(kernels); k++)
        for (int t = 0; t < 2 && kernels[k].isa <= ps_cpu_isa_detect(); t++) {
            bench_check(ps_backend_create_cpu(kernels[k].isa, t == 0 ? 1 : ps_cpu_threads(), &b.backends[k][t]));
            ps_cpu_of(b.backends[k][t])->uses_dpbf16 = kernels[k].by_dpbf16;
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
