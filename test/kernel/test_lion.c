#include "base/compact.h"
#include "kernel/op_check.h"

typedef struct lion_case {
    int64_t n;
    ps_dtype param_dtype, grad_dtype;
    bool over;     /* param overlaps grad */
    int64_t piece; /* 0: in one call; else the longest piece, of groups where the state is compact */
    bool is_compact;
} lion_case;

static void label_case(const lion_case *c)
{
    op_label("n %lld grad %s param %s%s%s piece %lld", (long long)c->n, ps_dtype_name(c->grad_dtype),
             ps_dtype_name(c->param_dtype), c->over ? " over" : "", c->is_compact ? " compact" : "",
             (long long)c->piece);
}

static ps_item item_of(bool is_compact)
{
    return ps_format_item(is_compact ? PS_FORMAT_SIGNED : PS_FORMAT_F32);
}

/* Random floats, or groups of them. */
static void *state_of(const lion_case *c)
{
    float *const x = op_random(PS_DTYPE_F32, c->n, 0.0, 1.0, 3);
    if (!c->is_compact) return x;
    void *const groups = op_alloc((size_t)ps_item_bytes(item_of(true), c->n));
    ps_format_encode(PS_FORMAT_SIGNED, groups, x, c->n);
    return groups;
}

/* All bytes of groups. */
static void record_state(op_result *result, const lion_case *c, const void *values, double error)
{
    if (!c->is_compact) {
        op_record(result, "m", PS_DTYPE_F32, values, c->n, error);
        return;
    }
    const int64_t n = ps_item_bytes(item_of(true), c->n);
    float *const bytes = op_alloc((size_t)n * sizeof *bytes);
    for (int64_t i = 0; i < n; i++) bytes[i] = (float)((const uint8_t *)values)[i];
    op_record_exact(result, "m", PS_DTYPE_F32, bytes, n);
}

static ps_lion_args piece_of(const ps_lion_args *a, int64_t first, int64_t n)
{
    ps_lion_args p = *a;
    p.param = (char *)a->param + first * (int64_t)ps_dtype_bytes(a->param_dtype);
    p.grad = (const char *)a->grad + first * (int64_t)ps_dtype_bytes(a->grad_dtype);
    p.master += first, p.n = n;
    p.m = (char *)a->m + ps_item_offset(item_of(a->is_compact), first);
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
                      .is_compact = c->is_compact,
                      .param_dtype = c->param_dtype,
                      .grad_dtype = c->grad_dtype};
    void *grad = op_random(c->grad_dtype, c->n, 0.0, 128.0, 1);
    a.grad = grad;
    a.param = c->over ? grad : op_output(c->param_dtype, c->n, false, 0);
    a.master = op_random(PS_DTYPE_F32, c->n, 0.0, 1.0, 2);
    a.m = state_of(c);
    for (int64_t first = 0, turn = 0; first < c->n; turn++) {
        const int64_t longest = (turn * turn % ps_max_i64(c->piece, 1) + 1) * (c->is_compact ? PS_FORMAT_GROUP : 1);
        const int64_t n = c->piece == 0 ? c->n : ps_min_i64(c->n - first, longest);
        const ps_lion_args p = piece_of(&a, first, n);
        op_expect_ok(ps_run_lion(k, NULL, &p, 0));
        first += n;
    }
    const double rounding = c->is_compact ? -1.0 : op_sum_error(0.5);
    record_state(result, c, a.m, rounding);
    op_record(result, "master", PS_DTYPE_F32, a.master, c->n, rounding);
    op_record(result, "param", c->param_dtype, a.param, c->n, rounding);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT * PS_DTYPE_COUNT; t++) {
            lion_case c = {.n = sizes[s],
                           .param_dtype = (ps_dtype)(t / PS_DTYPE_COUNT),
                           .grad_dtype = (ps_dtype)(t % PS_DTYPE_COUNT)};
            label_case(&c);
            op_check_backends(run_lion, &c);
            c.is_compact = true;
            label_case(&c);
            op_check_backends(run_lion, &c);
        }
}

/* Pieces begin at any element, so also where vectors are not aligned. */
static void test_pieces_and_overlay(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int k = 0; k < 2 * PS_DTYPE_COUNT; k++) {
            const int t = k / 2;
            const bool is_compact = k % 2 != 0;
            const lion_case whole = {
                .n = sizes[s], .param_dtype = (ps_dtype)t, .grad_dtype = (ps_dtype)t, .is_compact = is_compact};
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

/* An update of groups is one of the floats that they stand for, whose state is rounded afterwards. */
static void test_compact_as_floats(void **state)
{
    (void)state;
    enum { N = 1001 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("compact as floats, %s", name);
        const lion_case c = {.n = N, .is_compact = true};
        void *const groups = state_of(&c), *const want = op_alloc((size_t)ps_item_bytes(item_of(true), N));
        float *const x = op_alloc(N * sizeof *x);
        ps_format_decode(PS_FORMAT_SIGNED, groups, 0, x, N);
        ps_lion_args a = {.param = op_alloc(N * sizeof(float)),
                          .grad = op_input(PS_DTYPE_F32, N, 4.0, 1),
                          .master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2),
                          .m = x,
                          .n = N,
                          .lr = 0.25f,
                          .beta1 = 0.75f,
                          .beta2 = 0.9f,
                          .one_minus_beta1 = 0.25f,
                          .one_minus_beta2 = 0.1f,
                          .weight_decay = 0.5f,
                          .grad_scale = 0.5f};
        ps_lion_args compact = a;
        compact.param = op_alloc(N * sizeof(float)), compact.master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2);
        compact.m = groups, compact.is_compact = true;
        op_expect_ok(ps_run_lion(k, NULL, &a, 0));
        op_expect_ok(ps_run_lion(k, NULL, &compact, 0));
        ps_format_encode(PS_FORMAT_SIGNED, want, x, N);
        assert_memory_equal(groups, want, (size_t)ps_item_bytes(item_of(true), N));
        assert_memory_equal(compact.master, a.master, N * sizeof(float));
        assert_memory_equal(compact.param, a.param, N * sizeof(float));
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_compact_as_floats),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_pieces_and_overlay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
