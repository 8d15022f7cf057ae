/* test_own.c - a user's operator as a kernel, with that of examples/own_operator.c. */
int main_of_example(int argc, char **argv);
#define main main_of_example
#include "../../examples/own_operator.c"
#undef main

#include "kernel/op_gradient.h"
#include "kernel/own.h"
#include "kernel/own_everywhere.h"

typedef struct own_case {
    int64_t rows, cols;
    ps_dtype dtype, grad_dtype;
    bool accumulate, dw_over_w, skips_dw;
} own_case;

static ps_own_operator op;

static ps_own_args sizes(const own_case *c, bool is_backward)
{
    return (ps_own_args){.op = ps_own_functions_of(&op, is_backward),
                         .call = {.dtype = c->dtype,
                                  .batch = 1,
                                  .sequence = c->rows,
                                  .rows = c->rows,
                                  .x_columns = {c->cols},
                                  .y_columns = c->cols,
                                  .w_elements = {c->cols}},
                         .grad_dtype = c->grad_dtype,
                         .accumulate_grad = c->accumulate,
                         .skips_dw = {c->skips_dw}};
}

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const own_case *c = context;
    const int64_t n = c->rows * c->cols;
    ps_own_args a = sizes(c, false);
    a.call.x[0] = op_input(c->dtype, n, 1, 1);
    a.call.w[0] = op_random(c->dtype, c->cols, 1, 0.2, 2);
    op_mark_input();
    a.call.y = op_output(c->dtype, n, false, 0);
    OP_RUN(k, own_fwd, &a);
    op_record_exact(result, "y", c->dtype, a.call.y, n);
}

static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const own_case *c = context;
    const int64_t n = c->rows * c->cols;
    ps_own_args a = sizes(c, true);
    a.call.x[0] = op_input(c->dtype, n, 1, 1);
    a.call.dy = op_input(c->dtype, n, 1, 3);
    a.call.w[0] = op_random(c->dtype, c->cols, 1, 0.2, 2);
    if (!c->dw_over_w) op_mark_input();
    a.call.dx[0] = op_output(c->dtype, n, false, 0);
    a.dw[0] = c->dw_over_w ? (void *)(uintptr_t)a.call.w[0] : op_output(c->grad_dtype, c->cols, c->accumulate, 4);
    if (c->skips_dw) a.dw[0] = NULL;
    OP_RUN(k, own_bwd, &a);
    op_record_exact(result, "dx", c->dtype, a.call.dx[0], n);
    if (!c->skips_dw) op_record(result, "da", c->grad_dtype, a.dw[0], c->cols, 0x1p-22);
}

static void test_backends(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{0, 5}, {1, 1}, {3, 7}, {700, 48}, {64, 257}};
    for (size_t s = 0; s < PS_ARRAY_LEN(shapes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const own_case c = {
                .rows = shapes[s][0], .cols = shapes[s][1], .dtype = (ps_dtype)t, .grad_dtype = (ps_dtype)t};
            own_case adds = c, over = c, f32 = c;
            adds.accumulate = over.dw_over_w = true;
            f32.grad_dtype = PS_DTYPE_F32;
            op_label("rows %lld cols %lld %s", (long long)c.rows, (long long)c.cols, ps_dtype_name(c.dtype));
            op_check_backends(run_fwd, &c);
            op_check_backends(run_bwd, &c);
            op_check_backends(run_bwd, &adds);
            op_check_backends(run_bwd, &f32);
            op_check_same_bits(run_bwd, &c, &over, "da over a");
        }
}

/* A gradient that is not wanted: the function is not asked for it, it takes no scratch, and dx has the same bits. */
static void test_frozen(void **state)
{
    (void)state;
    for (int t = 0; t < PS_DTYPE_COUNT; t++) {
        const own_case c = {.rows = 37, .cols = 48, .dtype = (ps_dtype)t, .grad_dtype = (ps_dtype)t};
        own_case frozen = c;
        frozen.skips_dw = true;
        op_label("%s", ps_dtype_name(c.dtype));
        op_check_backends(run_bwd, &frozen);
        op_check_same_bits(run_bwd, &frozen, &c, "da is left out");
        const ps_own_args a = sizes(&c, true), b = sizes(&frozen, true);
        const size_t least = op_bytes(op_reference(), PS_OP_own_bwd, &b);
        assert_int_equal(op_bytes(op_reference(), PS_OP_own_bwd, &a), least + 256);
        assert_true(ps_op_cost(PS_OP_own_bwd, &b).bytes < ps_op_cost(PS_OP_own_bwd, &a).bytes);
        op_release();
    }
}

