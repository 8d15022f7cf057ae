/* op_check.h - what the operator tests share: guarded buffers, runs of one case on every backend, comparison.
 *
 * A test describes a case in a struct of its own and writes a function of type op_case_fn, which makes the arrays
 * (op_input, op_output), runs one operator of the given backend on them and names its outputs (op_record). Inputs
 * depend on the case alone, so the function can run again for another backend, or with all arrays moved.
 * Outputs that the operator overwrites start as NaN; guard bytes are before and after each array; inputs carry a
 * checksum. op_release checks guards and checksums and frees everything. */
#ifndef TEST_OP_OP_CHECK_H
#define TEST_OP_OP_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "kernel/cpu/cpu_backend.h"

#define OP_GUARD_BYTES 64
#define OP_GUARD 0xA5

typedef struct op_array {
    unsigned char *block, *data;
    size_t bytes;
    uint64_t checksum;
    bool is_input;
} op_array;

/* One test program runs one case at a time. */
typedef struct op_state {
    op_array arrays[256];
    int n_arrays;
    size_t shift_bytes; /* where the next arrays lie relative to their block; multiple of 64 */
    bool has_bf16;      /* an array of the case has random values in bf16 */
    char label[256];    /* the case, for messages */
} op_state;

static op_state op_now;

static inline uint64_t op_checksum(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t sum = bytes;
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ p[i]) * 0x100000001b3u;
    return sum;
}

/* Names the case that runs now. */
__attribute__((format(printf, 1, 2))) static inline void op_label(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(op_now.label, sizeof op_now.label, fmt, ap);
    va_end(ap);
}

/* 64-byte aligned, filled with ones: NaN in every element type, -1 in integers. */
static inline void *op_alloc(size_t bytes)
{
    assert_true(op_now.n_arrays < (int)PS_ARRAY_LEN(op_now.arrays));
    op_array *a = &op_now.arrays[op_now.n_arrays++];
    const size_t total = op_now.shift_bytes + OP_GUARD_BYTES + bytes + OP_GUARD_BYTES;
    a->block = aligned_alloc(64, (total + 63) / 64 * 64);
    assert_non_null(a->block);
    a->data = a->block + op_now.shift_bytes + OP_GUARD_BYTES;
    a->bytes = bytes;
    a->is_input = false;
    memset(a->data - OP_GUARD_BYTES, OP_GUARD, bytes + 2 * OP_GUARD_BYTES);
    memset(a->data, 0xFF, bytes);
    return a->data;
}

/* Marks the array made last as one that no operator may change. */
static inline void op_mark_input(void)
{
    op_array *a = &op_now.arrays[op_now.n_arrays - 1];
    a->is_input = true;
    a->checksum = op_checksum(a->data, a->bytes);
}

/* Values around `mean` with standard deviation `spread`, bounded by 3 of it; `stream` picks the sequence. */
static inline void *op_random(ps_dtype t, int64_t n, double mean, double spread, uint64_t stream)
{
    void *array = op_alloc((size_t)n * ps_dtype_bytes(t));
    op_now.has_bf16 |= t == PS_DTYPE_BF16;
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        ps_rng_block((ps_rng_key){.seed = 7, .stream = stream}, (uint64_t)i, w);
        const float u = ps_rng_unit(w[0]) + ps_rng_unit(w[1]) + ps_rng_unit(w[2]);
        ps_dtype_store(t, array, i, (float)(mean + spread * 2.0 * ((double)u - 1.5)));
    }
    return array;
}

static inline void *op_input(ps_dtype t, int64_t n, double spread, uint64_t stream)
{
    void *array = op_random(t, n, 0.0, spread, stream);
    op_mark_input();
    return array;
}

/* An array to write: random values to add to, or NaN to overwrite. */
static inline void *op_output(ps_dtype t, int64_t n, bool accumulate, uint64_t stream)
{
    return accumulate ? op_random(t, n, 0.0, 1.0, stream) : op_alloc((size_t)n * ps_dtype_bytes(t));
}

