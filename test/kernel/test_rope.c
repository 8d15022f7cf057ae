#include "kernel/op_gradient.h"

typedef struct rope_case {
    int64_t B, T, H, D, first;
    bool inverse, accumulate, in_place;
    ps_dtype dtype;
    float scale; /* 0: 1 */
} rope_case;

static void label_case(const rope_case *c)
{
    op_label("B %lld T %lld H %lld D %lld%s%s%s %s", (long long)c->B, (long long)c->T, (long long)c->H, (long long)c->D,
             c->inverse ? " inverse" : "", c->accumulate ? " accumulate" : "", c->in_place ? " in place" : "",
             ps_dtype_name(c->dtype));
}

static int64_t n_of(const rope_case *c)
{
    return c->B * c->T * c->H * c->D;
}

/* 10000^(-2 i / D), as most models have. */
static const float *make_frequencies(int64_t D)
{
    float *const f = op_alloc((size_t)(D / 2) * sizeof *f);
    for (int64_t i = 0; i < D / 2; i++) f[i] = (float)pow(10000.0, -2.0 * (double)i / (double)D);
    op_mark_input();
    return f;
}

static ps_rope_args args_of(const rope_case *c, void *y, const void *x)
{
    return (ps_rope_args){.y = y,
                          .x = x,
                          .inv_freq = make_frequencies(c->D),
                          .B = c->B,
                          .T = c->T,
                          .H = c->H,
                          .D = c->D,
                          .first = c->first,
                          .scale = c->scale != 0 ? c->scale : 1,
                          .inverse = c->inverse,
                          .accumulate = c->accumulate,
                          .dtype = c->dtype};
}

/* Values are below 3, scaled by 1.25 at most, cosine and sine rounded to float: two products, and what is added to. */
static void run_rope(ps_backend *k, const void *context, op_result *result)
{
    const rope_case *c = context;
    void *x = c->in_place ? op_random(c->dtype, n_of(c), 0.0, 1.0, 1) : op_input(c->dtype, n_of(c), 1.0, 1);
    void *y = c->in_place ? x : op_output(c->dtype, n_of(c), c->accumulate, 2);
    ps_rope_args a = args_of(c, y, x);
    OP_RUN(k, rope, &a);
    op_record(result, "y", c->dtype, y, n_of(c), 0x1p-24 * 2.0 * (1.25 * (3.0 + 3.0) + 3.0));
}

/* Less and more than a vector, than 64 frequencies, than a run of 64 positions; nothing; enough for several threads. */
static const rope_case sizes[] = {{.B = 1, .T = 1, .H = 1, .D = 2},
                                  {.B = 2, .T = 5, .H = 3, .D = 4},
                                  {.B = 2, .T = 66, .H = 2, .D = 24, .scale = 1.25f},
                                  {.B = 1, .T = 131, .H = 3, .D = 64},
                                  {.B = 2, .T = 17, .H = 1, .D = 70},
                                  {.B = 1, .T = 70, .H = 2, .D = 128, .scale = 0.75f},
                                  {.B = 1, .T = 3, .H = 1, .D = 256},
                                  {.B = 0, .T = 5, .H = 2, .D = 8},
                                  {.B = 2, .T = 0, .H = 2, .D = 8},
                                  {.B = 2, .T = 128, .H = 1, .D = 80}};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 4; flags++) {
                rope_case c = sizes[s];
                c.inverse = flags & 1, c.accumulate = flags & 2, c.dtype = (ps_dtype)t;
                label_case(&c);
                op_check_backends(run_rope, &c);
            }
}

static void test_in_place(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const rope_case difference = {.B = sizes[s].B,
                                          .T = sizes[s].T,
                                          .H = sizes[s].H,
                                          .D = sizes[s].D,
                                          .scale = sizes[s].scale,
                                          .inverse = t == 0,
                                          .dtype = (ps_dtype)t};
            rope_case over = difference;
            over.in_place = true;
            label_case(&over);
            op_check_same_bits(run_rope, &difference, &over, "y over x");
        }
}

