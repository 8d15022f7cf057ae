#include "base/compact.h"
#include "base/split.h"
#include "base/stochastic.h"
#include "kernel/op_check.h"

typedef struct adam_case {
    int64_t n;
    ps_dtype param_dtype, grad_dtype;
    bool decoupled_decay;
    bool over;     /* param overlaps grad */
    int64_t piece; /* 0: in one call; else the longest piece, of groups where the states are compact */
    bool is_compact;
    bool is_split;      /* and compact, of bf16 */
    bool is_stochastic; /* of bf16 */
    float beta1;
} adam_case;

static void label_case(const adam_case *c)
{
    op_label("n %lld grad %s param %s%s%s%s piece %lld", (long long)c->n, ps_dtype_name(c->grad_dtype),
             ps_dtype_name(c->param_dtype), c->decoupled_decay ? " decoupled" : "", c->over ? " over" : "",
             c->is_split        ? " split"
             : c->is_compact    ? " compact"
             : c->is_stochastic ? " stochastic"
                                : "",
             (long long)c->piece);
}

static ps_adam_args piece_of(const ps_adam_args *a, int64_t first, int64_t n)
{
    ps_adam_args p = *a;
    p.param = (char *)a->param + first * (int64_t)ps_dtype_bytes(a->param_dtype);
    p.grad = (const char *)a->grad + first * (int64_t)ps_dtype_bytes(a->grad_dtype);
    const ps_item item = ps_format_item(a->is_stochastic ? PS_FORMAT_BF16
                                        : a->is_compact  ? PS_FORMAT_SIGNED
                                                         : PS_FORMAT_F32);
    p.m = (char *)a->m + ps_item_offset(item, first), p.v = (char *)a->v + ps_item_offset(item, first);
    if (a->master != NULL) p.master += first;
    if (a->low != NULL) p.low += first;
    p.n = n;
    p.first += first;
    return p;
}

/* Random floats, or groups of them, with zeros in some. */
static void *states_of(const adam_case *c, ps_format format, double mean, double spread, uint64_t seed)
{
    float *x = op_random(PS_DTYPE_F32, c->n, mean, spread, seed);
    if (c->is_stochastic) return op_random(PS_DTYPE_BF16, c->n, mean, spread, seed);
    if (!c->is_compact) return x;
    for (int64_t i = 0; i < c->n; i++)
        if (i % 96 < 33) x[i] = 0;
    void *groups = op_alloc((size_t)ps_format_bytes(format, c->n));
    ps_format_encode(format, groups, x, c->n);
    return groups;
}

/* Codes and scales of compact states, so that results are equal only if all of their bytes are. */
static void record_state(op_result *result, const char *name, const adam_case *c, const void *values, double error)
{
    if (c->is_stochastic) {
        op_record_exact(result, name, PS_DTYPE_BF16, values, c->n);
        return;
    }
    if (!c->is_compact) {
        op_record(result, name, PS_DTYPE_F32, values, c->n, error);
        return;
    }
    const ps_compact_group *g = values;
    const int64_t n_groups = ps_ceil_div(c->n, PS_FORMAT_GROUP), width = PS_FORMAT_GROUP + 1;
    float *bytes = op_alloc((size_t)(n_groups * width) * sizeof *bytes);
    for (int64_t i = 0; i < n_groups * width; i++) {
        const ps_compact_group *at = &g[i / width];
        bytes[i] = i % width == PS_FORMAT_GROUP ? at->scale : (float)at->codes[i % width];
    }
    op_record_exact(result, name, PS_DTYPE_F32, bytes, n_groups * width);
}

/* Masters half-way between two bf16 numbers among them, subnormal numbers, and what rounds to infinity. */
static void split_masters(const adam_case *c, ps_adam_args *a)
{
    static const uint32_t odd[] = {0x3f808000, 0x3f818000, 0x80000001, 0x00008000, 0x00018000,
                                   0x7f7fffff, 0x7f7f8000, 0xff7f9000, 0x80000000};
    /* with decay in the gradient the largest ones would make moments that are not finite */
    for (int64_t i = 0; i < c->n && c->decoupled_decay; i += 3)
        memcpy(&a->master[i], &odd[i % (int64_t)PS_ARRAY_LEN(odd)], sizeof(float));
    a->low = op_alloc((size_t)c->n * sizeof *a->low);
    ps_split_all(a->master, a->param, a->low, c->n);
    a->master = NULL;
}

