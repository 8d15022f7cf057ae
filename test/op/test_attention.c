#include "op/op_gradient.h"

typedef struct attention_case {
    int64_t B, T, H, D;
    bool causal;
    float dropout_p;
    ps_dtype dtype;
} attention_case;

static const ps_rng_key key = {.seed = 11, .stream = 5};

static void label_case(const attention_case *c)
{
    op_label("B %lld T %lld H %lld D %lld %s p %.2f %s", (long long)c->B, (long long)c->T, (long long)c->H,
             (long long)c->D, c->causal ? "causal" : "full", (double)c->dropout_p, ps_dtype_name(c->dtype));
}

/* Where q (0), k (1), v (2) begin in packed projections. */
static const void *part_of(const attention_case *c, const void *qkv, int64_t which)
{
    return (const char *)qkv + which * c->H * c->D * (int64_t)ps_dtype_bytes(c->dtype);
}

static void *part_to(const attention_case *c, void *qkv, int64_t which)
{
    return (char *)qkv + which * c->H * c->D * (int64_t)ps_dtype_bytes(c->dtype);
}

static float scale_of(const attention_case *c)
{
    return 1.0f / sqrtf((float)c->D);
}

/* In f32: scores carry the error of a sum of D terms, exp passes it on relatively, y is an average of values below 3.
 * In 16 bits a backend may round the probabilities for the second product, half an ulp each, and so double the error
 * of rounding y itself. Dropout scales what it keeps by 1 / (1 - p). */
static double error_of_y(const attention_case *c)
{
    const double kept = 1.0 / (1.0 - (double)c->dropout_p);
    const double scores = op_sum_error((double)(scale_of(c) * (float)c->D) + 8.0);
    return kept * 3.0 * (scores + (c->dtype == PS_DTYPE_F32 ? 0.0 : op_ulp(c->dtype)));
}

static ps_attention_fwd_args fwd_args(const attention_case *c, const void *qkv)
{
    const int64_t n = c->B * c->T * c->H * c->D;
    return (ps_attention_fwd_args){.y = op_output(c->dtype, n, false, 0),
                                   .lse = op_output(PS_DTYPE_F32, c->B * c->H * c->T, false, 0),
                                   .q = qkv,
                                   .k = part_of(c, qkv, 1),
                                   .v = part_of(c, qkv, 2),
                                   .B = c->B,
                                   .T = c->T,
                                   .H = c->H,
                                   .KV = c->H,
                                   .q_stride = 3 * c->H * c->D,
                                   .kv_stride = 3 * c->H * c->D,
                                   .D = c->D,
                                   .scale = scale_of(c),
                                   .causal = c->causal,
                                   .dropout_p = c->dropout_p,
                                   .dropout_key = key,
                                   .dtype = c->dtype};
}

static void run_fwd(const ps_kernels *k, const void *context, op_result *result)
{
    const attention_case *c = context;
    const int64_t n = c->B * c->T * c->H * c->D;
    ps_attention_fwd_args a = fwd_args(c, op_input(c->dtype, 3 * n, 1.0, 1));
    OP_RUN(k, attention_fwd, &a);
    op_record(result, "lse", PS_DTYPE_F32, a.lse, c->B * c->H * c->T,
              op_sum_error((double)scale_of(c) * (double)c->D + 8.0));
    op_record(result, "y", c->dtype, a.y, n, error_of_y(c));
}

static void run_bwd(const ps_kernels *k, const void *context, op_result *result)
{
    const attention_case *c = context;
    const int64_t n = c->B * c->T * c->H * c->D;
    const void *qkv = op_input(c->dtype, 3 * n, 1.0, 1), *dy = op_input(c->dtype, n, 1.0, 2);
    ps_attention_fwd_args fwd = fwd_args(c, qkv);
    ps_kernels ref; /* the same y and lse for all backends */
    ps_kernels_init_ref(&ref);
    OP_RUN(&ref, attention_fwd, &fwd);
    void *dqkv = op_output(c->dtype, 3 * n, false, 0);
    ps_attention_bwd_args a = {.dq = dqkv,
                               .dk = part_to(c, dqkv, 1),
                               .dv = part_to(c, dqkv, 2),
                               .dy = dy,
                               .y = fwd.y,
                               .q = fwd.q,
                               .k = fwd.k,
                               .v = fwd.v,
                               .KV = c->H,
                               .q_stride = fwd.q_stride,
                               .kv_stride = fwd.kv_stride,
                               .lse = fwd.lse,
                               .B = c->B,
                               .T = c->T,
                               .H = c->H,
                               .D = c->D,
                               .scale = fwd.scale,
                               .causal = c->causal,
                               .dropout_p = c->dropout_p,
                               .dropout_key = key,
                               .dtype = c->dtype};
    OP_RUN(k, attention_bwd, &a);
    /* dS = P (dP - dy.y) has |dP| near sqrt(D), times scale gives 1; a key may draw weight from several queries */
    op_record(result, "dqkv", c->dtype, dqkv, 3 * n, 4.0 * error_of_y(c));
}

static const attention_case odd_cases[] = {
    {1, 1, 1, 4, false, 0, PS_DTYPE_F32},  {2, 2, 3, 8, false, 0, PS_DTYPE_F32},
    {1, 17, 3, 4, false, 0, PS_DTYPE_F32}, {2, 33, 1, 16, false, 0, PS_DTYPE_F32},
    {0, 17, 3, 8, false, 0, PS_DTYPE_F32}, {1, 19, 2, 24, false, 0, PS_DTYPE_F32},
};

