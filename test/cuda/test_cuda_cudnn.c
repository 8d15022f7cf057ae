/* test_cuda_cudnn.c - attention by cuDNN: that its binary interface is what cudnn.h says, where the toolkit is; and over a
 * library that carries out the graphs that it is given, what is asked of it and what is not, parts, every failure. That the
 * graphs are attention, test_attention shows over the same library (PS_TEST_ATTENTION=cudnn). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fault.h"
#include "cuda/fake_cudnn.h"
#include "cuda/rig.h"
#include "device/cuda/cudnn_attention.h"
#include "device/cuda/cudnn_graph.h"
#include "kernel/backend.h"

/* ---- against the toolkit ---- */

#if __has_include("/usr/local/cuda/include/cudnn_graph.h")
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wconversion"
#include "/usr/local/cuda/include/cudnn_graph.h"
#pragma GCC diagnostic pop
#endif
#if defined(CUDNN_MAJOR) && CUDNN_MAJOR == PS_CUDNN_VERSION

#define XX(type, name, symbol, params) _Static_assert(sizeof(&symbol) == sizeof(void *), #symbol);
#include "device/cuda/cudnn.def"
#undef XX

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours)
SAME(sizeof(ps_dnn_status), sizeof(cudnnStatus_t));
SAME(sizeof(ps_dnn_descriptor), sizeof(cudnnBackendDescriptor_t));
SAME(sizeof(int32_t), sizeof(cudnnDataType_t));
SAME(PS_DNN_SUCCESS, CUDNN_STATUS_SUCCESS);
SAME(PS_DNN_NOT_INITIALIZED, CUDNN_STATUS_NOT_INITIALIZED);
SAME(PS_DNN_BAD_PARAM, CUDNN_STATUS_BAD_PARAM);
SAME(PS_DNN_NOT_SUPPORTED, CUDNN_STATUS_NOT_SUPPORTED);
SAME(PS_DNN_OTHER_DRIVER, CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER);
SAME(PS_DNN_OTHER_RUNTIME, CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART);
SAME(PS_DNN_NO_PREREQUISITE, CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING);
SAME(PS_DNN_NO_SUBLIBRARY, CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE);
SAME(PS_DNN_INTERNAL_ERROR, CUDNN_STATUS_INTERNAL_ERROR);
SAME(PS_DNN_NO_HOST_MEMORY, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
SAME(PS_DNN_NO_DEVICE_MEMORY, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
SAME(PS_DNN_EXECUTION_FAILED, CUDNN_STATUS_EXECUTION_FAILED);
SAME(PS_DNN_TYPE_HANDLE, CUDNN_TYPE_HANDLE);
SAME(PS_DNN_TYPE_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
SAME(PS_DNN_TYPE_BOOLEAN, CUDNN_TYPE_BOOLEAN);
SAME(PS_DNN_TYPE_INT64, CUDNN_TYPE_INT64);
SAME(PS_DNN_TYPE_POINTER, CUDNN_TYPE_VOID_PTR);
SAME(PS_DNN_TYPE_HEURISTIC, CUDNN_TYPE_HEUR_MODE);
SAME(PS_DNN_TYPE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(PS_DNN_TYPE_POINTWISE, CUDNN_TYPE_POINTWISE_MODE);
SAME(PS_DNN_TYPE_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(PS_DNN_TYPE_REDUCTION, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
SAME(PS_DNN_TYPE_CHAR, CUDNN_TYPE_CHAR);
SAME(PS_DNN_F32, CUDNN_DATA_FLOAT);
SAME(PS_DNN_F16, CUDNN_DATA_HALF);
SAME(PS_DNN_INT32, CUDNN_DATA_INT32);
SAME(PS_DNN_BF16, CUDNN_DATA_BFLOAT16);
SAME(PS_DNN_BOOLEAN, CUDNN_DATA_BOOLEAN);
SAME(PS_DNN_POINTWISE, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(PS_DNN_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(PS_DNN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(PS_DNN_HEURISTIC, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(PS_DNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(PS_DNN_POINTWISE_OPERATION, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(PS_DNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(PS_DNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(PS_DNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(PS_DNN_MATMUL, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
SAME(PS_DNN_MATMUL_OPERATION, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
SAME(PS_DNN_REDUCTION, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
SAME(PS_DNN_REDUCTION_OPERATION, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
SAME(PS_DNN_RESHAPE_OPERATION, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
SAME(PS_DNN_DEVICE, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
SAME(PS_DNN_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MODE);
SAME(PS_DNN_POINTWISE_PRECISION, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(PS_DNN_POINTWISE_AXIS, CUDNN_ATTR_POINTWISE_AXIS);
SAME(PS_DNN_HEURISTIC_MODE, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(PS_DNN_HEURISTIC_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(PS_DNN_HEURISTIC_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(PS_DNN_HEURISTIC_DEVICE, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
SAME(PS_DNN_CONFIG_ENGINE, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(PS_DNN_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(PS_DNN_PLAN_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(PS_DNN_PLAN_WORKSPACE_BYTES, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(PS_DNN_PLAN_DEVICE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
SAME(PS_DNN_POINTWISE_OF, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(PS_DNN_POINTWISE_X, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(PS_DNN_POINTWISE_B, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
SAME(PS_DNN_POINTWISE_Y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(PS_DNN_POINTWISE_T, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
SAME(PS_DNN_GRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(PS_DNN_GRAPH_OPERATIONS, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(PS_DNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(PS_DNN_TENSOR_TYPE, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(PS_DNN_TENSOR_SIZES, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(PS_DNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES);
SAME(PS_DNN_TENSOR_ID, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(PS_DNN_TENSOR_IS_VIRTUAL, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(PS_DNN_TENSOR_IS_BY_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
SAME(PS_DNN_PACK_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(PS_DNN_PACK_POINTERS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(PS_DNN_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(PS_DNN_ENGINE_NOTES, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(PS_DNN_MATMUL_PRECISION, CUDNN_ATTR_MATMUL_COMP_TYPE);
SAME(PS_DNN_MATMUL_A, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
SAME(PS_DNN_MATMUL_B, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
SAME(PS_DNN_MATMUL_C, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
SAME(PS_DNN_MATMUL_OF, CUDNN_ATTR_OPERATION_MATMUL_DESC);
SAME(PS_DNN_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_OPERATOR);
SAME(PS_DNN_REDUCTION_PRECISION, CUDNN_ATTR_REDUCTION_COMP_TYPE);
SAME(PS_DNN_REDUCTION_X, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
SAME(PS_DNN_REDUCTION_Y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
SAME(PS_DNN_REDUCTION_OF, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
SAME(PS_DNN_RESHAPE_X, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
SAME(PS_DNN_RESHAPE_Y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
SAME(PS_DNN_DEVICE_JSON, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
SAME(PS_DNN_ADD, CUDNN_POINTWISE_ADD);
SAME(PS_DNN_MUL, CUDNN_POINTWISE_MUL);
SAME(PS_DNN_DIV, CUDNN_POINTWISE_DIV);
SAME(PS_DNN_SUB, CUDNN_POINTWISE_SUB);
SAME(PS_DNN_EXP, CUDNN_POINTWISE_EXP);
SAME(PS_DNN_LOG, CUDNN_POINTWISE_LOG);
SAME(PS_DNN_GREATER, CUDNN_POINTWISE_CMP_GT);
SAME(PS_DNN_GREATER_OR_EQUAL, CUDNN_POINTWISE_CMP_GE);
SAME(PS_DNN_INDEX, CUDNN_POINTWISE_GEN_INDEX);
SAME(PS_DNN_SELECT, CUDNN_POINTWISE_BINARY_SELECT);
SAME(PS_DNN_SUM, CUDNN_REDUCE_TENSOR_ADD);
SAME(PS_DNN_MAX, CUDNN_REDUCE_TENSOR_MAX);
SAME(PS_DNN_HEURISTIC_A, CUDNN_HEUR_MODE_A);
SAME(PS_DNN_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
SAME(PS_DNN_NOTES, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);

#endif

/* ---- loading ---- */

static void test_libraries(void **state)
{
    (void)state;
    ps_cudnn dnn;
    const ps_cudnn *found, *again;
    char text[PS_CUDNN_VERSION_TEXT_MAX];
    assert_string_equal(ps_cudnn_version_text(&fake_cudnn, text), "9.20.0");
    assert_fails(ps_cudnn_take("libcudnn_that_is_not.so.9", &dnn), PS_ENOSYS, "cannot load cuDNN");
    assert_non_null(strstr(ps_last_error(), "LD_LIBRARY_PATH"));
    assert_fails(ps_cudnn_take("libm.so.6", &dnn), PS_ENOSYS, "libm.so.6 has no cudnnGetVersion");
    if (ps_cudnn_load(&found) != PS_OK) {
        assert_null(found);
        skip(); /* there is none on this machine */
    }
    assert_true(found->version() >= PS_CUDNN_VERSION_LEAST);
    assert_string_equal(found->status_name(PS_DNN_NOT_SUPPORTED), "CUDNN_STATUS_NOT_SUPPORTED");
    assert_ok(ps_cudnn_load(&again));
    assert_ptr_equal(found, again);
}

/* ---- attention on a GPU ---- */

enum { Q, Y, DY, DQ, LSE, SCRATCH, N_ARRAYS, ARRAY_BYTES = 256 * 1024 };

typedef struct bench {
    rig r;
    ps_cuda_attention attention;
    ps_queue *queue;
    char *device, *host;
} bench;

static bench bench_open(uint64_t seed, int64_t workspace_bytes)
{
    bench t = {.r = rig_open((fake_options){.seed = seed})};
    fake_cudnn_begin();
    assert_ok(ps_cudnn_attention_open_with(t.r.gpu, &fake_cudnn, workspace_bytes, &t.attention));
    assert_string_equal(t.attention.name, "cuDNN 9.20.0");
    t.queue = queue_new(&t.r);
    t.device = block_new(t.r.device, N_ARRAYS * ARRAY_BYTES);
    t.host = block_new(t.r.host, N_ARRAYS * ARRAY_BYTES);
    for (int a = 0; a < N_ARRAYS; a++)
        for (int64_t i = 0; i < ARRAY_BYTES / 2; i++)
            ps_dtype_store(PS_DTYPE_BF16, t.host + a * ARRAY_BYTES, i,
                           (float)((i * 37 + a * 11 + i / 13) % 101) / 50.f - 1.f);
    memset(t.host + LSE * ARRAY_BYTES, 0, ARRAY_BYTES);
    assert_ok(ps_queue_copy(t.queue, t.device, t.host, N_ARRAYS * ARRAY_BYTES));
    return t;
}

static void bench_close_parts(bench *t)
{
    ps_queue_destroy(t->queue);
    ps_device_free(t->r.device, t->device, N_ARRAYS * ARRAY_BYTES, NULL);
    ps_device_free(t->r.host, t->host, N_ARRAYS * ARRAY_BYTES, NULL);
    t->attention.destroy(t->attention.self);
    assert_true(fake_cudnn_end());
}

static void bench_close(bench *t)
{
    bench_close_parts(t);
    rig_close(&t->r);
}

/* Packed q, k, v, and their gradients. */
static ps_attention_bwd_args bwd_of(const bench *t, int64_t B, int64_t T, int64_t H, int64_t KV, int64_t D)
{
    char *const q = t->device + Q * ARRAY_BYTES, *const dq = t->device + DQ * ARRAY_BYTES;
    const int64_t k = 2 * H * D, v = 2 * (H + KV) * D, stride = (H + 2 * KV) * D;
    return (ps_attention_bwd_args){.dq = dq,
                                   .dk = dq + k,
                                   .dv = dq + v,
                                   .dy = t->device + DY * ARRAY_BYTES,
                                   .y = t->device + Y * ARRAY_BYTES,
                                   .q = q,
                                   .k = q + k,
                                   .v = q + v,
                                   .lse = (float *)(void *)(t->device + LSE * ARRAY_BYTES),
                                   .B = B,
                                   .T = T,
                                   .H = H,
                                   .KV = KV,
                                   .D = D,
                                   .q_stride = stride,
                                   .kv_stride = stride,
                                   .scale = 0.25f,
                                   .causal = true,
                                   .dtype = PS_DTYPE_BF16,
                                   .workspace = t->device + SCRATCH * ARRAY_BYTES};
}

static ps_attention_fwd_args fwd_of(const ps_attention_bwd_args *b)
{
    return (ps_attention_fwd_args){.y = (void *)(uintptr_t)b->y,
                                   .lse = (float *)(uintptr_t)b->lse,
                                   .q = b->q,
                                   .k = b->k,
                                   .v = b->v,
                                   .mask = b->mask,
                                   .B = b->B,
                                   .T = b->T,
                                   .H = b->H,
                                   .KV = b->KV,
                                   .D = b->D,
                                   .q_stride = b->q_stride,
                                   .kv_stride = b->kv_stride,
                                   .window = b->window,
                                   .scale = b->scale,
                                   .causal = b->causal,
                                   .dropout_p = b->dropout_p,
                                   .dtype = b->dtype,
                                   .workspace = b->workspace};
}

typedef struct call {
    const ps_cuda_attention *attention;
    ps_queue *queue;
    ps_op op;
    const void *args;
    bool *is_done;
} call;

static ps_status issue(void *self, const void *args)
{
    const call *c = args;
    (void)self;
    return c->attention->run(c->attention->self, ps_gpu_stream(c->queue), c->op, c->args, c->is_done);
}

/* Measured first, as every caller does. */
static ps_status attend(const bench *t, ps_queue *q, ps_op op, const void *args, int64_t *bytes, bool *is_done)
{
    const call c = {&t->attention, q, op, args, is_done};
    *is_done = false;
    PS_TRY(t->attention.measure(t->attention.self, op, args, bytes));
    assert_true(*bytes <= ARRAY_BYTES);
    return ps_queue_call(q, &(ps_call){.name = "attention", .run = issue, .args = &c, .args_bytes = sizeof c});
}

static void bring_back(const bench *t)
{
    assert_ok(ps_queue_copy(t->queue, t->host, t->device, N_ARRAYS * ARRAY_BYTES));
    finish(t->queue);
}

/* ---- what it has ---- */

static void expect_none(const bench *t, const ps_attention_bwd_args *b, const char *what)
{
    const ps_attention_fwd_args f = fwd_of(b);
    const void *const args[] = {&f, b};
    static const ps_op ops[] = {PS_OP_attention_fwd, PS_OP_attention_bwd};
    for (int i = 0; i < 2; i++) {
        int64_t bytes;
        bool is_done;
        assert_ok(attend(t, t->queue, ops[i], args[i], &bytes, &is_done));
        if (bytes != -1 || is_done) fail_msg("%s: it has %s for it", what, i == 0 ? "forward" : "backward");
    }
    assert_int_equal(fake_cudnn_calls("execute"), 0);
}

static void test_what_it_has_not(void **state)
{
    (void)state;
    bench t = bench_open(1, PS_CUDNN_WORKSPACE_BYTES);
    const ps_attention_bwd_args all = bwd_of(&t, 2, 20, 4, 2, 16);
    static const int32_t mask[40];
    ps_attention_bwd_args b;
    b = all, b.dtype = PS_DTYPE_F32, expect_none(&t, &b, "f32");
    b = all, b.dropout_p = 0.1f, expect_none(&t, &b, "dropout");
    b = all, b.mask = mask, expect_none(&t, &b, "a mask");
    b = all, b.D = 12, expect_none(&t, &b, "heads of 24 bytes");
    b = all, b.q_stride += 4, expect_none(&t, &b, "rows that begin anywhere");
    b = all, b.kv_stride += 1, expect_none(&t, &b, "keys that begin anywhere");
    b = all, b.causal = false, b.window = 5, expect_none(&t, &b, "a window to both sides");
    b = all, b.B = 0, expect_none(&t, &b, "no sequence");
    b = all, b.T = 0, expect_none(&t, &b, "no token");
    assert_int_equal(fake_cudnn_calls("descriptor_create"), 0);
    b = all, b.D = 72, expect_none(&t, &b, "what the library does not support");
    assert_true(fake_cudnn_calls("descriptor_create") > 0);
    bench_close(&t);
}

/* Not backward alone of what would take too much. */
static void test_long_sequences(void **state)
{
    (void)state;
    bench t = bench_open(2, PS_CUDNN_WORKSPACE_BYTES);
    static const struct {
        int64_t T, H, KV, bytes;
    } all[] = {{8192, 32, 8, 512 * PS_MIB}, {16384, 32, 32, 512 * PS_MIB}, {16384, 32, 16, -1}, {20000, 32, 32, -1}};
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
        const ps_attention_bwd_args b = bwd_of(&t, 2, all[i].T, all[i].H, all[i].KV, 64);
        const ps_attention_fwd_args f = fwd_of(&b);
        int64_t bytes;
        assert_ok(t.attention.measure(t.attention.self, PS_OP_attention_bwd, &b, &bytes));
        if (all[i].bytes < 0) assert_int_equal(bytes, -1);
        if (all[i].bytes > 0) assert_true(bytes >= all[i].bytes && bytes < all[i].bytes + 2 * PS_MIB);
        assert_ok(t.attention.measure(t.attention.self, PS_OP_attention_fwd, &f, &bytes));
        assert_true(bytes >= 0 && bytes < PS_MIB);
    }
    bench_close(&t);
}

/* For plans the same answers, but for what is filled up to 128 rows. */
static void test_guesses(void **state)
{
    (void)state;
    bench t = bench_open(12, PS_CUDNN_WORKSPACE_BYTES);
    ps_cuda_attention plans;
    ps_cudnn_attention_guess(&plans);
    static const int64_t T[] = {128, 1024, 8192, 16384, 20096};
    for (size_t i = 0; i < PS_ARRAY_LEN(T); i++) {
        ps_attention_bwd_args b = bwd_of(&t, 2, T[i], 32, 32, 64);
        int64_t is, guessed;
        assert_ok(t.attention.measure(t.attention.self, PS_OP_attention_bwd, &b, &is));
        assert_ok(plans.measure(plans.self, PS_OP_attention_bwd, &b, &guessed));
        assert_int_equal(is, guessed);
        b.dropout_p = 0.5f;
        assert_ok(plans.measure(plans.self, PS_OP_attention_bwd, &b, &guessed));
        assert_int_equal(guessed, -1);
    }
    bench_close(&t);
}

/* Arrays that lie elsewhere than said: the kernels' turn, whatever was measured. */
static void test_unaligned_arrays(void **state)
{
    (void)state;
    bench t = bench_open(3, PS_CUDNN_WORKSPACE_BYTES);
    ps_attention_bwd_args b = bwd_of(&t, 2, 20, 4, 2, 16);
    int64_t bytes;
    bool is_done;
    b.dk = (char *)b.dk + 2;
    assert_ok(attend(&t, t.queue, PS_OP_attention_bwd, &b, &bytes, &is_done));
    assert_true(bytes > 0 && !is_done);
    b.dk = (char *)b.dk + 14;
    assert_ok(attend(&t, t.queue, PS_OP_attention_bwd, &b, &bytes, &is_done));
    assert_true(is_done);
    bench_close(&t);
}

/* ---- parts, shapes ---- */

/* The same bits in as many parts as the memory wants, and as many runs of plans. Of 2 sequences of 4 heads in 2 groups,
 * each head wants 32 KiB and 4 T D for the groups' sums. */
static void test_parts(void **state)
{
    (void)state;
    static const struct {
        int64_t heads;
        int n_runs;
    } all[] = {{8, 1}, {7, 2}, {4, 2}, {3, 4}, {2, 4}};
    static char want[ARRAY_BYTES];
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
        bench t = bench_open(4, all[i].heads * (32 * PS_KIB + 4 * 21 * 16));
        const ps_attention_bwd_args b = bwd_of(&t, 2, 21, 4, 2, 16);
        const ps_attention_fwd_args f = fwd_of(&b);
        int64_t bytes;
        bool is_done;
        assert_ok(attend(&t, t.queue, PS_OP_attention_fwd, &f, &bytes, &is_done));
        assert_true(is_done);
        assert_int_equal(fake_cudnn_calls("execute"), 1);
        assert_ok(attend(&t, t.queue, PS_OP_attention_bwd, &b, &bytes, &is_done));
        assert_true(is_done);
        assert_int_equal(fake_cudnn_calls("execute"), 1 + all[i].n_runs);
        bring_back(&t);
        if (i == 0) memcpy(want, t.host + DQ * ARRAY_BYTES, ARRAY_BYTES);
        if (memcmp(want, t.host + DQ * ARRAY_BYTES, ARRAY_BYTES) != 0) fail_msg("%d runs: other bits", all[i].n_runs);
        bench_close(&t);
    }
}

/* What was planned once is planned for all times; each shape by itself. */
static void test_shapes_are_kept(void **state)
{
    (void)state;
    bench t = bench_open(5, PS_CUDNN_WORKSPACE_BYTES);
    int planned = 0;
    for (int turn = 0; turn < 3; turn++)
        for (int64_t n = 0; n < 6; n++) {
            ps_attention_bwd_args b = bwd_of(&t, 1 + n % 2, 8 + n, 2, 1 + n % 2, 8);
            int64_t bytes;
            bool is_done;
            b.window = n == 3 ? 2 : 0;
            assert_ok(attend(&t, t.queue, PS_OP_attention_bwd, &b, &bytes, &is_done));
            assert_true(is_done);
            if (turn == 0) planned = fake_cudnn_calls("finalize") - fake_cudnn_calls("execute");
        }
    assert_int_equal(fake_cudnn_calls("finalize") - fake_cudnn_calls("execute"), planned);
    assert_int_equal(fake_cudnn_calls("execute"), 18);
    bench_close(&t);
}

enum { THREADS = 4, TIMES = 20 };

typedef struct worker {
    bench *bench;
    ps_queue *queue;
    int64_t T;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    const ps_attention_bwd_args b = bwd_of(w->bench, 1, w->T, 2, 2, 8);
    for (int i = 0; i < TIMES; i++) {
        const ps_attention_fwd_args f = fwd_of(&b);
        int64_t bytes;
        bool is_done;
        if (attend(w->bench, w->queue, PS_OP_attention_fwd, &f, &bytes, &is_done) != PS_OK || !is_done) return w;
    }
    return ps_event_wait(ps_queue_event(w->queue)) == PS_OK ? NULL : w;
}

/* Some of one shape, some of others; streams take turns. */
static void test_several_threads(void **state)
{
    (void)state;
    bench t = bench_open(6, PS_CUDNN_WORKSPACE_BYTES);
    worker w[THREADS];
    pthread_t threads[THREADS];
    finish(t.queue);
    for (int i = 0; i < THREADS; i++) w[i] = (worker){.bench = &t, .queue = queue_new(&t.r), .T = 8 + i / 2};
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (int i = 0; i < THREADS; i++) ps_queue_destroy(w[i].queue);
    assert_int_equal(fake_cudnn_calls("execute"), THREADS * TIMES);
    bench_close(&t);
}

/* ---- failures ---- */

static void test_no_start(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 7});
    ps_cuda_attention attention;
    fake_cudnn_begin();
    fake_cudnn_fail("create", 0, PS_DNN_NO_DEVICE_MEMORY);
    assert_fails(ps_cudnn_attention_open_with(r.gpu, &fake_cudnn, PS_MIB, &attention), PS_ENOMEM_DEV,
                 "cuDNN: its start");
    assert_null(attention.self);
    assert_true(fake_cudnn_end());
    rig_close(&r);
}

/* Every call while a shape is planned and run, with a failure that says nothing of the shape: an error, nothing is left of
 * it, and the next attempt is as if there had been none. */
static void test_every_call_fails(void **state)
{
    (void)state;
    static const char *const calls[] = {"descriptor_create", "set", "finalize", "get", "set_stream", "execute"};
    static const ps_dnn_status results[] = {PS_DNN_EXECUTION_FAILED, PS_DNN_NO_PREREQUISITE, PS_DNN_NO_DEVICE_MEMORY};
    int n_failed = 0;
    for (size_t c = 0; c < PS_ARRAY_LEN(calls); c++)
        for (int nth = 0, was_called = 1; was_called; nth += 1 + nth / 4) {
            bench t = bench_open(8, PS_CUDNN_WORKSPACE_BYTES);
            const ps_attention_bwd_args b = bwd_of(&t, 1, 8, 2, 1, 8);
            const ps_dnn_status result = results[nth % 3];
            int64_t bytes;
            bool is_done;
            fake_cudnn_fail(calls[c], nth, result);
            const ps_status st = attend(&t, t.queue, PS_OP_attention_bwd, &b, &bytes, &is_done);
            was_called = fake_cudnn_calls(calls[c]) > nth;
            assert_int_equal(st == PS_OK, !was_called);
            n_failed += was_called;
            if (was_called) {
                assert_int_equal(st, result == PS_DNN_NO_DEVICE_MEMORY ? PS_ENOMEM_DEV : PS_EDEVICE);
                assert_non_null(strstr(ps_last_error(), "cuDNN: "));
                assert_non_null(strstr(ps_last_error(), "(as the test wants); train.attention = own does without it"));
                assert_ok(attend(&t, t.queue, PS_OP_attention_bwd, &b, &bytes, &is_done));
            }
            assert_true(is_done);
            bench_close(&t);
        }
    assert_true(n_failed > 40);
}

/* What says that there is no such plan leads to the kernels, for good. */
static void test_no_plan(void **state)
{
    (void)state;
    static const char *const calls[] = {"finalize", "get", "set"};
    for (size_t c = 0; c < PS_ARRAY_LEN(calls); c++) {
        bench t = bench_open(9, PS_CUDNN_WORKSPACE_BYTES);
        const ps_attention_bwd_args b = bwd_of(&t, 1, 8, 2, 1, 8);
        fake_cudnn_fail(calls[c], 0, c == 1 ? PS_DNN_BAD_PARAM : PS_DNN_NOT_SUPPORTED);
        for (int turn = 0; turn < 2; turn++) {
            int64_t bytes;
            bool is_done;
            assert_ok(attend(&t, t.queue, PS_OP_attention_bwd, &b, &bytes, &is_done));
            assert_true(bytes == -1 && !is_done);
        }
        bench_close(&t);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    bench t = bench_open(10, PS_CUDNN_WORKSPACE_BYTES);
    const ps_attention_bwd_args b = bwd_of(&t, 1, 8, 2, 1, 8);
    int64_t bytes;
    ps_fault_arm(PS_FAULT_ALLOC, 0, false);
    assert_int_equal(t.attention.measure(t.attention.self, PS_OP_attention_bwd, &b, &bytes), PS_ENOMEM_HOST);
    ps_fault_arm(PS_FAULT_ALLOC, -1, false);
    assert_ok(t.attention.measure(t.attention.self, PS_OP_attention_bwd, &b, &bytes));
    assert_true(bytes > 0);
    bench_close(&t);
}

/* A failure of the library's that is one of the device's: what the driver has seen is reported. */
static void test_lost_device(void **state)
{
    (void)state;
    bench t = bench_open(11, PS_CUDNN_WORKSPACE_BYTES);
    const ps_attention_bwd_args b = bwd_of(&t, 1, 8, 2, 1, 8);
    int64_t bytes;
    bool is_done;
    finish(t.queue);
    fake_fail("memory_info", 0, PS_CU_ILLEGAL_ADDRESS);
    fake_cudnn_fail("execute", 0, PS_DNN_EXECUTION_FAILED);
    assert_fails(attend(&t, t.queue, PS_OP_attention_bwd, &b, &bytes, &is_done), PS_EDEVICE,
                 "is lost: attention: CUDA_ERROR_ILLEGAL_ADDRESS");
    bench_close_parts(&t);
    ps_device_destroy(t.r.host);
    ps_device_destroy(t.r.device);
    ps_gpu_close(t.r.gpu);
    (void)fake_driver_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries),        cmocka_unit_test(test_what_it_has_not),
        cmocka_unit_test(test_long_sequences),   cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_unaligned_arrays), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_shapes_are_kept),  cmocka_unit_test(test_several_threads),
        cmocka_unit_test(test_no_start),         cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_no_plan),          cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_lost_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
