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
        /* beside it, the host computes on page-locked memory; without a queue nothing does */
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
    opens_not(NULL, "module_load", PS_CU_OUT_OF_MEMORY, PS_EDEVICE, "kernels: CUDA_ERROR_OUT_OF_MEMORY");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_has_the_numbers_of_ref),
        cmocka_unit_test(test_kernels_that_do_not_fit),
        cmocka_unit_test(test_launch_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
