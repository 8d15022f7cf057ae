/* Estimated time: queues, waits, both ways on one wire, copies that slow computing down. */
#include "chunk/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* 1 GB/s everywhere: a byte takes a nanosecond. */
static ps_timeline timeline(void)
{
    ps_timeline t = {.now_ns = 0};
    for (int l = 0; l < PS_LINK_COUNT; l++)
        t.throughput.link[l] = (ps_link_bandwidth){.bytes_per_s = 1e9, .latency_ns = 10};
    return t;
}

static void transfers_of_a_link_follow_each_other(void **state)
{
    (void)state;
    ps_timeline t = timeline();
    int64_t begin;
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DISK_READ, 1000, &begin), 1010);
    assert_int_equal(begin, 0);
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DISK_READ, 500, &begin), 1520);
    assert_int_equal(begin, 1010);
    /* another link is free */
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DISK_WRITE, 500, &begin), 510);
    assert_int_equal(begin, 0);
    /* nothing begins before it is asked for */
    ps_timeline_compute(&t, 5000);
    assert_int_equal(ps_timeline_occupy(&t, PS_LINK_COLLECTIVES, 70, &begin), 5070);
    assert_int_equal(begin, 5000);
    assert_int_equal(t.sums.busy_ns[PS_LINK_DISK_READ], 1520);
    assert_int_equal(t.sums.busy_ns[PS_LINK_COLLECTIVES], 70);
    assert_int_equal(t.sums.compute_ns, 5000);
}

static void computing_waits_for_what_it_needs(void **state)
{
    (void)state;
    ps_timeline t = timeline();
    const int64_t done = ps_timeline_transfer(&t, PS_LINK_HOST_TO_DEVICE, 990, NULL);
    ps_timeline_compute(&t, 400);
    ps_timeline_wait(&t, PS_LINK_HOST_TO_DEVICE, done);
    assert_int_equal(t.now_ns, 1000);
    assert_int_equal(t.sums.waits_ns[PS_LINK_HOST_TO_DEVICE], 600);
    ps_timeline_wait(&t, PS_LINK_HOST_TO_DEVICE, done); /* it is there already */
    assert_int_equal(t.now_ns, 1000);
    assert_int_equal(t.now_ns, t.sums.compute_ns + t.sums.lost_ns + t.sums.waits_ns[PS_LINK_HOST_TO_DEVICE]);
}

static void half_duplex_links_take_turns(void **state)
{
    (void)state;
    ps_timeline t = timeline();
    int64_t begin;
    t.throughput.ram_contention = 1;
    (void)ps_timeline_transfer(&t, PS_LINK_HOST_TO_DEVICE, 990, NULL);
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DEVICE_TO_HOST, 190, &begin), 1200);
    assert_int_equal(begin, 1000);
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_HOST_TO_DEVICE, 90, &begin), 1300);
    assert_int_equal(begin, 1200);
    /* the disk is another wire */
    (void)ps_timeline_transfer(&t, PS_LINK_DISK_READ, 90, &begin);
    assert_int_equal(begin, 0);
    t.throughput.disk_contention = 1;
    (void)ps_timeline_transfer(&t, PS_LINK_DISK_WRITE, 90, &begin);
    assert_int_equal(begin, 100);
}

/* Reading and writing at once move three quarters of each alone: the later one bears it. */
static void ways_slow_each_other_as_measured(void **state)
{
    (void)state;
    ps_timeline t = timeline();
    int64_t begin;
    t.throughput.disk_contention = 0.5;
    (void)ps_timeline_transfer(&t, PS_LINK_DISK_READ, 990, NULL);
    /* half of it while the read runs, and whole next to nothing */
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DISK_WRITE, 390, &begin), 800);
    assert_int_equal(begin, 0);
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DISK_WRITE, 390, &begin), 1300); /* 100 moved until 1000 */
    assert_int_equal(begin, 800);
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DISK_READ, 990, &begin), 2150); /* 150 moved until 1300 */
    assert_int_equal(begin, 1000);
    assert_int_equal(t.sums.busy_ns[PS_LINK_DISK_READ], 2150);
    /* host and device are other wires */
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_HOST_TO_DEVICE, 990, NULL), 1000);
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DEVICE_TO_HOST, 990, NULL), 1000);
    t.throughput.ram_contention = 0.75;
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_DEVICE_TO_HOST, 990, NULL), 2000);
    assert_int_equal(ps_timeline_transfer(&t, PS_LINK_HOST_TO_DEVICE, 990, NULL), 2750);
}

/* Computing loses its share of a copy's time: of the whole copy when computing outlives it, and never more than that of
 * the whole lengthened computing. */
static void copies_slow_computing_down(void **state)
{
    (void)state;
    ps_timeline t = timeline();
    t.throughput.link[PS_LINK_DISK_READ].interference = 0.5;
    (void)ps_timeline_transfer(&t, PS_LINK_DISK_READ, 990, NULL);
    ps_timeline_compute(&t, 10000);
    assert_int_equal(t.now_ns, 10500);
    assert_int_equal(t.sums.lost_ns, 500);
    (void)ps_timeline_transfer(&t, PS_LINK_DISK_READ, 99990, NULL);
    ps_timeline_compute(&t, 1000);
    assert_int_equal(t.now_ns, 12500); /* at half speed */
    assert_int_equal(t.sums.compute_ns, 11000);
    assert_int_equal(t.sums.lost_ns, 1500);
    /* ways that take turns take what both take alone, not the time for which the later one stands in line too */
    ps_timeline turns = timeline();
    turns.throughput.disk_contention = 1;
    turns.throughput.link[PS_LINK_DISK_READ].interference = turns.throughput.link[PS_LINK_DISK_WRITE].interference =
        0.5;
    (void)ps_timeline_transfer(&turns, PS_LINK_DISK_READ, 990, NULL);
    (void)ps_timeline_transfer(&turns, PS_LINK_DISK_WRITE, 990, NULL);
    ps_timeline_compute(&turns, 10000);
    assert_int_equal(turns.sums.lost_ns, 1000);
    /* one that has ended costs nothing */
    t.now_ns = t.free_ns[PS_LINK_DISK_READ];
    ps_timeline_compute(&t, 100);
    assert_int_equal(t.sums.lost_ns, 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_of_a_link_follow_each_other),
        cmocka_unit_test(computing_waits_for_what_it_needs),
        cmocka_unit_test(half_duplex_links_take_turns),
        cmocka_unit_test(ways_slow_each_other_as_measured),
        cmocka_unit_test(copies_slow_computing_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