static float *joined_masters(const adam_case *c, const ps_adam_args *a)
{
    float *const x = op_alloc((size_t)c->n * sizeof *x);
    ps_split_join_all(a->param, a->low, x, c->n);
    return x;
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
                      .is_compact = c->is_compact,
                      .is_stochastic = c->is_stochastic,
                      .first = (INT64_C(1) << 33) + 20,
                      .key = {7, UINT64_C(0xc123456789abcdef)},
                      .param_dtype = c->param_dtype,
                      .grad_dtype = c->grad_dtype};
    void *grad = op_random(c->grad_dtype, c->n, 0.0, 128.0, 1);
    a.grad = grad;
    a.param = c->over ? grad : op_output(c->param_dtype, c->n, false, 0);
    if (c->is_stochastic)
        a.param = op_random(PS_DTYPE_BF16, c->n, 0.0, 1.0, 2);
    else
        a.master = op_random(PS_DTYPE_F32, c->n, 0.0, 1.0, 2);
    if (c->is_split) split_masters(c, &a);
    a.m = states_of(c, PS_FORMAT_SIGNED, 0.0, 0.1, 3);
    a.v = states_of(c, PS_FORMAT_ROOT, 0.02, 0.003, 4);
    const bool has_groups = c->is_compact || c->is_stochastic;
    for (int64_t first = 0, turn = 0; first < c->n; turn++) {
        const int64_t longest = turn * turn % ps_max_i64(c->piece, 1) + 1;
        const int64_t n =
            c->piece == 0 ? c->n : ps_min_i64(c->n - first, has_groups ? longest * PS_FORMAT_GROUP : longest);
        const ps_adam_args p = piece_of(&a, first, n);
        op_expect_ok(ps_run_adam(k, NULL, &p, 0));
        first += n;
    }
    const double rounding = op_sum_error(0.5);
    record_state(result, "m", c, a.m, rounding);
    record_state(result, "v", c, a.v, rounding * 0.02);
    const double exact = -1.0;
    if (c->is_split) a.master = joined_masters(c, &a);
    if (a.master != NULL) op_record(result, "master", PS_DTYPE_F32, a.master, c->n, c->is_compact ? exact : rounding);
    op_record(result, "param", c->param_dtype, a.param, c->n, has_groups ? exact : rounding);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT * PS_DTYPE_COUNT; t++)
            for (int kind = 0; kind < 4; kind++) {
                const adam_case c = {.n = sizes[s],
                                     .param_dtype = (ps_dtype)(t / PS_DTYPE_COUNT),
                                     .grad_dtype = (ps_dtype)(t % PS_DTYPE_COUNT),
                                     .decoupled_decay = kind % 2 != 0,
                                     .is_compact = kind / 2 != 0,
                                     .beta1 = 0.9f};
                label_case(&c);
                op_check_backends(run_adam, &c);
            }
}

/* Of gradients in either type, whole and in pieces. */
static void vary_bf16(bool is_split)
{
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT * 2; t++) {
            const adam_case whole = {.n = sizes[s],
                                     .param_dtype = PS_DTYPE_BF16,
                                     .grad_dtype = (ps_dtype)(t / 2),
                                     .decoupled_decay = t % 2 != 0,
                                     .is_compact = is_split,
                                     .is_split = is_split,
                                     .is_stochastic = !is_split,
                                     .beta1 = 0.9f};
            label_case(&whole);
            op_check_backends(run_adam, &whole);
            adam_case cut = whole;
            cut.piece = 41;
            op_check_same_bits(run_adam, &whole, &cut, "cut in pieces");
        }
}

static void test_split(void **state)
{
    (void)state;
    vary_bf16(true);
}

static void test_stochastic(void **state)
{
    (void)state;
    vary_bf16(false);
}

/* ---- stochastic, in double ---- */

enum { DRAWN = 1 << 16, OF_EACH = 1 << 12, VALUES = DRAWN / OF_EACH };

