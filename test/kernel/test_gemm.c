/* Matrix products of each instruction set, and tiles emulated in plain C, against sums in double: odd sizes, leading
 * dimensions, types, threads; and the bits that are to be the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The tile kernel once more, of emulated tiles. */
#define PS_ISA emulated
#define PS_ISA_emulated 1
#define PS_TILES_EMULATED
#include "../src/kernel/cpu/isa/isa_gemm_tiles.c"

#define MATMUL(isa)                                                                                                    \
    ps_status ps_cpu_matmul_##isa(ps_cpu *cpu, const ps_matmul *p, void *workspace, size_t workspace_bytes);           \
    ps_status ps_cpu_matmul_bytes_##isa(ps_cpu *cpu, const ps_matmul *p, size_t *out);
MATMUL(portable)
MATMUL(avx2)
MATMUL(avx512)
MATMUL(avx512_bf16)

static const struct {
    ps_status (*run)(ps_cpu *, const ps_matmul *, void *, size_t);
    ps_status (*bytes)(ps_cpu *, const ps_matmul *, size_t *);
} matmuls[PS_CPU_ISA_COUNT] = {
    [PS_CPU_PORTABLE] = {ps_cpu_matmul_portable, ps_cpu_matmul_bytes_portable},
    [PS_CPU_AVX2] = {ps_cpu_matmul_avx2, ps_cpu_matmul_bytes_avx2},
    [PS_CPU_AVX512] = {ps_cpu_matmul_avx512, ps_cpu_matmul_bytes_avx512},
    [PS_CPU_AVX512_BF16] = {ps_cpu_matmul_avx512_bf16, ps_cpu_matmul_bytes_avx512_bf16},
    [PS_CPU_AMX] = {ps_cpu_matmul_avx512_bf16, ps_cpu_matmul_bytes_avx512_bf16},
};

/* What computes: a level; its kernel for AMD; tiles in plain C. */
enum { BY_DPBF16 = PS_CPU_ISA_COUNT, BY_EMULATION, BY_COUNT };

#define THREADS_MAX 8

/* NULL: not on this processor. Made once a program. */
static ps_backend *backend_of(int by, int n_threads)
{
    static ps_backend *made[BY_COUNT][THREADS_MAX + 1];
    const int isa = by == BY_DPBF16 ? (int)PS_CPU_AVX512_BF16 : by == BY_EMULATION ? (int)PS_CPU_PORTABLE : by;
    static int best = -1; /* in virtual machines CPUID is slow */
    if (best < 0) best = (int)ps_cpu_isa_detect();
    if (isa > best) return NULL;
    if (made[by][n_threads] == NULL) {
        assert_int_equal(ps_backend_create_cpu((ps_cpu_isa)isa, n_threads, &made[by][n_threads]), PS_OK);
        ps_cpu_of(made[by][n_threads])->uses_dpbf16 = by == BY_DPBF16;
    }
    return made[by][n_threads];
}

typedef struct gemm_case {
    int64_t m, n, k, extra; /* extra: elements between the rows */
    bool a_transposed, b_transposed, accumulate, has_bias;
    ps_dtype ab, c;
    bool special; /* values next to zero, and infinite */
} gemm_case;

#define GUARD 0x5A

/* Marsaglia's xorshift: these are many. */
static void *random_fill(void *x, ps_dtype t, int64_t n, uint32_t seed, bool special)
{
    uint32_t w = seed * 2654435761u;
    for (int64_t i = 0; i < n; i++) {
        w ^= w << 13, w ^= w >> 17, w ^= w << 5;
        float v = (float)(int32_t)w * 0x1p-31f;
        if (special && w % 7 == 0) v *= w % 5 == 0 ? 0x1p-130f : 0x1p-70f;
        if (special && w % 997 == 0) v = INFINITY;
        ps_dtype_store(t, x, i, v);
    }
    return x;
}

/* An operand, without an element after its last one, so that AddressSanitizer finds reads past it. */
static void *random_operand(ps_dtype t, int64_t rows, int64_t cols, int64_t ld, uint32_t seed, bool special)
{
    const int64_t n = rows > 0 && cols > 0 ? (rows - 1) * ld + cols : 0;
    return random_fill(malloc((size_t)ps_max_i64(n, 1) * ps_dtype_bytes(t)), t, n, seed, special);
}