/* Indices in [0, V); the last one always occurs, and every `ignore_every`-th is PS_IGNORE_INDEX (0: none). */
static inline int32_t *op_indices(int64_t n, int64_t V, int64_t ignore_every, uint64_t stream)
{
    int32_t *ids = op_alloc((size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t w = ps_rng_u32((ps_rng_key){.seed = 9, .stream = stream}, (uint64_t)i);
        ids[i] = i == 0 ? (int32_t)(V - 1) : (int32_t)(w % (uint64_t)V);
        if (ignore_every > 0 && i % ignore_every == ignore_every - 1) ids[i] = PS_IGNORE_INDEX;
    }
    op_mark_input();
    return ids;
}

static inline void op_expect_ok(ps_status st)
{
    if (st == PS_OK) return;
    print_error("%s: %s: %s\n", op_now.label, ps_status_name(st), ps_last_error());
    fail();
}

static inline size_t op_bytes(ps_backend *k, ps_op op, const void *args)
{
    size_t bytes;
    op_expect_ok(ps_kernel_measure(k, op, args, &bytes));
    return bytes;
}

/* Exactly the bytes asked for, so that the guards catch one too few. */
static inline void *op_workspace(ps_backend *k, ps_op op, const void *args)
{
    return op_alloc(op_bytes(k, op, args));
}

#define OP_RUN(k, op, a)                                                                                               \
    do {                                                                                                               \
        (a)->workspace = op_workspace((k), PS_OP_##op, (a));                                                           \
        op_expect_ok(ps_run_##op((k), NULL, (a), op_bytes((k), PS_OP_##op, (a))));                                     \
    } while (0)

static inline void op_release(void)
{
    for (int i = 0; i < op_now.n_arrays; i++) {
        op_array *a = &op_now.arrays[i];
        for (size_t g = 0; g < OP_GUARD_BYTES; g++) {
            if (a->data[a->bytes + g] == OP_GUARD && *(a->data - 1 - g) == OP_GUARD) continue;
            print_error("%s: array %d of %zu bytes was written outside its bounds\n", op_now.label, i, a->bytes);
            fail();
        }
        if (a->is_input && a->checksum != op_checksum(a->data, a->bytes)) {
            print_error("%s: input array %d of %zu bytes was changed\n", op_now.label, i, a->bytes);
            fail();
        }
        free(a->block);
    }
    op_now.n_arrays = 0;
    op_now.has_bf16 = false;
}

/* ---- outputs and tolerances ------------------------------------------------------------------------------------- */

/* Right when |got - want| <= rel |want| + abs. */
typedef struct op_record_entry {
    const char *name;
    ps_dtype dtype;
    const void *data;
    int64_t n;
    double rel, abs;
} op_record_entry;

typedef struct op_result {
    op_record_entry out[8];
    int n;
} op_result;

typedef void (*op_case_fn)(ps_backend *k, const void *c, op_result *result);

/* Distance of neighbouring values relative to them, at most. */
static inline double op_ulp(ps_dtype t)
{
    return t == PS_DTYPE_F32 ? 0x1p-23 : t == PS_DTYPE_BF16 ? 0x1p-7 : 0x1p-10;
}

/* Error bound of a float sum whose terms' magnitudes add up to `terms`, in any order of summation: 8 roundings of the
 * whole is far above what random signs leave, far below a lost or doubled term. */
static inline double op_sum_error(double terms)
{
    return 8.0 * 0x1p-24 * terms;
}

/* An output that may differ by one rounding to its type and by `abs` before that. */
static inline void op_record(op_result *r, const char *name, ps_dtype t, const void *data, int64_t n, double abs)
{
    const double subnormal = t == PS_DTYPE_F16 ? 0x1p-24 : 0.0;
    r->out[r->n++] =
        (op_record_entry){name, t, data, n, abs < 0.0 ? 0.0 : op_ulp(t), abs < 0.0 ? 0.0 : abs + subnormal};
}

/* An output that all backends must compute to the same bits. */
static inline void op_record_exact(op_result *r, const char *name, ps_dtype t, const void *data, int64_t n)
{
    op_record(r, name, t, data, n, -1.0);
}

static inline void op_compare(const op_record_entry *got, const op_record_entry *want, const char *backend)
{
    for (int64_t i = 0; i < want->n; i++) {
        const double g = (double)ps_dtype_load(got->dtype, got->data, i);
        const double w = (double)ps_dtype_load(want->dtype, want->data, i);
        if (g == w || fabs(g - w) <= want->rel * fabs(w) + want->abs) continue;
        print_error("%s: %s: %s[%lld] is %.9g, reference has %.9g, allowed are %.3g\n", op_now.label, backend,
                    want->name, (long long)i, g, w, want->rel * fabs(w) + want->abs);
        fail();
    }
}

static inline void op_compare_bits(const op_record_entry *got, const op_record_entry *want, const char *why)
{
    const size_t bytes = ps_dtype_bytes(want->dtype);
    for (int64_t i = 0; i < want->n; i++) {
        if (memcmp((const char *)got->data + (size_t)i * bytes, (const char *)want->data + (size_t)i * bytes, bytes) ==
            0)
            continue;
        print_error("%s: %s: %s[%lld] is %.9g and %.9g\n", op_now.label, why, want->name, (long long)i,
                    (double)ps_dtype_load(got->dtype, got->data, i), (double)ps_dtype_load(want->dtype, want->data, i));
        fail();
    }
}

/* CPUID is slow in virtual machines. */
static inline ps_cpu_isa op_highest_isa(void)
{
    static int isa = -1;
    if (isa < 0) isa = (int)ps_cpu_isa_detect();
    return (ps_cpu_isa)isa;
}

#ifdef TEST_OVER_CUDA
static inline ps_backend *op_cuda(int i);
#elif defined TEST_OVER_GPU
static inline ps_backend *op_gpu(void);
#define TEST_OVER_CUDA /* the same cases */
#define op_cuda(i) op_gpu()
#endif

/* Backend number `i`: the reference, then the cpu by rising instruction set; with TEST_OVER_CUDA the emulated GPU alone,
 * with TEST_OVER_GPU a GPU. False after the last. Made once a program. */
static inline bool op_backend(int i, ps_backend **k, char name[64])
{
#ifdef TEST_OVER_CUDA
    if (i > 1) return false;
    if (i == 1) {
        *k = op_cuda(0);
        snprintf(name, 64, "%s", ps_backend_name(*k));
        return true;
    }
#endif
    static ps_backend *made[1 + PS_CPU_ISA_COUNT];
    if (i > 0 && i - 1 > (int)op_highest_isa()) return false;
    if (made[i] == NULL)
        op_expect_ok(i == 0 ? ps_backend_create_ref(&made[i])
                            : ps_backend_create_cpu((ps_cpu_isa)(i - 1), ps_cpu_threads(), &made[i]));
    *k = made[i];
    snprintf(name, 64, "%s", ps_backend_name(*k));
    return true;
}

static inline ps_backend *op_reference(void)
{
    ps_backend *k = NULL;
    char name[64];
    op_backend(0, &k, name);
    return k;
}

/* Backend number `i` with more threads than cores; the emulated GPU with its threads in another order; a GPU as it is. */
static inline ps_backend *op_threaded_backend(int i)
{
#ifdef TEST_OVER_CUDA
    return i == 0 ? op_reference() : op_cuda(1);
#endif
    static ps_backend *made[1 + PS_CPU_ISA_COUNT];
    ps_backend *k = NULL;
    char name[64];
    op_backend(i, &k, name);
    if (i > 0 && made[i] == NULL)
        op_expect_ok(ps_backend_create_cpu((ps_cpu_isa)(i - 1), ps_cpu_threads() + 3, &made[i]));
    return made[i] != NULL ? made[i] : k;
}

/* The highest instruction set as ps_backend_create_cpu_same makes it; NULL where it is below avx2. Made once a
 * program. */
static inline ps_backend *op_same(void)
{
    static ps_backend *made;
    if (made == NULL && op_highest_isa() >= PS_CPU_AVX2)
        op_expect_ok(ps_backend_create_cpu_same(op_highest_isa(), ps_cpu_threads(), false, &made));
    return made;
}

/* A backend of the cpu from avx2 on has avx2's bits. The operators whose tests define OP_MULTIPLIES_BF16 have others
 * for bf16 where vdpbf16ps multiplies. */
static inline bool op_has_bits_of_avx2(ps_backend *k)
{
#ifdef OP_MULTIPLIES_BF16
    return !op_now.has_bf16 || !ps_cpu_of(k)->uses_dpbf16;
#else
    (void)k;
    return true;
#endif
}

static inline void op_compare_all_bits(const op_result *got, const op_result *want, const char *why)
{
    for (int o = 0; o < want->n; o++) op_compare_bits(&got->out[o], &want->out[o], why);
}

/* Every backend against the reference; and each gives the same bits again, with all arrays elsewhere and another number
 * of threads. From avx2 on all have the same bits (op_has_bits_of_avx2), and those of ps_backend_create_cpu_same
 * always. */
static inline void op_check_backends(op_case_fn run, const void *c)
{
    ps_backend *k;
    char name[64], why[96];
    op_result want = {.n = 0}, avx2 = {.n = 0}, other = {.n = 0};
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_result got = {.n = 0}, moved = {.n = 0};
        run(k, c, &got);
        op_now.shift_bytes = 320;
        run(op_threaded_backend(i), c, &moved);
        op_now.shift_bytes = 0;
        if (i == 0) want = got;
        for (int o = 0; o < want.n; o++) op_compare(&got.out[o], &want.out[o], name);
        op_compare_all_bits(&moved, &got, name);
        if (strcmp(name, "cpu avx2") == 0) avx2 = got;
        snprintf(why, sizeof why, "%s, not as with avx2", name);
        if (avx2.n > 0 && op_has_bits_of_avx2(k)) op_compare_all_bits(&got, &avx2, why);
    }
#ifndef TEST_OVER_CUDA
    if (op_same() != NULL) {
        run(op_same(), c, &other);
        op_compare_all_bits(&other, &avx2, "the same bits on every processor, not as with avx2");
    }
#else
    (void)other;
#endif
    op_release();
}

/* Two cases that must give the same bits on every backend but those where `differs` (NULL: none), such as gradients apart from and over their parameters. */
static inline void op_check_same_bits_but(op_case_fn run, const void *c, const void *other, const char *why,
                                          bool (*differs)(const ps_backend *k, const void *c))
{
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        if (differs != NULL && differs(k, c)) continue;
        op_result one = {.n = 0}, two = {.n = 0};
        run(k, c, &one);
        run(k, other, &two);
        for (int o = 0; o < one.n; o++) op_compare_bits(&two.out[o], &one.out[o], why);
    }
    op_release();
}

static inline void op_check_same_bits(op_case_fn run, const void *c, const void *other, const char *why)
{
    op_check_same_bits_but(run, c, other, why, NULL);
}

#ifdef TEST_OVER_GPU
#include "kernel/op_visit.h" /* which needs all of the above */
#elif defined TEST_OVER_CUDA
#include "cuda/op_cuda.h"
#endif

#endif