typedef struct drawn_sums {
    double want, mean, square, neighbours[2]; /* of an array's elements with the same value */
} drawn_sums;

static void add_up(drawn_sums *s, double want, float got)
{
    const double size = fabs(want) * 0x1p-7; /* two neighbours are at most this far from each other */
    assert_true(fabs((double)got - want) <= size);
    assert_true(((double)got >= want ? s->neighbours[1] == 0 : s->neighbours[0] == 0) ||
                s->neighbours[(double)got >= want] == (double)got);
    s->neighbours[(double)got >= want] = (double)got;
    s->want = want;
    s->mean += (double)got / OF_EACH;
}

/* The mean of the draws is the value, and it is one of its two neighbours: within 5 deviations of a mean of OF_EACH
 * draws between neighbours, of which the value is a part p of the way, sqrt(p (1 - p) / OF_EACH). */
static void expect_unbiased(const drawn_sums *s, const char *name, const char *what)
{
    const double gap = s->neighbours[1] - s->neighbours[0];
    if (s->neighbours[0] == 0 || s->neighbours[1] == 0) { /* all the same: a bf16 value, or next to one */
        assert_true(fabs(s->mean - s->want) <= fabs(s->want) * 0x1p-15);
        return;
    }
    const double p = (s->want - s->neighbours[0]) / gap, deviation = sqrt(p * (1 - p) / OF_EACH) * gap;
    if (fabs(s->mean - s->want) > 5 * deviation + fabs(s->want) * 0x1p-20)
        fail_msg("%s, %s: mean %.9g of %.9g, expected within %.3g", name, what, s->mean, s->want, 5 * deviation);
}

/* A step of VALUES elements, OF_EACH times each, from the formulas in double: what is stored is right in the mean, and
 * the errors of parameter, momentum and variance are not correlated. */
static void test_stochastic_values(void **state)
{
    (void)state;
    const double lr = 1e-4, beta1 = 0.9, beta2 = 0.999, decay = 0.1, bias1 = 0.271, bias2 = 0.002997;
    ps_backend *k;
    char name[64];
    for (int b = 0; op_backend(b, &k, name); b++) {
        op_label("stochastic values, %s", name);
        uint16_t *const w = op_alloc(DRAWN * 2), *const m = op_alloc(DRAWN * 2), *const v = op_alloc(DRAWN * 2);
        uint16_t *const w0 = op_random(PS_DTYPE_BF16, VALUES, 0.0, 1.0, 2);
        uint16_t *const m0 = op_random(PS_DTYPE_BF16, VALUES, 0.0, 0.1, 3);
        uint16_t *const v0 = op_random(PS_DTYPE_BF16, VALUES, 0.02, 0.003, 4);
        float *const grad = op_alloc(DRAWN * 4), *const grad0 = op_random(PS_DTYPE_F32, VALUES, 0.0, 0.2, 5);
        for (int i = 0; i < DRAWN; i++) {
            const int j = i % VALUES;
            w[i] = w0[j], m[i] = m0[j], v[i] = v0[j], grad[i] = grad0[j];
        }
        const ps_adam_args a = {.param = w,
                                .grad = grad,
                                .m = m,
                                .v = v,
                                .n = DRAWN,
                                .lr = (float)lr,
                                .beta1 = (float)beta1,
                                .beta2 = (float)beta2,
                                .eps = 1e-8f,
                                .weight_decay = (float)decay,
                                .one_minus_beta1 = (float)(1 - beta1),
                                .one_minus_beta2 = (float)(1 - beta2),
                                .bias1 = (float)bias1,
                                .bias2 = (float)bias2,
                                .grad_scale = 1.0f,
                                .key = {3, 9},
                                .decoupled_decay = true,
                                .is_stochastic = true,
                                .param_dtype = PS_DTYPE_BF16,
                                .grad_dtype = PS_DTYPE_F32};
        op_expect_ok(ps_run_adam(k, NULL, &a, 0));
        for (int j = 0; j < VALUES; j++) {
            const double g = (double)grad0[j];
            const double want_m = beta1 * (double)ps_bf16_to_f32(m0[j]) + (1 - beta1) * g;
            const double want_v = beta2 * (double)ps_bf16_to_f32(v0[j]) + (1 - beta2) * g * g;
            const double want_w = (double)ps_bf16_to_f32(w0[j]) * (1 - lr * decay) -
                                  lr * (want_m / bias1) / (sqrt(want_v / bias2) + 1e-8);
            drawn_sums of_w = {0}, of_m = {0}, of_v = {0};
            double mixed[3] = {0}, squares[3] = {0};
            for (int i = j; i < DRAWN; i += VALUES) {
                const float x[3] = {ps_bf16_to_f32(w[i]), ps_bf16_to_f32(m[i]), ps_bf16_to_f32(v[i])};
                add_up(&of_w, want_w, x[0]), add_up(&of_m, want_m, x[1]), add_up(&of_v, want_v, x[2]);
                const double e[3] = {(double)x[0] - want_w, (double)x[1] - want_m, (double)x[2] - want_v};
                for (int c = 0; c < 3; c++) mixed[c] += e[c] * e[(c + 1) % 3], squares[c] += e[c] * e[c];
            }
            expect_unbiased(&of_w, name, "parameter"), expect_unbiased(&of_m, name, "momentum");
            expect_unbiased(&of_v, name, "variance");
            for (int c = 0; c < 3;
                 c++) /* of OF_EACH pairs that are not correlated: deviation 1 / sqrt(OF_EACH) = 1/64 */
                assert_true(fabs(mixed[c]) <= 5.0 / 64 * sqrt(squares[c] * squares[(c + 1) % 3]));
        }
        op_release();
    }
}