typedef struct gemm_arrays {
    void *a, *b, *bias, *c; /* c: before */
    int64_t lda, ldb, ldc;
    /* what is expected of elements 0, step, 2 step, ... of c, and the sum of its terms' absolute values */
    double *want, *terms;
    int64_t step;
} gemm_arrays;

static int64_t elements_of_c(const gemm_case *c)
{
    return c->m * (c->n + c->extra);
}

static gemm_arrays arrays_make(const gemm_case *c)
{
    gemm_arrays x = {.lda = (c->a_transposed ? c->m : c->k) + c->extra,
                     .ldb = (c->b_transposed ? c->k : c->n) + c->extra,
                     .ldc = c->n + c->extra};
    const int64_t m = c->m, n = c->n, k = c->k;
    x.a = random_operand(c->ab, c->a_transposed ? k : m, c->a_transposed ? m : k, x.lda, 1, c->special);
    x.b = random_operand(c->ab, c->b_transposed ? n : k, c->b_transposed ? k : n, x.ldb, 2, c->special);
    x.bias = random_operand(c->ab, 1, n, n, 3, c->special);
    x.c = random_fill(aligned_alloc(64, (size_t)ps_round_up(elements_of_c(c) * 4 + 64, 64)), c->c, elements_of_c(c) + 1,
                      4, c->special);
    return x;
}

static void arrays_free(gemm_arrays *x)
{
    free(x->a), free(x->b), free(x->bias), free(x->c), free(x->want), free(x->terms);
}

/* [rows][k] of an operand, k neighbours in memory. */
static double *operand_values(ps_dtype t, const void *x, int64_t rows, int64_t k, int64_t ld, bool is_by_k)
{
    double *const out = malloc((size_t)(rows * k + 1) * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t l = 0; l < k; l++) out[i * k + l] = (double)ps_dtype_load(t, x, is_by_k ? i * ld + l : l * ld + i);
    return out;
}

/* Sums in double of at most some n_checked elements, spread. */
static void arrays_expect(gemm_arrays *x, const gemm_case *c, int64_t n_checked)
{
    const int64_t n = c->m * c->n;
    double *const a = operand_values(c->ab, x->a, c->m, c->k, x->lda, !c->a_transposed);
    double *const b = operand_values(c->ab, x->b, c->n, c->k, x->ldb, c->b_transposed);
    x->step = n > n_checked ? n / n_checked : 1;
    x->want = malloc((size_t)ps_ceil_div(n, x->step) * sizeof *x->want);
    x->terms = malloc((size_t)ps_ceil_div(n, x->step) * sizeof *x->terms);
    for (int64_t e = 0; e < n; e += x->step) {
        const double *const row = a + e / c->n * c->k, *const col = b + e % c->n * c->k;
        const double bias = c->has_bias ? (double)ps_dtype_load(c->ab, x->bias, e % c->n) : 0.0;
        const double before = c->accumulate ? (double)ps_dtype_load(c->c, x->c, e / c->n * x->ldc + e % c->n) : 0.0;
        double sum = bias + before, terms = fabs(bias) + fabs(before);
        for (int64_t l = 0; l < c->k; l++) sum += row[l] * col[l], terms += fabs(row[l] * col[l]);
        x->want[e / x->step] = sum, x->terms[e / x->step] = terms;
    }
    free(a), free(b);
}

