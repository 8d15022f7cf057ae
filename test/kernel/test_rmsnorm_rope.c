#include "kernel/op_gradient.h"

typedef struct pair_case {
    int64_t B, T, H, D, first;
    ps_dtype dtype, grad_dtype;
    bool accumulate_grad;
    bool over, in_place; /* dw overlaps w, dx over dy */
    bool difference;     /* by rmsnorm and rope, one after the other */
    bool leaves_dw;      /* looks at dx alone */
    float scale;         /* 0: 1 */
} pair_case;

static const float eps = 1e-5f;

static void label_case(const pair_case *c)
{
    op_label("B %lld T %lld H %lld D %lld first %lld %s -> %s%s%s%s", (long long)c->B, (long long)c->T, (long long)c->H,
             (long long)c->D, (long long)c->first, ps_dtype_name(c->dtype), ps_dtype_name(c->grad_dtype),
             c->accumulate_grad ? " accumulate_grad" : "", c->over ? " over" : "", c->in_place ? " in_place" : "");
}

static int64_t rows_of(const pair_case *c)
{
    return c->B * c->T * c->H;
}

static const float *make_frequencies(int64_t D)
{
    float *const f = op_alloc((size_t)(D / 2) * sizeof *f);
    for (int64_t i = 0; i < D / 2; i++) f[i] = (float)pow(10000.0, -2.0 * (double)i / (double)D);
    op_mark_input();
    return f;
}

static ps_rmsnorm_rope_fwd_args fwd_of(const pair_case *c, const void *x, const void *w)
{
    return (ps_rmsnorm_rope_fwd_args){.y = op_output(c->dtype, rows_of(c) * c->D, false, 0),
                                      .rstd = op_output(PS_DTYPE_F32, rows_of(c), false, 0),
                                      .x = x,
                                      .w = w,
                                      .inv_freq = make_frequencies(c->D),
                                      .B = c->B,
                                      .T = c->T,
                                      .H = c->H,
                                      .D = c->D,
                                      .first = c->first,
                                      .eps = eps,
                                      .scale = c->scale != 0 ? c->scale : 1,
                                      .dtype = c->dtype};
}

/* What is between the two is rounded to 16 bits, and may be so to a neighbour: x / rms is below 2, w below 4, and two
 * such elements make one. */
static double between_error(ps_dtype t)
{
    return t == PS_DTYPE_F32 ? 0.0 : 2.0 * 8.0 * op_ulp(t);
}

/* x has a mean of 3 and a deviation of 1, for the reason of test_rmsnorm.c. */
static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const pair_case *c = context;
    const int64_t n = rows_of(c) * c->D;
    void *x = op_random(c->dtype, n, 3.0, 1.0, 1);
    op_mark_input();
    ps_rmsnorm_rope_fwd_args a = fwd_of(c, x, op_input(c->dtype, c->D, 1.0, 2));
    if (c->difference) {
        const ps_rmsnorm_fwd_args norm = {.y = a.y,
                                          .rstd = a.rstd,
                                          .x = a.x,
                                          .w = a.w,
                                          .rows = rows_of(c),
                                          .cols = c->D,
                                          .eps = eps,
                                          .dtype = c->dtype};
        ps_rope_args rope = {.y = a.y,
                             .x = a.y,
                             .inv_freq = a.inv_freq,
                             .B = c->B,
                             .T = c->T,
                             .H = c->H,
                             .D = c->D,
                             .first = c->first,
                             .scale = a.scale,
                             .dtype = c->dtype};
        op_expect_ok(ps_run_rmsnorm_fwd(k, NULL, &norm, 0));
        OP_RUN(k, rope, &rope);
    } else {
        OP_RUN(k, rmsnorm_rope_fwd, &a);
    }
    op_record(result, "rstd", PS_DTYPE_F32, a.rstd, rows_of(c), op_sum_error(1.0));
    op_record(result, "y", c->dtype, a.y, n, op_sum_error(2.0 * 8.0) + between_error(c->dtype));
}

