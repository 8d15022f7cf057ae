/* test_async.c - the backend of the fake GPU: what it refuses, and operators that the other tests do not bring
 * there. */
#include "base/mem.h"
#include "kernel/op_check.h"

static ps_backend *backend_new(void)
{
    ps_backend *b = NULL;
    op_expect_ok(ps_backend_create_async(&(struct ps_async_options){.seed = 3}, ps_cpu_isa_detect(), false, 1, &b));
    return b;
}

static void test_create(void **state)
{
    (void)state;
    ps_backend *b = backend_new(), *cpu = NULL;
    size_t bytes, want;
    const ps_linear_fwd_args a = {.rows = 100, .n_in = 70, .n_out = 90, .dtype = PS_DTYPE_BF16};
    assert_string_equal(ps_backend_name(b), "cpu_async");
    assert_ptr_equal(ps_backend_space(b)->device, &ps_device_async_ops);
    assert_ptr_equal(ps_backend_space(b)->host, &ps_device_pinned_ops);
    assert_int_equal(ps_backend_space(b)->page_bytes, 2 * PS_MIB);
    op_expect_ok(ps_backend_create_cpu(ps_cpu_isa_detect(), 1, &cpu));
    op_expect_ok(ps_kernel_measure(b, PS_OP_linear_fwd, &a, &bytes));
    op_expect_ok(ps_kernel_measure(cpu, PS_OP_linear_fwd, &a, &want));
    assert_int_equal(bytes, want);
    for (int kind = 0; kind < PS_EPILOGUE_COUNT; kind++)
        assert_int_equal(ps_backend_has_epilogue(b, (ps_epilogue_kind)kind),
                         ps_backend_has_epilogue(cpu, (ps_epilogue_kind)kind));
    ps_backend_destroy(cpu);
    ps_backend_destroy(b);
    if (ps_cpu_isa_detect() >= PS_CPU_AVX2) {
        op_expect_ok(ps_backend_create_async(&(struct ps_async_options){0}, PS_CPU_AVX2, true, 1, &b));
        ps_backend_destroy(b);
    }
    assert_int_equal(ps_backend_create_async(&(struct ps_async_options){0}, PS_CPU_PORTABLE, true, 1, &b), PS_ENOSYS);
    assert_null(b);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void expect(ps_status st, const char *text)
{
    assert_int_equal(st, PS_EINVAL);
    if (strstr(ps_last_error(), text) == NULL) fail_msg("%s", ps_last_error());
}

static void test_for_plans(void **state)
{
    (void)state;
    ps_backend *b = NULL, *real = backend_new();
    size_t bytes, want;
    float x[2] = {1, 2};
    const ps_linear_fwd_args a = {.rows = 100, .n_in = 70, .n_out = 90, .dtype = PS_DTYPE_BF16};
    const ps_async_options o = {.page_bytes = 8192};
    op_expect_ok(ps_backend_create_async_for_plans(&o, ps_cpu_isa_detect(), false, 1000, &b)); /* starts no threads */
    assert_ptr_equal(ps_backend_space(b)->device, ps_backend_space(real)->device);
    assert_ptr_equal(ps_backend_space(b)->host, ps_backend_space(real)->host);
    assert_int_equal(ps_backend_space(b)->page_bytes, 8192);
    assert_null(ps_backend_space(b)->driver);
    op_expect_ok(ps_kernel_measure(b, PS_OP_linear_fwd, &a, &bytes));
    op_expect_ok(ps_kernel_measure(real, PS_OP_linear_fwd, &a, &want));
    assert_int_equal(bytes, want);
    expect(ps_run_add(b, NULL, &(ps_add_args){.y = x, .a = x, .b = x, .n = 2}, 0), "needs a queue of the device");
    ps_backend_destroy(b);
    ps_backend_destroy(real);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    ps_backend *b = backend_new();
    const ps_space *space = ps_backend_space(b);
    ps_device *d = NULL;
    ps_queue *q = NULL;
    void *block = NULL;
    float local[64];
    op_expect_ok(ps_device_create_on(space->device, space->driver, space->page_bytes, "device", 8 * PS_MIB, &d));
    op_expect_ok(ps_queue_create(d, "kernels", PS_QUEUE_COMPUTE, &q));
    op_expect_ok(ps_device_alloc(d, 4096, &block));
    const ps_add_args a = {.y = block, .a = block, .b = local, .n = 64, .dtype = PS_DTYPE_F32};
    expect(ps_run_add(b, NULL, &a, 0), "add of cpu_async needs a queue of the device");
    expect(ps_run_add(b, q, &a, 0), "queue kernels: add reads b: 256 bytes");
    ps_linear_fwd_args l = {.y = block, .x = block, .w = block, .rows = 8, .n_in = 64, .n_out = 64};
    l.dtype = l.y_dtype = PS_DTYPE_BF16;
    const size_t bytes = op_bytes(b, PS_OP_linear_fwd, &l);
    if (bytes > 0) expect(ps_run_linear_fwd(b, q, &l, bytes - 1), "linear_fwd of cpu_async");
    op_expect_ok(ps_event_wait(ps_queue_event(q)));
    assert_int_equal(ps_queue_event(q).ticket, 0);
    const ps_cast_args c = {.dst = local, .src = (float[]){1, 2}, .n = 2};
    expect(ps_run_cast(b, NULL, &c, 0), "cast of cpu_async needs a queue of the device");
    op_expect_ok(ps_run_cast(ps_backend_host(b), NULL, &c, 0));
    assert_true(local[1] == 2);
    ps_queue_destroy(q);
    ps_device_free(d, block, 4096, NULL);
    ps_device_destroy(d);
    ps_backend_destroy(b);
}

/* What other tests do not bring there. */
static void run_fill(ps_backend *k, const void *context, op_result *result)
{
    (void)context;
    float *dst = op_alloc(1000 * sizeof *dst);
    const ps_fill_args a = {.dst = dst, .n = 1000, .first_index = 77, .std = 2, .key = {.seed = 3, .stream = 4}};
    op_expect_ok(ps_run_fill(k, NULL, &a, 0));
    op_record_exact(result, "dst", PS_DTYPE_F32, dst, 1000);
}

static void run_sums(ps_backend *k, const void *context, op_result *result)
{
    (void)context;
    enum { N = 5000, ROWS = 37, V = 50 };
    ps_grad_sums *grads = op_alloc(sizeof *grads);
    ps_loss_sums *losses = op_alloc(sizeof *losses);
    memset(grads, 0, sizeof *grads);
    const ps_grad_stats_args g = {
        .sums = grads, .x = op_input(PS_DTYPE_BF16, N, 2.0, 1), .n = N, .tensor = 2, .dtype = PS_DTYPE_BF16};
    const ps_loss_sums_args l = {.sums = losses,
                                 .row_loss = op_input(PS_DTYPE_F32, ROWS, 2.0, 2),
                                 .targets = op_indices(ROWS, V, 5, 3),
                                 .predicted = op_indices(ROWS, V, 0, 3),
                                 .rows = ROWS};
    op_expect_ok(ps_run_grad_stats(k, NULL, &g, 0));
    op_expect_ok(ps_run_loss_sums(k, NULL, &l, 0));
    assert_true(losses->n_correct > 0 && losses->loss != 0);
    /* compared as words */
    op_record_exact(result, "grads", PS_DTYPE_F32, grads, sizeof *grads / sizeof(float));
    op_record_exact(result, "losses", PS_DTYPE_F32, losses, sizeof *losses / sizeof(float));
}

static void compare(op_case_fn run)
{
    ps_backend *k = NULL, *cpu = NULL;
    char name[64];
    op_result want = {.n = 0}, got = {.n = 0};
    for (int i = 0; op_backend(i, &k, name); i++) cpu = k;
    run(cpu, NULL, &want);
    run(op_async(), NULL, &got);
    for (int o = 0; o < want.n; o++) op_compare_bits(&got.out[o], &want.out[o], name);
    op_release();
}

static void test_other_operators(void **state)
{
    (void)state;
    compare(run_fill);
    compare(run_sums);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_for_plans),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_other_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