/* c, with what is between its rows. */
static void *run_case(const gemm_case *c, const gemm_arrays *x, int by, int n_threads)
{
    ps_cpu *const cpu = ps_cpu_of(backend_of(by, n_threads));
    const size_t c_bytes = (size_t)elements_of_c(c) * ps_dtype_bytes(c->c);
    void *const out = aligned_alloc(64, (size_t)ps_round_up((int64_t)c_bytes + 64, 64));
    memcpy(out, x->c, c_bytes);
    ps_matmul p = {.c = out,
                   .a = x->a,
                   .b = x->b,
                   .bias = c->has_bias ? x->bias : NULL,
                   .m = c->m,
                   .n = c->n,
                   .k = c->k,
                   .lda = x->lda,
                   .ldb = x->ldb,
                   .ldc = x->ldc,
                   .a_transposed = c->a_transposed,
                   .b_transposed = c->b_transposed,
                   .accumulate = c->accumulate,
                   .ab_dtype = c->ab,
                   .c_dtype = c->c};
    ps_gemm_plan emulated = {.n_threads = 0};
    size_t bytes = 0;
    if (by == BY_EMULATION) {
        emulated = ps_gemm_plan_make(&p, PS_GEMM_TILES, (ps_gemm_block){32, 32}, n_threads);
        bytes = ps_gemm_plan_bytes(&emulated);
    }
    const int isa = by == BY_DPBF16 ? (int)PS_CPU_AVX512_BF16 : by;
    if (by != BY_EMULATION) assert_int_equal(matmuls[isa].bytes(cpu, &p, &bytes), PS_OK);
    unsigned char *const workspace = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(workspace, 0xFF, bytes);
    memset(workspace + bytes, GUARD, 64);
    if (by == BY_EMULATION)
        ps_gemm_run(cpu->pool, &p, &emulated, &ps_cpu_gemm_tiles_emulated, workspace);
    else {
        assert_int_equal(matmuls[isa].run(cpu, &p, workspace, bytes), PS_OK);
        if (bytes > 0) assert_int_equal(matmuls[isa].run(cpu, &p, workspace, bytes - 1), PS_EINVAL);
    }
    for (size_t i = 0; i < 64; i++) assert_int_equal(workspace[bytes + i], GUARD);
    free(workspace);
    return out;
}

/* What is expected; and all that is between rows is as before. */
static void compare(const gemm_case *c, const gemm_arrays *x, int by, const void *got)
{
    const double ulp = c->c == PS_DTYPE_F32 ? 0x1p-23 : c->c == PS_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t e = 0; e < c->m * c->n; e += x->step) {
        const int64_t i = e / c->n, j = e % c->n;
        const double want = x->want[e / x->step], terms = x->terms[e / x->step];
        const double have = (double)ps_dtype_load(c->c, got, i * x->ldc + j);
        if (fabs(want - have) <= ulp * fabs(want) + 0x1p-21 * terms + (c->c == PS_DTYPE_F16 ? 0x1p-24 : 0.0)) continue;
        fail_msg("%d: %lld x %lld x %lld +%lld %d%d%d%d types %d %d: c[%lld, %lld] is %.9g, not %.9g", by,
                 (long long)c->m, (long long)c->n, (long long)c->k, (long long)c->extra, c->a_transposed,
                 c->b_transposed, c->accumulate, c->has_bias, (int)c->ab, (int)c->c, (long long)i, (long long)j, have,
                 want);
    }
    const size_t size = ps_dtype_bytes(c->c);
    for (int64_t i = 0; i < c->m; i++)
        if (memcmp((const char *)got + (size_t)(i * x->ldc + c->n) * size,
                   (char *)x->c + (size_t)(i * x->ldc + c->n) * size, (size_t)c->extra * size) != 0)
            fail_msg("%d: row %lld was written beyond its end", by, (long long)i);
}

/* Level and number of threads give the bits of `want`? NaN is NaN: which one, processors choose. */
static void same_bits(const gemm_case *c, int by, const void *got, const void *want, int n_threads)
{
    for (int64_t i = 0; i < elements_of_c(c); i++) {
        const float g = ps_dtype_load(c->c, got, i), w = ps_dtype_load(c->c, want, i);
        if (memcmp(&g, &w, sizeof g) == 0 || (isnan(g) && isnan(w))) continue;
        fail_msg(
            "%d with %d threads: %lld x %lld x %lld +%lld %d%d%d%d types %d %d: element %lld is %.9g, and was %.9g", by,
            n_threads, (long long)c->m, (long long)c->n, (long long)c->k, (long long)c->extra, c->a_transposed,
            c->b_transposed, c->accumulate, c->has_bias, (int)c->ab, (int)c->c, (long long)i, (double)g, (double)w);
    }
}

