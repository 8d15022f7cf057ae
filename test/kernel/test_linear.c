#define OP_MULTIPLIES_BF16

#include "kernel/op_gradient.h"

typedef struct linear_case {
    int64_t rows, n_in, n_out;
    ps_weight_layout layout;
    ps_dtype dtype, out_dtype; /* of y, or of the parameter gradients */
    bool bias, accumulate;
    bool over;  /* gradients lie over their parameters */
    bool no_dw; /* not looked at here, */
    bool skips; /* nor computed */
} linear_case;

static void label_case(const linear_case *c)
{
    op_label("rows %lld in %lld out %lld %s %s -> %s%s%s%s", (long long)c->rows, (long long)c->n_in,
             (long long)c->n_out, c->layout == PS_WEIGHT_OUT_IN ? "out_in" : "in_out", ps_dtype_name(c->dtype),
             ps_dtype_name(c->out_dtype), c->bias ? " bias" : "", c->accumulate ? " accumulate" : "",
             c->over ? " over" : "");
}

/* Some algorithms of cuBLASLt round the sum to 16 bits before they add a bias or what is accumulated to. Seen on an H100:
 * its nvjet kernels do so before an addend, and its split sums of matrices that are not aligned before a bias. Sums and
 * what is added are below 8. */
static double addition_error(ps_dtype t, bool adds)
{
#ifdef TEST_OVER_GPU
    return t != PS_DTYPE_F32 && adds ? 0.5 * 8.0 * op_ulp(t) : 0.0;
#else
    (void)t, (void)adds;
    return 0.0;
#endif
}

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const linear_case *c = context;
    ps_linear_fwd_args a = {.rows = c->rows,
                            .n_in = c->n_in,
                            .n_out = c->n_out,
                            .layout = c->layout,
                            .dtype = c->dtype,
                            .y_dtype = c->out_dtype};
    a.x = op_input(c->dtype, c->rows * c->n_in, 1.0, 1);
    a.w = op_input(c->dtype, c->n_in * c->n_out, 1.0, 2);
    a.b = c->bias ? op_input(c->dtype, c->n_out, 1.0, 3) : NULL;
    a.y = op_output(c->out_dtype, c->rows * c->n_out, false, 0);
    OP_RUN(k, linear_fwd, &a);
    op_record(result, "y", c->out_dtype, a.y, c->rows * c->n_out,
              op_sum_error((double)c->n_in) + addition_error(c->out_dtype, c->bias));
}

static void run_bwd_input(ps_backend *k, const void *context, op_result *result)
{
    const linear_case *c = context;
    ps_linear_bwd_input_args a = {.rows = c->rows,
                                  .n_in = c->n_in,
                                  .n_out = c->n_out,
                                  .layout = c->layout,
                                  .dtype = c->dtype,
                                  .accumulate_dx = c->accumulate};
    a.dy = op_input(c->dtype, c->rows * c->n_out, 1.0, 4);
    a.w = op_input(c->dtype, c->n_in * c->n_out, 1.0, 2);
    a.dx = op_output(c->dtype, c->rows * c->n_in, c->accumulate, 5);
    OP_RUN(k, linear_bwd_input, &a);
    op_record(result, "dx", c->dtype, a.dx, c->rows * c->n_in,
              op_sum_error((double)c->n_out) + addition_error(c->dtype, c->accumulate));
}

static void run_bwd_weight(ps_backend *k, const void *context, op_result *result)
{
    const linear_case *c = context;
    ps_linear_bwd_weight_args a = {.rows = c->rows,
                                   .n_in = c->n_in,
                                   .n_out = c->n_out,
                                   .layout = c->layout,
                                   .dtype = c->dtype,
                                   .grad_dtype = c->out_dtype,
                                   .accumulate_grad = c->accumulate};
    a.dy = op_input(c->dtype, c->rows * c->n_out, 1.0, 4);
    a.x = op_input(c->dtype, c->rows * c->n_in, 1.0, 1);
    a.dw = op_output(c->out_dtype, c->n_in * c->n_out, c->accumulate || c->over, 6);
    a.db = c->bias ? op_output(c->out_dtype, c->n_out, c->accumulate || c->over, 7) : NULL;
    if (c->skips) {
        a.skips_dw = true;
        a.dw = NULL;
        a.x = NULL;
    }
    OP_RUN(k, linear_bwd_weight, &a);
    if (!c->no_dw)
        op_record(result, "dw", c->out_dtype, a.dw, c->n_in * c->n_out,
                  op_sum_error((double)c->rows) + addition_error(c->out_dtype, c->accumulate));
    if (c->bias) op_record(result, "db", c->out_dtype, a.db, c->n_out, op_sum_error((double)c->rows));
}

