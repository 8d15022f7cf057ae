/* test_lr_schedule.c - learning rates against values worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "train/optim/lr_schedule.h"

#define TOLERANCE 1e-15 /* relative; the formulas take a handful of double operations */

typedef struct lr_row {
    int64_t step;
    double lr;
} lr_row;

static void check_rows(const ps_lr_schedule *s, const lr_row *rows, size_t n)
{
    assert_int_equal(ps_lr_schedule_check(s), PS_OK);
    for (size_t i = 0; i < n; i++) {
        const double lr = ps_lr_schedule_get(s, rows[i].step);
        if (!(fabs(lr - rows[i].lr) <= TOLERANCE * (1.0 + fabs(rows[i].lr))))
            fail_msg("type %d step %lld: %.17g, expected %.17g", (int)s->type, (long long)rows[i].step, lr, rows[i].lr);
    }
}

#define EXPECT(schedule, ...)                                                                                          \
    do {                                                                                                               \
        const lr_row rows[] = {__VA_ARGS__};                                                                           \
        check_rows(&(schedule), rows, PS_ARRAY_LEN(rows));                                                             \
    } while (0)

static void test_constant(void **state)
{
    (void)state;
    const ps_lr_schedule s = {.type = PS_LR_CONSTANT, .lr = 0.25, .warmup_num_steps = 4};
    EXPECT(s, {0, 0.25}, {1, 0.25}, {1000000, 0.25});
}

static void test_constant_with_warmup(void **state)
{
    (void)state;
    ps_lr_schedule s = {.type = PS_LR_CONSTANT_WITH_WARMUP, .lr = 2.0, .warmup_num_steps = 4};
    EXPECT(s, {0, 0.0}, {1, 0.5}, {3, 1.5}, {4, 2.0}, {5, 2.0});
    s.warmup_num_steps = 0;
    EXPECT(s, {0, 2.0}, {1, 2.0});
}

static void test_linear(void **state)
{
    (void)state;
    ps_lr_schedule s = {.type = PS_LR_LINEAR, .lr = 1.0, .warmup_num_steps = 2, .total_num_steps = 10};
    EXPECT(s, {0, 0.0}, {1, 0.5}, {2, 1.0}, {3, 0.875}, {6, 0.5}, {9, 0.125}, {10, 0.0}, {11, 0.0});
    s.min_lr_ratio = 0.2;
    EXPECT(s, {0, 0.0}, {2, 1.0}, {6, 0.6}, {10, 0.2}, {99, 0.2});
}

static void test_cosine(void **state)
{
    (void)state;
    const double r2 = sqrt(0.5), r3 = sqrt(3.0);
    ps_lr_schedule s = {.type = PS_LR_COSINE, .lr = 1.0, .warmup_num_steps = 2, .total_num_steps = 14};
    /* p = 1/6, 1/4, 1/3, 1/2, 2/3, 3/4, 1 */
    EXPECT(s, {0, 0.0}, {1, 0.5}, {2, 1.0}, {4, 0.5 + r3 / 4.0}, {5, 0.5 + r2 / 2.0}, {6, 0.75}, {8, 0.5}, {10, 0.25},
           {11, 0.5 - r2 / 2.0}, {14, 0.0}, {20, 0.0});
    s.min_lr_ratio = 0.1;
    s.lr = 4.0;
    EXPECT(s, {1, 2.0}, {2, 4.0}, {6, 3.1}, {8, 2.2}, {10, 1.3}, {14, 0.4}, {26, 0.4});
}

/* The rates with which the golden file was made: 2 steps of warm-up, cosine over 8. */
static void test_cosine_of_the_golden_run(void **state)
{
    (void)state;
    const ps_lr_schedule s = {.type = PS_LR_COSINE, .lr = 1e-3, .warmup_num_steps = 2, .total_num_steps = 8};
    EXPECT(s, {0, 0.0}, {1, 0.0005}, {2, 0.001}, {3, 0.001 * (0.5 + sqrt(3.0) / 4.0)}, {4, 0.00075});
}

/* With W = 8 the logarithmic ramp passes thirds: ln 2 / ln 8, ln 4 / ln 8. */
static void test_warmup_lr(void **state)
{
    (void)state;
    ps_lr_schedule s = {.type = PS_LR_WARMUP_LR, .warmup_num_steps = 8, .warmup_min_lr = 0.1, .warmup_max_lr = 0.4};
    EXPECT(s, {0, 0.1}, {1, 0.2}, {3, 0.3}, {7, 0.4}, {8, 0.4}, {100, 0.4});
    s.warmup_type = PS_LR_RAMP_LINEAR;
    EXPECT(s, {0, 0.1}, {1, 0.1375}, {4, 0.25}, {7, 0.3625}, {8, 0.4}, {100, 0.4});
    s.warmup_num_steps = 0; /* DeepSpeed: at least 2 */
    EXPECT(s, {0, 0.1}, {1, 0.25}, {2, 0.4});
}

