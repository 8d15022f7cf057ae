#include "plan/rates.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_close(double a, double b)
{
    if (fabs(a - b) > 1e-12 * fabs(b)) fail_msg("%.17g is not %.17g", a, b);
}

static ps_hardware hardware(void)
{
    return (ps_hardware){
        .name = "test",
        .gpus_per_node = 1,
        .device = {.bytes = 1 << 30,
                   .memory_bytes_per_s = 1e12,
                   .op_latency_ns = 5000,
                   .f32 = {.present = true, .flop_per_s = 2e13, .achievable_fraction = 0.5},
                   .bf16 = {.present = true, .flop_per_s = 1e14, .achievable_fraction = 0.8},
                   .fp16 = {.present = false, .flop_per_s = 1e14, .achievable_fraction = 1}},
        .host = {.bytes = 1 << 30, .memory_bytes_per_s = 5e10, .adam_fraction = 0.8, .op_latency_ns = 2000},
    };
}

static void the_longer_of_arithmetic_and_traffic_and_the_latency(void **state)
{
    (void)state;
    const ps_hardware hw = hardware();
    ps_device_rates rates;
    assert_int_equal(ps_rates_of_device(&hw, PS_DTYPE_BF16, &rates), PS_OK);
    const ps_cost arithmetic = {.flops = 8e12, .bytes = 1e9}, traffic = {.flops = 8e9, .bytes = 3e11}, nothing = {0};
    assert_close(ps_cost_seconds(&arithmetic, PS_DTYPE_BF16, &rates), 0.1 + 5e-6);
    assert_close(ps_cost_seconds(&arithmetic, PS_DTYPE_F32, &rates), 0.8 + 5e-6);
    assert_close(ps_cost_seconds(&traffic, PS_DTYPE_BF16, &rates), 0.3 + 5e-6);
    assert_close(ps_cost_seconds(&nothing, PS_DTYPE_BF16, &rates), 5e-6);
}

static void a_format_that_is_not_offered_is_refused_by_its_key(void **state)
{
    (void)state;
    ps_hardware hw = hardware();
    ps_device_rates rates;
    assert_int_equal(ps_rates_of_device(&hw, PS_DTYPE_F32, &rates), PS_OK);
    assert_int_equal(ps_rates_of_device(&hw, PS_DTYPE_F16, &rates), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "'test' offers no matrix products in f16: give device.fp16.flop_per_s"));
    hw.device.bf16.present = false;
    assert_int_equal(ps_rates_of_device(&hw, PS_DTYPE_BF16, &rates), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "device.bf16.flop_per_s"));
}

static void the_host_counts_traffic_where_it_offers_no_products(void **state)
{
    (void)state;
    ps_hardware hw = hardware();
    const ps_cost cost = {.flops = 1e12, .bytes = 1e10};
    ps_device_rates rates = ps_rates_of_host(&hw);
    assert_close(ps_cost_seconds(&cost, PS_DTYPE_F32, &rates), 0.2 + 2e-6);
    hw.host.f32 = (ps_hardware_matrix){.present = true, .flop_per_s = 1e12, .achievable_fraction = 0.5};
    rates = ps_rates_of_host(&hw);
    assert_close(ps_cost_seconds(&cost, PS_DTYPE_F32, &rates), 2 + 2e-6);
    assert_close(ps_rates_host_adam_seconds(&hw, 4e9), 0.1 + 2e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longer_of_arithmetic_and_traffic_and_the_latency),
        cmocka_unit_test(a_format_that_is_not_offered_is_refused_by_its_key),
        cmocka_unit_test(the_host_counts_traffic_where_it_offers_no_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