static void check_all(const linear_case *c)
{
    label_case(c);
    op_check_backends(run_fwd, c);
    if (c->out_dtype == c->dtype) op_check_backends(run_bwd_input, c);
    op_check_backends(run_bwd_weight, c);
}

static const struct {
    int64_t rows, n_in, n_out;
} odd_sizes[] = {{1, 1, 1}, {3, 5, 33}, {7, 33, 65}, {3, 65, 5}, {7, 1, 33}, {1, 65, 1}, {0, 5, 33}, {33, 17, 9}};

static void test_backends_odd_sizes(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 16; flags++) {
                const linear_case c = {.rows = odd_sizes[s].rows,
                                       .n_in = odd_sizes[s].n_in,
                                       .n_out = odd_sizes[s].n_out,
                                       .layout = flags & 1 ? PS_WEIGHT_IN_OUT : PS_WEIGHT_OUT_IN,
                                       .dtype = (ps_dtype)t,
                                       .out_dtype = flags & 2 ? PS_DTYPE_F32 : (ps_dtype)t,
                                       .bias = flags & 4,
                                       .accumulate = flags & 8};
                check_all(&c);
            }
}

static void test_backends_real_sizes(void **state)
{
    (void)state;
    for (int t = 0; t < PS_DTYPE_COUNT; t++)
        for (int layout = 0; layout < 2; layout++) {
            const linear_case wide = {.rows = 256,
                                      .n_in = 64,
                                      .n_out = 192,
                                      .layout = (ps_weight_layout)layout,
                                      .dtype = (ps_dtype)t,
                                      .out_dtype = (ps_dtype)t,
                                      .bias = true,
                                      .accumulate = layout == 0};
            check_all(&wide);
            const linear_case deep = {.rows = 64,
                                      .n_in = 768,
                                      .n_out = 192,
                                      .layout = (ps_weight_layout)layout,
                                      .dtype = (ps_dtype)t,
                                      .out_dtype = PS_DTYPE_F32,
                                      .bias = true};
            check_all(&deep);
        }
}

static void test_gradient_over_parameter(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            linear_case difference = {.rows = odd_sizes[s].rows,
                                      .n_in = odd_sizes[s].n_in,
                                      .n_out = odd_sizes[s].n_out,
                                      .dtype = (ps_dtype)t,
                                      .out_dtype = (ps_dtype)t,
                                      .bias = true};
            linear_case over = difference;
            over.over = true;
            label_case(&over);
            op_check_same_bits(run_bwd_weight, &difference, &over, "over its parameter");
        }
}

static void test_bias_alone(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                linear_case all = {.rows = odd_sizes[s].rows,
                                   .n_in = odd_sizes[s].n_in,
                                   .n_out = odd_sizes[s].n_out,
                                   .dtype = (ps_dtype)t,
                                   .out_dtype = accumulate ? PS_DTYPE_F32 : (ps_dtype)t,
                                   .bias = true,
                                   .accumulate = accumulate,
                                   .no_dw = true};
                linear_case alone = all;
                alone.skips = true;
                label_case(&alone);
                op_check_same_bits(run_bwd_weight, &all, &alone, "the bias alone");
            }
}

/* ---- epilogues -------------------------------------------------------------------------------------------------- */

typedef struct epilogue_case {
    linear_case linear;
    ps_epilogue_kind kind;
    ps_gelu_kind gelu;
    bool z_wanted;   /* GELU */
    bool difference; /* as two operators */
} epilogue_case;