/* 300 steps without a gradient: to nearest, a variance in bf16 would stay as it was. */
static void test_stochastic_decay(void **state)
{
    (void)state;
    enum { N = 4096, STEPS = 300 };
    ps_backend *k;
    char name[64];
    for (int b = 0; op_backend(b, &k, name); b++) {
        op_label("stochastic decay, %s", name);
        uint16_t *const w = op_alloc(N * 2), *const m = op_alloc(N * 2), *const v = op_alloc(N * 2);
        float *const grad = op_alloc(N * 4);
        for (int i = 0; i < N; i++) w[i] = m[i] = v[i] = 0x3f80, grad[i] = 0; /* 1 */
        for (uint64_t t = 0; t < STEPS; t++)
            op_expect_ok(ps_run_adam(k, NULL,
                                     &(ps_adam_args){.param = w,
                                                     .grad = grad,
                                                     .m = m,
                                                     .v = v,
                                                     .n = N,
                                                     .lr = 1e-3f,
                                                     .beta1 = 0.998f,
                                                     .beta2 = 0.999f,
                                                     .eps = 1.0f,
                                                     .bias1 = 1.0f,
                                                     .bias2 = 1.0f,
                                                     .grad_scale = 1.0f,
                                                     .key = {3, t},
                                                     .is_stochastic = true,
                                                     .param_dtype = PS_DTYPE_BF16,
                                                     .grad_dtype = PS_DTYPE_F32},
                                     0));
        double mean_w = 0, mean_m = 0, mean_v = 0, slow = 1;
        for (int i = 0; i < N; i++) {
            mean_w += (double)ps_bf16_to_f32(w[i]) / N;
            mean_m += (double)ps_bf16_to_f32(m[i]) / N;
            mean_v += (double)ps_bf16_to_f32(v[i]) / N;
        }
        for (int t = 1; t <= STEPS; t++) slow -= 1e-3 * pow(0.998, t) / (sqrt(pow(0.999, t)) + 1);
        assert_true(fabs(mean_m - pow(0.998, STEPS)) <
                    0.002); /* 5 deviations: 300 roundings add up to some 0.03 each */
        assert_true(fabs(mean_v - pow(0.999, STEPS)) < 0.002);
        assert_true(fabs(mean_w - slow) < 0.002);
        op_release();
    }
}

