#include "kernel/op_gradient.h"

typedef struct embedding_case {
    int64_t B, T, cols;
    int64_t V; /* vocabulary, or positions */
    ps_dtype dtype, grad_dtype;
    bool accumulate, over, in_place;
} embedding_case;

static void label_case(const embedding_case *c)
{
    op_label("B %lld T %lld cols %lld V %lld %s -> %s%s%s%s", (long long)c->B, (long long)c->T, (long long)c->cols,
             (long long)c->V, ps_dtype_name(c->dtype), ps_dtype_name(c->grad_dtype), c->accumulate ? " accumulate" : "",
             c->over ? " over" : "", c->in_place ? " in_place" : "");
}

/* Copies: exact. */
static void run_embedding_fwd(ps_backend *k, const void *context, op_result *result)
{
    const embedding_case *c = context;
    const int64_t rows = c->B * c->T;
    const ps_embedding_fwd_args a = {.y = op_output(c->dtype, rows * c->cols, false, 0),
                                     .w = op_input(c->dtype, c->V * c->cols, 1.0, 1),
                                     .ids = op_indices(rows, c->V, 0, 2),
                                     .rows = rows,
                                     .cols = c->cols,
                                     .V = c->V,
                                     .dtype = c->dtype};
    op_expect_ok(ps_run_embedding_fwd(k, NULL, &a, 0));
    op_record_exact(result, "y", c->dtype, a.y, rows * c->cols);
}

/* The order of summation is part of the contract: exact. */
static void run_embedding_bwd(ps_backend *k, const void *context, op_result *result)
{
    const embedding_case *c = context;
    const int64_t rows = c->B * c->T;
    ps_embedding_bwd_args a = {.dw = op_output(c->grad_dtype, c->V * c->cols, c->accumulate || c->over, 3),
                               .dy = op_input(c->dtype, rows * c->cols, 1.0, 4),
                               .ids = op_indices(rows, c->V, 0, 2),
                               .rows = rows,
                               .cols = c->cols,
                               .V = c->V,
                               .dtype = c->dtype,
                               .grad_dtype = c->grad_dtype,
                               .accumulate_grad = c->accumulate};
    OP_RUN(k, embedding_bwd, &a);
    op_record_exact(result, "dw", c->grad_dtype, a.dw, c->V * c->cols);
}

/* One addition and one rounding: exact. */
static void run_position_fwd(ps_backend *k, const void *context, op_result *result)
{
    const embedding_case *c = context;
    const int64_t n = c->B * c->T * c->cols;
    void *x = op_random(c->dtype, n, 0.0, 1.0, 4);
    const ps_position_fwd_args a = {.y = c->in_place ? x : op_output(c->dtype, n, false, 0),
                                    .x = x,
                                    .w = op_input(c->dtype, c->V * c->cols, 1.0, 1),
                                    .B = c->B,
                                    .T = c->T,
                                    .cols = c->cols,
                                    .n_positions = c->V,
                                    .first = (c->V - c->T) / 2,
                                    .dtype = c->dtype};
    op_expect_ok(ps_run_position_fwd(k, NULL, &a, 0));
    op_record_exact(result, "y", c->dtype, a.y, n);
}

static void run_position_bwd(ps_backend *k, const void *context, op_result *result)
{
    const embedding_case *c = context;
    const ps_position_bwd_args a = {.dw = op_output(c->grad_dtype, c->V * c->cols, c->accumulate || c->over, 3),
                                    .dy = op_input(c->dtype, c->B * c->T * c->cols, 1.0, 4),
                                    .B = c->B,
                                    .T = c->T,
                                    .cols = c->cols,
                                    .n_positions = c->V,
                                    .dtype = c->dtype,
                                    .grad_dtype = c->grad_dtype,
                                    .accumulate_grad = c->accumulate};
    op_expect_ok(ps_run_position_bwd(k, NULL, &a, 0));
    op_record(result, "dw", c->grad_dtype, a.dw, c->V * c->cols, op_sum_error((double)c->B + 1.0));
}