static bool is_exact(int by)
{
    return by != (int)PS_CPU_PORTABLE && by != BY_DPBF16;
}

/* What takes a level seconds in a build that is watched: each kernel once, panels, vdpbf16ps and tiles. */
static bool is_too_slow(int by, const gemm_case *c)
{
    const bool is_first = by == (int)PS_CPU_AVX2 || by == (int)PS_CPU_AMX || by == BY_DPBF16;
    return !is_first && c->m * c->n * c->k > 1000000000;
}

/* Tiles compute 32 rows and columns at a time, and are slow in plain C; few rows are not theirs. */
static bool can_emulate(const gemm_case *c)
{
    return c->k > 0 && (c->m > 8 || c->a_transposed) && ps_round_up(c->m, 32) * ps_round_up(c->n, 32) * c->k <= 2000000;
}

/* n_checked elements against sums in double; with one thread and with n_threads. */
static void check(const gemm_case *c, int64_t n_checked, int n_threads)
{
    const int both[] = {1, n_threads};
    gemm_arrays x = arrays_make(c);
    void *first = NULL;
    if (!c->special) arrays_expect(&x, c, n_checked);
    for (int by = 0; by < BY_COUNT; by++) {
        if (by >= BY_DPBF16 && c->ab != PS_DTYPE_BF16) continue;
        if (by == BY_EMULATION && !can_emulate(c)) continue;
        if (backend_of(by, 1) == NULL || is_too_slow(by, c)) continue;
        void *one = NULL;
        for (int t = 0; t < 2; t++) {
            void *const got = run_case(c, &x, by, both[t]);
            if (one == NULL) {
                one = got;
                if (!c->special) compare(c, &x, by, got);
                continue;
            }
            same_bits(c, by, got, one, n_threads);
            free(got);
        }
        if (!is_exact(by))
            free(one);
        else if (first == NULL)
            first = one;
        else {
            same_bits(c, by, one, first, 1);
            free(one);
        }
    }
    free(first);
    arrays_free(&x);
}

static const int64_t odd_sizes[][3] = {{1, 1, 1},      {5, 3, 33},   {33, 31, 65}, {1, 100, 70},
                                       {70, 1, 100},   {64, 64, 64}, {65, 63, 31}, {16, 48, 32},
                                       {37, 129, 300}, {3, 5, 0},    {130, 33, 1}, {40, 200, 70}};

static void test_odd_sizes(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 32; flags++) {
                const gemm_case c = {.m = odd_sizes[s][0],
                                     .n = odd_sizes[s][1],
                                     .k = odd_sizes[s][2],
                                     .extra = (flags & 7) == 0 ? 0 : flags & 7,
                                     .a_transposed = flags & 1,
                                     .b_transposed = flags & 2,
                                     .accumulate = flags & 4,
                                     .has_bias = flags & 8,
                                     .ab = (ps_dtype)t,
                                     .c = flags & 16 ? PS_DTYPE_F32 : (ps_dtype)t};
                check(&c, INT64_MAX, 3);
            }
}

/* Several blocks in each direction; slices of k, by panels; rows of the operands read in place. */
static const int64_t large_sizes[][3] = {{150, 800, 1100}, {40, 50, 9000}, {512, 64, 768},  {2, 1000, 768},
                                         {7, 300, 2100},   {16, 40, 700},  {600, 70, 2100}, {17, 768, 1800}};

static void test_large_sizes(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(large_sizes); s++)
        for (int flags = 0; flags < 8; flags++) {
            const gemm_case c = {.m = large_sizes[s][0],
                                 .n = large_sizes[s][1],
                                 .k = large_sizes[s][2],
                                 .extra = flags & 4 ? 3 : 0,
                                 .a_transposed = flags & 1,
                                 .b_transposed = flags & 2,
                                 .accumulate = flags & 4,
                                 .has_bias = flags & 1,
                                 .ab = flags & 4 ? PS_DTYPE_F32 : PS_DTYPE_BF16,
                                 .c = flags & 2   ? PS_DTYPE_F32
                                      : flags & 4 ? PS_DTYPE_F32
                                                  : PS_DTYPE_BF16};
            check(&c, 200, flags & 1 ? 2 : THREADS_MAX);
        }
}