static void run_bwd_unfused(ps_backend *k, const ps_rmsnorm_rope_bwd_args *a)
{
    ps_rope_args rope = {.y = a->dx,
                         .x = a->dy,
                         .inv_freq = a->inv_freq,
                         .B = a->B,
                         .T = a->T,
                         .H = a->H,
                         .D = a->D,
                         .first = a->first,
                         .scale = a->scale,
                         .inverse = true,
                         .dtype = a->dtype};
    ps_rmsnorm_bwd_args norm = {.dx = a->dx,
                                .dw = a->dw,
                                .dy = a->dx,
                                .x = a->x,
                                .w = a->w,
                                .rstd = a->rstd,
                                .rows = a->B * a->T * a->H,
                                .cols = a->D,
                                .dtype = a->dtype,
                                .grad_dtype = a->grad_dtype,
                                .accumulate_grad = a->accumulate_grad};
    OP_RUN(k, rope, &rope);
    OP_RUN(k, rmsnorm_bwd, &norm);
}

static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const pair_case *c = context;
    const int64_t n = rows_of(c) * c->D;
    void *x = op_random(c->dtype, n, 3.0, 1.0, 1), *w = op_random(c->dtype, c->D, 0.0, 1.0, 2);
    void *dy = op_random(c->dtype, n, 0.0, 1.0, 4);
    ps_rmsnorm_rope_fwd_args fwd = fwd_of(c, x, w);
    OP_RUN(op_reference(), rmsnorm_rope_fwd, &fwd); /* the same rstd for all backends */
    ps_rmsnorm_rope_bwd_args a = {.dx = c->in_place ? dy : op_output(c->dtype, n, false, 5),
                                  .dw = c->over ? w : op_output(c->grad_dtype, c->D, c->accumulate_grad, 6),
                                  .dy = dy,
                                  .x = x,
                                  .w = w,
                                  .rstd = fwd.rstd,
                                  .inv_freq = fwd.inv_freq,
                                  .B = c->B,
                                  .T = c->T,
                                  .H = c->H,
                                  .D = c->D,
                                  .first = c->first,
                                  .scale = fwd.scale,
                                  .dtype = c->dtype,
                                  .grad_dtype = c->grad_dtype,
                                  .accumulate_grad = c->accumulate_grad};
    if (c->difference)
        run_bwd_unfused(k, &a);
    else
        OP_RUN(k, rmsnorm_rope_bwd, &a);
    op_record(result, "dx", c->dtype, a.dx, n, op_sum_error(16.0) + between_error(c->dtype));
    if (c->leaves_dw) return;
    op_record(result, "dw", c->grad_dtype, a.dw, c->D,
              op_sum_error(8.0 * (double)rows_of(c)) + between_error(c->dtype) * (double)rows_of(c));
}

/* Heads of one pair, of no vectors, of 2 to 32 of them in some type; nothing; more positions than a grid has blocks. */
static const pair_case sizes[] = {{.B = 1, .T = 1, .H = 1, .D = 2},
                                  {.B = 2, .T = 5, .H = 3, .D = 4},
                                  {.B = 2, .T = 37, .H = 3, .D = 16, .first = 5},
                                  {.B = 2, .T = 9, .H = 2, .D = 24, .scale = 1.25f},
                                  {.B = 3, .T = 17, .H = 1, .D = 64},
                                  {.B = 1, .T = 70, .H = 2, .D = 128, .scale = 0.75f},
                                  {.B = 1, .T = 5, .H = 20, .D = 128},
                                  {.B = 2, .T = 3, .H = 2, .D = 256},
                                  {.B = 0, .T = 5, .H = 2, .D = 16},
                                  {.B = 2, .T = 0, .H = 2, .D = 16},
                                  {.B = 5, .T = 700, .H = 1, .D = 16}};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 4; flags++) {
                pair_case c = sizes[s];
                c.dtype = (ps_dtype)t, c.grad_dtype = flags & 1 ? PS_DTYPE_F32 : (ps_dtype)t;
                c.accumulate_grad = flags & 2;
                label_case(&c);
                if (flags == 0) op_check_backends(run_fwd, &c);
                op_check_backends(run_bwd, &c);
            }
}

