#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

/* Known answers for philox4x32-10 published with Random123 (kat_vectors): counter, key, result. Here the counter is
 * (index, stream) and the key is the seed, low words first. */
static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint64_t index, stream, seed;
        uint32_t want[4];
    } answers[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        uint32_t got[4];
        const ps_rng_key key = {.seed = answers[i].seed, .stream = answers[i].stream};
        ps_rng_block(key, answers[i].index, got);
        assert_memory_equal(got, answers[i].want, sizeof got);
    }
}

static void test_words_are_parts_of_blocks(void **state)
{
    (void)state;
    const ps_rng_key key = {.seed = 3, .stream = 4};
    const uint64_t first = ((uint64_t)1 << 40) + 1;
    for (uint64_t i = first; i < first + 40; i++) {
        uint32_t block[4];
        ps_rng_block(key, i / 4, block);
        assert_int_equal(ps_rng_u32(key, i), block[i % 4]);
    }
}

static void test_unit(void **state)
{
    (void)state;
    assert_true(ps_rng_unit(0) == 0.0f);
    assert_true(ps_rng_unit(0x80000000u) == 0.5f);
    assert_true(ps_rng_unit(UINT32_MAX) == 1.0f - 0x1p-24f);
    const int n = 100000;
    double mean = 0.0, square = 0.0;
    for (int i = 0; i < n; i++) {
        const double u = (double)ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = 1}, (uint64_t)i));
        mean += u / n;
        square += u * u / n;
    }
    assert_true(fabs(mean - 0.5) < 5.0 / sqrt(12.0 * n)); /* 5 standard errors */
    assert_true(fabs(square - mean * mean - 1.0 / 12.0) < 5.0 / sqrt(180.0 * n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_words_are_parts_of_blocks),
        cmocka_unit_test(test_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