/* The middle of a sequence by itself: the angles are those of its positions. */
static void test_first(void **state)
{
    (void)state;
    enum { T = 900, H = 2, D = 24, FIRST = 700, PART = 130 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        const rope_case all = {.B = 1, .T = T, .H = H, .D = D},
                        some = {.B = 1, .T = PART, .H = H, .D = D, .first = FIRST};
        op_label("first, %s", name);
        const float *x = op_input(PS_DTYPE_F32, n_of(&all), 1.0, 1), *part = x + FIRST * H * D;
        ps_rope_args whole = args_of(&all, op_output(PS_DTYPE_F32, n_of(&all), false, 0), x);
        OP_RUN(k, rope, &whole);
        ps_rope_args a = args_of(&some, op_output(PS_DTYPE_F32, n_of(&some), false, 0), part);
        OP_RUN(k, rope, &a);
        const float *want = (const float *)whole.y + FIRST * H * D, *got = a.y;
        for (int64_t j = 0; j < n_of(&some); j++) assert_true(fabs((double)got[j] - (double)want[j]) <= 0x1p-22);
        op_release();
    }
    const rope_case far = {.B = 2, .T = 70, .H = 1, .D = 8, .first = 100000};
    label_case(&far);
    op_check_backends(run_rope, &far);
}

/* Positions as far as models go: an angle of 131071 that were rounded to float would be wrong by 0.004. */
static void test_far_positions(void **state)
{
    (void)state;
    const rope_case c = {.B = 1, .T = 131072, .H = 1, .D = 4};
    label_case(&c);
    op_check_backends(run_rope, &c);
}

/* A pair (1, 0) becomes (cos, sin) of the position times the frequency, by long double's functions. */
static void test_angles(void **state)
{
    (void)state;
    enum { T = 20000, D = 24 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        const rope_case c = {.B = 1, .T = T, .H = 1, .D = D};
        float *x = op_alloc(sizeof(float) * T * D), *y = op_alloc(sizeof(float) * T * D);
        op_label("angles, %s", name);
        for (int j = 0; j < T * D; j++) x[j] = j % D < D / 2 ? 1.0f : 0.0f;
        ps_rope_args a = args_of(&c, y, x);
        OP_RUN(k, rope, &a);
        for (int j = 0; j < T * D; j++) {
            const long double angle = (long double)(j / D) * (long double)a.inv_freq[j % (D / 2)];
            const long double want = j % D < D / 2 ? cosl(angle) : sinl(angle);
            /* rounded once, whatever the size: relative to it, but for the error of the table itself */
            assert_true(fabsl((long double)y[j] - want) <= 0x1p-24L * fabsl(want) + 0x1p-46L);
        }
        op_release();
    }
}

/* There and back again: a rotation keeps lengths, so the errors stay those of four products in each direction. */
static void test_inverse(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        rope_case c = {.B = 2, .T = 100, .H = 3, .D = 24};
        op_label("inverse, %s", name);
        const float *x = op_input(c.dtype, n_of(&c), 1.0, 1);
        float *y = op_output(c.dtype, n_of(&c), false, 0);
        ps_rope_args there = args_of(&c, y, x);
        OP_RUN(k, rope, &there);
        c.inverse = true;
        ps_rope_args back = args_of(&c, y, y);
        OP_RUN(k, rope, &back);
        for (int64_t j = 0; j < n_of(&c); j++) assert_float_equal(y[j], x[j], op_sum_error(4.0));
        op_release();
    }
}

typedef struct rope_problem {
    ps_backend *k;
    ps_rope_args args;
    const float *dy;
} rope_problem;

static double problem_value(const void *context)
{
    const rope_problem *p = context;
    op_expect_ok(ps_run_rope(p->k, NULL, &p->args, op_bytes(p->k, PS_OP_rope, &p->args)));
    return op_dot(p->dy, p->args.y, p->args.B * p->args.T * p->args.H * p->args.D);
}

/* dx is dy turned back. The function is linear: only float noise over h is left, 2^-21 of sums near 100. */
static void test_finite_differences(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            rope_case c = sizes[s];
            label_case(&c);
            float *x = op_random(PS_DTYPE_F32, n_of(&c), 0.0, 1.0, 1);
            rope_problem p = {.args = args_of(&c, op_output(PS_DTYPE_F32, n_of(&c), false, 0), x),
                              .dy = op_input(PS_DTYPE_F32, n_of(&c), 1.0, 2)};
            p.k = op_reference();
            p.args.workspace = op_workspace(p.k, PS_OP_rope, &p.args);
            c.inverse = true, c.accumulate = accumulate;
            float *dx = op_output(PS_DTYPE_F32, n_of(&c), c.accumulate, 3);
            const float *before = op_random(PS_DTYPE_F32, n_of(&c), 0.0, 1.0, 3);
            ps_rope_args back = args_of(&c, dx, p.dy);
            OP_RUN(p.k, rope, &back);
            op_check_gradient("dx", problem_value, &p, x, dx, accumulate ? before : NULL, n_of(&c), 0x1p-5f, 1e-3);
            op_release();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_far_positions),
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_angles),
        cmocka_unit_test(test_inverse),
        cmocka_unit_test(test_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