/* f16, few rows and several blocks of k. */
static void test_few_rows_of_f16(void **state)
{
    (void)state;
    for (int flags = 0; flags < 4; flags++) {
        const gemm_case c = {.m = 7,
                             .n = 300,
                             .k = 600,
                             .extra = flags,
                             .b_transposed = flags & 1,
                             .has_bias = flags & 2,
                             .ab = PS_DTYPE_F16,
                             .c = PS_DTYPE_F16};
        check(&c, 500, THREADS_MAX);
    }
}

/* Slices of k and of the rows, for which sums are those of the call. */
static void test_slices(void **state)
{
    (void)state;
    const gemm_case c = {.m = 1400,
                         .n = 760,
                         .k = 3500,
                         .a_transposed = true,
                         .has_bias = true,
                         .ab = PS_DTYPE_BF16,
                         .c = PS_DTYPE_BF16};
    const ps_matmul p = {.m = c.m, .n = c.n, .k = c.k, .lda = c.m, .ldb = c.n, .ldc = c.n, .a_transposed = true};
    const ps_gemm_plan plan = ps_gemm_plan_make(&p, PS_GEMM_TILES, (ps_gemm_block){14, 32}, 2);
    assert_true(plan.k_slice < plan.k_padded && plan.m_slice < plan.m);
    check(&c, 200, 2);
}

/* Panels of f32: groups of rows and columns, several blocks of k, c past the caches where its rows are aligned. */
static void test_panels(void **state)
{
    (void)state;
    for (int flags = 0; flags < 16; flags++) {
        const gemm_case c = {.m = 500,
                             .n = 830,
                             .k = flags & 8 ? 600 : 290,
                             .extra = flags & 4 ? 2 : 0,
                             .a_transposed = flags & 1,
                             .b_transposed = flags & 2,
                             .accumulate = flags == 5,
                             .has_bias = flags & 4,
                             .ab = flags & 8 ? PS_DTYPE_BF16 : PS_DTYPE_F32,
                             .c = flags == 9 ? PS_DTYPE_BF16 : PS_DTYPE_F32};
        const ps_matmul p = {.m = c.m, .n = c.n, .k = c.k, .accumulate = c.accumulate, .c_dtype = c.c};
        const ps_gemm_kernel kernel = flags & 8 ? PS_GEMM_PAIRS : PS_GEMM_F32;
        const ps_gemm_plan plan = ps_gemm_plan_make(&p, kernel, (ps_gemm_block){14, 32}, THREADS_MAX);
        assert_true(plan.k_block < plan.k_padded && plan.m_slice < plan.m && plan.n_block < plan.n);
        assert_int_equal(plan.streams, !c.accumulate);
        check(&c, 200, flags & 1 ? 2 : THREADS_MAX);
    }
}

/* Groups of columns, which each thread packs for itself: rows of a in place or not, several blocks of k and of rows, c
 * past the caches. */
typedef struct group_case {
    gemm_case c;
    bool in_place, streams, has_blocks; /* of k, and of rows */
    int n_threads;
} group_case;

static const group_case group_cases[] = {
    {{.m = 300, .n = 500, .k = 1056}, true, true, true, 2},
    {{.m = 400, .n = 400, .k = 1030, .extra = 26, .b_transposed = true}, true, true, true, 2},
    {{.m = 90, .n = 560, .k = 33, .extra = 31}, true, false, false, 3},
    {{.m = 90, .n = 560, .k = 33, .extra = 31, .b_transposed = true}, true, false, false, 3},
    {{.m = 70, .n = 1600, .k = 40, .extra = 2008}, false, false, false, 2},
    {{.m = 100, .n = 1600, .k = 100, .has_bias = true, .c = PS_DTYPE_F32}, false, true, false, 2},
};

