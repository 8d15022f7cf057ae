/* test_param_groups.c - groups of parameters: numbers as configured and as set, and that updates keep those that were
 * decided. */
#include "engine/engine_fixture.h"

#include <math.h>

#include "config/config.h"
#include "train/state/param_groups.h"

static ps_settings settings_of(void)
{
    ps_settings s;
    ps_config *c = TINY("optimizer.params.lr=0.5", "optimizer.params.weight_decay=0.25",
                        "optimizer.param_groups=[{\"params\": [\"*bias\"], \"lr\": 0.125, \"betas\": [0.5, 0.75]}]",
                        "scheduler.type=constant_with_warmup", "scheduler.params.warmup_num_steps=4");
    assert_int_equal(ps_settings_read(c, true, &s), PS_OK);
    ps_config_destroy(c);
    return s;
}

static void test_numbers(void **state)
{
    (void)state;
    const ps_settings s = settings_of();
    ps_param_groups g;
    assert_int_equal(ps_param_groups_init(&g, &s), PS_OK);
    assert_int_equal(g.n, 2);
    /* half of the warm-up */
    assert_true(ps_param_groups_learning_rate(&g, 0, 2) == 0.25 && ps_param_groups_learning_rate(&g, 1, 2) == 0.0625);
    g.all[1].lr = ps_param_group_number(3, NAN);
    assert_true(ps_param_groups_learning_rate(&g, 0, 2) == 0.25 && ps_param_groups_learning_rate(&g, 1, 2) == 3);
    g.all[1].lr = ps_param_group_number(-1, NAN);
    assert_true(ps_param_groups_learning_rate(&g, 1, 2) == 0.0625);
    assert_true(ps_param_group_number(0, 1) == 0 && ps_param_group_number(NAN, 1) == 1 &&
                ps_param_group_number(-0.5, 1) == 1);
    ps_param_groups_deinit(&g);
    ps_param_groups_deinit(&g);
}

/* What is set afterwards is for the next step; one more has what the first one has, of the updates that wait too. */
static void test_decided(void **state)
{
    (void)state;
    const ps_settings s = settings_of();
    ps_param_groups g;
    assert_int_equal(ps_param_groups_init(&g, &s), PS_OK);
    ps_param_groups_decide(&g, 3, false, 0.5f);
    g.all[0].lr = 7;
    g.all[0].optimizer.weight_decay = 8;
    g.all[1].optimizer.betas[0] = 0.875;
    assert_int_equal(ps_param_groups_add(&g), PS_OK);
    const ps_piece_update first = ps_param_groups_update(&g, 0, true), second = ps_param_groups_update(&g, 1, false),
                          third = ps_param_groups_update(&g, 2, true);
    assert_true(!first.skips && first.step.t == 4 && first.step.grad_scale == 0.5f);
    assert_true(first.step.lr == 0.375f && first.weight_decay == 0.25f);
    assert_true(second.step.lr == 0.09375f && second.weight_decay == 0 && second.optimizer->betas[0] == 0.5);
    assert_true(third.step.lr == 0.375f && third.weight_decay == 0.25f && g.all[2].lr == 7);
    ps_param_groups_decide(&g, 4, true, 1);
    const ps_piece_update next = ps_param_groups_update(&g, 2, true);
    assert_true(next.skips && next.step.t == 5 && next.step.lr == 7 && next.weight_decay == 8);
    assert_true(ps_param_groups_update(&g, 1, true).optimizer->betas[0] == 0.875);
    ps_param_groups_deinit(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_decided)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