typedef struct problem {
    ps_own_args fwd;
    const float *dy;
} problem;

static double value_of(const void *context)
{
    const problem *p = context;
    op_expect_ok(ps_run_own_fwd(op_reference(), NULL, &p->fwd, op_bytes(op_reference(), PS_OP_own_fwd, &p->fwd)));
    return op_dot(p->fwd.call.y, p->dy, p->fwd.call.rows * p->fwd.call.y_columns);
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        const own_case c = {.rows = 6, .cols = 11, .accumulate = accumulate != 0};
        const int64_t n = c.rows * c.cols;
        op_label("accumulate %d", accumulate);
        problem p = {.fwd = sizes(&c, false), .dy = op_input(PS_DTYPE_F32, n, 1, 3)};
        float *x = op_random(PS_DTYPE_F32, n, 0, 1, 1), *a = op_random(PS_DTYPE_F32, c.cols, 1, 0.2, 2);
        p.fwd.call.x[0] = x;
        p.fwd.call.w[0] = a;
        p.fwd.call.y = op_output(PS_DTYPE_F32, n, false, 0);
        p.fwd.workspace = op_workspace(op_reference(), PS_OP_own_fwd, &p.fwd);
        ps_own_args bwd = sizes(&c, true);
        bwd.call.x[0] = x;
        bwd.call.w[0] = a;
        bwd.call.dy = p.dy;
        bwd.call.dx[0] = op_output(PS_DTYPE_F32, n, false, 0);
        bwd.dw[0] = op_output(PS_DTYPE_F32, c.cols, c.accumulate, 4);
        OP_RUN(op_reference(), own_bwd, &bwd);
        const float *before = accumulate ? op_output(PS_DTYPE_F32, c.cols, true, 4) : NULL;
        op_check_gradient("dx", value_of, &p, x, bwd.call.dx[0], NULL, n, 0x1p-7f, 1e-3);
        op_check_gradient("da", value_of, &p, a, bwd.dw[0], before, c.cols, 0x1p-7f, 1e-3);
        op_release();
    }
}

static ps_status fails(const ps_own_call *call)
{
    return call->rows == 1 ? ps_set_last_error(PS_ENUMERIC, "a row is wrong") : (ps_status)77;
}

/* What a function returns is the result, with the operator's name; what is no status is a wrong argument. */
static void test_failure(void **state)
{
    (void)state;
    ps_own_operator bad = {.struct_size = sizeof bad, .name = "bad one", .forward = fails, .backward = fails};
    float cell[16];
    ps_own_args a = {.op = ps_own_functions_of(&bad, false),
                     .call = {.rows = 1, .x_columns = {1}, .y_columns = 1, .x = {cell}, .y = cell}};
    assert_int_equal(ps_run_own_fwd(op_reference(), NULL, &a, 0), PS_ENUMERIC);
    assert_non_null(strstr(ps_last_error(), "bad one"));
    assert_non_null(strstr(ps_last_error(), "a row is wrong"));
    a.call.rows = 2;
    assert_int_equal(ps_run_own_fwd(op_reference(), NULL, &a, 0), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "77"));
    assert_null(strstr(ps_last_error(), "a row is wrong")); /* of before */
}

static int begin(void **state)
{
    (void)state;
    op = own_everywhere(&snake);
#ifdef TEST_OVER_GPU
    if (mock_gpu_is_hardware()) skip(); /* its functions for a GPU are of the fake driver */
    (void)op_gpu();
#endif
    own_add_kernels();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_failure),
        cmocka_unit_test_setup(test_backends, begin),
        cmocka_unit_test_setup(test_frozen, begin),
    };
    op = own_everywhere(&snake);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