static void test_warmup_decay_lr(void **state)
{
    (void)state;
    ps_lr_schedule s = {.type = PS_LR_WARMUP_DECAY_LR,
                        .warmup_num_steps = 8,
                        .total_num_steps = 18,
                        .warmup_min_lr = 0.1,
                        .warmup_max_lr = 0.4};
    EXPECT(s, {0, 0.1}, {1, 0.2}, {3, 0.3}, {8, 0.4}, {13, 0.25}, {17, 0.13}, {18, 0.1}, {19, 0.1});
    s.warmup_type = PS_LR_RAMP_LINEAR;
    EXPECT(s, {4, 0.25}, {8, 0.4}, {13, 0.25});
    s.total_num_steps = 4; /* ends inside the warm-up; past it nothing is left to decay */
    EXPECT(s, {2, 0.175}, {8, 0.1}, {9, 0.1});
}

static void test_warmup_cosine_lr(void **state)
{
    (void)state;
    ps_lr_schedule s = {.type = PS_LR_WARMUP_COSINE_LR,
                        .lr = 2.0,
                        .warmup_num_steps = 8,
                        .total_num_steps = 14,
                        .warmup_min_ratio = 0.25,
                        .cos_min_ratio = 0.1};
    /* q = (s - 7) / 6: 1/6 at s = 8, 1/3 at 9, 1/2 at 10, 2/3 at 11, 1 at 13 */
    EXPECT(s, {0, 0.5}, {1, 1.0}, {3, 1.5}, {7, 2.0}, {8, 2.0 * (0.1 + 0.9 * (0.5 + sqrt(3.0) / 4.0))}, {9, 1.55},
           {10, 1.1}, {11, 0.65}, {13, 0.2}, {14, 0.2}, {20, 0.2});
    s.warmup_type = PS_LR_RAMP_LINEAR;
    EXPECT(s, {0, 0.5}, {4, 1.25}, {10, 1.1});
}

static void test_check_names_the_bad_field(void **state)
{
    (void)state;
    const ps_lr_schedule good = {.lr = 1.0,
                                 .warmup_num_steps = 2,
                                 .total_num_steps = 9,
                                 .min_lr_ratio = 0.5,
                                 .warmup_min_lr = 0.1,
                                 .warmup_max_lr = 0.2,
                                 .warmup_min_ratio = 0.5,
                                 .cos_min_ratio = 0.5};
    static const struct {
        ps_lr_type type;
        size_t offset;
        bool is_steps;
        double bad;
        const char *word;
    } cases[] = {
#define F(type, field, bad) {PS_LR_##type, offsetof(ps_lr_schedule, field), false, bad, #field " "}
#define S(type, field, bad)                                                                                            \
    {                                                                                                                  \
        PS_LR_##type, offsetof(ps_lr_schedule, field), true, bad, #field " "                                           \
    }
        F(CONSTANT, lr, -1.0),
        F(CONSTANT, lr, INFINITY),
        F(CONSTANT_WITH_WARMUP, lr, NAN),
        S(CONSTANT_WITH_WARMUP, warmup_num_steps, -1),
        F(LINEAR, lr, -1.0),
        S(LINEAR, warmup_num_steps, -1),
        S(COSINE, total_num_steps, 0),
        F(COSINE, min_lr_ratio, 1.5),
        F(LINEAR, min_lr_ratio, -0.5),
        F(COSINE, min_lr_ratio, NAN),
        F(WARMUP_LR, warmup_min_lr, -0.1),
        F(WARMUP_LR, warmup_max_lr, 0.05),
        F(WARMUP_DECAY_LR, warmup_max_lr, INFINITY),
        S(WARMUP_LR, warmup_num_steps, -3),
        S(WARMUP_DECAY_LR, total_num_steps, 0),
        F(WARMUP_COSINE_LR, lr, NAN),
        S(WARMUP_COSINE_LR, warmup_num_steps, -1),
        S(WARMUP_COSINE_LR, total_num_steps, -7),
        F(WARMUP_COSINE_LR, warmup_min_ratio, 1.01),
        F(WARMUP_COSINE_LR, cos_min_ratio, -0.01),
#undef F
#undef S
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_lr_schedule s = good;
        s.type = cases[i].type;
        assert_int_equal(ps_lr_schedule_check(&s), PS_OK);
        const int64_t steps = cases[i].is_steps ? (int64_t)cases[i].bad : 0;
        if (cases[i].is_steps)
            memcpy((char *)&s + cases[i].offset, &steps, sizeof(steps));
        else
            memcpy((char *)&s + cases[i].offset, &cases[i].bad, sizeof(cases[i].bad));
        if (ps_lr_schedule_check(&s) != PS_EINVAL || strstr(ps_last_error(), cases[i].word) != ps_last_error())
            fail_msg("case %zu, %s: \"%s\"", i, cases[i].word, ps_last_error());
    }
    ps_lr_schedule s = good;
    s.type = (ps_lr_type)99;
    assert_int_equal(ps_lr_schedule_check(&s), PS_EINVAL);
    /* What the type does not read is not looked at. */
    s = (ps_lr_schedule){.type = PS_LR_WARMUP_LR, .lr = -1.0, .cos_min_ratio = 7.0, .total_num_steps = -1};
    assert_int_equal(ps_lr_schedule_check(&s), PS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_constant_with_warmup),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_cosine_of_the_golden_run),
        cmocka_unit_test(test_warmup_lr),
        cmocka_unit_test(test_warmup_decay_lr),
        cmocka_unit_test(test_warmup_cosine_lr),
        cmocka_unit_test(test_check_names_the_bad_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
