#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "assert_status.h"
#include "base/sized.h"

/* ps_step_info of a program to come, and of one that was there before its last member. */
typedef struct newer_info {
    ps_step_info known;
    int64_t added;
} newer_info;

enum { OLDER_BYTES = offsetof(ps_step_info, nonfinite_steps) };

static void test_same_version(void **state)
{
    (void)state;
    const ps_step_info info = {.struct_size = 3, .step = 7, .loss = 2.5, .nonfinite_steps = 4};
    ps_step_info out = {.struct_size = sizeof out, .is_skipped = 1};
    assert_ok(PS_SIZED_GIVE(ps_step_info, &info, &out));
    assert_int_equal(out.struct_size, sizeof out);
    assert_int_equal(out.step, 7);
    assert_int_equal(out.is_skipped, 0);
    assert_true(out.loss == 2.5);
    assert_int_equal(out.nonfinite_steps, 4);

    ps_step_info taken = {.is_skipped = 1};
    assert_ok(PS_SIZED_TAKE(ps_step_info, &out, &taken));
    assert_memory_equal(&taken, &out, sizeof out);
}

static void test_older_program(void **state)
{
    (void)state;
    const ps_step_info info = {.step = 7, .loss = 2.5, .nonfinite_steps = 4};
    ps_step_info out = {.struct_size = OLDER_BYTES, .nonfinite_steps = 99};
    assert_ok(PS_SIZED_GIVE(ps_step_info, &info, &out));
    assert_int_equal(out.struct_size, OLDER_BYTES);
    assert_true(out.loss == 2.5);
    assert_int_equal(out.nonfinite_steps, 99); /* not the program's */

    ps_step_info taken = {.nonfinite_steps = 1};
    assert_ok(PS_SIZED_TAKE(ps_step_info, &out, &taken));
    assert_int_equal(taken.struct_size, sizeof taken);
    assert_int_equal(taken.step, 7);
    assert_int_equal(taken.nonfinite_steps, 0);
}

static void test_newer_program(void **state)
{
    (void)state;
    const ps_step_info info = {.step = 7, .nonfinite_steps = 4};
    newer_info out = {.known = {.struct_size = sizeof out}, .added = 99};
    assert_ok(ps_sized_give(PS_SIZED_ps_step_info, &info, &out));
    assert_int_equal(out.known.struct_size, sizeof out);
    assert_int_equal(out.known.nonfinite_steps, 4);
    assert_int_equal(out.added, 0);

    ps_step_info taken;
    assert_ok(ps_sized_take(PS_SIZED_ps_step_info, &out, &taken));
    assert_int_equal(taken.struct_size, sizeof taken);
    assert_int_equal(taken.nonfinite_steps, 4);
    out.added = (int64_t)1 << 40;
    assert_int_equal(ps_sized_take(PS_SIZED_ps_step_info, &out, &taken), PS_EINVAL);
    char text[64];
    snprintf(text, sizeof text, "ps_step_info: byte %zu of its %zu is set", offsetof(newer_info, added) + 5,
             sizeof out);
    assert_non_null(strstr(ps_last_error(), text));
    assert_non_null(strstr(ps_last_error(), ps_version(NULL, NULL, NULL)));
    assert_int_equal(taken.step, 0);
}

static void test_sizes_that_are_none(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, sizeof(size_t), OLDER_BYTES - 1, sizeof(ps_step_info) + 4097, SIZE_MAX};
    const ps_step_info info = {.step = 7};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ps_step_info out = {.struct_size = sizes[i], .step = 1}, taken = {.step = 1};
        assert_int_equal(PS_SIZED_GIVE(ps_step_info, &info, &out), PS_EINVAL);
        assert_int_equal(out.step, 1);
        assert_int_equal(PS_SIZED_TAKE(ps_step_info, &out, &taken), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), "set it to sizeof(ps_step_info)"));
        assert_int_equal(taken.step, 0);
    }
    assert_int_equal(PS_SIZED_GIVE(ps_step_info, &info, NULL), PS_EINVAL);
    ps_step_info taken;
    assert_int_equal(PS_SIZED_TAKE(ps_step_info, NULL, &taken), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "a ps_step_info is needed"));
}

/* What every program of this version may rely on: none of these numbers may ever grow. */
static void test_sizes_of_then(void **state)
{
    (void)state;
    const struct {
        ps_sized which;
        size_t bytes;
    } then[] = {
        {PS_SIZED_ps_rope, 96},         {PS_SIZED_ps_attention_options, 40}, {PS_SIZED_ps_batch, 40},
        {PS_SIZED_ps_eval_info, 32},    {PS_SIZED_ps_step_info, 56},         {PS_SIZED_ps_memory_info, 224},
        {PS_SIZED_ps_profile_info, 48}, {PS_SIZED_ps_load_info, 40},         {PS_SIZED_ps_checkpoint_info, 72},
        {PS_SIZED_ps_own_use, 160},
    };
    for (size_t i = 0; i < sizeof then / sizeof then[0]; i++) {
        size_t from[512] = {0}, to[512] = {then[i].bytes};
        assert_ok(ps_sized_give(then[i].which, from, to));
        to[0]--;
        assert_int_equal(ps_sized_give(then[i].which, from, to), PS_EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_version),  cmocka_unit_test(test_older_program),
        cmocka_unit_test(test_newer_program), cmocka_unit_test(test_sizes_that_are_none),
        cmocka_unit_test(test_sizes_of_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