/* Values that rounding leaves as they are, and one that it may not make anything else of. */
static void test_stochastic_ends(void **state)
{
    (void)state;
    static const uint32_t same[] = {0,          0x80000000, 0x3f800000, 0x00010000,
                                    0x807f0000, 0x7f7f0000, 0x7f800000, 0xff800000};
    for (uint32_t word = 0; word < 0x10000; word++)
        for (size_t i = 0; i < PS_ARRAY_LEN(same); i++) {
            float x;
            memcpy(&x, &same[i], sizeof x);
            x = ps_stochastic_round(x, word);
            assert_memory_equal(&x, &same[i], sizeof x);
        }
    assert_true(isnan(ps_stochastic_round(NAN, 0xffff)));
    uint32_t n_up = 0;
    for (uint32_t word = 0; word < 0x10000; word++) { /* subnormal: 0x1234 / 0x10000 of the way to the next one */
        const uint32_t u = 0x80011234;
        float x;
        memcpy(&x, &u, sizeof x);
        x = ps_stochastic_round(x, word);
        uint32_t got;
        memcpy(&got, &x, sizeof got);
        assert_true(got == 0x80010000 || got == 0x80020000);
        n_up += got == 0x80020000;
    }
    assert_int_equal(n_up, 0x1234);
}

/* The update of masters that are split has the bits of one of whole masters, which begin as what was split. */
static void test_split_as_compact(void **state)
{
    (void)state;
    enum { N = 4000 };
    ps_backend *k;
    char name[64];
    for (int b = 0; op_backend(b, &k, name); b++) {
        op_label("split as compact, %s", name);
        const adam_case c = {.n = N, .is_compact = true, .beta1 = 0.9f};
        ps_adam_args a = {.n = N,
                          .lr = 1e-2f,
                          .beta1 = 0.9f,
                          .beta2 = 0.99f,
                          .eps = 1e-8f,
                          .weight_decay = 0.1f,
                          .one_minus_beta1 = 0.1f,
                          .one_minus_beta2 = 0.01f,
                          .bias1 = 0.5f,
                          .bias2 = 0.5f,
                          .grad_scale = 0.25f,
                          .is_compact = true,
                          .decoupled_decay = true,
                          .param_dtype = PS_DTYPE_BF16,
                          .grad_dtype = PS_DTYPE_BF16,
                          .grad = op_random(PS_DTYPE_BF16, N, 0.0, 4.0, 1)};
        ps_adam_args split = a;
        split.low = op_alloc(N * sizeof *split.low), split.param = op_alloc(N * sizeof(uint16_t));
        a.param = op_alloc(N * sizeof(uint16_t));
        float *const first = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2);
        a.m = states_of(&c, PS_FORMAT_SIGNED, 0.0, 0.1, 3), split.m = states_of(&c, PS_FORMAT_SIGNED, 0.0, 0.1, 3);
        a.v = states_of(&c, PS_FORMAT_ROOT, 0.02, 0.003, 4), split.v = states_of(&c, PS_FORMAT_ROOT, 0.02, 0.003, 4);
        ps_split_all(first, split.param, split.low, N);
        ps_split_join_all(split.param, split.low, first, N);
        a.master = first;
        op_expect_ok(ps_run_adam(k, NULL, &a, 0));
        op_expect_ok(ps_run_adam(k, NULL, &split, 0));
        assert_memory_equal(a.param, split.param, N * sizeof(uint16_t));
        for (int i = 0; i < N; i++) {
            const float got = ps_split_join(((const uint16_t *)split.param)[i], split.low[i]);
            uint32_t u;
            memcpy(&u, &a.master[i], sizeof u);
            u += (u & 0x1ffff) == 0x18000; /* half-way, and rounded up */
            assert_memory_equal(&got, &u, sizeof u);
        }
        assert_memory_equal(a.m, split.m, N / PS_FORMAT_GROUP * sizeof(ps_compact_group));
        assert_memory_equal(a.v, split.v, N / PS_FORMAT_GROUP * sizeof(ps_compact_group));
        op_release();
    }
}