static void run_fwd_epilogue(ps_backend *k, const void *context, op_result *result)
{
    const epilogue_case *c = context;
    const linear_case *l = &c->linear;
    const int64_t n = l->rows * l->n_out;
    const ps_dtype t = l->dtype;
    ps_linear_fwd_args a = {.rows = l->rows, .n_in = l->n_in, .n_out = l->n_out, .layout = l->layout};
    a.dtype = a.y_dtype = t;
    a.x = op_input(t, l->rows * l->n_in, 0.3, 1);
    a.w = op_input(t, l->n_in * l->n_out, 0.3, 2);
    a.b = l->bias ? op_input(t, l->n_out, 1.0, 3) : NULL;
    void *y = a.y = op_output(t, n, false, 0), *z = op_output(t, n, false, 0);
    void *residual = op_input(t, n, 1.0, 4);
    if (!c->difference) {
        a.epilogue = (ps_linear_epilogue){.kind = c->kind, .gelu = c->gelu};
        if (c->kind == PS_EPILOGUE_ADD) a.epilogue.other = residual;
        if (c->kind == PS_EPILOGUE_GELU && c->z_wanted) a.epilogue.other = z;
    } else {
        a.y = z;
    }
    OP_RUN(k, linear_fwd, &a);
    if (c->difference && c->kind == PS_EPILOGUE_GELU)
        op_expect_ok(
            ps_run_gelu_fwd(k, NULL, &(ps_gelu_fwd_args){.y = y, .x = z, .n = n, .kind = c->gelu, .dtype = t}, 0));
    if (c->difference && c->kind == PS_EPILOGUE_ADD)
        op_expect_ok(ps_run_add(k, NULL, &(ps_add_args){.y = y, .a = z, .b = residual, .n = n, .dtype = t}, 0));
    op_record(result, "y", t, y, n, op_sum_error((double)l->n_in) + op_ulp(t) * 8.0);
    if (c->z_wanted) op_record(result, "z", t, z, n, op_sum_error((double)l->n_in) + addition_error(t, l->bias));
}

static void run_bwd_input_epilogue(ps_backend *k, const void *context, op_result *result)
{
    const epilogue_case *c = context;
    const linear_case *l = &c->linear;
    const int64_t n = l->rows * l->n_in;
    const ps_dtype t = l->dtype;
    ps_linear_bwd_input_args a = {.rows = l->rows, .n_in = l->n_in, .n_out = l->n_out, .layout = l->layout, .dtype = t};
    a.dy = op_input(t, l->rows * l->n_out, 0.3, 4);
    a.w = op_input(t, l->n_in * l->n_out, 0.3, 2);
    void *dx = a.dx = op_output(t, n, false, 5), *dz = op_output(t, n, false, 5);
    void *x = op_input(t, n, 1.0, 6);
    if (c->difference)
        a.dx = dz;
    else
        a.epilogue = (ps_linear_epilogue){.kind = PS_EPILOGUE_GELU_BWD, .gelu = c->gelu, .other = x};
    OP_RUN(k, linear_bwd_input, &a);
    if (c->difference)
        op_expect_ok(ps_run_gelu_bwd(
            k, NULL, &(ps_gelu_bwd_args){.dx = dx, .dy = dz, .x = x, .n = n, .kind = c->gelu, .dtype = t}, 0));
    op_record(result, "dx", t, dx, n, 2.0 * op_sum_error((double)l->n_out) + op_ulp(t) * 8.0);
}

static bool is_unrounded(const ps_backend *k, const void *context)
{
    const epilogue_case *c = context;
    return ps_backend_epilogue_is_unrounded(k, c->kind);
}

