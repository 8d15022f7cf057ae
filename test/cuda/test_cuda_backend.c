/* test_cuda_backend.c - operators issued to streams: a chain of them over several queues, with the numbers of ref. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/fake_gpu.h"
#include "cuda/rig.h"

enum { ROWS = 9, IN = 40, OUT = 72 };

/* Arrays at offsets of one block: 64 bytes aligned. */
enum { X = 0, W = 1600, B = 4800, Y = 5120, Z = 6144, N = 7168, MEAN = 8192, RSTD = 8256, SCRATCH = 8448, ALL = 16384 };

static float *at(float *base, int64_t offset)
{
    return base + offset;
}

/* n = layernorm(x w^T + b, added to itself), on any backend. */
static ps_status run_chain(ps_backend *b, ps_queue *q, float *m)
{
    size_t bytes;
    const ps_linear_fwd_args l = {.y = at(m, Y),
                                  .x = at(m, X),
                                  .w = at(m, W),
                                  .b = at(m, B),
                                  .rows = ROWS,
                                  .n_in = IN,
                                  .n_out = OUT,
                                  .layout = PS_WEIGHT_OUT_IN,
                                  .dtype = PS_DTYPE_F32,
                                  .y_dtype = PS_DTYPE_F32,
                                  .workspace = at(m, SCRATCH)};
    const ps_add_args a = {.y = at(m, Z), .a = at(m, Y), .b = at(m, Y), .n = ROWS * OUT, .dtype = PS_DTYPE_F32};
    const ps_layernorm_fwd_args n = {.y = at(m, N),
                                     .mean = at(m, MEAN),
                                     .rstd = at(m, RSTD),
                                     .x = at(m, Z),
                                     .w = at(m, W),
                                     .b = at(m, B),
                                     .rows = ROWS,
                                     .cols = OUT,
                                     .eps = 1e-5f,
                                     .dtype = PS_DTYPE_F32};
    PS_TRY(ps_kernel_measure(b, PS_OP_linear_fwd, &l, &bytes));
    assert_true(bytes <= (ALL - SCRATCH) * sizeof(float));
    PS_TRY(ps_run_linear_fwd(b, q, &l, bytes));
    PS_TRY(ps_run_add(b, q, &a, 0));
    return ps_run_layernorm_fwd(b, q, &n, 0);
}

static void fill_in(float *m)
{
    for (int i = 0; i < ALL; i++) m[i] = NAN;
    for (int i = 0; i < Y; i++) m[i] = (float)((i * 37 + i / 11) % 101) / 50.f - 1.f;
}

static void test_chain_has_the_numbers_of_ref(void **state)
{
    (void)state;
    static _Alignas(64) float expected[ALL];
    ps_backend *ref;
    fill_in(expected);
    assert_ok(ps_backend_create_ref(&ref));
    assert_ok(run_chain(ref, NULL, expected));
    ps_backend_destroy(ref);
    for (uint64_t seed = 0; seed < 4; seed++) {
        const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = seed});
        ps_backend *b;
        ps_device *device, *host;
        ps_queue *q[3];
        fake_gpu_add_kernels(NULL);
        assert_ok(fake_gpu_open(d, &b));
        const ps_space *s = ps_backend_space(b);
        assert_ok(ps_device_create_on(s->device, s->driver, s->page_bytes, "device", PS_MIB, &device));
        assert_ok(ps_device_create_on(s->host, s->driver, s->page_bytes, "host", PS_MIB, &host));
        float *m = block_new(device, ALL * sizeof *m), *h = block_new(host, ALL * sizeof *h);
        for (int i = 0; i < 3; i++) assert_ok(ps_queue_create(device, "work", PS_QUEUE_COMPUTE, &q[i]));
        fill_in(h);
        assert_ok(ps_queue_copy(q[0], m, h, ALL * sizeof *h));
        assert_ok(ps_queue_wait(q[1], ps_queue_event(q[0])));
        assert_ok(run_chain(b, q[1], m));
        assert_ok(ps_queue_wait(q[2], ps_queue_event(q[1])));
        assert_ok(ps_queue_copy(q[2], h, m, ALL * sizeof *h));
        finish(q[2]);
        for (int i = 0; i < ROWS * OUT; i++) assert_true(fabsf(h[N + i] - expected[N + i]) < 1e-4f);
        /* the host computes, too, on page-locked memory; without a queue nothing does */
        fill_in(h);
        assert_fails(run_chain(b, NULL, h), PS_EINVAL, "needs a queue of the device");
        assert_ok(run_chain(ps_backend_host(b), NULL, h));
        assert_memory_equal(h + N, expected + N, ROWS * OUT * sizeof(float));
        for (int i = 0; i < 3; i++) ps_queue_destroy(q[i]);
        ps_device_free(device, m, ALL * sizeof *m, NULL);
        ps_device_free(host, h, ALL * sizeof *h, NULL);
        ps_device_destroy(device);
        ps_device_destroy(host);
        ps_backend_destroy(b);
        assert_true(fake_driver_end());
    }
}

static void opens_not(const char *but, const char *function, ps_cu_result r, ps_status st, const char *text)
{
    const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = 1});
    ps_backend *b;
    fake_gpu_add_kernels(but);
    if (function != NULL) fake_fail(function, 1, r); /* the first is that of products */
    assert_fails(fake_gpu_open(d, &b), st, text);
    assert_null(b);
    assert_true(fake_driver_end());
}

