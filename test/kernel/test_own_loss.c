/* test_own_loss.c - a user's loss as a kernel, with that of examples/own_loss.c: against finite differences, and where it is
 * another known loss. */
int main_of_example(int argc, char **argv);
#define main main_of_example
#include "../../examples/own_loss.c"
#undef main

#include "kernel/op_gradient.h"
#include "kernel/own.h"

enum { ROWS = 9, CLASSES = 13 };

typedef struct problem {
    ps_own_args fwd;
} problem;

static ps_own_args sizes(double gamma, bool is_backward)
{
    ps_own_args a = {.op = ps_own_functions_of(&focal, is_backward),
                     .call = {.batch = 1, .sequence = ROWS, .rows = ROWS, .x_columns = {CLASSES}}};
    memcpy(a.options, &(focal_options){gamma}, sizeof(focal_options));
    a.saved_columns[0] = 1;
    return a;
}

static ps_own_args forward_of(double gamma, float *x, const int32_t *targets)
{
    ps_own_args a = sizes(gamma, false);
    a.call.x[0] = x;
    a.call.targets = targets;
    a.call.saved[0] = op_output(PS_DTYPE_F32, ROWS, false, 0);
    a.call.row_loss = op_output(PS_DTYPE_F32, ROWS, false, 0);
    a.call.predicted = op_alloc(ROWS * sizeof(int32_t));
    a.workspace = op_workspace(op_reference(), PS_OP_own_fwd, &a);
    op_expect_ok(ps_run_own_fwd(op_reference(), NULL, &a, op_bytes(op_reference(), PS_OP_own_fwd, &a)));
    return a;
}

static double value_of(const void *context)
{
    const problem *p = context;
    op_expect_ok(ps_run_own_fwd(op_reference(), NULL, &p->fwd, op_bytes(op_reference(), PS_OP_own_fwd, &p->fwd)));
    double sum = 0;
    for (int i = 0; i < ROWS; i++) sum += (double)p->fwd.call.row_loss[i];
    return sum;
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (double gamma = 0; gamma < 3; gamma++) {
        op_label("gamma %g", gamma);
        const int32_t *targets = op_indices(ROWS, CLASSES, 4, 5);
        float *x = op_random(PS_DTYPE_F32, ROWS * CLASSES, 0, 1, 1);
        const problem p = {.fwd = forward_of(gamma, x, targets)};
        ps_own_args bwd = sizes(gamma, true);
        bwd.call.x[0] = x;
        bwd.call.targets = targets;
        bwd.call.saved[0] = p.fwd.call.saved[0];
        bwd.call.scale = 1;
        bwd.call.dx[0] = op_output(PS_DTYPE_F32, ROWS * CLASSES, false, 0);
        OP_RUN(op_reference(), own_bwd, &bwd);
        op_check_gradient("dx", value_of, &p, x, bwd.call.dx[0], NULL, ROWS * CLASSES, 0x1p-7f, 1e-3);
        op_release();
    }
}

/* With gamma 0 it is the cross-entropy. */
static void test_is_cross_entropy(void **state)
{
    (void)state;
    const int32_t *targets = op_indices(ROWS, CLASSES, 4, 5);
    float *x = op_random(PS_DTYPE_F32, ROWS * CLASSES, 0, 1, 1);
    const ps_own_args a = forward_of(0, x, targets);
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int i = 0; i < CLASSES; i++) sum += exp((double)x[row * CLASSES + i]);
        const double want = targets[row] < 0 ? 0 : log(sum) - (double)x[row * CLASSES + targets[row]];
        assert_true(fabs((double)a.call.row_loss[row] - want) < 1e-5);
    }
    op_release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_is_cross_entropy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