/* Pieces begin at any element, so also where vectors are not aligned. */
static void test_pieces_and_overlay(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < 2 * PS_DTYPE_COUNT; t++) {
            const ps_dtype dtype = (ps_dtype)(t / 2);
            const adam_case whole = {
                .n = sizes[s], .param_dtype = dtype, .grad_dtype = dtype, .is_compact = t % 2 != 0, .beta1 = 0.9f};
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

/* ---- compact, in double ---- */

typedef struct slow_group {
    double scale, x[PS_FORMAT_GROUP];
} slow_group;

static double slow_signed(double c, double scale)
{
    return scale * c / (254 - fabs(c));
}

/* What a group of values becomes by the formulas of base/compact.h. */
static void slow_round(slow_group *g, bool is_root)
{
    g->scale = 0;
    for (int j = 0; j < PS_FORMAT_GROUP; j++) {
        if (is_root) g->x[j] = sqrt(g->x[j]);
        g->scale = fmax(g->scale, fabs(g->x[j]));
    }
    for (int j = 0; j < PS_FORMAT_GROUP && g->scale > 0; j++) {
        const double c = is_root ? fmax(rint(255 * g->x[j] / g->scale), g->x[j] > 0 ? 1 : 0)
                                 : rint(254 * g->x[j] / (g->scale + fabs(g->x[j])));
        g->x[j] = is_root ? g->scale * c / 255 * g->scale * c / 255 : slow_signed(c, g->scale);
    }
}

/* 40 steps from zeros, of a gradient that an element has in some steps only, beside doubles. Where the double is close
 * to the middle between two codes, float may take the other one: few may differ. */
static void test_compact_values(void **state)
{
    (void)state;
    enum { N = 77, GROUPS = 3, STEPS = 40 };
    const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-6, decay = 0.2;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("compact values, %s", name);
        float *master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2), *grad = op_alloc(N * 4);
        ps_compact_group *m = op_alloc(GROUPS * sizeof *m), *v = op_alloc(GROUPS * sizeof *v);
        memset(m, 0, GROUPS * sizeof *m), memset(v, 0, GROUPS * sizeof *v);
        double w[GROUPS * PS_FORMAT_GROUP] = {0};
        slow_group slow_m[GROUPS] = {0}, slow_v[GROUPS] = {0};
        for (int j = 0; j < N; j++) w[j] = (double)master[j];
        for (int t = 1; t <= STEPS; t++) {
            for (int j = 0; j < N; j++)
                grad[j] = (j + t) % 3 == 0 ? 0.0f : sinf((float)(7 * j + 3 * t)) * (float)(1 + j % 32);
            const double bias1 = 1 - pow(beta1, t), bias2 = 1 - pow(beta2, t);
            op_expect_ok(ps_run_adam(k, NULL,
                                     &(ps_adam_args){.param = grad,
                                                     .grad = grad,
                                                     .master = master,
                                                     .m = m,
                                                     .v = v,
                                                     .n = N,
                                                     .lr = (float)lr,
                                                     .beta1 = (float)beta1,
                                                     .beta2 = (float)beta2,
                                                     .eps = (float)eps,
                                                     .weight_decay = (float)decay,
                                                     .one_minus_beta1 = (float)(1 - beta1),
                                                     .one_minus_beta2 = (float)(1 - beta2),
                                                     .bias1 = (float)bias1,
                                                     .bias2 = (float)bias2,
                                                     .grad_scale = 0.5f,
                                                     .decoupled_decay = true,
                                                     .is_compact = true},
                                     0));
            for (int j = 0; j < N; j++) {
                const int64_t group = j / PS_FORMAT_GROUP, at = j % PS_FORMAT_GROUP;
                double *mj = &slow_m[group].x[at], *vj = &slow_v[group].x[at];
                const double g =
                    (j + t) % 3 == 0 ? 0 : 0.5 * (double)(sinf((float)(7 * j + 3 * t)) * (float)(1 + j % 32));
                *mj = beta1 * *mj + (1 - beta1) * g;
                *vj = beta2 * *vj + (1 - beta2) * g * g;
                w[j] = w[j] * (1 - lr * decay) - lr * (*mj / bias1) / (sqrt(*vj / bias2) + eps);
            }
            int n_others = 0;
            for (int g = 0; g < GROUPS; g++) slow_round(&slow_m[g], false), slow_round(&slow_v[g], true);
            for (int j = 0; j < N; j++) {
                const int64_t group = j / PS_FORMAT_GROUP, at = j % PS_FORMAT_GROUP;
                double *mj = &slow_m[group].x[at], *vj = &slow_v[group].x[at];
                const double is_m = (double)ps_compact_get(PS_FORMAT_SIGNED, &m[group], at);
                const double is_v = (double)ps_compact_get(PS_FORMAT_ROOT, &v[group], at);
                n_others += fabs(is_m - *mj) > 1e-5 * slow_m[group].scale;
                n_others += fabs(sqrt(is_v) - sqrt(*vj)) > 1e-5 * slow_v[group].scale;
                assert_true(fabs(is_m - *mj) < slow_m[group].scale / 63);
                assert_true(fabs(sqrt(is_v) - sqrt(*vj)) < slow_v[group].scale / 254);
                assert_true(fabs((double)master[j] - w[j]) < 1e-5 * (1 + fabs(w[j])));
                *mj = is_m, *vj = is_v, w[j] = (double)master[j];
            }
            assert_true(n_others <= 2);
        }
        op_release();
    }
}