static void test_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(group_cases); i++) {
        const group_case *const g = &group_cases[i];
        gemm_case c = g->c;
        c.ab = PS_DTYPE_BF16;
        if (c.c != PS_DTYPE_F32 || !c.has_bias) c.c = PS_DTYPE_BF16;
        const ps_matmul p = {.m = c.m,
                             .n = c.n,
                             .k = c.k,
                             .lda = c.k + c.extra,
                             .ldb = (c.b_transposed ? c.k : c.n) + c.extra,
                             .ldc = c.n + c.extra,
                             .b_transposed = c.b_transposed,
                             .ab_dtype = c.ab,
                             .c_dtype = c.c};
        for (int t = 1; t <= g->n_threads; t++) {
            const ps_gemm_plan plan = ps_gemm_plan_make(&p, PS_GEMM_TILES, (ps_gemm_block){14, 32}, t);
            assert_true(plan.n_groups > t);
            assert_int_equal(plan.in_place, g->in_place);
            assert_int_equal(plan.streams, g->streams);
            assert_int_equal(plan.k_block < plan.k_padded && plan.m > plan.m_block, g->has_blocks);
        }
        check(&c, 500, g->n_threads);
    }
}

/* Subnormal numbers, as operands and as results, infinite ones and what is none. */
static void test_special_values(void **state)
{
    (void)state;
    for (int flags = 0; flags < 4; flags++) {
        const gemm_case c = {.m = 50,
                             .n = 70,
                             .k = 200,
                             .a_transposed = flags & 1,
                             .b_transposed = flags & 2,
                             .ab = PS_DTYPE_BF16,
                             .c = PS_DTYPE_F32,
                             .special = true};
        check(&c, 0, 3);
    }
    for (int accumulate = 0; accumulate < 2;
         accumulate++) { /* whole rows of bf16, some of them subnormal: what is added is */
        const gemm_case c = {.m = 130,
                             .n = 70,
                             .k = 1,
                             .accumulate = accumulate,
                             .has_bias = true,
                             .ab = PS_DTYPE_BF16,
                             .c = PS_DTYPE_BF16,
                             .special = true};
        check(&c, 0, 3);
    }
}

/* Bounded for any shape: 14 MiB, and a piece a thread. */
static void test_workspace_is_bounded(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 31, 768, 1024, 3072, 50257, 1000000};
    for (int kernel = PS_GEMM_F32; kernel <= PS_GEMM_TILES; kernel++)
        for (int i = 0; i < 7 * 7 * 7 * 4; i++)
            for (int n_threads = 1; n_threads <= 64; n_threads *= 8) {
                const ps_matmul p = {.m = sizes[i % 7],
                                     .n = sizes[i / 7 % 7],
                                     .k = sizes[i / 49 % 7],
                                     .a_transposed = i / 343 & 1,
                                     .b_transposed = i / 343 & 2,
                                     .lda = i / 343 & 1 ? sizes[i % 7] : sizes[i / 49 % 7],
                                     .ldb = i / 343 & 2 ? sizes[i / 49 % 7] : sizes[i / 7 % 7]};
                const ps_gemm_plan plan =
                    ps_gemm_plan_make(&p, (ps_gemm_kernel)kernel, (ps_gemm_block){14, 32}, n_threads);
                assert_true(ps_gemm_plan_bytes(&plan) <= (size_t)((14 + n_threads * 9 / 4 + 1) * PS_MIB));
            }
}

static void test_dpbf16_is_amds(void **state)
{
    (void)state;
    assert_true(ps_cpu_dpbf16_is_fast("AuthenticAMD", PS_CPU_AVX512_BF16));
    assert_false(ps_cpu_dpbf16_is_fast("AuthenticAMD", PS_CPU_AVX512));
    assert_false(ps_cpu_dpbf16_is_fast("GenuineIntel", PS_CPU_AVX512_BF16));
    assert_false(ps_cpu_dpbf16_is_fast("", PS_CPU_AVX512_BF16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_sizes),       cmocka_unit_test(test_large_sizes),
        cmocka_unit_test(test_few_rows_of_f16), cmocka_unit_test(test_slices),
        cmocka_unit_test(test_panels),          cmocka_unit_test(test_groups),
        cmocka_unit_test(test_special_values),  cmocka_unit_test(test_workspace_is_bounded),
        cmocka_unit_test(test_dpbf16_is_amds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