/* Kernels for GPUs sum dw over rows in an order of their own. */
static void test_as_one_after_the_other(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            pair_case one = sizes[s];
            one.dtype = one.grad_dtype = (ps_dtype)t;
#ifdef TEST_OVER_CUDA
            one.leaves_dw = true;
#endif
            pair_case difference = one;
            difference.difference = true;
            label_case(&one);
            /* the reference stands in on the cpu, whose own kernels have other bits */
            for (int i = 0; i < 2; i++) {
                ps_backend *k;
                char name[64];
                if (!op_backend(i, &k, name)) break;
#ifndef TEST_OVER_CUDA
                if (i > 0) break;
#endif
                for (int backward = 0; backward < 2; backward++) {
                    op_result a = {.n = 0}, b = {.n = 0};
                    (backward ? run_bwd : run_fwd)(k, &difference, &a);
                    (backward ? run_bwd : run_fwd)(k, &one, &b);
                    for (int o = 0; o < a.n; o++) op_compare_bits(&b.out[o], &a.out[o], name);
                    op_release();
                }
            }
        }
}

static void test_outputs_over_inputs(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 1; flags < 4; flags++) {
                pair_case difference = sizes[s];
                difference.dtype = difference.grad_dtype = (ps_dtype)t;
                pair_case over = difference;
                over.over = flags & 1, over.in_place = flags & 2;
                label_case(&over);
                op_check_same_bits(run_bwd, &difference, &over, "outputs over inputs");
            }
}

typedef struct pair_problem {
    ps_backend *k;
    ps_rmsnorm_rope_fwd_args fwd;
    const float *dy;
} pair_problem;

static double problem_value(const void *context)
{
    const pair_problem *p = context;
    op_expect_ok(ps_run_rmsnorm_rope_fwd(p->k, NULL, &p->fwd, 0));
    return op_dot(p->dy, p->fwd.y, p->fwd.B * p->fwd.T * p->fwd.H * p->fwd.D);
}

static void check_gradients(const pair_case *c)
{
    label_case(c);
    const int64_t n = rows_of(c) * c->D;
    float *x = op_random(PS_DTYPE_F32, n, 0, 1, 1), *w = op_random(PS_DTYPE_F32, c->D, 0, 1, 2);
    pair_problem p = {.k = op_reference(), .fwd = fwd_of(c, x, w), .dy = op_input(PS_DTYPE_F32, n, 1, 4)};
    p.fwd.eps = 0.1f; /* large: curvature stays small where there are few columns */
    (void)problem_value(&p);
    float *rstd = op_output(PS_DTYPE_F32, rows_of(c), false, 0);
    memcpy(rstd, p.fwd.rstd, (size_t)rows_of(c) * sizeof *rstd);
    ps_rmsnorm_rope_bwd_args bwd = {.dx = op_output(PS_DTYPE_F32, n, false, 5),
                                    .dw = op_output(PS_DTYPE_F32, c->D, c->accumulate_grad, 6),
                                    .dy = p.dy,
                                    .x = x,
                                    .w = w,
                                    .rstd = rstd,
                                    .inv_freq = p.fwd.inv_freq,
                                    .B = c->B,
                                    .T = c->T,
                                    .H = c->H,
                                    .D = c->D,
                                    .first = c->first,
                                    .scale = p.fwd.scale,
                                    .accumulate_grad = c->accumulate_grad};
    OP_RUN(p.k, rmsnorm_rope_bwd, &bwd);
    const float *dw0 = c->accumulate_grad ? op_output(PS_DTYPE_F32, c->D, true, 6) : NULL;
    op_check_gradient("dx", problem_value, &p, x, bwd.dx, NULL, n, 0x1p-6f, 2e-3);
    op_check_gradient("dw", problem_value, &p, w, bwd.dw, dw0, c->D, 0.5f, 1e-3);
    op_release();
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (size_t s = 0; s < 6; s++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            pair_case c = sizes[s];
            c.accumulate_grad = accumulate;
            check_gradients(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_as_one_after_the_other),
        cmocka_unit_test(test_outputs_over_inputs),
        cmocka_unit_test(test_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
