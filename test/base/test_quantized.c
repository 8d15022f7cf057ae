#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/quantized.h"
#include "base/rng.h"

static const double values[16] = {PS_NF4_VALUES};

static void fill(float *x, int64_t n, uint64_t stream, float scale)
{
    for (int64_t i = 0; i < n; i++) {
        const float u = ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = 5, .stream = stream}, (uint64_t)i)) * 2 - 1;
        x[i] = u * u * u * scale;
    }
}

static double largest(const float *x, int64_t n)
{
    double a = 0;
    for (int64_t i = 0; i < n; i++) a = fmax(a, fabs((double)x[i]));
    return a;
}

/* Errors are within half a step, of 8 bits or between two of the sixteen values, and half a unit of the scale's last
 * place. */
static void test_errors(void **state)
{
    (void)state;
    enum { N = 1000 };
    float x[N];
    ps_int8_record int8[2];
    ps_nf4_record nf4[2];
    for (uint64_t stream = 0; stream < 200; stream++) {
        fill(x, N, stream, powf(10.0f, (float)(stream % 40) - 20.0f));
        ps_quantize(PS_QUANT_INT8, int8, x, N);
        ps_quantize(PS_QUANT_NF4, nf4, x, N);
        for (int64_t i = 0; i < N; i++) {
            const int64_t group = i / PS_QUANT_GROUP * PS_QUANT_GROUP;
            const double a = largest(x + group, N - group < PS_QUANT_GROUP ? N - group : PS_QUANT_GROUP);
            const double of_8 = ps_quant_get(PS_QUANT_INT8, int8, i), of_4 = ps_quant_get(PS_QUANT_NF4, nf4, i);
            assert_true(fabs(of_8 - x[i]) <= a * (0.5 / 127 * (1 + 0x1p-8) + 0x1p-9));
            double nearest = INFINITY;
            for (int c = 0; c < 16; c++)
                if (fabs(values[c] * a - x[i]) < fabs(nearest - x[i])) nearest = values[c] * a;
            assert_true(fabs(of_4 - x[i]) <= fabs(nearest - x[i]) + a * (0x1p-8 + 1e-6));
        }
    }
}

/* Values that are in the format keep their bits, where their scale is a bf16. */
static void test_exact(void **state)
{
    (void)state;
    float x[PS_QUANT_RECORD], y[PS_QUANT_RECORD];
    ps_int8_record int8;
    ps_nf4_record nf4;
    for (int i = 0; i < PS_QUANT_RECORD; i++) x[i] = (float)(i * 37 % 255 - 127) * 0x1.8p-9f;
    for (int i = 0; i < PS_QUANT_RECORD; i += PS_QUANT_GROUP) x[i] = 127 * 0x1.8p-9f;
    ps_quantize(PS_QUANT_INT8, &int8, x, PS_QUANT_RECORD);
    ps_dequantize(PS_QUANT_INT8, &int8, 0, y, PS_QUANT_RECORD);
    assert_memory_equal(x, y, sizeof x);
    for (int i = 0; i < PS_QUANT_RECORD; i++) x[i] = (float)values[i % 16] * 0x1.8p-9f;
    ps_quantize(PS_QUANT_NF4, &nf4, x, PS_QUANT_RECORD);
    ps_dequantize(PS_QUANT_NF4, &nf4, 0, y, PS_QUANT_RECORD);
    assert_memory_equal(x, y, sizeof x);
    for (int i = 0; i < 8; i++) assert_int_equal(nf4.codes[i], 2 * i << 4 | (2 * i + 1)); /* the first is above */
}

/* As argmin of |x - value| in fp32, the first of equal ones, which bitsandbytes computes. */
static uint8_t nearest(float x)
{
    uint8_t best = 0;
    for (uint8_t c = 1; c < 16; c++)
        if (fabsf(x - (float)values[c]) < fabsf(x - (float)values[best])) best = c;
    return best;
}

static uint8_t nf4_code(float x)
{
    uint8_t code;
    ps_nf4_codes(&x, 1, &code, 1);
    return code;
}

/* Every float near the middle of two values, and many others. */
static void test_nf4_codes(void **state)
{
    (void)state;
    for (uint8_t c = 0; c < 16; c++) {
        assert_int_equal(nf4_code((float)values[c]), c);
        if (c == 15) continue;
        float x = (float)((values[c] + values[c + 1]) / 2);
        for (int i = 0; i < 200; i++) x = nextafterf(x, -2);
        for (int i = 0; i < 400; i++, x = nextafterf(x, 2)) assert_int_equal(nf4_code(x), nearest(x));
        assert_int_equal(nearest(x), c + 1);
    }
    for (int i = -120000; i <= 120000; i++) assert_int_equal(nf4_code((float)i / 100000), nearest((float)i / 100000));
    assert_int_equal(nf4_code(2), 15);
    assert_int_equal(nf4_code(-2), 0);
}

/* Of a part of a record, what follows is zero; zeros, what is not finite, and the smallest and largest numbers. */
static void test_edges(void **state)
{
    (void)state;
    for (ps_quant q = PS_QUANT_INT8; q <= PS_QUANT_NF4; q++) {
        ps_int8_record r[2]; /* the larger one */
        float x[PS_QUANT_RECORD] = {0}, y[PS_QUANT_RECORD];
        memset(r, 0xff, sizeof r);
        ps_quantize(q, r, x, 1);
        ps_dequantize(q, r, 0, y, PS_QUANT_RECORD);
        for (int i = 0; i < PS_QUANT_RECORD; i++) assert_true(y[i] == 0);
        assert_int_equal(((const uint8_t *)r)[ps_item_bytes(ps_quant_item(q), 1)], 0xff);

        x[0] = 1e-38f, x[64] = 3e38f, x[65] = -3e38f, x[130] = NAN, x[200] = -INFINITY, x[300] = 3.4028235e38f;
        ps_quantize(q, r, x, PS_QUANT_RECORD);
        ps_dequantize(q, r, 0, y, PS_QUANT_RECORD);
        for (int i = 0; i < 64; i++) assert_true(y[i] == 0);
        assert_true(fabsf(y[64] - 3e38f) < 2e36f && fabsf(y[65] + 3e38f) < 2e36f && y[66] == 0);
        for (int i = 128; i < 256; i++) assert_true(isnan(y[i]));
        assert_true(q == PS_QUANT_INT8 ? isfinite(y[300]) : isnan(y[300])); /* bf16 has no such scale */
        assert_true(y[320] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_nf4_codes),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
