#include "kernel/op_check.h"

typedef struct pool_case {
    int64_t B, T, cols;
    ps_pool_kind kind;
    ps_dtype dtype;
    bool masked, accumulate;
} pool_case;

static void label_case(const pool_case *c)
{
    op_label("B %lld T %lld cols %lld %s %s%s%s", (long long)c->B, (long long)c->T, (long long)c->cols,
             c->kind == PS_POOL_FIRST ? "first" : "last", ps_dtype_name(c->dtype), c->masked ? " masked" : "",
             c->accumulate ? " accumulate" : "");
}

/* The mask of sequence b ends at position b mod T; before it is random, as that does not matter, and any number but
 * zero counts as one. The last sequence has a mask of zeros. */
static int64_t position_of(const pool_case *c, int64_t b)
{
    if (c->kind == PS_POOL_FIRST) return 0;
    if (!c->masked) return c->T - 1;
    return b == c->B - 1 ? 0 : b % c->T;
}

static const int32_t *make_mask(const pool_case *c)
{
    int32_t *mask = op_alloc((size_t)(c->B * c->T) * sizeof *mask);
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t t = 0; t < c->T; t++) {
            const int32_t random = (int32_t)(ps_rng_u32((ps_rng_key){.seed = 11}, (uint64_t)(b * c->T + t)) & 1);
            int32_t m = t < b % c->T ? random : t == b % c->T ? 3 : 0;
            if (b == c->B - 1) m = 0;
            mask[b * c->T + t] = m;
        }
    op_mark_input();
    return c->masked ? mask : NULL;
}

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const pool_case *c = context;
    const ps_pool_fwd_args a = {.y = op_output(c->dtype, c->B * c->cols, false, 0),
                                .x = op_input(c->dtype, c->B * c->T * c->cols, 1.0, 1),
                                .mask = make_mask(c),
                                .B = c->B,
                                .T = c->T,
                                .cols = c->cols,
                                .kind = c->kind,
                                .dtype = c->dtype};
    op_expect_ok(ps_run_pool_fwd(k, NULL, &a, 0));
    for (int64_t i = 0; i < c->B * c->cols; i++) {
        const int64_t from = (i / c->cols * c->T + position_of(c, i / c->cols)) * c->cols + i % c->cols;
        assert_true(ps_dtype_load(c->dtype, a.y, i) == ps_dtype_load(c->dtype, a.x, from));
    }
    op_record_exact(result, "y", c->dtype, a.y, c->B * c->cols);
}

/* A copy, or one addition and one rounding: exact. Each element is one of x only, so this is the gradient of a sum. */
static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const pool_case *c = context;
    const int64_t n = c->B * c->T * c->cols;
    const ps_pool_bwd_args a = {.dx = op_output(c->dtype, n, c->accumulate, 2),
                                .dy = op_input(c->dtype, c->B * c->cols, 1.0, 3),
                                .mask = make_mask(c),
                                .B = c->B,
                                .T = c->T,
                                .cols = c->cols,
                                .kind = c->kind,
                                .dtype = c->dtype,
                                .accumulate_dx = c->accumulate};
    const void *before = c->accumulate ? op_output(c->dtype, n, true, 2) : NULL;
    op_expect_ok(ps_run_pool_bwd(k, NULL, &a, 0));
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = i / c->cols, b = row / c->T;
        const bool here = row % c->T == position_of(c, b);
        const float dy = here ? ps_dtype_load(c->dtype, a.dy, b * c->cols + i % c->cols) : 0.0f;
        float want = 0.0f;
        ps_dtype_store(c->dtype, &want, 0, dy + (before != NULL ? ps_dtype_load(c->dtype, before, i) : 0.0f));
        assert_true(ps_dtype_load(c->dtype, a.dx, i) == ps_dtype_load(c->dtype, &want, 0));
    }
    op_record_exact(result, "dx", c->dtype, a.dx, n);
}

static const struct {
    int64_t B, T, cols;
} sizes[] = {{1, 1, 1}, {3, 5, 7}, {2, 4, 33}, {0, 5, 33}, {5, 1, 16}, {7, 6, 65}, {9, 8, 100}, {2, 257, 1025}};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 8; flags++) {
                const pool_case c = {.B = sizes[s].B,
                                     .T = sizes[s].T,
                                     .cols = sizes[s].cols,
                                     .kind = flags & 1 ? PS_POOL_LAST : PS_POOL_FIRST,
                                     .dtype = (ps_dtype)t,
                                     .masked = flags & 2,
                                     .accumulate = flags & 4};
                label_case(&c);
                if (!c.accumulate) op_check_backends(run_fwd, &c);
                op_check_backends(run_bwd, &c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