/* Fused and as two operators: the same bits on each backend that promises them; and what the reference says. */
static void check_epilogues(linear_case l)
{
    const epilogue_case cases[] = {{l, PS_EPILOGUE_GELU, PS_GELU_TANH, true, false},
                                   {l, PS_EPILOGUE_GELU, PS_GELU_ERF, false, false},
                                   {l, PS_EPILOGUE_ADD, PS_GELU_TANH, false, false},
                                   {l, PS_EPILOGUE_GELU_BWD, PS_GELU_TANH, false, false},
                                   {l, PS_EPILOGUE_GELU_BWD, PS_GELU_ERF, false, false}};
    label_case(&l);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        epilogue_case difference = cases[i];
        difference.difference = true;
        const op_case_fn run = cases[i].kind == PS_EPILOGUE_GELU_BWD ? run_bwd_input_epilogue : run_fwd_epilogue;
        op_check_same_bits_but(run, &cases[i], &difference, "with its epilogue, and apart", is_unrounded);
        op_check_backends(run, &cases[i]);
    }
}

static void test_epilogues(void **state)
{
    (void)state;
    for (int t = 0; t < PS_DTYPE_COUNT; t++)
        for (int flags = 0; flags < 4; flags++) {
            linear_case l = {.layout = flags & 1 ? PS_WEIGHT_IN_OUT : PS_WEIGHT_OUT_IN,
                             .dtype = (ps_dtype)t,
                             .out_dtype = (ps_dtype)t,
                             .bias = flags & 2};
            for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++) {
                l.rows = odd_sizes[s].rows, l.n_in = odd_sizes[s].n_in, l.n_out = odd_sizes[s].n_out;
                check_epilogues(l);
            }
            if (flags == 1 || flags == 2) {
                l.rows = 65, l.n_in = 34, l.n_out = 130;
                check_epilogues(l);
            }
        }
}

/* Each backend that is here lists them, and the list is what is looked at. */
static void test_epilogue_lists(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int e = 0; e < PS_EPILOGUE_COUNT; e++) assert_true(ps_backend_has_epilogue(k, (ps_epilogue_kind)e));
    ps_backend_ops ops = *op_reference()->ops;
    ops.epilogues = 1u << PS_EPILOGUE_ADD;
    ops.unrounded = 1u << PS_EPILOGUE_ADD;
    const ps_backend few = {.ops = &ops};
    assert_true(ps_backend_has_epilogue(&few, PS_EPILOGUE_NONE));
    assert_true(ps_backend_has_epilogue(&few, PS_EPILOGUE_ADD));
    assert_false(ps_backend_has_epilogue(&few, PS_EPILOGUE_GELU));
    assert_false(ps_backend_has_epilogue(&few, PS_EPILOGUE_GELU_BWD));
    assert_true(ps_backend_epilogue_is_unrounded(&few, PS_EPILOGUE_ADD));
    assert_false(ps_backend_epilogue_is_unrounded(&few, PS_EPILOGUE_GELU_BWD));
    assert_false(ps_backend_epilogue_is_unrounded(&few, PS_EPILOGUE_NONE));
}

/* y = x W^T + b by hand, with one matrix in both layouts. */
static void test_layouts(void **state)
{
    (void)state;
    const float matrix[2][3] = {{1, 2, 3}, {4, 5, 6}}, input[3] = {1, 10, 100}, bias[2] = {1000, 2000};
    const float expected[2] = {1321, 2654};
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int layout = 0; layout < 2; layout++) {
            op_label("layout %d, %s", layout, name);
            float *x = op_alloc(sizeof input), *w = op_alloc(sizeof matrix), *b = op_alloc(sizeof bias);
            memcpy(x, input, sizeof input);
            memcpy(b, bias, sizeof bias);
            for (int o = 0; o < 2; o++)
                for (int in = 0; in < 3; in++) w[layout == PS_WEIGHT_OUT_IN ? o * 3 + in : in * 2 + o] = matrix[o][in];
            ps_linear_fwd_args a = {.y = op_output(PS_DTYPE_F32, 2, false, 0),
                                    .x = x,
                                    .w = w,
                                    .b = b,
                                    .rows = 1,
                                    .n_in = 3,
                                    .n_out = 2,
                                    .layout = (ps_weight_layout)layout};
            OP_RUN(k, linear_fwd, &a);
            assert_memory_equal(a.y, expected, sizeof expected);
            op_release();
        }
}

/* ---- finite differences ----------------------------------------------------------------------------------------- */