static void check_both(attention_case c, int flags, ps_dtype t)
{
    c.causal = flags & 1, c.dropout_p = flags & 2 ? 0.3f : 0.0f, c.dtype = t;
    label_case(&c);
    op_check_backends(run_fwd, &c);
    op_check_backends(run_bwd, &c);
}

static void test_backends(void **state)
{
    (void)state;
    const attention_case real_cases[] = {{2, 64, 3, 64, false, 0, PS_DTYPE_F32},
                                         {1, 130, 2, 64, false, 0, PS_DTYPE_F32}};
    for (int t = 0; t < PS_DTYPE_COUNT; t++)
        for (int flags = 0; flags < 4; flags++) {
            for (size_t s = 0; s < PS_ARRAY_LEN(odd_cases); s++) check_both(odd_cases[s], flags, (ps_dtype)t);
            for (size_t s = 0; s < PS_ARRAY_LEN(real_cases); s++) check_both(real_cases[s], flags, (ps_dtype)t);
        }
}

/* Scores of several hundreds: exp overflows unless the maximum is taken out first. */
static void test_large_scores(void **state)
{
    (void)state;
    ps_kernels k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        const attention_case c = {.B = 1, .T = 17, .H = 2, .D = 16, .causal = true};
        const int64_t n = c.B * c.T * c.H * c.D;
        op_label("large scores, %s", name);
        ps_attention_fwd_args a = fwd_args(&c, op_input(PS_DTYPE_F32, 3 * n, 20.0, 1));
        OP_RUN(&k, attention_fwd, &a);
        for (int64_t j = 0; j < n; j++) assert_true(fabsf(((const float *)a.y)[j]) <= 60.0f);
        op_release();
    }
}

typedef struct attention_problem {
    ps_kernels k;
    ps_attention_fwd_args fwd;
    const float *dy;
} attention_problem;

static double problem_value(const void *context)
{
    const attention_problem *p = context;
    op_expect_ok(p->k.attention_fwd(NULL, &p->fwd));
    return op_dot(p->dy, p->fwd.y, p->fwd.B * p->fwd.T * p->fwd.H * p->fwd.D);
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(odd_cases); s++)
        for (int flags = 0; flags < 4; flags++) {
            attention_case c = odd_cases[s];
            c.causal = flags & 1, c.dropout_p = flags & 2 ? 0.3f : 0.0f;
            label_case(&c);
            const int64_t n = c.B * c.T * c.H * c.D;
            float *qkv = op_random(PS_DTYPE_F32, 3 * n, 0, 1, 1);
            attention_problem p = {.fwd = fwd_args(&c, qkv), .dy = op_input(PS_DTYPE_F32, n, 1, 2)};
            ps_kernels_init_ref(&p.k);
            p.fwd.workspace = op_workspace(&p.k, PS_OP_attention_fwd, &p.fwd);
            (void)problem_value(&p);
            float *dqkv = op_output(PS_DTYPE_F32, 3 * n, false, 0);
            ps_attention_bwd_args bwd = {.dq = dqkv,
                                         .dk = part_to(&c, dqkv, 1),
                                         .dv = part_to(&c, dqkv, 2),
                                         .dy = p.dy,
                                         .y = p.fwd.y,
                                         .q = p.fwd.q,
                                         .k = p.fwd.k,
                                         .v = p.fwd.v,
                                         .KV = c.H,
                                         .q_stride = p.fwd.q_stride,
                                         .kv_stride = p.fwd.kv_stride,
                                         .lse = p.fwd.lse,
                                         .B = c.B,
                                         .T = c.T,
                                         .H = c.H,
                                         .D = c.D,
                                         .scale = p.fwd.scale,
                                         .causal = c.causal,
                                         .dropout_p = c.dropout_p,
                                         .dropout_key = key};
            OP_RUN(&p.k, attention_bwd, &bwd);
            op_check_gradient("dqkv", problem_value, &p, qkv, dqkv, NULL, 3 * n, 0x1p-5f, 4e-3);
            op_release();
        }
}

/* Equal scores and values that are one-hot: y_i holds the probabilities of row i, 1 / (keys in sight) each. */
static void check_probabilities(const ps_kernels *k, bool causal, float dropout_p)
{
    enum { B = 2, T = 8, H = 2, D = 8 };
    const attention_case c = {.B = B, .T = T, .H = H, .D = D, .causal = causal, .dropout_p = dropout_p};
    float *qkv = op_alloc(sizeof(float) * B * T * 3 * H * D);
    memset(qkv, 0, sizeof(float) * B * T * 3 * H * D);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) qkv[(((b * T + t) * 3 + 2) * H + h) * D + t] = 1.0f;
    ps_attention_fwd_args a = fwd_args(&c, qkv);
    OP_RUN(k, attention_fwd, &a);
    for (int n = 0; n < B * H * T * T; n++) {
        const int b = n / (H * T * T), h = n / (T * T) % H, i = n / T % T, j = n % T;
        const bool kept = ps_rng_u32(key, (uint64_t)n) >= ps_dropout_threshold(dropout_p);
        const float probability = !causal ? 1.0f / T : j <= i ? 1.0f / (float)(i + 1) : 0.0f;
        const float want = kept ? probability / (1.0f - dropout_p) : 0.0f;
        assert_float_equal(((const float *)a.y)[((b * T + i) * H + h) * D + j], want, 1e-6);
        assert_float_equal(a.lse[(b * H + h) * T + i], logf(causal ? (float)(i + 1) : (float)T), 1e-6);
    }
    op_release();
}

static void test_masks(void **state)
{
    (void)state;
    ps_kernels k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int flags = 0; flags < 4; flags++) {
            op_label("masks %d, %s", flags, name);
            check_probabilities(&k, flags & 1, flags & 2 ? 0.5f : 0.0f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
