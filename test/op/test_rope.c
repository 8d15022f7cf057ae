#include "op/op_check.h"

typedef struct rope_case {
    int64_t B, T, H, D;
    bool inverse, accumulate, in_place;
    ps_dtype dtype;
} rope_case;

static void label_case(const rope_case *c)
{
    op_label("B %lld T %lld H %lld D %lld%s%s %s", (long long)c->B, (long long)c->T, (long long)c->H, (long long)c->D,
             c->inverse ? " inverse" : "", c->accumulate ? " accumulate" : "", ps_dtype_name(c->dtype));
}

/* As models have them: from 1 down to about 1 / theta. */
static float *frequencies(int64_t D, double theta)
{
    float *f = op_alloc((size_t)(D / 2) * sizeof *f);
    for (int64_t i = 0; i < D / 2; i++) f[i] = (float)pow(theta, -2.0 * (double)i / (double)D);
    op_mark_input();
    return f;
}

static void run(const ps_kernels *k, const void *context, op_result *result)
{
    const rope_case *c = context;
    const int64_t n = c->B * c->T * c->H * c->D;
    void *x = c->in_place ? op_random(c->dtype, n, 0.0, 1.0, 1) : op_input(c->dtype, n, 1.0, 1);
    ps_rope_args a = {.y = c->in_place ? x : op_output(c->dtype, n, c->accumulate, 2),
                      .x = x,
                      .inv_freq = frequencies(c->D, 10000.0),
                      .B = c->B,
                      .T = c->T,
                      .H = c->H,
                      .D = c->D,
                      .inverse = c->inverse,
                      .accumulate = c->accumulate,
                      .dtype = c->dtype};
    OP_RUN(k, rope, &a);
    /* two products and sums of values below 3, with a cosine and a sine rounded to float */
    op_record(result, "y", c->dtype, a.y, n, op_sum_error(9.0));
}

static const rope_case cases[] = {{.B = 1, .T = 1, .H = 1, .D = 2},    {.B = 2, .T = 7, .H = 3, .D = 4},
                                  {.B = 1, .T = 130, .H = 2, .D = 24}, {.B = 2, .T = 65, .H = 3, .D = 64},
                                  {.B = 1, .T = 9, .H = 2, .D = 80},   {.B = 1, .T = 33, .H = 2, .D = 128},
                                  {.B = 0, .T = 5, .H = 2, .D = 8},    {.B = 1, .T = 3, .H = 1, .D = 258}};

static void test_backends(void **state)
{
    (void)state;
    for (int t = 0; t < PS_DTYPE_COUNT; t++)
        for (size_t s = 0; s < PS_ARRAY_LEN(cases); s++)
            for (int flags = 0; flags < 4; flags++) {
                rope_case c = cases[s], in_place;
                c.inverse = flags & 1, c.accumulate = flags & 2, c.dtype = (ps_dtype)t;
                label_case(&c);
                op_check_backends(run, &c);
                if (c.accumulate) continue;
                in_place = c;
                in_place.in_place = true;
                op_check_same_bits(run, &c, &in_place, "y over x");
            }
}

static void rotate(const ps_kernels *k, int64_t T, int64_t D, bool inverse, const float *inv_freq, const float *x,
                   float *y)
{
    ps_rope_args a = {.y = y, .x = x, .inv_freq = inv_freq, .B = 1, .T = T, .H = 1, .D = D, .inverse = inverse};
    OP_RUN(k, rope, &a);
}

/* Positions as far as long contexts go: against cosine and sine of the C library, and there and back again. */
static void test_far_positions(void **state)
{
    (void)state;
    enum { T = 40000, D = 8 };
    ps_kernels k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("far positions, %s", name);
        const float *f = frequencies(D, 500000.0), *x = op_input(PS_DTYPE_F32, T * D, 1.0, 1);
        float *y = op_alloc(sizeof(float) * T * D), *back = op_alloc(sizeof(float) * T * D);
        rotate(&k, T, D, false, f, x, y);
        rotate(&k, T, D, true, f, y, back);
        for (int64_t t = 0; t < T; t++)
            for (int64_t d = 0; d < D / 2; d++) {
                const double angle = (double)t * (double)f[d], x0 = (double)x[t * D + d],
                             x1 = (double)x[t * D + d + D / 2];
                assert_true(fabs((double)y[t * D + d] - (x0 * cos(angle) - x1 * sin(angle))) < 2e-6);
                assert_true(fabs((double)y[t * D + d + D / 2] - (x1 * cos(angle) + x0 * sin(angle))) < 2e-6);
                assert_true(fabs((double)back[t * D + d] - x0) < 2e-6);
            }
        op_release();
    }
}

/* Backward is the transposed matrix: dy . rope(x) = rope^-1(dy) . x for every x and dy. */
static void test_inverse_is_the_gradient(void **state)
{
    (void)state;
    enum { T = 50, D = 24, N = T * D };
    ps_kernels k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("gradient, %s", name);
        const float *f = frequencies(D, 10000.0), *x = op_input(PS_DTYPE_F32, N, 1.0, 1),
                    *dy = op_input(PS_DTYPE_F32, N, 1.0, 2);
        float *y = op_alloc(sizeof(float) * N), *dx = op_alloc(sizeof(float) * N);
        rotate(&k, T, D, false, f, x, y);
        rotate(&k, T, D, true, f, dy, dx);
        double forward = 0, backward = 0;
        for (int64_t j = 0; j < N; j++) {
            forward += (double)dy[j] * (double)y[j];
            backward += (double)dx[j] * (double)x[j];
        }
        assert_true(fabs(forward - backward) < 1e-4);
        assert_true(fabs(forward) > 1e-2);
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_far_positions),
        cmocka_unit_test(test_inverse_is_the_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
