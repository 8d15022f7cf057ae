/* Values as bf16 and 16 bits: every lower half beside many upper ones, against the definition in integers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/split.h"

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* What join gives of x. */
static uint32_t kept(uint32_t u)
{
    const float x = float_of(u);
    return bits_of(ps_split_join(ps_bf16_from_f32(x), ps_split_low(x)));
}

static void test_every_low_half(void **state)
{
    (void)state;
    static const uint32_t upper[] = {0x0000, 0x0001, 0x007f, 0x0080, 0x3f80, 0x3f81, 0x3fff,
                                     0x7f7e, 0x7f7f, 0x8000, 0x8001, 0xbf80, 0xbf81, 0xff7f};
    for (size_t i = 0; i < sizeof upper / sizeof *upper; i++)
        for (uint32_t low = 0; low <= 0xffff; low++) {
            const uint32_t u = upper[i] << 16 | low;
            const uint32_t is_half_way = low == 0x8000 ? upper[i] % 2 : 0;
            if (kept(u) != u + is_half_way) fail_msg("0x%08x becomes 0x%08x", u, kept(u));
            if (kept(kept(u)) != kept(u)) fail_msg("0x%08x is not kept", kept(u));
            /* its bf16 number is that of x */
            assert_int_equal(ps_bf16_from_f32(float_of(kept(u))), ps_bf16_from_f32(float_of(u)));
        }
}

static void test_not_finite(void **state)
{
    (void)state;
    assert_int_equal(kept(0x7f800000), 0x7f800000);
    assert_int_equal(kept(0xff800000), 0xff800000);
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff808000, 0xffc00000, 0xffffffff};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        assert_int_equal(kept(nans[i]), (uint32_t)ps_bf16_from_f32(float_of(nans[i])) << 16);
        assert_true(isnan(float_of(kept(nans[i]))));
    }
}

static void test_zeros_are_zeros(void **state)
{
    (void)state;
    assert_int_equal(bits_of(ps_split_join(0, 0)), 0); /* a chunk without content */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_low_half),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_zeros_are_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
