/* Steps whose gradients are not finite: skipped, and after some of them in a row an error that says what was seen
 * first. */
#include "engine/engine_fixture.h"

#include <math.h>

enum { B = 2, T = 16 };

static ps_status step_of(ps_engine *e, int64_t index)
{
    int32_t tokens[B * T], targets[B * T];
    int64_t K;
    ps_engine_get_shape(e, NULL, NULL, &K, NULL);
    for (int64_t k = 0; k < K; k++) {
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, index * K + k);
        assert_ok(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
        assert_ok(ps_backward(e));
        const ps_status st = ps_step(e);
        if (k + 1 == K) return st;
        assert_ok(st);
    }
    return PS_OK;
}

static void expect_skips(ps_engine *e, int from, int n)
{
    ps_step_info info = {.struct_size = sizeof info};
    for (int i = 0; i < n; i++) {
        assert_ok(step_of(e, from + i));
        ps_engine_get_step_info(e, &info);
        assert_int_equal(info.is_skipped, 1);
    }
}

static void expect_end(ps_engine *e, int index, const char *seen, const char *step)
{
    assert_int_equal(step_of(e, index), PS_ENUMERIC);
    if (strstr(ps_last_error(), seen) == NULL || strstr(ps_last_error(), step) == NULL)
        fail_msg("not \"%s ... %s\": %s", seen, step, ps_last_error());
}

static void write_one(ps_engine *e, float value)
{
    assert_ok(ps_engine_write_tensor(e, 4, 3, 1, &value));
}

static void test_ends_after_some(void **state)
{
    (void)state;
    static const char *const more[] = {"bf16.enabled=true", "gradient_accumulation_steps=2", "memory.disk=20MB"};
    for (size_t i = 0; i < PS_ARRAY_LEN(more); i++) {
        ps_config *c = TINY("train.threads=1", more[i]);
        ps_engine *e = engine_of(c);
        uint64_t before, after;
        assert_ok(step_of(e, 0));
        write_one(e, NAN);
        assert_ok(ps_engine_get_weights_xxh3(e, &before));
        expect_skips(e, 1, 4);
        expect_end(e, 5, "first seen: a loss of", "in step 2.");
        assert_ok(ps_engine_get_weights_xxh3(e, &after));
        assert_true(before == after);
        write_one(e, 0.5f); /* it continues, and counts anew */
        assert_ok(step_of(e, 6));
        write_one(e, INFINITY);
        expect_skips(e, 7, 4);
        expect_end(e, 11, "not finite", "in step 8.");
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
}

static void test_other_numbers(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "train.max_nonfinite_steps=1");
    ps_engine *e = engine_of(c);
    write_one(e, NAN);
    expect_end(e, 0, "1 steps in a row", "in step 1.");
    ps_engine_destroy(e);
    ps_config_destroy(c);
    c = TINY("train.threads=1", "train.max_nonfinite_steps=0");
    e = engine_of(c);
    write_one(e, NAN);
    expect_skips(e, 0, 12);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* A scale that falls is the remedy; one that cannot fall any more is none. 2^4 to 2^1: the first is forgiven, three
 * fall. */
static void test_falling_scale(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "fp16.enabled=true", "fp16.initial_scale_power=4", "fp16.min_loss_scale=2",
                        "fp16.hysteresis=2", "train.max_nonfinite_steps=2");
    ps_engine *e = engine_of(c);
    write_one(e, NAN);
    expect_skips(e, 0, 5);
    expect_end(e, 5, "a loss of", "in step 5.");
    ps_engine_destroy(e);
    ps_config_destroy(c);
    /* gradients that overflow under a fixed scale, at a loss that is finite */
    c = TINY("train.threads=1", "fp16.enabled=true", "fp16.loss_scale=1e12", "train.max_nonfinite_steps=3");
    e = engine_of(c);
    expect_skips(e, 0, 2);
    expect_end(e, 2, "the gradient of", "in step 1.");
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_after_some),
        cmocka_unit_test(test_other_numbers),
        cmocka_unit_test(test_falling_scale),
    };
    return RUN_ON_BACKENDS(tests);
}
