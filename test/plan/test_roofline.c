#include "../bench/roofline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_near(double is, double expected, double relative)
{
    const double off = is > expected ? is - expected : expected - is;
    if (off > relative * expected) fail_msg("%.9g, expected %.9g", is, expected);
}

/* 8 layers of 1024 columns, 100 M parameters, sequences of 2048 tokens. */
static const roofline_model model = {.parameters = 1e8, .layers = 8, .width = 1024, .sequence = 2048};

static void test_flop(void **state)
{
    (void)state;
    /* 6e8 + 6 x 8 x 1024 x 2048 = 6e8 + 100663296 */
    assert_near(roofline_flop_a_token(&model), 700663296, 1e-12);
    /* llm.c on 8 H100: GPT-2 124M, 0.140 s a step of 524288 tokens, 38 % of 989.5 TFLOP/s: 12 layers of 768, T = 1024 */
    const roofline_model gpt2 = {.parameters = 124.475904e6, .layers = 12, .width = 768, .sequence = 1024};
    assert_near(roofline_flop_a_token(&gpt2) * 524288 / 0.140 / 8 / 989.5e12, 0.38, 0.01);
}

/* Tokens at which computing takes as long as a flow: bytes a parameter / (rate x c) x 788 TFLOP/s, c = 6 or 8 FLOP. */
static void test_hiding(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        double tokens;
        bool recomputes;
        double to_device, to_host, updated; /* bytes a parameter */
    } cases[] = {{"parameters twice, again", 7.16e3, true, 4, 0, 0},
                 {"parameters twice", 9.55e3, false, 4, 0, 0},
                 {"gradients", 4.776e3, false, 0, 2, 0},
                 {"streamed Adam", 28.65e3, true, 16, 0, 0},
                 {"Adam on the host", 27.58e3, true, 0, 0, 28}};
    const roofline_model no_attention = {.parameters = 13e9, .sequence = 4096};
    const roofline_throughput throughput = {
        .flop_per_s = 788e12,
        .host_memory_bytes_per_s = 100e9,
        .link = {.in_bytes_per_s = 55e9, .out_bytes_per_s = 55e9, .full_duplex = true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double P = no_attention.parameters;
        const roofline_work w = {.tokens = cases[i].tokens,
                                 .micro_batches = 1,
                                 .recomputes = cases[i].recomputes,
                                 .to_device_bytes = cases[i].to_device * P,
                                 .to_host_bytes = cases[i].to_host * P,
                                 .updated_on_host_bytes = cases[i].updated * P};
        const roofline r = roofline_of(&no_attention, &w, &throughput);
        const double flow = cases[i].updated > 0 ? r.part_s[ROOFLINE_HOST] : r.part_s[ROOFLINE_LINK];
        assert_near(flow, r.part_s[ROOFLINE_GPU], 2e-3);
    }
}

/* Each part the longest in turn, by figures worked out by hand. */
static void test_parts(void **state)
{
    (void)state;
    const roofline_throughput throughput = {
        .flop_per_s = 1e12,
        .host_memory_bytes_per_s = 1e9,
        .link = {.in_bytes_per_s = 2e9, .out_bytes_per_s = 1e9, .full_duplex = false},
        .disk = {.in_bytes_per_s = 1e8, .out_bytes_per_s = 1e8, .full_duplex = true}};
    roofline_work w = {.tokens = 500, .micro_batches = 3};
    roofline r = roofline_of(&model, &w, &throughput);
    assert_int_equal(r.by, ROOFLINE_GPU);
    assert_near(r.part_s[ROOFLINE_GPU], 700663296e-12 * 1500, 1e-12);
    assert_true(r.part_s[ROOFLINE_LINK] == 0 && r.part_s[ROOFLINE_HOST] == 0 && r.part_s[ROOFLINE_DISK] == 0);
    w.recomputes = true;
    assert_near(roofline_of(&model, &w, &throughput).part_s[ROOFLINE_GPU], 700663296e-12 * 2000, 1e-12);

    w.to_device_bytes = 4e9, w.to_host_bytes = 3e9; /* in turns: 2 + 3 s; of the memory: 7 s */
    r = roofline_of(&model, &w, &throughput);
    assert_near(r.part_s[ROOFLINE_LINK], 5, 1e-12);
    assert_near(r.part_s[ROOFLINE_HOST], 7, 1e-12);
    assert_int_equal(r.by, ROOFLINE_HOST);
    w.updated_on_host_bytes = 2e9;
    assert_near(roofline_of(&model, &w, &throughput).part_s[ROOFLINE_HOST], 9, 1e-12);

    w.disk_read_bytes = 1e9, w.disk_write_bytes = 0.5e9; /* at once: 10 s and 5 s */
    r = roofline_of(&model, &w, &throughput);
    assert_near(r.part_s[ROOFLINE_DISK], 10, 1e-12);
    assert_int_equal(r.by, ROOFLINE_DISK);

    const roofline_throughput fast_memory = {
        .flop_per_s = 1e15, .host_memory_bytes_per_s = 1e12, .link = throughput.link};
    w.disk_read_bytes = w.disk_write_bytes = 0;
    assert_int_equal(roofline_of(&model, &w, &fast_memory).by, ROOFLINE_LINK);
}

static void test_both_ways(void **state)
{
    (void)state;
    roofline_ways w = {.in_bytes_per_s = 50e9, .out_bytes_per_s = 50e9, .full_duplex = true};
    assert_near(roofline_ways_s(&w, 100e9, 50e9), 2, 1e-12);
    w.full_duplex = false;
    assert_near(roofline_ways_s(&w, 100e9, 50e9), 3, 1e-12);
    /* measured: 40 + 40 at once is 1.6 times one way's rate */
    w.in_both_bytes_per_s = w.out_both_bytes_per_s = 40e9;
    assert_near(roofline_ways_s(&w, 100e9, 50e9), 2, 1e-12);     /* 3 / 1.6 is less than one way needs */
    assert_near(roofline_ways_s(&w, 100e9, 100e9), 2.5, 1e-12);  /* 4 / 1.6 */
    w.in_both_bytes_per_s = 10e9, w.out_both_bytes_per_s = 20e9; /* worse than in turns: 0.6, so in turns */
    assert_near(roofline_ways_s(&w, 100e9, 50e9), 3, 1e-12);
    assert_near(roofline_ways_s(&w, 100e9, 0), 2, 1e-12);
    assert_true(roofline_ways_s(&(roofline_ways){.full_duplex = false}, 0, 0) == 0);
}

static void test_data_sheets(void **state)
{
    (void)state;
    assert_near(roofline_data_sheet_flop_per_s("NVIDIA H100 80GB HBM3"), 989.5e12, 1e-12);
    assert_near(roofline_data_sheet_flop_per_s("NVIDIA H100 PCIe"), 756e12, 1e-12);
    assert_near(roofline_data_sheet_flop_per_s("NVIDIA H200"), 989.5e12, 1e-12);
    assert_true(roofline_data_sheet_flop_per_s("Fake 0") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flop),      cmocka_unit_test(test_hiding),      cmocka_unit_test(test_parts),
        cmocka_unit_test(test_both_ways), cmocka_unit_test(test_data_sheets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
