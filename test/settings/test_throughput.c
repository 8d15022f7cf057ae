#include "train/settings/throughput.h"

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
        .n_nodes = 2,
        .gpus_per_node = 4,
        .device = {.bytes = 1 << 30,
                   .memory_bytes_per_s = 1e12,
                   .op_latency_ns = 5000,
                   .f32 = {.present = true, .flop_per_s = 2e13, .achievable_fraction = 0.5},
                   .bf16 = {.present = true, .flop_per_s = 1e14, .achievable_fraction = 0.8}},
        .host = {.bytes = 1 << 30, .memory_bytes_per_s = 5e10, .adam_fraction = 0.8},
        .link = {.to_device_bytes_per_s = 12e9, .to_host_bytes_per_s = 10e9, .latency_ns = 7, .shared_by = 2},
        .disk = {.present = true,
                 .bytes = 1 << 30,
                 .read_bytes_per_s = 4e9,
                 .write_bytes_per_s = 2e9,
                 .full_duplex = true,
                 .compute_interference = 1},
        .interconnect = {.present = true, .bytes_per_s = 150e9, .latency_ns = 10},
        .network = {.present = true, .bytes_per_s = 25e9, .latency_ns = 20},
    };
}

static void the_longer_of_arithmetic_and_traffic_and_the_latency(void **state)
{
    (void)state;
    const ps_hardware hw = hardware();
    const ps_cost arithmetic = {.flops = 8e12, .bytes = 1e9}, traffic = {.flops = 8e9, .bytes = 3e11}, nothing = {0};
    ps_throughput r;
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_BF16, &r), PS_OK);
    assert_close(ps_cost_seconds(&arithmetic, &r.compute), 0.1 + 5e-6);
    assert_close(ps_cost_seconds(&traffic, &r.compute), 0.3 + 5e-6);
    assert_close(ps_cost_seconds(&nothing, &r.compute), 5e-6);
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_F32, &r), PS_OK);
    assert_close(ps_cost_seconds(&arithmetic, &r.compute), 0.8 + 5e-6);
    assert_true(r.softmax.score_ns == 0 && r.softmax.logit_ns == 0 && r.softmax.gelu_ns == 0);
    ps_hardware some = hw;
    some.device.stream_fraction = 0.25;
    some.device.score_ns = 2, some.device.logit_ns = 3, some.device.gelu_ns = 4;
    assert_int_equal(ps_throughput_of(&some, PS_DTYPE_F32, &r), PS_OK);
    assert_close(ps_cost_seconds(&traffic, &r.compute), 1.2 + 5e-6);
    /* 3 rows of 5 logits; 2 causal heads of 4 positions have 16 scores, as costs count them */
    const ps_lm_loss_bwd_args loss = {.rows = 3, .C = 7, .V = 5};
    const ps_attention_fwd_args attention = {
        .B = 1, .T = 4, .H = 2, .KV = 2, .D = 8, .q_stride = 16, .kv_stride = 16, .causal = true};
    assert_close(ps_softmax_ns(PS_OP_lm_loss_bwd, &loss, &r.softmax), 45);
    assert_close(ps_softmax_ns(PS_OP_attention_fwd, &attention, &r.softmax), 32);
    assert_true(ps_softmax_ns(PS_OP_linear_fwd, &(ps_linear_fwd_args){.rows = 3, .n_in = 3, .n_out = 3}, &r.softmax) ==
                0);
    const ps_linear_fwd_args up = {.rows = 3, .n_in = 7, .n_out = 5, .epilogue.kind = PS_EPILOGUE_GELU};
    const ps_linear_bwd_input_args down = {.rows = 3, .n_in = 2, .n_out = 5, .epilogue.kind = PS_EPILOGUE_GELU_BWD};
    assert_close(ps_softmax_ns(PS_OP_linear_fwd, &up, &r.softmax), 60);
    assert_close(ps_softmax_ns(PS_OP_linear_bwd_input, &down, &r.softmax), 24);
    assert_close(ps_softmax_ns(PS_OP_gelu_fwd, &(ps_gelu_fwd_args){.n = 7}, &r.softmax), 28);
}

static void a_format_that_is_not_offered_is_refused_by_its_key(void **state)
{
    (void)state;
    const ps_hardware hw = hardware();
    ps_throughput r;
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_F16, &r), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "'test' has no matrix multiplication in f16: give device.fp16.flop_per_s"));
}

