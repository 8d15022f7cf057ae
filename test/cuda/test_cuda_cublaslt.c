/* test_cuda_cublaslt.c - matrix products by cuBLASLt: that its binary interface is what cublaslt.h says, where the toolkit
 * is; and over a library that checks what it is asked for, every product that operators have, and every failure. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cuda/fake_cublaslt.h"
#include "cuda/rig.h"

/* ---- against the toolkit ---- */

#if __has_include("/usr/local/cuda/include/cublasLt.h")
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wconversion"
#include "/usr/local/cuda/include/cublasLt.h"
#pragma GCC diagnostic pop
#endif
#if defined(CUBLAS_VER_MAJOR) && CUBLAS_VER_MAJOR == PS_CUBLASLT_VERSION

#define XX(type, name, symbol, params) _Static_assert(sizeof(&symbol) == sizeof(void *), #symbol);
#include "device/cuda/cublaslt.def"
#undef XX

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours)
SAME(sizeof(ps_lt_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(ps_lt_choice), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(ps_lt_choice, workspace_bytes), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(ps_lt_choice, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(sizeof(ps_lt_status), sizeof(cublasStatus_t));
SAME(PS_LT_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(PS_LT_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED);
SAME(PS_LT_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED);
SAME(PS_LT_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE);
SAME(PS_LT_ARCH_MISMATCH, CUBLAS_STATUS_ARCH_MISMATCH);
SAME(PS_LT_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED);
SAME(PS_LT_INTERNAL_ERROR, CUBLAS_STATUS_INTERNAL_ERROR);
SAME(PS_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(PS_LT_F32, CUDA_R_32F);
SAME(PS_LT_F16, CUDA_R_16F);
SAME(PS_LT_BF16, CUDA_R_16BF);
SAME(PS_LT_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(PS_LT_TRANSPOSES_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(PS_LT_TRANSPOSES_B, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(PS_LT_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(PS_LT_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(PS_LT_AUX_POINTER, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
SAME(PS_LT_AUX_STRIDE, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
SAME(PS_LT_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(PS_LT_AS_IS, CUBLAS_OP_N);
SAME(PS_LT_TRANSPOSED, CUBLAS_OP_T);
SAME(PS_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(PS_LT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU);
SAME(PS_LT_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(PS_LT_REDUCTIONS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(PS_LT_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(PS_LT_ALIGN_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(PS_LT_ALIGN_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(PS_LT_ALIGN_Y, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(PS_LT_REDUCTION_COMPUTED, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

#endif

/* ---- loading ---- */

static void test_libraries(void **state)
{
    (void)state;
    ps_cublaslt lt;
    const ps_cublaslt *found, *again;
    assert_fails(ps_cublaslt_take("libcublasLt_that_is_not.so.13", &lt), PS_ENOSYS, "cannot load cuBLASLt");
    assert_non_null(strstr(ps_last_error(), "LD_LIBRARY_PATH"));
    assert_fails(ps_cublaslt_take("libm.so.6", &lt), PS_ENOSYS, "libm.so.6 has no cublasLtGetVersion");
    if (ps_cublaslt_load(&found) != PS_OK) {
        assert_null(found);
        skip(); /* there is none on this machine */
    }
    assert_int_equal(found->version() / 10000, PS_CUBLASLT_VERSION);
    assert_string_equal(found->status_name(PS_LT_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
    assert_ok(ps_cublaslt_load(&again));
    assert_ptr_equal(found, again);
}

/* ---- products ---- */

#define WORKSPACE_BYTES 1024
#define ARRAY_BYTES (64 * PS_KIB)

/* A GPU with products, and arrays a, b, bias, what follows, y and a workspace in its memory; the same in the host's. */
typedef struct bench {
    rig r;
    ps_cuda_gemms gemms;
    ps_queue *queue;
    char *device, *host;
} bench;

enum { A, B, BIAS, OTHER, Y, WORKSPACE, N_ARRAYS };

static bench bench_open_on(int capability, uint64_t seed)
{
    bench t = {.r = rig_open((fake_options){.seed = seed, .capability = capability})};
    fake_cublaslt_begin();
    assert_ok(ps_cublaslt_open_with(t.r.gpu, &fake_cublaslt, WORKSPACE_BYTES, &t.gemms));
    assert_int_equal(t.gemms.workspace_bytes, WORKSPACE_BYTES);
    t.queue = queue_new(&t.r);
    t.device = block_new(t.r.device, N_ARRAYS * ARRAY_BYTES);
    t.host = block_new(t.r.host, N_ARRAYS * ARRAY_BYTES);
    return t;
}

static bench bench_open(uint64_t seed)
{
    return bench_open_on(90, seed);
}

static void bench_close(bench *t)
{
    ps_queue_destroy(t->queue);
    ps_device_free(t->r.device, t->device, N_ARRAYS * ARRAY_BYTES, NULL);
    ps_device_free(t->r.host, t->host, N_ARRAYS * ARRAY_BYTES, NULL);
    t->gemms.destroy(t->gemms.self);
    assert_true(fake_cublaslt_end());
    rig_close(&t->r);
}

typedef struct call {
    bench *bench;
    ps_queue *queue;
    ps_cuda_gemm gemm;
    bool *is_done;
} call;

static ps_status issue(void *self, const void *args)
{
    const call *c = args;
    (void)self;
    return c->bench->gemms.multiply(c->bench->gemms.self, ps_gpu_stream(c->queue), &c->gemm, c->is_done);
}

static ps_status multiply_if_any(bench *t, ps_queue *q, const ps_cuda_gemm *p, bool *is_done)
{
    const call c = {.bench = t, .queue = q, .gemm = *p, .is_done = is_done};
    return ps_queue_call(q, &(ps_call){.name = "product", .run = issue, .args = &c, .args_bytes = sizeof c});
}

static ps_status multiply(bench *t, ps_queue *q, const ps_cuda_gemm *p)
{
    bool is_done = false;
    const ps_status st = multiply_if_any(t, q, p, &is_done);
    assert_int_equal(is_done, st == PS_OK);
    return st;
}

/* Test case `number`: its arrays begin `shift` bytes after those of others. */
typedef struct sizes {
    int64_t m, n, k, pad; /* pad: elements between rows */
} sizes;

static ps_cuda_gemm gemm_of(char *base, int64_t shift, sizes s, ps_dtype t, ps_dtype y, unsigned flags)
{
    const bool ta = flags & 1, tb = flags & 2, adds = flags & 4, has_bias = (flags & 8) && !adds && t == y;
    const bool has_addend = flags & 16, has_gelu_x = flags & 32;
    char *at = base + shift;
    return (ps_cuda_gemm){
        .y = at + Y * ARRAY_BYTES,
        .y_stride = s.n + s.pad,
        .y_dtype = y,
        .a = {.data = at + A * ARRAY_BYTES, .stride = (ta ? s.m : s.k) + s.pad, .is_transposed = ta, .dtype = t},
        .b = {.data = at + B * ARRAY_BYTES, .stride = (tb ? s.k : s.n) + s.pad, .is_transposed = tb, .dtype = t},
        .bias = has_bias ? at + BIAS * ARRAY_BYTES : NULL,
        .m = s.m,
        .n = s.n,
        .k = s.k,
        .accumulate = adds,
        .addend = has_addend ? at + OTHER * ARRAY_BYTES : NULL,
        .gelu_x = has_gelu_x ? at + OTHER * ARRAY_BYTES : NULL,
        .workspace = at + WORKSPACE * ARRAY_BYTES};
}

static double element(const ps_cuda_matrix *x, int64_t row, int64_t col)
{
    return (double)ps_dtype_load(x->dtype, x->data, x->is_transposed ? col * x->stride + row : row * x->stride + col);
}

/* Of gelu in its tanh form at small whole numbers: the difference quotient, within 1e-9. */
static double gelu_slope(double x)
{
    const double h = 1e-5, s = sqrt(2 / acos(-1.0));
    double y[2];
    for (int i = 0; i < 2; i++) {
        const double at = x + (i == 0 ? -h : h);
        y[i] = 0.5 * at * (1 + tanh(s * (at + 0.044715 * at * at * at)));
    }
    return (y[1] - y[0]) / (2 * h);
}

/* By rows, as cuda_operator.h has it. */
static double expected_at(const ps_cuda_gemm *p, int64_t i, int64_t j)
{
    double sum = p->accumulate ? (double)ps_dtype_load(p->y_dtype, p->y, i * p->y_stride + j) : 0.0;
    if (p->bias != NULL) sum += (double)ps_dtype_load(p->a.dtype, p->bias, j);
    if (p->addend != NULL) sum += (double)ps_dtype_load(p->y_dtype, p->addend, i * p->y_stride + j);
    for (int64_t l = 0; l < p->k; l++) sum += element(&p->a, i, l) * element(&p->b, l, j);
    if (p->gelu_x != NULL) sum *= gelu_slope((double)ps_dtype_load(p->y_dtype, p->gelu_x, i * p->y_stride + j));
    return sum;
}

/* Small whole numbers: sums are exact in any order and type. */
static void fill_in(const bench *t, ps_dtype dtype, ps_dtype y)
{
    for (int a = 0; a < N_ARRAYS; a++) {
        const ps_dtype of = a == Y || a == OTHER ? y : dtype;
        for (int64_t i = 0; i < ARRAY_BYTES / (int64_t)ps_dtype_bytes(of); i++)
            ps_dtype_store(of, t->host + a * ARRAY_BYTES, i, (float)((i * 7 + a * 3 + i / 13) % 5 - 2));
    }
}

static void multiplies(bench *t, int64_t shift, sizes s, ps_dtype dtype, ps_dtype y, unsigned flags)
{
    static char result[ARRAY_BYTES];
    const ps_cuda_gemm p = gemm_of(t->device, shift, s, dtype, y, flags);
    const ps_cuda_gemm h = gemm_of(t->host, shift, s, dtype, y, flags);
    fill_in(t, dtype, y);
    assert_ok(ps_queue_copy(t->queue, t->device, t->host, N_ARRAYS * ARRAY_BYTES));
    assert_ok(multiply(t, t->queue, &p));
    finish(t->queue);
    char *before = malloc(N_ARRAYS * ARRAY_BYTES);
    memcpy(before, t->host, N_ARRAYS * ARRAY_BYTES);
    assert_ok(ps_queue_copy(t->queue, t->host, t->device, N_ARRAYS * ARRAY_BYTES));
    finish(t->queue);
    memcpy(result, t->host + Y * ARRAY_BYTES, ARRAY_BYTES);
    memcpy(t->host, before, N_ARRAYS * ARRAY_BYTES);
    free(before);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n + s.pad; j++) {
            const int64_t at = i * p.y_stride + j;
            if (at * (int64_t)ps_dtype_bytes(y) >= ARRAY_BYTES - shift) break;
            const double is = (double)ps_dtype_load(y, result + shift, at);
            const double wanted =
                j < s.n ? expected_at(&h, i, j) : (double)ps_dtype_load(y, h.y, at); /* between rows: untouched */
            /* one rounding to 16 bits of what is not whole */
            const double allowed = p.gelu_x != NULL && j < s.n ? 0x1p-8 * fabs(wanted) + 1e-8 : 0;
            if (!(fabs(is - wanted) <= allowed))
                fail_msg("m %d n %d k %d flags %u: [%d][%d] is %g, not %g", (int)s.m, (int)s.n, (int)s.k, flags, (int)i,
                         (int)j, is, wanted);
        }
}

static void test_every_gemm(void **state)
{
    (void)state;
    static const sizes all[] = {{1, 1, 1, 0},   {3, 5, 7, 0},  {16, 8, 24, 0}, {9, 33, 17, 3},
                                {1, 40, 6, 16}, {31, 1, 2, 1}, {7, 11, 3, 5}};
    bench t = bench_open(1);
    int n = 0;
    for (size_t s = 0; s < PS_ARRAY_LEN(all); s++)
        for (int d = 0; d < PS_DTYPE_COUNT; d++)
            for (unsigned flags = 0; flags < 16; flags++) {
                const ps_dtype t16 = (ps_dtype)d;
                if ((flags & 12) == 12) continue; /* a bias, and adding: no operator asks for it */
                multiplies(&t, 0, all[s], t16, t16, flags), n++;
                if (t16 != PS_DTYPE_F32 && !(flags & 8)) multiplies(&t, 0, all[s], t16, PS_DTYPE_F32, flags), n++;
                if (!(flags & 4)) multiplies(&t, 0, all[s], t16, t16, flags | 16), n++;
                if (t16 != PS_DTYPE_F32 && !(flags & 12) && (all[s].n + all[s].pad) % 8 == 0)
                    multiplies(&t, 0, all[s], t16, t16, flags | 32), n++;
            }
    assert_true(n > 256);
    assert_int_equal(fake_cublaslt_calls("choose"), n); /* each another shape */
    assert_int_equal(fake_cublaslt_calls("multiply"), n);
    bench_close(&t);
}

/* What is chosen once is chosen for all addresses, and for all times. */
static void test_shapes_are_kept(void **state)
{
    (void)state;
    bench t = bench_open(2);
    for (int turn = 0; turn < 3; turn++)
        for (int64_t m = 1; m <= 150; m++)
            multiplies(&t, 64 * (turn + m % 3), (sizes){m, 3, 2, 0}, PS_DTYPE_BF16, PS_DTYPE_BF16, m % 2 ? 8 : 2);
    assert_int_equal(fake_cublaslt_calls("choose"), 150);
    assert_int_equal(fake_cublaslt_calls("layout_create"), 450);
    assert_int_equal(fake_cublaslt_calls("multiply"), 450);
    bench_close(&t);
}

/* ---- threads ---- */

enum { THREADS = 4, TIMES = 40, ROWS = 3, COLS = 8, Y_BYTES = 128 };

typedef struct worker {
    bench *bench;
    ps_queue *queue;
    char *device;
    int number;
} worker;

/* Of one shape, with a bias that is each thread's own. */
static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < TIMES; i++) {
        ps_cuda_gemm p = gemm_of(w->device, 0, (sizes){ROWS, COLS, 4, 0}, PS_DTYPE_F32, PS_DTYPE_F32, 8);
        p.y = (char *)p.y + i * Y_BYTES;
        if (multiply(w->bench, w->queue, &p) != PS_OK) return w;
    }
    return ps_event_wait(ps_queue_event(w->queue)) == PS_OK ? NULL : w;
}

static void test_several_threads(void **state)
{
    (void)state;
    bench t = bench_open(3);
    worker w[THREADS];
    pthread_t threads[THREADS];
    const int64_t bytes = N_ARRAYS * ARRAY_BYTES;
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){.bench = &t, .queue = queue_new(&t.r), .device = block_new(t.r.device, bytes), .number = i};
        memset(t.host, 0, (size_t)bytes);
        for (int64_t j = 0; j < COLS; j++) ps_dtype_store(PS_DTYPE_F32, t.host + BIAS * ARRAY_BYTES, j, (float)(i + 1));
        assert_ok(ps_queue_copy(w[i].queue, w[i].device, t.host, bytes));
        finish(w[i].queue);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_ok(ps_queue_copy(w[i].queue, t.host, w[i].device, bytes));
        finish(w[i].queue);
        const float *y = (const float *)(const void *)(t.host + Y * ARRAY_BYTES);
        for (int j = 0; j < TIMES * Y_BYTES / 4; j++)
            if (j % (Y_BYTES / 4) < ROWS * COLS) assert_true(y[j] == (float)(i + 1));
        ps_queue_destroy(w[i].queue);
        ps_device_free(t.r.device, w[i].device, bytes, NULL);
    }
    assert_int_equal(fake_cublaslt_calls("choose"), 1);
    bench_close(&t);
}

/* ---- failures ---- */

static void test_no_start(void **state)
{
    (void)state;
    static const char *const calls[] = {"create", "preference_create", "preference_set"};
    for (size_t c = 0; c < PS_ARRAY_LEN(calls); c++)
        for (int nth = 0; nth < (strcmp(calls[c], "preference_set") == 0 ? 6 : 1); nth++) {
            rig r = rig_open((fake_options){.seed = 4});
            ps_cuda_gemms gemms;
            fake_cublaslt_begin();
            fake_cublaslt_fail(calls[c], nth, PS_LT_ALLOC_FAILED);
            assert_fails(ps_cublaslt_open_with(r.gpu, &fake_cublaslt, WORKSPACE_BYTES, &gemms), PS_ENOMEM_DEV,
                         "cuBLASLt: its ");
            assert_null(gemms.self);
            assert_true(fake_cublaslt_end());
            rig_close(&r);
        }
}

static void test_every_call_fails(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int n;
    } calls[] = {{"gemm_create", 1}, {"gemm_set", 6}, {"layout_create", 3}, {"choose", 1}, {"multiply", 1}};
    for (size_t c = 0; c < PS_ARRAY_LEN(calls); c++)
        for (int nth = 0; nth < calls[c].n; nth++) {
            bench t = bench_open(5);
            const ps_cuda_gemm p = gemm_of(t.device, 0, (sizes){4, 4, 4, 0}, PS_DTYPE_F32, PS_DTYPE_F32, 8);
            fake_cublaslt_fail(calls[c].call, nth, PS_LT_INTERNAL_ERROR);
            assert_fails(multiply(&t, t.queue, &p), PS_EDEVICE, "cuBLASLt: ");
            assert_non_null(strstr(ps_last_error(), "CUBLAS_STATUS (status 14)"));
            multiplies(&t, 0, (sizes){4, 4, 4, 0}, PS_DTYPE_F32, PS_DTYPE_F32,
                       8); /* a moment's failure leaves nothing */
            bench_close(&t);
        }
}

static void test_what_it_has_not(void **state)
{
    (void)state;
    bench t = bench_open(6);
    const ps_cuda_gemm p = gemm_of(t.device, 0, (sizes){4, 6, 5, 0}, PS_DTYPE_F16, PS_DTYPE_F32, 0);
    fake_cublaslt_fail("choose", 0, PS_LT_NOT_SUPPORTED);
    assert_fails(multiply(&t, t.queue, &p), PS_ENOSYS,
                 "does not support a multiplication of f16 [4, 5] x [5, 6] to f32 for Fake 0");
    bench_close(&t);
}

/* What follows a product and is not there: nothing is given, each time again, and the library is asked once. */
static void test_what_follows_is_not_there(void **state)
{
    (void)state;
    static const struct {
        fake_cublaslt_lack lack;
        int capability;
        unsigned flags;
        int64_t n;
        bool asks, tries; /* the heuristics; to compute it */
    } cases[] = {{FAKE_CUBLASLT_DGELU, 90, 32, 16, true, false},
                 {FAKE_CUBLASLT_DGELU_UNKNOWN, 90, 32, 16, true, false},
                 {FAKE_CUBLASLT_DGELU_LATE, 90, 32, 16, true, true},
                 {FAKE_CUBLASLT_ADDEND_LATE, 90, 16, 16, true, true},
                 {FAKE_CUBLASLT_ADDEND_LATE, 90, 16 + 8, 16, true, true},
                 {FAKE_CUBLASLT_NOTHING, 90, 32, 12, false, false}, /* rows no multiple of 8 apart */
                 {FAKE_CUBLASLT_NOTHING, 89, 32, 16, false, false}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        bench t = bench_open_on(cases[i].capability, 8);
        const sizes s = {4, cases[i].n, 8, 0};
        const ps_cuda_gemm p = gemm_of(t.device, 0, s, PS_DTYPE_BF16, PS_DTYPE_BF16, cases[i].flags);
        bool is_done;
        fake_cublaslt_without(cases[i].lack);
        for (int turn = 0; turn < 3; turn++) {
            is_done = true;
            assert_ok(multiply_if_any(&t, t.queue, &p, &is_done));
            assert_false(is_done);
        }
        assert_int_equal(fake_cublaslt_calls("choose"), cases[i].asks);
        assert_int_equal(fake_cublaslt_calls("multiply"), cases[i].tries);
        multiplies(&t, 0, s, PS_DTYPE_BF16, PS_DTYPE_BF16, cases[i].flags & 8); /* the product itself is there */
        bench_close(&t);
    }
}

/* A failure is no lack. */
static void test_what_follows_fails(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int n;
    } calls[] = {{"gemm_create", 1}, {"gemm_set", 6}, {"layout_create", 3}, {"choose", 1}, {"multiply", 1}};
    for (size_t c = 0; c < PS_ARRAY_LEN(calls); c++)
        for (int nth = 0; nth < calls[c].n; nth++) {
            bench t = bench_open(9);
            const sizes s = {4, 8, 4, 0};
            const ps_cuda_gemm p = gemm_of(t.device, 0, s, PS_DTYPE_F16, PS_DTYPE_F16, 32);
            fake_cublaslt_fail(calls[c].call, nth, PS_LT_INTERNAL_ERROR);
            assert_fails(multiply(&t, t.queue, &p), PS_EDEVICE, "cuBLASLt: ");
            multiplies(&t, 0, s, PS_DTYPE_F16, PS_DTYPE_F16, 32);
            bench_close(&t);
        }
}

/* A failure of the library's that is one of the device's: what the driver has seen is reported. */
static void test_lost_device(void **state)
{
    (void)state;
    bench t = bench_open(7);
    const ps_cuda_gemm p = gemm_of(t.device, 0, (sizes){4, 4, 4, 0}, PS_DTYPE_F32, PS_DTYPE_F32, 0);
    assert_ok(multiply(&t, t.queue, &p));
    finish(t.queue);
    fake_fail("memory_info", 0, PS_CU_ILLEGAL_ADDRESS);
    fake_cublaslt_fail("multiply", 0, PS_LT_EXECUTION_FAILED);
    assert_fails(multiply(&t, t.queue, &p), PS_EDEVICE, "is lost: matrix multiplication: CUDA_ERROR_ILLEGAL_ADDRESS");
    ps_queue_destroy(t.queue);
    ps_device_free(t.r.device, t.device, N_ARRAYS * ARRAY_BYTES, NULL);
    ps_device_free(t.r.host, t.host, N_ARRAYS * ARRAY_BYTES, NULL);
    t.gemms.destroy(t.gemms.self);
    assert_true(fake_cublaslt_end());
    ps_device_destroy(t.r.host);
    ps_device_destroy(t.r.device);
    ps_gpu_close(t.r.gpu);
    (void)fake_driver_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_every_gemm),
        cmocka_unit_test(test_shapes_are_kept),
        cmocka_unit_test(test_several_threads),
        cmocka_unit_test(test_no_start),
        cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_what_it_has_not),
        cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_what_follows_is_not_there),
        cmocka_unit_test(test_what_follows_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
