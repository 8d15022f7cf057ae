/* The least time of a step: by hand, from bytes and rates; and what it says. */
#include "train/run/bound.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* 1 GB/s everywhere, the disk writes 0.5 GB/s: a byte takes 1 or 2 ns. */
static ps_link_bandwidths throughput(double ram_contention, double disk_contention)
{
    ps_link_bandwidths r = {.ram_contention = ram_contention, .disk_contention = disk_contention};
    for (int l = 0; l < PS_LINK_COUNT; l++) r.link[l] = (ps_link_bandwidth){.bytes_per_s = 1e9, .latency_ns = 1000000};
    r.link[PS_LINK_DISK_WRITE].bytes_per_s = 0.5e9;
    return r;
}

/* Busy times are those of the clock, with latencies: the bound has nothing of them. */
static ps_forecast forecast(int64_t compute_ns, int64_t read_bytes, int64_t written_bytes)
{
    ps_forecast f = {.step = {.all_ns = 2000, .compute_ns = compute_ns}};
    f.mean_bytes[PS_LINK_DISK_READ] = read_bytes;
    f.mean_bytes[PS_LINK_DISK_WRITE] = written_bytes;
    f.step.busy_ns[PS_LINK_DISK_READ] = f.step.busy_ns[PS_LINK_DISK_WRITE] = 5000000;
    return f;
}

static void assert_bound(const ps_link_bandwidths *r, const ps_forecast *f, int64_t ns, ps_bound_part by)
{
    const ps_bound b = ps_bound_of(r, f);
    assert_int_equal(ps_bound_ns(&b), ns);
    assert_int_equal(b.by, by);
}

static void the_one_with_most_to_do(void **state)
{
    (void)state;
    const ps_link_bandwidths standalone = throughput(0, 0);
    ps_forecast f = forecast(1000, 800, 300);
    assert_bound(&standalone, &f, 1000, PS_BOUND_COMPUTE);
    f = forecast(1000, 800, 700);
    assert_bound(&standalone, &f, 1400, PS_BOUND_DISK);
    f.step.host_ns = 1500;
    assert_bound(&standalone, &f, 1500, PS_BOUND_HOST);
    f.mean_bytes[PS_LINK_COLLECTIVES] = 1;
    f.step.busy_ns[PS_LINK_COLLECTIVES] = 1600;
    assert_bound(&standalone, &f, 1600, PS_BOUND_COLLECTIVES);
    f.mean_bytes[PS_LINK_HOST_TO_DEVICE] = 1700;
    assert_bound(&standalone, &f, 1600, PS_BOUND_COLLECTIVES); /* a link that takes no time */
    f.step.busy_ns[PS_LINK_HOST_TO_DEVICE] = 1;
    assert_bound(&standalone, &f, 1700, PS_BOUND_RAM);
}

static void both_ways_at_once(void **state)
{
    (void)state;
    ps_forecast f = forecast(1, 800, 400); /* 800 ns each */
    const ps_link_bandwidths standalone = throughput(0, 0), turns = throughput(0, 1), some = throughput(1, 0.4);
    assert_bound(&standalone, &f, 800, PS_BOUND_DISK);
    assert_bound(&turns, &f, 1600, PS_BOUND_DISK);
    assert_bound(&some, &f, 1000, PS_BOUND_DISK);
    f = forecast(1, 800, 100); /* so little is written that reading runs alone most of the time */
    assert_bound(&some, &f, 800, PS_BOUND_DISK);
    f.mean_bytes[PS_LINK_HOST_TO_DEVICE] = f.mean_bytes[PS_LINK_DEVICE_TO_HOST] = 450;
    f.step.busy_ns[PS_LINK_HOST_TO_DEVICE] = f.step.busy_ns[PS_LINK_DEVICE_TO_HOST] = 1;
    assert_bound(&some, &f, 900, PS_BOUND_RAM);
}