static const struct {
    int64_t B, T, cols, V;
} sizes[] = {{1, 1, 1, 7}, {3, 2, 5, 7}, {1, 17, 33, 50}, {7, 33, 65, 131}, {0, 17, 33, 50}, {4, 64, 192, 1000}};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 4; flags++) {
                const embedding_case c = {.B = sizes[s].B,
                                          .T = sizes[s].T,
                                          .cols = sizes[s].cols,
                                          .V = sizes[s].V,
                                          .dtype = (ps_dtype)t,
                                          .grad_dtype = flags & 1 ? PS_DTYPE_F32 : (ps_dtype)t,
                                          .accumulate = flags & 2};
                label_case(&c);
                if (flags == 0) op_check_backends(run_embedding_fwd, &c);
                if (flags == 0) op_check_backends(run_position_fwd, &c);
                op_check_backends(run_embedding_bwd, &c);
                op_check_backends(run_position_bwd, &c);
            }
}

/* Ids of one digit and of three in a radix sort by bytes, rows of several of its segments, long groups of one id. */
static void test_gradient_of_many_rows(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, cols, V;
    } many[] = {{2600, 8, 66000}, {1300, 40, 3}, {2048, 5, 256}, {1025, 264, 257}};
    for (size_t s = 0; s < PS_ARRAY_LEN(many); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const embedding_case c = {.B = 1,
                                      .T = many[s].rows,
                                      .cols = many[s].cols,
                                      .V = many[s].V,
                                      .dtype = (ps_dtype)t,
                                      .grad_dtype = s % 2 == 0 ? (ps_dtype)t : PS_DTYPE_F32,
                                      .accumulate = s % 2 == 0};
            label_case(&c);
            op_check_backends(run_embedding_bwd, &c);
        }
}

static void test_outputs_over_inputs(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const embedding_case difference = {.B = sizes[s].B,
                                               .T = sizes[s].T,
                                               .cols = sizes[s].cols,
                                               .V = sizes[s].V,
                                               .dtype = (ps_dtype)t,
                                               .grad_dtype = (ps_dtype)t};
            embedding_case over = difference;
            over.over = over.in_place = true;
            label_case(&over);
            op_check_same_bits(run_embedding_bwd, &difference, &over, "over its parameter");
            op_check_same_bits(run_position_bwd, &difference, &over, "over its parameter");
            op_check_same_bits(run_position_fwd, &difference, &over, "y over x");
        }
}

/* Integers in f32, so that sums are exact: what the definition says, written the other way round. */
static void test_gradient_values(void **state)
{
    (void)state;
    enum { ROWS = 7, COLS = 3, V = 5 };
    const int32_t ids[ROWS] = {4, 0, 4, 2, 0, 4, 4};
    float dy[ROWS * COLS], expected[V * COLS] = {0};
    for (int i = 0; i < ROWS * COLS; i++) {
        dy[i] = (float)(i * i % 11 - 5);
        expected[ids[i / COLS] * COLS + i % COLS] += dy[i];
    }
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            op_label("gradient values, %s", name);
            float *dw = op_alloc(sizeof expected);
            for (int j = 0; accumulate && j < V * COLS; j++) dw[j] = 1.0f;
            float *own_dy = op_alloc(sizeof dy);
            memcpy(own_dy, dy, sizeof dy);
            int32_t *own_ids = op_alloc(sizeof ids);
            memcpy(own_ids, ids, sizeof ids);
            ps_embedding_bwd_args a = {.dw = dw,
                                       .dy = own_dy,
                                       .ids = own_ids,
                                       .rows = ROWS,
                                       .cols = COLS,
                                       .V = V,
                                       .accumulate_grad = accumulate};
            OP_RUN(k, embedding_bwd, &a);
            for (int j = 0; j < V * COLS; j++) assert_true(dw[j] == expected[j] + (accumulate ? 1.0f : 0.0f));
            float *dp = op_alloc(4 * COLS * sizeof *dp); /* 4 positions, 2 sequences of 3 */
            for (int j = 0; accumulate && j < 4 * COLS; j++) dp[j] = 1.0f;
            const ps_position_bwd_args p = {
                .dw = dp, .dy = own_dy, .B = 2, .T = 3, .cols = COLS, .n_positions = 4, .accumulate_grad = accumulate};
            op_expect_ok(ps_run_position_bwd(k, NULL, &p, 0));
            for (int j = 0; j < 4 * COLS; j++) {
                const float sum = j < 3 * COLS ? dy[j] + dy[3 * COLS + j] : 0.0f;
                assert_true(dp[j] == sum + (accumulate ? 1.0f : 0.0f));
            }
            op_release();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_values),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_gradient_of_many_rows),
        cmocka_unit_test(test_outputs_over_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
