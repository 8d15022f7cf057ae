/* test_same_math.c - against the C library's long double, limits, and the bits that every machine must have. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/rng.h"
#include "base/same_math.h"

#define N 200000

static const ps_rng_key key = {.seed = 12, .stream = 3};

/* Uniform in (-1/2, 1/2). */
static double uniform(int i)
{
    const uint64_t high = ps_rng_u32(key, (uint64_t)(2 * i)), low = ps_rng_u32(key, (uint64_t)(2 * i + 1));
    return ((double)(high << 20 | low >> 12) + 0.5) * 0x1p-52 - 0.5;
}

/* got - want in units of the last place of want. */
static double ulps(double got, long double want)
{
    int exponent;
    frexpl(want, &exponent);
    return (double)fabsl(((long double)got - want) * ldexpl(1, 53 - exponent));
}

static void test_log(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        const double near = 1.0 + uniform(i), far = exp(1400 * uniform(i));
        if (ulps(ps_same_log(near), logl(near)) > 1) fail_msg("log %.17g = %.17g", near, ps_same_log(near));
        if (ulps(ps_same_log(far), logl(far)) > 1) fail_msg("log %.17g = %.17g", far, ps_same_log(far));
    }
    assert_true(ps_same_log(1) == 0);
    assert_true(ps_same_log(0) == -INFINITY && ps_same_log(INFINITY) == INFINITY && isnan(ps_same_log(NAN)));
}

static void test_exp_and_pow(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        const double near = uniform(i), far = 1416 * uniform(i);
        if (ulps(ps_same_exp(near), expl(near)) > 1) fail_msg("exp %.17g = %.17g", near, ps_same_exp(near));
        if (ulps(ps_same_exp(far), expl(far)) > 1) fail_msg("exp %.17g = %.17g", far, ps_same_exp(far));
        const double power = ps_same_pow(1e6, near);
        if (ulps(power, powl(1e6, near)) > 16) fail_msg("1e6 ^ %.17g = %.17g", near, power);
    }
    assert_true(ps_same_exp(0) == 1 && ps_same_exp(-1e9) == 0 && ps_same_exp(1e9) == INFINITY &&
                isnan(ps_same_exp(NAN)));
    assert_true(ps_same_pow(0, 3) == 0 && ps_same_pow(1, 1e6) == 1); /* Adam without momentum has beta1 = 0 */
}

static void test_cos_and_sin(void **state)
{
    (void)state;
    static const double widest[] = {1, 10, 1e5, 0x1p27};
    for (int i = 0; i < N; i++) {
        const double x = uniform(i) * widest[i % 4];
        double c, s;
        ps_same_cos_sin(x, &c, &s);
        if (fabsl(c - cosl(x)) > 0x1p-52L || fabsl(s - sinl(x)) > 0x1p-52L) fail_msg("%.17g: %.17g, %.17g", x, c, s);
    }
    assert_true(ps_same_cos(0) == 1 && ps_same_cos(M_PI) == -1); /* a schedule ends exactly at its last rate */
}

/* Bits of another compiler or processor, too: nothing but operations that IEEE 754 defines. */
static void test_bits(void **state)
{
    (void)state;
    uint64_t hash = 0;
    for (int i = 0; i < 10000; i++) {
        double c, s;
        const double x = uniform(i);
        ps_same_cos_sin(1e3 * x, &c, &s);
        const double y[] = {c, s, ps_same_log(fabs(x)), ps_same_exp(50 * x), ps_same_pow(1e4, x)};
        for (size_t j = 0; j < PS_ARRAY_LEN(y); j++)
            hash = (hash ^ ps_same_bits(y[j])) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
    }
    if (hash != UINT64_C(0x9ca96b3192467573)) fail_msg("the bits have hash 0x%llx", (unsigned long long)hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_exp_and_pow),
        cmocka_unit_test(test_cos_and_sin),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
