#include "kernel/op_check.h"

typedef struct cached_case {
    int64_t T, first, n_positions, H, KV, D, window;
    bool packed;
    ps_dtype dtype;
} cached_case;

static void label_case(const cached_case *c)
{
    op_label("T %lld first %lld of %lld H %lld KV %lld D %lld window %lld %s %s", (long long)c->T, (long long)c->first,
             (long long)c->n_positions, (long long)c->H, (long long)c->KV, (long long)c->D, (long long)c->window,
             c->packed ? "packed" : "apart", ps_dtype_name(c->dtype));
}

/* Packed as GPT-2's, or with gaps after the rows. */
static ps_attention_cached_args args_of(const cached_case *c)
{
    const int64_t q = c->H * c->D, kv = c->KV * c->D, bytes = (int64_t)ps_dtype_bytes(c->dtype);
    const int64_t q_stride = c->packed ? q + 2 * kv : q + 3, kv_stride = c->packed ? q + 2 * kv : kv + 5;
    char *const all = op_input(c->dtype, c->T * q_stride, 1.0, 1);
    const void *const k = c->packed ? all + q * bytes : op_input(c->dtype, c->T * kv_stride, 1.0, 2);
    const void *const v = c->packed ? all + (q + kv) * bytes : op_input(c->dtype, c->T * kv_stride, 1.0, 3);
    return (ps_attention_cached_args){.y = op_output(c->dtype, c->T * q, false, 0),
                                      .k_cache = op_random(c->dtype, kv * c->n_positions, 0.0, 1.0, 4),
                                      .v_cache = op_random(c->dtype, kv * c->n_positions, 0.0, 1.0, 5),
                                      .q = all,
                                      .k = k,
                                      .v = v,
                                      .T = c->T,
                                      .H = c->H,
                                      .KV = c->KV,
                                      .D = c->D,
                                      .q_stride = q_stride,
                                      .kv_stride = kv_stride,
                                      .n_positions = c->n_positions,
                                      .first = c->first,
                                      .window = c->window,
                                      .scale = 1.0f / sqrtf((float)c->D),
                                      .dtype = c->dtype};
}

/* As in test_attention.c: y is an average of values below 3, whose weights have the error of the scores. */
static void run_cached(ps_backend *k, const void *context, op_result *result)
{
    const cached_case *c = context;
    ps_attention_cached_args a = args_of(c);
    OP_RUN(k, attention_cached, &a);
    const double scores = op_sum_error(sqrt((double)c->D) + 8.0);
    op_record(result, "y", c->dtype, a.y, c->T * c->H * c->D, 3.0 * scores);
    op_record_exact(result, "k_cache", c->dtype, a.k_cache, c->KV * c->n_positions * c->D);
    op_record_exact(result, "v_cache", c->dtype, a.v_cache, c->KV * c->n_positions * c->D);
}

/* One token and several, at the beginning and at the end, heads below, at and above a vector, groups of 1 to 6 queries
 * a key. */
static const cached_case cases[] = {
    {.T = 1, .first = 0, .n_positions = 1, .H = 1, .KV = 1, .D = 2},
    {.T = 1, .first = 6, .n_positions = 9, .H = 3, .KV = 3, .D = 5},
    {.T = 4, .first = 3, .n_positions = 7, .H = 4, .KV = 2, .D = 16},
    {.T = 1, .first = 99, .n_positions = 100, .H = 6, .KV = 2, .D = 24},
    {.T = 7, .first = 40, .n_positions = 64, .H = 6, .KV = 1, .D = 20},
    {.T = 33, .first = 0, .n_positions = 40, .H = 4, .KV = 1, .D = 64},
    {.T = 1, .first = 300, .n_positions = 301, .H = 8, .KV = 8, .D = 80},
    {.T = 0, .first = 3, .n_positions = 8, .H = 2, .KV = 2, .D = 8},
};

static void test_backends(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int w = 0; w < 4; w++) {
                cached_case c = cases[i];
                c.dtype = (ps_dtype)t, c.window = (int64_t[]){0, 1, 5, 64}[w], c.packed = w % 2 == 0;
                label_case(&c);
                op_check_backends(run_cached, &c);
            }
}

/* A text in parts of any size, against attention_fwd over the whole: the reference's other formula. */
static void test_parts_are_the_whole(void **state)
{
    (void)state;
    enum { T = 37, H = 4, KV = 2, D = 24 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int64_t window = 0; window <= 9; window += 9) {
            const float *q = op_input(PS_DTYPE_F32, T * H * D, 1.0, 1);
            const float *keys = op_input(PS_DTYPE_F32, T * KV * D, 1.0, 2),
                        *values = op_input(PS_DTYPE_F32, T * KV * D, 1.0, 3);
            float *want = op_output(PS_DTYPE_F32, T * H * D, false, 0),
                  *got = op_output(PS_DTYPE_F32, T * H * D, false, 0);
            ps_attention_fwd_args whole = {.y = want,
                                           .lse = op_output(PS_DTYPE_F32, H * T, false, 0),
                                           .q = q,
                                           .k = keys,
                                           .v = values,
                                           .B = 1,
                                           .T = T,
                                           .H = H,
                                           .KV = KV,
                                           .D = D,
                                           .q_stride = H * D,
                                           .kv_stride = KV * D,
                                           .window = window,
                                           .scale = 0.2f,
                                           .causal = true};
            ps_backend *ref = op_reference();
            op_label("parts, %s, window %lld", name, (long long)window);
            OP_RUN(ref, attention_fwd, &whole);
            float *k_cache = op_output(PS_DTYPE_F32, KV * T * D, false, 0),
                  *v_cache = op_output(PS_DTYPE_F32, KV * T * D, false, 0);
            for (int64_t first = 0, n = 1; first < T; first += n, n = ps_min_i64(n * 2, T - first)) {
                ps_attention_cached_args a = {.y = got + first * H * D,
                                              .k_cache = k_cache,
                                              .v_cache = v_cache,
                                              .q = q + first * H * D,
                                              .k = keys + first * KV * D,
                                              .v = values + first * KV * D,
                                              .T = n,
                                              .H = H,
                                              .KV = KV,
                                              .D = D,
                                              .q_stride = H * D,
                                              .kv_stride = KV * D,
                                              .n_positions = T,
                                              .first = first,
                                              .window = window,
                                              .scale = 0.2f};
                OP_RUN(k, attention_cached, &a);
            }
            for (int64_t j = 0; j < T * H * D; j++)
                assert_true(fabs((double)got[j] - (double)want[j]) <= 3.0 * op_sum_error(D + 8.0));
            op_release();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_parts_are_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