/* A byte is read in 1 ns and written in 2. 1000 bytes, computing 30, 20 between and 50. */
static void the_disk_has_phases(void **state)
{
    (void)state;
    char text[PS_BOUND_TEXT_MAX];
    const ps_link_bandwidths standalone = throughput(0, 0), turns = throughput(0, 1), some = throughput(1, 0.5);
    const struct {
        const ps_link_bandwidths *throughput;
        int64_t early_bytes, memory_bytes, ns;
    } cases[] = {
        {&standalone, 0, 700, 670},    /* 300 away: 300 read, 600 written; then 20 + 50 */
        {&turns, 0, 700, 970},         /* 300 + 600 */
        {&some, 0, 700, 670},          /* 900 / 1.5 */
        {&standalone, 1000, 700, 650}, /* all in the backward pass: 20 + 30 computing are left */
        {&standalone, 990, 700, 630},  /* 290 in the backward pass, and 30 computing the forward pass */
        {&standalone, 500, 700, 620},  /* neither half is more than memory: both passes move 600 together, 20 between */
        {&standalone, 800, 700, 620},  /* 200 in the backward pass, 400 in the forward pass after it */
        {&standalone, 720, 700, 620},  /* 40 is less than computing the backward pass */
        {&standalone, 500, 970, 100},  /* 60 are less than computing */
        {&standalone, 20, 965, 100},   /* and so are 30 of the others: 20 + 50 + 30 */
        {&standalone, 0, 970, 130},    /* 60 in the forward pass, 20 + 50 */
        {&standalone, 0, 1000, 0},     {&standalone, 500, 2000, 0},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const ps_bound_windows w = {.first_forward_ns = 30,
                                    .between_ns = 20,
                                    .last_backward_ns = 50,
                                    .early_bytes = cases[i].early_bytes,
                                    .other_bytes = 1000 - cases[i].early_bytes};
        const int64_t ns = ps_bound_phases_ns(cases[i].throughput, &w, cases[i].memory_bytes);
        if (ns != cases[i].ns) fail_msg("case %zu: %lld ns", i, (long long)ns);
    }
    ps_forecast f = {.step = {.compute_ns = 100000000}};
    ps_bound b = ps_bound_of(&standalone, &f);
    b.phases_ns = 300000000;
    assert_string_equal(ps_bound_text(&b, text), "0.100 s for computing alone; 0.300 s for passes that wait for the "
                                                 "disk traffic of updates");
}

static void what_stands_between_is_said(void **state)
{
    (void)state;
    char text[PS_BOUND_TEXT_MAX];
    const ps_link_bandwidths standalone = throughput(0, 0);
    ps_forecast f = {.step = {.all_ns = 2000000000, .compute_ns = 1500000000, .lost_ns = 100000000}};
    f.mean_bytes[PS_LINK_DISK_READ] = 1200000000;
    f.step.busy_ns[PS_LINK_DISK_READ] = 1;
    f.step.wait_ns[PS_LINK_DISK_READ] = 100000000;
    f.step.wait_ns[PS_LINK_DEVICE_TO_HOST] = 299000000;
    f.step.wait_ns[PS_LINK_DISK_WRITE] = 1000000; /* too little to be said */
    ps_bound b = ps_bound_of(&standalone, &f);
    assert_string_equal(ps_bound_text(&b, text), "1.50 s for computing alone; 1.20 s for the disk");
    assert_string_equal(ps_bound_between(&b, &f.step, text),
                        "computing waits 0.299 s for device->host, 0.100 s for disk read; copies slow it by 0.100 s");
    f.mean_bytes[PS_LINK_DISK_READ] = 1800000000;
    f.step = (ps_step_time){.all_ns = 2000000000, .compute_ns = 1500000000, .idle_ns = 500000000};
    f.step.busy_ns[PS_LINK_DISK_READ] = 1;
    b = ps_bound_of(&standalone, &f);
    assert_string_equal(ps_bound_text(&b, text), "1.80 s for the disk alone; 1.50 s for computing");
    assert_string_equal(
        ps_bound_between(&b, &f.step, text),
        "computing waits 0.500 s for the host; the disk is idle, or busy in one direction only, for 0.200 s");
    f.step = (ps_step_time){.all_ns = 1000, .compute_ns = 1000};
    b = ps_bound_of(&standalone, &f);
    assert_string_equal(ps_bound_between(&b, &f.step, text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_one_with_most_to_do),
        cmocka_unit_test(both_ways_at_once),
        cmocka_unit_test(the_disk_has_phases),
        cmocka_unit_test(what_stands_between_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