/* Groups that become zeros or NaN: the same bytes on every backend. */
static void test_compact_ends(void **state)
{
    (void)state;
    static const float sizes_m[] = {0.0f, 1e-45f, 7e-31f, 8e-31f, 1e-20f, 1e-10f, 1.6e38f, 1.8e38f, INFINITY, NAN};
    enum { GROUPS = PS_ARRAY_LEN(sizes_m), N = GROUPS * PS_FORMAT_GROUP };
    ps_backend *k;
    char name[64];
    ps_compact_group first_m[GROUPS], first_v[GROUPS];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("compact ends, %s", name);
        float *grad = op_alloc(N * 4), *master = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 2), *param = op_alloc(N * 4);
        ps_compact_group *m = op_alloc(GROUPS * sizeof *m), *v = op_alloc(GROUPS * sizeof *v);
        memset(m, 0, GROUPS * sizeof *m), memset(v, 0, GROUPS * sizeof *v);
        for (int j = 0; j < N; j++) grad[j] = j % PS_FORMAT_GROUP == 7 ? 2 * sizes_m[j / PS_FORMAT_GROUP] : 0.0f;
        op_expect_ok(ps_run_adam(k, NULL,
                                 &(ps_adam_args){.param = param,
                                                 .grad = grad,
                                                 .master = master,
                                                 .m = m,
                                                 .v = v,
                                                 .n = N,
                                                 .eps = 1e-8f,
                                                 .one_minus_beta1 = 0.5f,
                                                 .one_minus_beta2 = 0.5f,
                                                 .bias1 = 0.5f,
                                                 .bias2 = 0.5f,
                                                 .grad_scale = 1.0f,
                                                 .is_compact = true},
                                 0));
        assert_true(m[0].scale == 0 && m[1].scale == 0 && m[2].scale == 0 && m[3].scale == 8e-31f);
        assert_int_equal(m[3].codes[7], 127);
        assert_true(m[6].scale == 1.6e38f && isnan(m[7].scale) && isnan(m[8].scale) && isnan(m[9].scale));
        assert_true(v[4].scale == 0 && v[5].scale > 0 && v[5].codes[7] == 255 && isnan(v[6].scale));
        for (int g = 0; g < GROUPS; g++) {
            float x[PS_FORMAT_GROUP];
            ps_compact_group again;
            ps_format_decode(PS_FORMAT_SIGNED, &m[g], 0, x, PS_FORMAT_GROUP);
            ps_format_encode(PS_FORMAT_SIGNED, &again, x, PS_FORMAT_GROUP);
            assert_memory_equal(&again, &m[g], sizeof again);
        }
        if (i == 0) memcpy(first_m, m, sizeof first_m), memcpy(first_v, v, sizeof first_v);
        assert_memory_equal(m, first_m, sizeof first_m);
        assert_memory_equal(v, first_v, sizeof first_v);
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_as_compact),
        cmocka_unit_test(test_stochastic),
        cmocka_unit_test(test_stochastic_values),
        cmocka_unit_test(test_stochastic_decay),
        cmocka_unit_test(test_stochastic_ends),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_pieces_and_overlay),
        cmocka_unit_test(test_compact_values),
        cmocka_unit_test(test_compact_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
