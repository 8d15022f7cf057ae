#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compact.h"
#include "base/rng.h"

/* Values whose magnitudes go over some powers of ten. */
static void fill(float *x, int64_t n, uint64_t stream, float scale, bool is_root)
{
    for (int64_t i = 0; i < n; i++) {
        const float u = ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = 3, .stream = stream}, (uint64_t)i)) * 2 - 1;
        x[i] = u * u * u * scale;
        if (is_root) x[i] = x[i] * x[i];
    }
}

/* Errors are within half a step: of 1/127 of 2 r / (1 + |r|), whose slope is 1/2 at least, and of 1/255. */
static void test_errors(void **state)
{
    (void)state;
    float x[PS_FORMAT_GROUP], y[PS_FORMAT_GROUP];
    ps_compact_group g;
    for (uint64_t stream = 0; stream < 1000; stream++) {
        const float scale = powf(10.0f, (float)(stream % 30) - 13.0f);
        fill(x, PS_FORMAT_GROUP, stream, scale, false);
        ps_format_encode(PS_FORMAT_SIGNED, &g, x, PS_FORMAT_GROUP);
        ps_format_decode(PS_FORMAT_SIGNED, &g, 0, y, PS_FORMAT_GROUP);
        for (int i = 0; i < PS_FORMAT_GROUP; i++) {
            const float r = fabsf(x[i]) / g.scale;
            assert_true(fabsf(x[i] - y[i]) <= g.scale * (1 + r) * (1 + r) / (2 * 254) * 1.01f);
            if (r == 1) assert_true(x[i] == y[i]);
        }
        fill(x, PS_FORMAT_GROUP, stream, scale, true);
        ps_format_encode(PS_FORMAT_ROOT, &g, x, PS_FORMAT_GROUP);
        ps_format_decode(PS_FORMAT_ROOT, &g, 0, y, PS_FORMAT_GROUP);
        for (int i = 0; i < PS_FORMAT_GROUP; i++) {
            const float root = sqrtf(x[i]), most = g.scale / 510 * 1.001f;
            assert_true(fabsf(root - sqrtf(y[i])) <= (root < g.scale / 510 ? 2 * most : most));
            assert_true(x[i] == 0 || y[i] > 0);
        }
    }
}

/* Each code at each of many scales, so that a checkpoint of values gives back the bytes of states. */
static void test_encoding_decoded(void **state)
{
    (void)state;
    static const ps_format formats[] = {PS_FORMAT_SIGNED, PS_FORMAT_ROOT};
    for (int f = 0; f < 2; f++) {
        const bool is_signed = formats[f] == PS_FORMAT_SIGNED;
        for (uint64_t s = 0; s < 400; s++) {
            const int exponent = is_signed ? (int)(s % 227) - 100 : (int)(s % 118) - 55;
            const uint32_t w = ps_rng_u32((ps_rng_key){.seed = 5, .stream = (uint64_t)f}, s);
            const float scale = ldexpf(1 + ps_rng_unit(w), exponent);
            for (int first = 0; first < 256; first += 31) {
                ps_compact_group g = {.scale = scale}, again;
                float x[PS_FORMAT_GROUP];
                g.codes[0] = is_signed ? (uint8_t)(s % 2 == 0 ? 127 : -127) : 255;
                for (int i = 1; i < PS_FORMAT_GROUP; i++) {
                    const int c = (first + i - 1) % 256;
                    g.codes[i] = is_signed && c == 128 ? 0 : (uint8_t)c;
                }
                for (int i = 0; i < PS_FORMAT_GROUP; i++) x[i] = ps_compact_get(formats[f], &g, i);
                ps_compact_set(formats[f], &again, x, PS_FORMAT_GROUP);
                assert_memory_equal(&again, &g, sizeof g);
            }
        }
    }
}

static void test_parts_and_ends(void **state)
{
    (void)state;
    float x[40] = {0}, y[40];
    ps_compact_group g[2];
    memset(g, 0xff, sizeof g);
    x[33] = -2;
    ps_format_encode(PS_FORMAT_SIGNED, g, x, 35);
    assert_true(g[0].scale == 0 && g[1].scale == 2);
    for (int i = 0; i < PS_FORMAT_GROUP; i++) assert_int_equal((int8_t)g[1].codes[i], i == 1 ? -127 : 0);
    ps_format_decode(PS_FORMAT_SIGNED, g, 0, y, 35);
    assert_memory_equal(x, y, 35 * sizeof *x);
    x[3] = NAN;
    ps_format_encode(PS_FORMAT_ROOT, g, x, 32);
    ps_format_decode(PS_FORMAT_ROOT, g, 0, y, 32);
    assert_true(isnan(y[0]) && isnan(y[3]));
    assert_int_equal(ps_format_bytes(PS_FORMAT_ROOT, 35), 72);
    assert_int_equal(ps_format_bytes(PS_FORMAT_F32, 35), 140);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_encoding_decoded),
        cmocka_unit_test(test_parts_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
