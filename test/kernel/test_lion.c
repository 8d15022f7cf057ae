#include "kernel/op_check.h"

typedef struct lion_case {
    int64_t n;
    ps_dtype param_dtype, grad_dtype;
    bool over;     /* param overlaps grad */
    int64_t piece; /* 0: in one call; else the longest piece */
} lion_case;

static void label_case(const lion_case *c)
{
    op_label("n %lld grad %s param %s%s piece %lld", (long long)c->n, ps_dtype_name(c->grad_dtype),
             ps_dtype_name(c->param_dtype), c->over ? " over" : "", (long long)c->piece);
}

static ps_lion_args piece_of(const ps_lion_args *a, int64_t first, int64_t n)
{
    ps_lion_args p = *a;
    p.param = (char *)a->param + first * (int64_t)ps_dtype_bytes(a->param_dtype);
    p.grad = (const char *)a->grad + first * (int64_t)ps_dtype_bytes(a->grad_dtype);
    p.master += first, p.m += first, p.n = n;
    return p;
}

static void run_lion(ps_backend *k, const void *context, op_result *result)
{
    const lion_case *c = context;
    ps_lion_args a = {.n = c->n,
                      .lr = 1e-2f,
                      .beta1 = 0.9f,
                      .beta2 = 0.99f,
                      .one_minus_beta1 = 0.1f,
                      .one_minus_beta2 = 0.01f,
                      .weight_decay = 0.1f,
                      .grad_scale = 1.0f / 128.0f,
                      .param_dtype = c->param_dtype,
                      .grad_dtype = c->grad_dtype};
    void *grad = op_random(c->grad_dtype, c->n, 0.0, 128.0, 1);
    a.grad = grad;
    a.param = c->over ? grad : op_output(c->param_dtype, c->n, false, 0);
    a.master = op_random(PS_DTYPE_F32, c->n, 0.0, 1.0, 2);
    a.m = op_random(PS_DTYPE_F32, c->n, 0.0, 1.0, 3);
    for (int64_t first = 0, turn = 0; first < c->n; turn++) {
        const int64_t n = c->piece == 0 ? c->n : ps_min_i64(c->n - first, turn * turn % c->piece + 1);
        const ps_lion_args p = piece_of(&a, first, n);
        op_expect_ok(ps_run_lion(k, NULL, &p, 0));
        first += n;
    }
    const double rounding = op_sum_error(0.5);
    op_record(result, "m", PS_DTYPE_F32, a.m, c->n, rounding);
    op_record(result, "master", PS_DTYPE_F32, a.master, c->n, rounding);
    op_record(result, "param", c->param_dtype, a.param, c->n, rounding);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT * PS_DTYPE_COUNT; t++) {
            const lion_case c = {.n = sizes[s],
                                 .param_dtype = (ps_dtype)(t / PS_DTYPE_COUNT),
                                 .grad_dtype = (ps_dtype)(t % PS_DTYPE_COUNT)};
            label_case(&c);
            op_check_backends(run_lion, &c);
        }
}

/* Pieces begin at any element, so also where vectors are not aligned. */
static void test_pieces_and_overlay(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const lion_case whole = {.n = sizes[s], .param_dtype = (ps_dtype)t, .grad_dtype = (ps_dtype)t};
            for (int64_t piece = 1; piece <= 101; piece += 20) {
                lion_case cut = whole;
                cut.piece = piece, cut.over = piece % 40 == 1;
                label_case(&cut);
                op_check_same_bits(run_lion, &whole, &cut, "cut in pieces");
            }
        }
}

/* One step, from the formulas in double; also where the direction is zero or no number. */
static void test_values(void **state)
{
    (void)state;
    enum { N = 37 };
    const double lr = 0.25, beta1 = 0.75, beta2 = 0.9, decay = 0.5, scale = 0.5;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("values, %s", name);
        float *grad = op_random(PS_DTYPE_F32, N, 0.0, 4.0, 1), *m = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 3);
        float *master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2);
        const float *w0 = op_input(PS_DTYPE_F32, N, 1.0, 2);
        grad[3] = 0, m[3] = 0, grad[5] = -0.0f, m[5] = -0.0f, m[7] = -2, grad[7] = 12; /* directions of zero */
        grad[9] = NAN, m[11] = 0, grad[11] = 0x1p-140f, m[13] = 0, grad[13] = -0x1p-140f;
        float m0[N];
        memcpy(m0, m, sizeof m0);
        const ps_lion_args a = {.param = op_alloc(N * 4),
                                .grad = grad,
                                .master = master,
                                .m = m,
                                .n = N,
                                .lr = (float)lr,
                                .beta1 = (float)beta1,
                                .beta2 = (float)beta2,
                                .weight_decay = (float)decay,
                                .one_minus_beta1 = (float)(1 - beta1),
                                .one_minus_beta2 = (float)(1 - beta2),
                                .grad_scale = (float)scale};
        op_expect_ok(ps_run_lion(k, NULL, &a, 0));
        for (int j = 0; j < N; j++) {
            const double g = scale * (double)grad[j], u = beta1 * (double)m0[j] + (1 - beta1) * g;
            const double sign = u > 0 ? 1 : u < 0 ? -1 : 0;
            const bool is_flat = j == 3 || j == 5 || j == 7 || j == 9;
            assert_true(is_flat == (sign == 0));
            const double want = (double)w0[j] - lr * (sign + decay * (double)w0[j]);
            const double mean = beta2 * (double)m0[j] + (1 - beta2) * g;
            assert_true(j == 9 ? isnan(m[j]) : fabs((double)m[j] - mean) < 2e-6);
            if (!(fabs((double)master[j] - want) < 2e-6))
                fail_msg("%s: master[%d] is %.9g, expected %.9g", name, j, (double)master[j], want);
            assert_true(((const float *)a.param)[j] == master[j]);
        }
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_pieces_and_overlay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
