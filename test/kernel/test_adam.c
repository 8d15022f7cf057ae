#include "kernel/op_check.h"

typedef struct adam_case {
    int64_t n;
    ps_dtype param_dtype, grad_dtype;
    bool decoupled_decay;
    bool over;     /* param overlaps grad */
    int64_t piece; /* 0: in one call; else the longest piece */
    float beta1;
} adam_case;

static void label_case(const adam_case *c)
{
    op_label("n %lld grad %s param %s%s%s piece %lld", (long long)c->n, ps_dtype_name(c->grad_dtype),
             ps_dtype_name(c->param_dtype), c->decoupled_decay ? " decoupled" : "", c->over ? " over" : "",
             (long long)c->piece);
}

static ps_adam_args piece_of(const ps_adam_args *a, int64_t first, int64_t n)
{
    ps_adam_args p = *a;
    p.param = (char *)a->param + first * (int64_t)ps_dtype_bytes(a->param_dtype);
    p.grad = (const char *)a->grad + first * (int64_t)ps_dtype_bytes(a->grad_dtype);
    p.master += first, p.m += first, p.v += first, p.n = n;
    return p;
}

/* The reference fixes a sequence of float operations; a backend that fuses some of them is off by one rounding each:
 * a unit of the last place of the result, or of the terms where they cancel. */
static void run_adam(ps_backend *k, const void *context, op_result *result)
{
    const adam_case *c = context;
    const float t = 3.0f, beta2 = 0.999f;
    ps_adam_args a = {.n = c->n,
                      .lr = 1e-2f,
                      .beta1 = c->beta1,
                      .beta2 = beta2,
                      .eps = 1e-8f,
                      .weight_decay = 0.1f,
                      .one_minus_beta1 = 1.0f - c->beta1,
                      .one_minus_beta2 = 1.0f - beta2,
                      .bias1 = 1.0f - powf(c->beta1, t),
                      .bias2 = 1.0f - powf(beta2, t),
                      .grad_scale = 1.0f / 128.0f,
                      .decoupled_decay = c->decoupled_decay,
                      .param_dtype = c->param_dtype,
                      .grad_dtype = c->grad_dtype};
    void *grad = op_random(c->grad_dtype, c->n, 0.0, 128.0, 1);
    a.grad = grad;
    a.param = c->over ? grad : op_output(c->param_dtype, c->n, false, 0);
    a.master = op_random(PS_DTYPE_F32, c->n, 0.0, 1.0, 2);
    a.m = op_random(PS_DTYPE_F32, c->n, 0.0, 0.1, 3);
    a.v = op_random(PS_DTYPE_F32, c->n, 0.02, 0.003, 4);
    for (int64_t first = 0, turn = 0; first < c->n; turn++) {
        const int64_t n = c->piece == 0 ? c->n : ps_min_i64(c->n - first, turn * turn % c->piece + 1);
        const ps_adam_args p = piece_of(&a, first, n);
        op_expect_ok(ps_run_adam(k, NULL, &p, 0));
        first += n;
    }
    const double rounding = op_sum_error(0.5);
    op_record(result, "m", PS_DTYPE_F32, a.m, c->n, rounding);
    op_record(result, "v", PS_DTYPE_F32, a.v, c->n, rounding * 0.02);
    op_record(result, "master", PS_DTYPE_F32, a.master, c->n, rounding);
    op_record(result, "param", c->param_dtype, a.param, c->n, rounding);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT * PS_DTYPE_COUNT; t++)
            for (int decoupled = 0; decoupled < 2; decoupled++) {
                const adam_case c = {.n = sizes[s],
                                     .param_dtype = (ps_dtype)(t / PS_DTYPE_COUNT),
                                     .grad_dtype = (ps_dtype)(t % PS_DTYPE_COUNT),
                                     .decoupled_decay = decoupled,
                                     .beta1 = 0.9f};
                label_case(&c);
                op_check_backends(run_adam, &c);
            }
}

/* Pieces begin at any element, so also where vectors are not aligned. */
static void test_pieces_and_overlay(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const adam_case whole = {
                .n = sizes[s], .param_dtype = (ps_dtype)t, .grad_dtype = (ps_dtype)t, .beta1 = 0.9f};
            for (int64_t piece = 1; piece <= 101; piece += 20) {
                adam_case cut = whole;
                cut.piece = piece, cut.over = piece % 40 == 1;
                label_case(&cut);
                op_check_same_bits(run_adam, &whole, &cut, "cut in pieces");
            }
        }
}

/* The third step, from the formulas in double. */
static void test_values(void **state)
{
    (void)state;
    enum { N = 37 };
    const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, decay = 0.2;
    const double bias1 = 1.0 - beta1 * beta1 * beta1, bias2 = 1.0 - beta2 * beta2 * beta2;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int decoupled = 0; decoupled < 2; decoupled++) {
            op_label("values, %s", name);
            const float *grad = op_input(PS_DTYPE_F32, N, 4.0, 1), *w0 = op_input(PS_DTYPE_F32, N, 1.0, 2);
            const float *m0 = op_input(PS_DTYPE_F32, N, 1.0, 3);
            float *master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2), *m = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 3);
            float *v = op_random(PS_DTYPE_F32, N, 2.0, 0.5, 4), *v0 = op_random(PS_DTYPE_F32, N, 2.0, 0.5, 4);
            const ps_adam_args a = {.param = op_alloc(N * 4),
                                    .grad = grad,
                                    .master = master,
                                    .m = m,
                                    .v = v,
                                    .n = N,
                                    .lr = (float)lr,
                                    .beta1 = (float)beta1,
                                    .beta2 = (float)beta2,
                                    .eps = 0.125f,
                                    .weight_decay = (float)decay,
                                    .one_minus_beta1 = (float)(1.0 - beta1),
                                    .one_minus_beta2 = (float)(1.0 - beta2),
                                    .bias1 = (float)bias1,
                                    .bias2 = (float)bias2,
                                    .grad_scale = 0.5f,
                                    .decoupled_decay = decoupled};
            op_expect_ok(ps_run_adam(k, NULL, &a, 0));
            for (int j = 0; j < N; j++) {
                const double w = (double)w0[j], g = 0.5 * (double)grad[j] + (decoupled ? 0.0 : decay * w);
                const double want_m = beta1 * (double)m0[j] + (1.0 - beta1) * g;
                const double want_v = beta2 * (double)v0[j] + (1.0 - beta2) * g * g;
                const double want =
                    (decoupled ? w * (1.0 - lr * decay) : w) - lr * (want_m / bias1) / (sqrt(want_v / bias2) + 0.125);
                assert_true(fabs((double)m[j] - want_m) < 1e-6);
                assert_true(fabs((double)v[j] - want_v) < 2e-6);
                assert_true(fabs((double)master[j] - want) < 1e-6);
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
