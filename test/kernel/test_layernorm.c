#include "kernel/op_gradient.h"

typedef struct norm_case {
    int64_t rows, cols;
    ps_dtype dtype, grad_dtype;
    bool accumulate_dx, accumulate_grad;
    bool over, in_place; /* dw, db lie over w, b; dx over dy */
} norm_case;

static const float eps = 1e-5f;

static void label_case(const norm_case *c)
{
    op_label("rows %lld cols %lld %s -> %s%s%s%s%s", (long long)c->rows, (long long)c->cols, ps_dtype_name(c->dtype),
             ps_dtype_name(c->grad_dtype), c->accumulate_dx ? " accumulate_dx" : "",
             c->accumulate_grad ? " accumulate_grad" : "", c->over ? " over" : "", c->in_place ? " in_place" : "");
}

/* One column has no variance, so errors are magnified by rstd = 1 / sqrt(eps). */
static double largest_rstd(const norm_case *c)
{
    return c->cols == 1 ? 1.0 / sqrt((double)eps) : 2.0;
}

/* The mean of x is 3 times its deviation: a variance computed as avg(x^2) - mean^2 in float stays within tolerance only
 * if it is done with care. */
static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const norm_case *c = context;
    ps_layernorm_fwd_args a = {.rows = c->rows, .cols = c->cols, .eps = eps, .dtype = c->dtype};
    a.x = op_random(c->dtype, c->rows * c->cols, 3.0, 1.0, 1);
    op_mark_input();
    a.w = op_input(c->dtype, c->cols, 1.0, 2);
    a.b = op_input(c->dtype, c->cols, 1.0, 3);
    a.y = op_output(c->dtype, c->rows * c->cols, false, 0);
    a.mean = op_output(PS_DTYPE_F32, c->rows, false, 0);
    a.rstd = op_output(PS_DTYPE_F32, c->rows, false, 0);
    op_expect_ok(ps_run_layernorm_fwd(k, NULL, &a, 0));
    op_record(result, "mean", PS_DTYPE_F32, a.mean, c->rows, op_sum_error(4.0));
    op_record(result, "rstd", PS_DTYPE_F32, a.rstd, c->rows, op_sum_error(4.0) * largest_rstd(c));
    op_record(result, "y", c->dtype, a.y, c->rows * c->cols, op_sum_error(4.0) * 3.0 * largest_rstd(c));
}

static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const norm_case *c = context;
    const int64_t n = c->rows * c->cols;
    ps_layernorm_bwd_args a = {.rows = c->rows,
                               .cols = c->cols,
                               .dtype = c->dtype,
                               .grad_dtype = c->grad_dtype,
                               .accumulate_dx = c->accumulate_dx,
                               .accumulate_grad = c->accumulate_grad};
    void *x = op_random(c->dtype, n, 3.0, 1.0, 1), *w = op_random(c->dtype, c->cols, 0.0, 1.0, 2);
    void *b = op_random(c->dtype, c->cols, 0.0, 1.0, 3), *dy = op_random(c->dtype, n, 0.0, 1.0, 4);
    float *mean = op_output(PS_DTYPE_F32, c->rows, false, 0), *rstd = op_output(PS_DTYPE_F32, c->rows, false, 0);
    const ps_layernorm_fwd_args fwd = {.y = op_output(c->dtype, n, false, 0),
                                       .mean = mean,
                                       .rstd = rstd,
                                       .x = x,
                                       .w = w,
                                       .b = b,
                                       .rows = c->rows,
                                       .cols = c->cols,
                                       .eps = eps,
                                       .dtype = c->dtype};
    ps_backend *ref = op_reference(); /* the same mean and rstd for all backends */
    op_expect_ok(ps_run_layernorm_fwd(ref, NULL, &fwd, 0));
    a.x = x, a.w = w, a.dy = dy, a.mean = mean, a.rstd = rstd;
    a.dx = c->in_place ? dy : op_output(c->dtype, n, c->accumulate_dx, 5);
    a.dw = c->over ? w : op_output(c->grad_dtype, c->cols, c->accumulate_grad, 6);
    a.db = c->over ? b : op_output(c->grad_dtype, c->cols, c->accumulate_grad, 7);
    OP_RUN(k, layernorm_bwd, &a);
    op_record(result, "dx", c->dtype, a.dx, n, op_sum_error(8.0) * largest_rstd(c));
    op_record(result, "dw", c->grad_dtype, a.dw, c->cols, op_sum_error(2.0 * (double)c->rows));
    op_record(result, "db", c->grad_dtype, a.db, c->cols, op_sum_error((double)c->rows));
}

