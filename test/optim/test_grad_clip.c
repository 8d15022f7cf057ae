/* test_grad_clip.c - global norm, clip factor, weight decay's exclusions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/optim/grad_clip.h"

/* assert_true of == : the values are exact in double, or must be this very double. */

static double norm_of(const double *squares, int n, double scale)
{
    ps_exact_sum sum = {{0}};
    for (int i = 0; i < n; i++) ps_exact_sum_add(&sum, squares[i]);
    return ps_grad_norm(&sum, scale);
}

static void test_norm_is_the_root_of_the_sum(void **state)
{
    (void)state;
    const double sums[] = {9.0, 0.0, 16.0, 144.0};
    assert_true(norm_of(sums, 4, 1.0) == 13.0);
    assert_true(norm_of(sums, 3, 1.0) == 5.0);
    assert_true(norm_of(sums, 0, 1.0) == 0.0);
}

static void test_norm_takes_the_loss_scale_out(void **state)
{
    (void)state;
    const double sums[] = {9.0 * 65536.0 * 65536.0, 16.0 * 65536.0 * 65536.0};
    assert_true(norm_of(sums, 2, 65536.0) == 5.0);
}

static void test_clip_factor(void **state)
{
    (void)state;
    assert_true(ps_grad_clip_factor(2.0, 1.0) == 1.0 / (2.0 + 1e-6));
    assert_true(ps_grad_clip_factor(0.5, 1.0) == 1.0);
    assert_true(ps_grad_clip_factor(0.0, 1.0) == 1.0);
    /* as PyTorch: at the bound itself the 1e-6 already acts */
    assert_true(ps_grad_clip_factor(1.0, 1.0) == 1.0 / (1.0 + 1e-6));
    assert_true(ps_grad_clip_factor(1e-9, 1e-7) == 1e-7 / (1e-9 + 1e-6));
}

static void test_clipping_off(void **state)
{
    (void)state;
    assert_true(ps_grad_clip_factor(1e30, 0.0) == 1.0);
    assert_true(ps_grad_clip_factor(1e30, -1.0) == 1.0);
}

static void test_clip_factor_does_not_hide_a_bad_norm(void **state)
{
    (void)state;
    assert_true(isnan(ps_grad_clip_factor(NAN, 1.0)));
    assert_true(ps_grad_clip_factor(INFINITY, 1.0) == 0.0);
}

static void test_weight_decay_exclusions(void **state)
{
    (void)state;
    assert_true(ps_weight_decay_applies("h.0.mlp.c_fc.weight", 2));
    assert_true(ps_weight_decay_applies("wte.weight", 2));
    assert_true(ps_weight_decay_applies("experts", 3));
    assert_true(ps_weight_decay_applies("bias.weight", 2));
    assert_true(ps_weight_decay_applies("x.unbias", 2));
    assert_false(ps_weight_decay_applies("h.0.ln_1.weight", 1));
    assert_false(ps_weight_decay_applies("h.0.mlp.c_fc.bias", 1));
    assert_false(ps_weight_decay_applies("temperature", 0));
    assert_false(ps_weight_decay_applies("qkv.bias", 2));
    assert_false(ps_weight_decay_applies("bias", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_is_the_root_of_the_sum),
        cmocka_unit_test(test_norm_takes_the_loss_scale_out),
        cmocka_unit_test(test_clip_factor),
        cmocka_unit_test(test_clipping_off),
        cmocka_unit_test(test_clip_factor_does_not_hide_a_bad_norm),
        cmocka_unit_test(test_weight_decay_exclusions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