static void test_kernels_that_do_not_fit(void **state)
{
    (void)state;
    opens_not("ps_gpu_adam_f32_bf16", NULL, 0, PS_ENOSYS, "ps_gpu_adam_f32_bf16 is missing; build both anew");
    opens_not(NULL, "module_load", PS_CU_NO_BINARY_FOR_GPU, PS_ENOSYS, "not compiled for GPU 0 (Fake 0)");
    opens_not(NULL, "module_load", PS_CU_OUT_OF_MEMORY, PS_ENOMEM_DEV, "kernels: CUDA_ERROR_OUT_OF_MEMORY");
}

/* What a kernel is launched with that the driver refuses is an error of the call. */
static void test_launch_fails(void **state)
{
    (void)state;
    const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = 1});
    ps_backend *b;
    ps_device *device;
    ps_queue *q;
    fake_gpu_add_kernels(NULL);
    assert_ok(fake_gpu_open(d, &b));
    const ps_space *s = ps_backend_space(b);
    assert_ok(ps_device_create_on(s->device, s->driver, s->page_bytes, "device", PS_MIB, &device));
    float *m = block_new(device, ALL * sizeof *m);
    assert_ok(ps_queue_create(device, "work", PS_QUEUE_COMPUTE, &q));
    fake_fail("launch", 1, PS_CU_INVALID_VALUE);
    assert_fails(run_chain(b, q, m), PS_EDEVICE, "cuda: ps_gpu_add_f32: CUDA_ERROR");
    assert_ok(run_chain(b, q, m));
    fake_fail("launch", 2, PS_CU_LAUNCH_FAILED);
    assert_fails(run_chain(b, q, m), PS_EDEVICE, "is lost: ps_gpu_layernorm_fwd_f32");
    ps_queue_destroy(q);
    ps_device_free(device, m, ALL * sizeof *m, NULL);
    ps_device_destroy(device);
    ps_backend_destroy(b);
    (void)fake_driver_end();
}

static size_t scratch(ps_backend *b, ps_op op, const void *args)
{
    size_t bytes = 1;
    assert_ok(ps_kernel_measure(b, op, args, &bytes));
    return bytes;
}

/* Plans without a GPU, of this system or of a description, reckon with what kernels take on one. */
static void test_plans_have_its_scratch(void **state)
{
    (void)state;
    static const union {
        ps_linear_bwd_weight_args linear;
        ps_layernorm_bwd_args norm;
        ps_attention_bwd_args attention;
        ps_attention_cached_args cached;
        ps_embedding_bwd_args embedding;
        ps_lm_loss_fwd_args loss;
        ps_lm_loss_bwd_args loss_bwd;
        char all[512];
    } args[PS_OP_COUNT] = {[PS_OP_linear_bwd_weight].linear = {.rows = 1000, .n_in = 20, .n_out = 300},
                           [PS_OP_layernorm_bwd].norm = {.rows = 777, .cols = 65},
                           [PS_OP_attention_bwd].attention = {.B = 2, .T = 100, .H = 3, .KV = 3, .D = 40},
                           [PS_OP_attention_cached].cached = {.T = 3, .n_positions = 5000, .H = 4, .KV = 2, .D = 64},
                           [PS_OP_embedding_bwd].embedding = {.rows = 999, .cols = 8, .V = 50},
                           [PS_OP_lm_loss_fwd].loss = {.rows = 64, .C = 32, .V = 50257},
                           [PS_OP_lm_loss_bwd].loss_bwd = {.rows = 64, .C = 32, .V = 50257, .dtype = PS_DTYPE_BF16}};
    const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = 1});
    ps_backend *b, *ref, *planned, *described;
    fake_gpu_add_kernels(NULL);
    assert_ok(fake_gpu_open(d, &b));
    assert_ok(ps_backend_create_ref(&ref));
    assert_ok(ps_backend_create_cuda_for_plans(2 * PS_MIB, FAKE_GEMM_BYTES, NULL, ref, &planned));
    assert_ok(
        ps_backend_create_sim(&(ps_sim_options){.page_bytes = 2 * PS_MIB, .gemm_bytes = FAKE_GEMM_BYTES}, &described));
    assert_int_equal(ps_backend_space(planned)->page_bytes, 2 * PS_MIB);
    assert_true(ps_backend_space(planned)->device == ps_backend_space(b)->device && ps_backend_host(planned) == ref);
    int n_with = 0;
    for (int op = 0; op < PS_OP_COUNT; op++) {
        const size_t bytes = scratch(b, (ps_op)op, &args[op]);
        assert_int_equal(scratch(planned, (ps_op)op, &args[op]), bytes);
        assert_int_equal(scratch(described, (ps_op)op, &args[op]), bytes);
        n_with += bytes > 0;
    }
    assert_true(n_with >= 9);
    assert_fails(run_chain(planned, NULL, NULL), PS_EINVAL, "needs a queue of the device");
    ps_backend_destroy(described);
    ps_backend_destroy(planned);
    ps_backend_destroy(b);
    assert_true(fake_driver_end());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_has_the_numbers_of_ref),
        cmocka_unit_test(test_kernels_that_do_not_fit),
        cmocka_unit_test(test_launch_fails),
        cmocka_unit_test(test_plans_have_its_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