static const struct {
    int64_t rows, cols;
} sizes[] = {{1, 1},    {3, 5},     {7, 33},    {1, 65},    {3, 1},    {0, 33},  {17, 16},
             {256, 64}, {256, 192}, {130, 768}, {40, 1280}, {5, 4096}, {3, 8192}};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 8; flags++) {
                const norm_case c = {.rows = sizes[s].rows,
                                     .cols = sizes[s].cols,
                                     .dtype = (ps_dtype)t,
                                     .grad_dtype = flags & 1 ? PS_DTYPE_F32 : (ps_dtype)t,
                                     .accumulate_dx = flags & 2,
                                     .accumulate_grad = flags & 4};
                label_case(&c);
                if (flags == 0) op_check_backends(run_fwd, &c);
                op_check_backends(run_bwd, &c);
            }
}

static void test_outputs_over_inputs(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 1; flags < 4; flags++) {
                const norm_case difference = {
                    .rows = sizes[s].rows, .cols = sizes[s].cols, .dtype = (ps_dtype)t, .grad_dtype = (ps_dtype)t};
                norm_case over = difference;
                over.over = flags & 1, over.in_place = flags & 2;
                label_case(&over);
                op_check_same_bits(run_bwd, &difference, &over, "outputs over inputs");
            }
}

typedef struct norm_problem {
    ps_backend *k;
    ps_layernorm_fwd_args fwd;
    const float *dy;
} norm_problem;

static double problem_value(const void *context)
{
    const norm_problem *p = context;
    op_expect_ok(ps_run_layernorm_fwd(p->k, NULL, &p->fwd, 0));
    return op_dot(p->dy, p->fwd.y, p->fwd.rows * p->fwd.cols);
}

static void check_gradients(const norm_case *c)
{
    label_case(c);
    const ps_dtype t = PS_DTYPE_F32;
    const int64_t n = c->rows * c->cols;
    float *x = op_random(t, n, 0, 1, 1), *w = op_random(t, c->cols, 0, 1, 2), *b = op_random(t, c->cols, 0, 1, 3);
    norm_problem p = {.dy = op_input(t, n, 1, 4)};
    p.k = op_reference();
    /* a large eps keeps curvature small where there are few columns */
    p.fwd = (ps_layernorm_fwd_args){.y = op_output(t, n, false, 0),
                                    .mean = op_output(t, c->rows, false, 0),
                                    .rstd = op_output(t, c->rows, false, 0),
                                    .x = x,
                                    .w = w,
                                    .b = b,
                                    .rows = c->rows,
                                    .cols = c->cols,
                                    .eps = 0.1f,
                                    .dtype = t};
    (void)problem_value(&p);
    float *mean = op_output(t, c->rows, false, 0), *rstd = op_output(t, c->rows, false, 0);
    memcpy(mean, p.fwd.mean, (size_t)c->rows * sizeof *mean);
    memcpy(rstd, p.fwd.rstd, (size_t)c->rows * sizeof *rstd);
    ps_layernorm_bwd_args bwd = {.dx = op_output(t, n, c->accumulate_dx, 5),
                                 .dw = op_output(t, c->cols, c->accumulate_grad, 6),
                                 .db = op_output(t, c->cols, c->accumulate_grad, 7),
                                 .dy = p.dy,
                                 .x = x,
                                 .w = w,
                                 .mean = mean,
                                 .rstd = rstd,
                                 .rows = c->rows,
                                 .cols = c->cols,
                                 .dtype = t,
                                 .grad_dtype = t,
                                 .accumulate_dx = c->accumulate_dx,
                                 .accumulate_grad = c->accumulate_grad};
    OP_RUN(p.k, layernorm_bwd, &bwd);
    const float *dx0 = c->accumulate_dx ? op_output(t, n, true, 5) : NULL;
    const float *dw0 = c->accumulate_grad ? op_output(t, c->cols, true, 6) : NULL;
    const float *db0 = c->accumulate_grad ? op_output(t, c->cols, true, 7) : NULL;
    op_check_gradient("dx", problem_value, &p, x, bwd.dx, dx0, n, 0x1p-6f, 2e-3);
    op_check_gradient("dw", problem_value, &p, w, bwd.dw, dw0, c->cols, 0.5f, 1e-4);
    op_check_gradient("db", problem_value, &p, b, bwd.db, db0, c->cols, 0.5f, 1e-4);
    op_release();
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (size_t s = 0; s < 7; s++)
        for (int flags = 0; flags < 4; flags++) {
            const norm_case c = {
                .rows = sizes[s].rows, .cols = sizes[s].cols, .accumulate_dx = flags & 1, .accumulate_grad = flags & 2};
            check_gradients(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_outputs_over_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
