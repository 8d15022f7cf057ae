/* test_loss_scaler.c - every move of the loss scale, step by step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "train/optim/loss_scaler.h"

static const ps_loss_scaler_options dynamic_options = {
    .initial_scale = 16.0f,
    .growth_factor = 2.0f,
    .backoff_factor = 0.5f,
    .loss_scale_window = 3,
    .hysteresis = 2,
    .min_loss_scale = 1.0f,
    .max_loss_scale = 64.0f,
};

typedef struct walk_row {
    bool overflow;
    float scale; /* after the step */
    int hysteresis_left;
    int64_t n_clean_steps;
    ps_loss_scale_event event;
} walk_row;

static void walk(const ps_loss_scaler_options *options, const walk_row *rows, size_t n)
{
    ps_loss_scaler s;
    assert_int_equal(ps_loss_scaler_init(&s, options), PS_OK);
    int64_t n_skipped = 0;
    for (size_t i = 0; i < n; i++) {
        const bool skip = ps_loss_scaler_update(&s, rows[i].overflow);
        n_skipped += skip;
        if (skip != rows[i].overflow || s.scale != rows[i].scale || s.hysteresis_left != rows[i].hysteresis_left ||
            s.n_clean_steps != rows[i].n_clean_steps || s.event != rows[i].event)
            fail_msg("step %zu: skip %d scale %g hysteresis %d clean %lld event %d", i, skip, (double)s.scale,
                     s.hysteresis_left, (long long)s.n_clean_steps, (int)s.event);
        assert_int_equal(ps_loss_scaler_check(&s), PS_OK);
    }
    assert_int_equal(s.n_skipped_steps, n_skipped);
}

#define WALK(options, ...)                                                                                             \
    do {                                                                                                               \
        static const walk_row rows[] = {__VA_ARGS__};                                                                  \
        walk((options), rows, PS_ARRAY_LEN(rows));                                                                     \
    } while (0)

static void test_static_scale_never_moves_but_skips(void **state)
{
    (void)state;
    const ps_loss_scaler_options options = {.loss_scale = 128.0f}; /* the dynamic fields are not looked at */
    WALK(&options, {false, 128, 1, 0, PS_LOSS_SCALE_KEPT}, {true, 128, 1, 0, PS_LOSS_SCALE_KEPT},
         {true, 128, 1, 0, PS_LOSS_SCALE_KEPT}, {false, 128, 1, 0, PS_LOSS_SCALE_KEPT});
}

static void test_first_growth_after_exactly_one_window(void **state)
{
    (void)state;
    WALK(&dynamic_options, {false, 16, 2, 1, PS_LOSS_SCALE_KEPT}, {false, 16, 2, 2, PS_LOSS_SCALE_KEPT},
         {false, 32, 2, 0, PS_LOSS_SCALE_GREW}, {false, 32, 2, 1, PS_LOSS_SCALE_KEPT});
}

static void test_overflow_restarts_the_window(void **state)
{
    (void)state;
    WALK(&dynamic_options, {false, 16, 2, 1, PS_LOSS_SCALE_KEPT}, {false, 16, 2, 2, PS_LOSS_SCALE_KEPT},
         {true, 16, 1, 0, PS_LOSS_SCALE_HYSTERESIS}, {false, 16, 1, 1, PS_LOSS_SCALE_KEPT},
         {false, 16, 1, 2, PS_LOSS_SCALE_KEPT}, {false, 32, 2, 0, PS_LOSS_SCALE_GREW});
}

/* Used-up hysteresis stays used up: clean steps short of a window do not bring it back. */
static void test_hysteresis_is_refilled_by_a_full_window(void **state)
{
    (void)state;
    WALK(&dynamic_options, {true, 16, 1, 0, PS_LOSS_SCALE_HYSTERESIS}, {true, 8, 1, 0, PS_LOSS_SCALE_SHRANK},
         {true, 4, 1, 0, PS_LOSS_SCALE_SHRANK}, {false, 4, 1, 1, PS_LOSS_SCALE_KEPT},
         {false, 4, 1, 2, PS_LOSS_SCALE_KEPT}, {true, 2, 1, 0, PS_LOSS_SCALE_SHRANK},
         {false, 2, 1, 1, PS_LOSS_SCALE_KEPT}, {false, 2, 1, 2, PS_LOSS_SCALE_KEPT},
         {false, 4, 2, 0, PS_LOSS_SCALE_GREW}, {true, 4, 1, 0, PS_LOSS_SCALE_HYSTERESIS},
         {true, 2, 1, 0, PS_LOSS_SCALE_SHRANK});
}

static void test_consecutive_hysteresis_is_refilled_by_a_clean_step(void **state)
{
    (void)state;
    ps_loss_scaler_options options = dynamic_options;
    options.hysteresis = 3;
    options.consecutive_hysteresis = true;
    WALK(&options, {true, 16, 2, 0, PS_LOSS_SCALE_HYSTERESIS}, {true, 16, 1, 0, PS_LOSS_SCALE_HYSTERESIS},
         {false, 16, 3, 1, PS_LOSS_SCALE_KEPT}, {true, 16, 2, 0, PS_LOSS_SCALE_HYSTERESIS},
         {true, 16, 1, 0, PS_LOSS_SCALE_HYSTERESIS}, {true, 8, 1, 0, PS_LOSS_SCALE_SHRANK},
         {true, 4, 1, 0, PS_LOSS_SCALE_SHRANK}, {false, 4, 3, 1, PS_LOSS_SCALE_KEPT});
}