typedef struct linear_problem {
    ps_backend *k;
    ps_linear_fwd_args fwd;
    const float *dy;
} linear_problem;

static double problem_value(const void *context)
{
    const linear_problem *p = context;
    op_expect_ok(ps_run_linear_fwd(p->k, NULL, &p->fwd, op_bytes(p->k, PS_OP_linear_fwd, &p->fwd)));
    return op_dot(p->dy, p->fwd.y, p->fwd.rows * p->fwd.n_out);
}

/* y is linear in each of x, w, b: the difference quotient has no truncation error and h may be large. */
static void check_gradients(const linear_case *c)
{
    label_case(c);
    const ps_dtype t = PS_DTYPE_F32;
    const int64_t n_x = c->rows * c->n_in, n_y = c->rows * c->n_out, n_w = c->n_in * c->n_out;
    float *x = op_random(t, n_x, 0, 1, 1), *w = op_random(t, n_w, 0, 1, 2), *b = op_random(t, c->n_out, 0, 1, 3);
    linear_problem p = {.dy = op_input(t, n_y, 1, 4)};
    p.k = op_reference();
    p.fwd = (ps_linear_fwd_args){.y = op_output(t, n_y, false, 0),
                                 .x = x,
                                 .w = w,
                                 .b = c->bias ? b : NULL,
                                 .rows = c->rows,
                                 .n_in = c->n_in,
                                 .n_out = c->n_out,
                                 .layout = c->layout,
                                 .dtype = t,
                                 .y_dtype = t};
    p.fwd.workspace = op_workspace(p.k, PS_OP_linear_fwd, &p.fwd);
    ps_linear_bwd_input_args to_x = {.dx = op_output(t, n_x, c->accumulate, 5),
                                     .dy = p.dy,
                                     .w = w,
                                     .rows = c->rows,
                                     .n_in = c->n_in,
                                     .n_out = c->n_out,
                                     .layout = c->layout,
                                     .dtype = t,
                                     .accumulate_dx = c->accumulate};
    OP_RUN(p.k, linear_bwd_input, &to_x);
    ps_linear_bwd_weight_args to_w = {.dw = op_output(t, n_w, c->accumulate, 6),
                                      .db = c->bias ? op_output(t, c->n_out, c->accumulate, 7) : NULL,
                                      .dy = p.dy,
                                      .x = x,
                                      .rows = c->rows,
                                      .n_in = c->n_in,
                                      .n_out = c->n_out,
                                      .layout = c->layout,
                                      .dtype = t,
                                      .grad_dtype = t,
                                      .accumulate_grad = c->accumulate};
    OP_RUN(p.k, linear_bwd_weight, &to_w);
    const float *dx0 = c->accumulate ? op_output(t, n_x, true, 5) : NULL;
    const float *dw0 = c->accumulate ? op_output(t, n_w, true, 6) : NULL;
    const float *db0 = c->accumulate ? op_output(t, c->n_out, true, 7) : NULL;
    op_check_gradient("dx", problem_value, &p, x, to_x.dx, dx0, n_x, 0.5f, 1e-4);
    op_check_gradient("dw", problem_value, &p, w, to_w.dw, dw0, n_w, 0.5f, 1e-4);
    if (c->bias) op_check_gradient("db", problem_value, &p, b, to_w.db, db0, c->n_out, 0.5f, 1e-4);
    op_release();
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_sizes); s++)
        for (int flags = 0; flags < 8; flags++) {
            const linear_case c = {.rows = odd_sizes[s].rows,
                                   .n_in = odd_sizes[s].n_in,
                                   .n_out = odd_sizes[s].n_out,
                                   .layout = flags & 1 ? PS_WEIGHT_IN_OUT : PS_WEIGHT_OUT_IN,
                                   .bias = flags & 2,
                                   .accumulate = flags & 4};
            check_gradients(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_backends_odd_sizes),
        cmocka_unit_test(test_backends_real_sizes),
        cmocka_unit_test(test_gradient_over_parameter),
        cmocka_unit_test(test_bias_alone),
        cmocka_unit_test(test_epilogues),
        cmocka_unit_test(test_epilogue_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