static void ranks_share_what_a_node_has(void **state)
{
    (void)state;
    const ps_hardware hw = hardware();
    ps_throughput r;
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_F32, &r), PS_OK);
    assert_close(r.update_bytes_per_s[PS_TIER_DEVICE], 1e12);
    assert_close(r.update_bytes_per_s[PS_TIER_HOST], 1e10);
    assert_close(r.links.link[PS_LINK_HOST_TO_DEVICE].bytes_per_s, 6e9);
    assert_close(r.links.link[PS_LINK_DEVICE_TO_HOST].bytes_per_s, 5e9);
    assert_int_equal(r.links.link[PS_LINK_DEVICE_TO_HOST].latency_ns, 7);
    assert_true(r.links.ram_contention == 1);
    assert_close(r.links.link[PS_LINK_DISK_READ].bytes_per_s, 1e9);
    assert_close(r.links.link[PS_LINK_DISK_WRITE].bytes_per_s, 0.5e9);
    assert_true(r.links.disk_contention == 0);
    /* computing never stands still for ever */
    assert_true(r.links.link[PS_LINK_DISK_READ].interference < 1);
    assert_int_equal(r.topology.n_ranks, 8);
    assert_int_equal(r.topology.ranks_per_node, 4);
}

/* Reading 4 and writing 2 GB/s alone, 3 and 1 GB/s at once: a second of both moves what takes 3/4 + 1/2 s alone. */
static void what_both_ways_cost_each_other_is_measured(void **state)
{
    (void)state;
    ps_hardware hw = hardware();
    ps_throughput r;
    hw.disk.read_both_ways_bytes_per_s = 3e9;
    hw.disk.write_both_ways_bytes_per_s = 1e9;
    hw.link.to_device_both_ways_bytes_per_s = 12e9;
    hw.link.to_host_both_ways_bytes_per_s = 9e9;
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_F32, &r), PS_OK);
    assert_close(r.links.disk_contention, 0.75);
    assert_close(r.links.ram_contention + 1, 1.1);
    hw.disk.read_both_ways_bytes_per_s = hw.disk.write_both_ways_bytes_per_s = 0.5e9; /* slower than in turns */
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_F32, &r), PS_OK);
    assert_true(r.links.disk_contention == 1);
}

/* Without GPUs the device is the processor: its updates run at the host's rate. */
static void a_processor_updates_at_the_rate_of_the_host(void **state)
{
    (void)state;
    ps_hardware hw = hardware();
    ps_throughput r;
    hw.n_nodes = 1;
    hw.gpus_per_node = 0;
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_F32, &r), PS_OK);
    assert_close(r.update_bytes_per_s[PS_TIER_DEVICE], 4e10);
    assert_close(r.update_bytes_per_s[PS_TIER_HOST], 4e10);
    assert_close(r.compact_update_bytes_per_s[PS_TIER_HOST], 1.6e10); /* not described */
    hw.host.adam_compact_fraction = 0.2;
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_F32, &r), PS_OK);
    assert_close(r.update_bytes_per_s[PS_TIER_DEVICE], 4e10);
    assert_close(r.compact_update_bytes_per_s[PS_TIER_DEVICE], 1e10);
    assert_close(r.compact_update_bytes_per_s[PS_TIER_HOST], 1e10);
    assert_int_equal(r.topology.n_ranks, 1);
    /* four ranks at once */
    const ps_throughput whole = r;
    ps_throughput_share(&r, 4);
    assert_close(r.update_bytes_per_s[PS_TIER_DEVICE], 1e10);
    assert_close(r.compact_update_bytes_per_s[PS_TIER_DEVICE], 2.5e9);
    assert_close(r.compute.flops_per_s, whole.compute.flops_per_s / 4);
    assert_close(r.host.bytes_per_s, whole.host.bytes_per_s / 4);
    assert_close(r.links.link[PS_LINK_DISK_READ].bytes_per_s, 1e9);
    assert_close(r.links.link[PS_LINK_COLLECTIVES].bytes_per_s, whole.links.link[PS_LINK_COLLECTIVES].bytes_per_s);
    hw.gpus_per_node = 4; /* a rank has a GPU */
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_F32, &r), PS_OK);
    const double flops_per_s = r.compute.flops_per_s;
    ps_throughput_share(&r, 4);
    assert_close(r.compute.flops_per_s, flops_per_s);
}

/* What is described holds; else the slower way of copies, shared as they are. */
static void from_gpu_to_gpu(void **state)
{
    (void)state;
    ps_hardware hw = hardware();
    ps_throughput r;
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_BF16, &r), PS_OK);
    ps_throughput_use_gpu_link(&r);
    assert_close(r.topology.node_bytes_per_s, 150e9);
    hw.interconnect.present = false;
    assert_int_equal(ps_throughput_of(&hw, PS_DTYPE_BF16, &r), PS_OK);
    ps_throughput_use_gpu_link(&r);
    assert_close(r.topology.node_bytes_per_s, 5e9);
    assert_close(r.topology.network_bytes_per_s, 25e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_gpu_to_gpu),
        cmocka_unit_test(the_longer_of_arithmetic_and_traffic_and_the_latency),
        cmocka_unit_test(a_format_that_is_not_offered_is_refused_by_its_key),
        cmocka_unit_test(ranks_share_what_a_node_has),
        cmocka_unit_test(what_both_ways_cost_each_other_is_measured),
        cmocka_unit_test(a_processor_updates_at_the_rate_of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