static void test_without_hysteresis_each_overflow_shrinks(void **state)
{
    (void)state;
    ps_loss_scaler_options options = dynamic_options;
    options.hysteresis = 1;
    WALK(&options, {true, 8, 1, 0, PS_LOSS_SCALE_SHRANK}, {true, 4, 1, 0, PS_LOSS_SCALE_SHRANK},
         {false, 4, 1, 1, PS_LOSS_SCALE_KEPT}, {true, 2, 1, 0, PS_LOSS_SCALE_SHRANK});
}

static void test_minimum_is_kept_and_told(void **state)
{
    (void)state;
    ps_loss_scaler_options options = dynamic_options;
    options.hysteresis = 1;
    options.min_loss_scale = 6.0f; /* no power of two: the last move lands on it, not under it */
    WALK(&options, {true, 8, 1, 0, PS_LOSS_SCALE_SHRANK}, {true, 6, 1, 0, PS_LOSS_SCALE_SHRANK},
         {true, 6, 1, 0, PS_LOSS_SCALE_AT_MIN}, {true, 6, 1, 0, PS_LOSS_SCALE_AT_MIN},
         {false, 6, 1, 1, PS_LOSS_SCALE_KEPT}, {false, 6, 1, 2, PS_LOSS_SCALE_KEPT},
         {false, 12, 1, 0, PS_LOSS_SCALE_GREW});
}

static void test_maximum_is_kept_and_refills_hysteresis(void **state)
{
    (void)state;
    ps_loss_scaler_options options = dynamic_options;
    options.loss_scale_window = 1;
    options.max_loss_scale = 48.0f;
    WALK(&options, {false, 32, 2, 0, PS_LOSS_SCALE_GREW}, {false, 48, 2, 0, PS_LOSS_SCALE_GREW},
         {true, 48, 1, 0, PS_LOSS_SCALE_HYSTERESIS}, {false, 48, 2, 0, PS_LOSS_SCALE_AT_MAX},
         {false, 48, 2, 0, PS_LOSS_SCALE_AT_MAX});
}

static void assert_refused(const ps_loss_scaler_options *options, const char *word)
{
    ps_loss_scaler s = {.scale = 5.0f};
    assert_int_equal(ps_loss_scaler_init(&s, options), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), word));
    assert_true(s.scale == 5.0f);
}

static void test_bad_options_are_refused_by_name(void **state)
{
    (void)state;
    ps_loss_scaler_options o;
#define REFUSE(word, field, value) (o = dynamic_options, o.field = (value), assert_refused(&o, word))
    REFUSE("loss_scale -1", loss_scale, -1.0f);
    REFUSE("loss_scale nan", loss_scale, NAN);
    REFUSE("loss_scale inf", loss_scale, INFINITY);
    REFUSE("loss_scale_window 0", loss_scale_window, 0);
    REFUSE("hysteresis 0", hysteresis, 0);
    REFUSE("min_loss_scale 0", min_loss_scale, 0.0f);
    REFUSE("min_loss_scale nan", min_loss_scale, NAN);
    REFUSE("max_loss_scale 0.5", max_loss_scale, 0.5f);
    REFUSE("max_loss_scale inf", max_loss_scale, INFINITY);
    REFUSE("initial_scale 128", initial_scale, 128.0f);
    REFUSE("initial_scale 0.5", initial_scale, 0.5f);
    REFUSE("initial_scale inf", initial_scale, INFINITY);
    REFUSE("growth_factor 1 ", growth_factor, 1.0f);
    REFUSE("growth_factor inf", growth_factor, INFINITY);
    REFUSE("backoff_factor 1 ", backoff_factor, 1.0f);
    REFUSE("backoff_factor 0 ", backoff_factor, 0.0f);
#undef REFUSE
}

static void test_check_refuses_unreachable_states(void **state)
{
    (void)state;
    ps_loss_scaler good, s;
    assert_int_equal(ps_loss_scaler_init(&good, &dynamic_options), PS_OK);
    assert_int_equal(ps_loss_scaler_check(&good), PS_OK);
#define REFUSE(field, value) (s = good, s.field = (value), assert_int_equal(ps_loss_scaler_check(&s), PS_EINVAL))
    REFUSE(scale, 0.5f);
    REFUSE(scale, 65.0f);
    REFUSE(scale, NAN);
    REFUSE(n_clean_steps, 3);
    REFUSE(n_clean_steps, -1);
    REFUSE(hysteresis_left, 0);
    REFUSE(hysteresis_left, 3);
    REFUSE(n_skipped_steps, -1);
    REFUSE(event, (ps_loss_scale_event)9);
    REFUSE(options.min_loss_scale, -1.0f);
    const ps_loss_scaler_options static_options = {.loss_scale = 8.0f};
    assert_int_equal(ps_loss_scaler_init(&good, &static_options), PS_OK);
    assert_int_equal(ps_loss_scaler_check(&good), PS_OK);
    REFUSE(scale, 4.0f);
#undef REFUSE
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_static_scale_never_moves_but_skips),
        cmocka_unit_test(test_first_growth_after_exactly_one_window),
        cmocka_unit_test(test_overflow_restarts_the_window),
        cmocka_unit_test(test_hysteresis_is_refilled_by_a_full_window),
        cmocka_unit_test(test_consecutive_hysteresis_is_refilled_by_a_clean_step),
        cmocka_unit_test(test_without_hysteresis_each_overflow_shrinks),
        cmocka_unit_test(test_minimum_is_kept_and_told),
        cmocka_unit_test(test_maximum_is_kept_and_refills_hysteresis),
        cmocka_unit_test(test_bad_options_are_refused_by_name),
        cmocka_unit_test(test_check_refuses_unreachable_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
