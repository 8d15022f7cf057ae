#include "base/compact.h"
#include "kernel/op_check.h"

typedef struct sgd_case {
    int64_t n;
    ps_dtype param_dtype, grad_dtype;
    bool has_buffer, nesterov;
    bool over;     /* param overlaps grad */
    int64_t piece; /* 0: in one call; else the longest piece, of groups where the state is compact */
    bool is_compact;
} sgd_case;

static void label_case(const sgd_case *c)
{
    op_label("n %lld grad %s param %s%s%s%s%s piece %lld", (long long)c->n, ps_dtype_name(c->grad_dtype),
             ps_dtype_name(c->param_dtype), c->has_buffer ? " buffer" : "", c->nesterov ? " nesterov" : "",
             c->over ? " over" : "", c->is_compact ? " compact" : "", (long long)c->piece);
}

static ps_item item_of(bool is_compact)
{
    return ps_format_item(is_compact ? PS_FORMAT_SIGNED : PS_FORMAT_F32);
}

/* Random floats, or groups of them. */
static void *state_of(const sgd_case *c)
{
    float *const x = op_random(PS_DTYPE_F32, c->n, 0.0, 1.0, 3);
    if (!c->is_compact) return x;
    void *const groups = op_alloc((size_t)ps_item_bytes(item_of(true), c->n));
    ps_format_encode(PS_FORMAT_SIGNED, groups, x, c->n);
    return groups;
}

/* All bytes of groups. */
static void record_state(op_result *result, const sgd_case *c, const void *values, double error)
{
    if (!c->is_compact) {
        op_record(result, "buffer", PS_DTYPE_F32, values, c->n, error);
        return;
    }
    const int64_t n = ps_item_bytes(item_of(true), c->n);
    float *const bytes = op_alloc((size_t)n * sizeof *bytes);
    for (int64_t i = 0; i < n; i++) bytes[i] = (float)((const uint8_t *)values)[i];
    op_record_exact(result, "buffer", PS_DTYPE_F32, bytes, n);
}

static ps_sgd_args piece_of(const ps_sgd_args *a, int64_t first, int64_t n)
{
    ps_sgd_args p = *a;
    p.param = (char *)a->param + first * (int64_t)ps_dtype_bytes(a->param_dtype);
    p.grad = (const char *)a->grad + first * (int64_t)ps_dtype_bytes(a->grad_dtype);
    p.master += first, p.n = n;
    if (a->buffer != NULL) p.buffer = (char *)a->buffer + ps_item_offset(item_of(a->is_compact), first);
    return p;
}

static void run_sgd(ps_backend *k, const void *context, op_result *result)
{
    const sgd_case *c = context;
    ps_sgd_args a = {.n = c->n,
                     .lr = 1e-2f,
                     .momentum = 0.9f,
                     .one_minus_dampening = c->nesterov ? 1.0f : 0.75f,
                     .weight_decay = 0.1f,
                     .grad_scale = 1.0f / 128.0f,
                     .nesterov = c->nesterov,
                     .is_compact = c->is_compact,
                     .param_dtype = c->param_dtype,
                     .grad_dtype = c->grad_dtype};
    void *grad = op_random(c->grad_dtype, c->n, 0.0, 128.0, 1);
    a.grad = grad;
    a.param = c->over ? grad : op_output(c->param_dtype, c->n, false, 0);
    a.master = op_random(PS_DTYPE_F32, c->n, 0.0, 1.0, 2);
    if (c->has_buffer) a.buffer = state_of(c);
    for (int64_t first = 0, turn = 0; first < c->n; turn++) {
        const int64_t longest = (turn * turn % ps_max_i64(c->piece, 1) + 1) * (c->is_compact ? PS_FORMAT_GROUP : 1);
        const int64_t n = c->piece == 0 ? c->n : ps_min_i64(c->n - first, longest);
        const ps_sgd_args p = piece_of(&a, first, n);
        op_expect_ok(ps_run_sgd(k, NULL, &p, 0));
        first += n;
    }
    const double rounding = c->is_compact ? -1.0 : op_sum_error(0.5);
    if (c->has_buffer) record_state(result, c, a.buffer, rounding);
    op_record(result, "master", PS_DTYPE_F32, a.master, c->n, rounding);
    op_record(result, "param", c->param_dtype, a.param, c->n, rounding);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT * PS_DTYPE_COUNT; t++)
            for (int kind = 0; kind < 5; kind++) {
                const sgd_case c = {.n = sizes[s],
                                    .param_dtype = (ps_dtype)(t / PS_DTYPE_COUNT),
                                    .grad_dtype = (ps_dtype)(t % PS_DTYPE_COUNT),
                                    .has_buffer = kind > 0,
                                    .nesterov = kind == 2 || kind == 4,
                                    .is_compact = kind > 2};
                label_case(&c);
                op_check_backends(run_sgd, &c);
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
            const sgd_case whole = {.n = sizes[s],
                                    .param_dtype = (ps_dtype)t,
                                    .grad_dtype = (ps_dtype)t,
                                    .has_buffer = true,
                                    .is_compact = is_compact};
            for (int64_t piece = 1; piece <= 101; piece += 20) {
                sgd_case cut = whole;
                cut.piece = piece, cut.over = piece % 40 == 1;
                label_case(&cut);
                op_check_same_bits(run_sgd, &whole, &cut, "cut in pieces");
            }
        }
}

