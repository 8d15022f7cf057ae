/* CRC-32 against published sums, and against the definition a bit at a time, in all splits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/crc32.h"

/* The first is the check value of "CRC-32/ISO-HDLC" in Greg Cook's catalogue of CRC algorithms; the others have been
 * worked out by Python's zlib.crc32. */
static void test_known_sums(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t crc;
    } cases[] = {{"123456789", 0xcbf43926u},
                 {"", 0},
                 {"a", 0xe8b7be43u},
                 {"The quick brown fox jumps over the lazy dog", 0x414fa339u}};
    ps_crc32_table t;
    ps_crc32_table_init(&t);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        assert_int_equal(ps_crc32_update(&t, 0, cases[i].text, (int64_t)strlen(cases[i].text)), cases[i].crc);
}

static uint32_t bit_at_a_time(const uint8_t *data, int64_t n)
{
    uint32_t crc = ~0u;
    for (int64_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            const uint32_t out = (crc ^ (uint32_t)(data[i] >> bit)) & 1u;
            crc = crc >> 1 ^ (out != 0 ? 0xedb88320u : 0);
        }
    return ~crc;
}

static void test_splits(void **state)
{
    (void)state;
    uint8_t data[67];
    uint32_t seed = 1;
    ps_crc32_table t;
    ps_crc32_table_init(&t);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    for (int64_t first = 0; first < 9; first++)
        for (int64_t n = 0; n <= (int64_t)sizeof data - first; n++) {
            const uint32_t expected = bit_at_a_time(data + first, n);
            for (int64_t split = 0; split <= n; split++) {
                const uint32_t crc = ps_crc32_update(&t, 0, data + first, split);
                assert_int_equal(ps_crc32_update(&t, crc, data + first + split, n - split), expected);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_sums), cmocka_unit_test(test_splits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
