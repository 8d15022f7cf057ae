#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "base/rng.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void test_names_and_sizes(void **state)
{
    (void)state;
    assert_string_equal(ps_dtype_name(PS_DTYPE_F32), "f32");
    assert_string_equal(ps_dtype_name(PS_DTYPE_BF16), "bf16");
    assert_string_equal(ps_dtype_name(PS_DTYPE_F16), "f16");
    assert_string_equal(ps_dtype_name(PS_DTYPE_COUNT), "?");
    assert_int_equal(ps_dtype_bytes(PS_DTYPE_F32), 4);
    assert_int_equal(ps_dtype_bytes(PS_DTYPE_BF16), 2);
    assert_int_equal(ps_dtype_bytes(PS_DTYPE_F16), 2);
}

static void test_every_pattern_returns(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float b = ps_bf16_to_f32((uint16_t)h), f = ps_f16_to_f32((uint16_t)h);
        if (isnan(b))
            assert_true(isnan(ps_bf16_to_f32(ps_bf16_from_f32(b))));
        else
            assert_int_equal(ps_bf16_from_f32(b), h);
        if (isnan(f))
            assert_true(isnan(ps_f16_to_f32(ps_f16_from_f32(f))));
        else
            assert_int_equal(ps_f16_from_f32(f), h);
    }
}

/* The value of a pattern by the definition of binary16. */
static double f16_value(uint32_t h)
{
    const int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
    const double magnitude = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                             : exponent == 0 ? ldexp(fraction, -24)
                                             : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void test_f16_values(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const double want = f16_value(h), got = (double)ps_f16_to_f32((uint16_t)h);
        assert_true(isnan(want) ? isnan(got) : want == got && signbit(want) == signbit(got));
    }
}

/* Halfway between two neighbours the even one wins, and a float to either side the nearer one. Beyond the largest
 * value the neighbour is infinity, at the place where the next value would be. */
static void test_ties(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        const double above = h + 1 == 0x7c00 ? 65536.0 : f16_value(h + 1);
        const float middle = (float)((f16_value(h) + above) / 2.0);
        assert_int_equal(ps_f16_from_f32(middle), h + (h & 1));
        assert_int_equal(ps_f16_from_f32(nextafterf(middle, 0.0f)), h);
        assert_int_equal(ps_f16_from_f32(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(ps_f16_from_f32(-middle), (h + (h & 1)) | 0x8000);
    }
    for (uint32_t h = 0; h < 0x7f80; h++) {
        const uint32_t middle = h << 16 | 0x8000;
        assert_int_equal(ps_bf16_from_f32(float_of(middle)), h + (h & 1));
        assert_int_equal(ps_bf16_from_f32(float_of(middle - 1)), h);
        assert_int_equal(ps_bf16_from_f32(float_of(middle + 1)), h + 1);
        assert_int_equal(ps_bf16_from_f32(float_of(middle | 0x80000000u)), (h + (h & 1)) | 0x8000);
    }
}

static void test_specials(void **state)
{
    (void)state;
    assert_int_equal(ps_f16_from_f32(65504.0f), 0x7bff);
    assert_int_equal(ps_f16_from_f32(65519.99f), 0x7bff);
    assert_int_equal(ps_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(ps_f16_from_f32(-1e30f), 0xfc00);
    assert_int_equal(ps_f16_from_f32(-0.0f), 0x8000);
    assert_int_equal(ps_f16_from_f32(0x1p-24f), 1);
    assert_int_equal(ps_f16_from_f32(0x1p-25f), 0);
    assert_int_equal(ps_f16_from_f32(0x1.8p-25f), 1);
    assert_int_equal(ps_bf16_from_f32(float_of(0x7f7fffff)), 0x7f80);
    assert_int_equal(ps_bf16_from_f32(-INFINITY), 0xff80);
    /* a NaN whose fraction is in the bits that are cut off must not become infinity */
    assert_true(isnan(ps_bf16_to_f32(ps_bf16_from_f32(float_of(0x7f800001)))));
    assert_true(isnan(ps_f16_to_f32(ps_f16_from_f32(float_of(0xff800001)))));
    assert_int_equal(ps_bf16_from_f32(float_of(0x7f800001)) & 0x40, 0x40);
    assert_int_equal(ps_f16_from_f32(float_of(0x7f800001)) & 0x200, 0x200);
}

#ifdef __FLT16_MANT_DIG__
__extension__ typedef _Float16 compiler_f16;

/* The compiler's own binary16, on floats of all magnitudes. */
static void test_f16_against_compiler(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000000; i++) {
        const float f = float_of(ps_rng_u32((ps_rng_key){.seed = 1}, i));
        const compiler_f16 want = (compiler_f16)f;
        uint16_t h;
        memcpy(&h, &want, sizeof h);
        if (isnan(f))
            assert_true(isnan(ps_f16_to_f32(ps_f16_from_f32(f))));
        else
            assert_int_equal(ps_f16_from_f32(f), h);
    }
}
#endif

static void test_arrays(void **state)
{
    (void)state;
    for (int t = 0; t < PS_DTYPE_COUNT; t++) {
        uint32_t cells[2] = {0};
        ps_dtype_store((ps_dtype)t, cells, 1, 1.5f);
        assert_true(ps_dtype_load((ps_dtype)t, cells, 0) == 0.0f);
        assert_true(ps_dtype_load((ps_dtype)t, cells, 1) == 1.5f);
    }
    assert_int_equal(bits_of(ps_bf16_to_f32(0x3fc0)), bits_of(1.5f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_every_pattern_returns),
        cmocka_unit_test(test_f16_values),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_specials),
        cmocka_unit_test(test_arrays),
#ifdef __FLT16_MANT_DIG__
        cmocka_unit_test(test_f16_against_compiler),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