/* One step, from the formulas in double. */
static void test_values(void **state)
{
    (void)state;
    enum { N = 37 };
    const double lr = 0.25, momentum = 0.75, decay = 0.5, scale = 0.5;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int kind = 0; kind < 4; kind++) {
            const bool has_buffer = kind > 0, nesterov = kind == 3;
            const double dampening = kind == 2 ? 0.25 : 0;
            op_label("values, %s, kind %d", name, kind);
            const float *grad = op_input(PS_DTYPE_F32, N, 4.0, 1), *w0 = op_input(PS_DTYPE_F32, N, 1.0, 2);
            const float *m0 = op_input(PS_DTYPE_F32, N, 1.0, 3);
            float *master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2), *m = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 3);
            const ps_sgd_args a = {.param = op_alloc(N * 4),
                                   .grad = grad,
                                   .master = master,
                                   .buffer = has_buffer ? m : NULL,
                                   .n = N,
                                   .lr = (float)lr,
                                   .momentum = (float)momentum,
                                   .one_minus_dampening = (float)(1 - dampening),
                                   .weight_decay = (float)decay,
                                   .grad_scale = (float)scale,
                                   .nesterov = nesterov};
            op_expect_ok(ps_run_sgd(k, NULL, &a, 0));
            for (int j = 0; j < N; j++) {
                const double w = (double)w0[j], g = scale * (double)grad[j] + decay * w;
                const double buffer = momentum * (double)m0[j] + (1 - dampening) * g;
                const double d = !has_buffer ? g : nesterov ? g + momentum * buffer : buffer;
                if (has_buffer) assert_true(fabs((double)m[j] - buffer) < 2e-6);
                assert_true(fabs((double)master[j] - (w - lr * d)) < 2e-6);
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
        const sgd_case c = {.n = N, .is_compact = true};
        void *const groups = state_of(&c), *const want = op_alloc((size_t)ps_item_bytes(item_of(true), N));
        float *const x = op_alloc(N * sizeof *x);
        ps_format_decode(PS_FORMAT_SIGNED, groups, 0, x, N);
        ps_sgd_args a = {.param = op_alloc(N * sizeof(float)),
                         .grad = op_input(PS_DTYPE_F32, N, 4.0, 1),
                         .master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2),
                         .buffer = x,
                         .n = N,
                         .lr = 0.25f,
                         .momentum = 0.75f,
                         .one_minus_dampening = 0.5f,
                         .weight_decay = 0.5f,
                         .grad_scale = 0.5f,
                         .nesterov = true};
        ps_sgd_args compact = a;
        compact.param = op_alloc(N * sizeof(float)), compact.master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2);
        compact.buffer = groups, compact.is_compact = true;
        op_expect_ok(ps_run_sgd(k, NULL, &a, 0));
        op_expect_ok(ps_run_sgd(k, NULL, &compact, 0));
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
