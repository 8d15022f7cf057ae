/* Time of queues that do nothing: what waits for what, wires, what is to blame, the host. */
#include "device/sim_time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"

enum { IN, OUT, READ, WRITE, COMPUTE, HOST, N_LANES };

typedef struct bed {
    ps_sim_time *time;
    ps_device *dev;
    ps_disk *disk;
    ps_queue *in, *out, *compute, *host;
} bed;

#define assert_ok(expr) assert_int_equal((expr), PS_OK)

static ps_queue *queue(const bed *b, ps_queue_kind kind, int lane)
{
    ps_queue *q;
    assert_ok(ps_queue_create(b->dev, "q", kind, &q));
    ps_sim_queue_join(q, lane);
    return q;
}

/* 1 GB/s and 10 ns everywhere: a byte takes a nanosecond. out_wire IN: both ways take turns; contention: of OUT and IN,
 * on wires of their own. */
static bed set_up_throughput(int out_wire, double share, double contention)
{
    bed b;
    ps_sim_lane lanes[N_LANES] = {{0}};
    for (int i = IN; i <= WRITE; i++)
        lanes[i] = (ps_sim_lane){.bytes_per_s = 1e9, .latency_ns = 10, .share = share, .wire = i};
    lanes[OUT].wire = out_wire;
    lanes[IN].contending_wire = OUT, lanes[OUT].contending_wire = IN;
    lanes[IN].contention = lanes[OUT].contention = contention;
    assert_ok(ps_sim_time_create(lanes, N_LANES, COMPUTE, &b.time));
    assert_ok(ps_device_create_on(&ps_device_sim_async_ops, b.time, PS_PAGE_BYTES, "device", PS_MIB, &b.dev));
    assert_ok(ps_disk_open("/", PS_DISK_SIM, 1, &b.disk));
    assert_ok(ps_sim_disk_join(b.disk, b.time, READ, WRITE));
    b.in = queue(&b, PS_QUEUE_COPY, IN);
    b.out = queue(&b, PS_QUEUE_COPY, OUT);
    b.compute = queue(&b, PS_QUEUE_COMPUTE, COMPUTE);
    b.host = queue(&b, PS_QUEUE_COMPUTE, HOST);
    return b;
}

static bed set_up(int out_wire, double share)
{
    return set_up_throughput(out_wire, share, 0);
}

static void tear_down(bed *b)
{
    ps_queue *const queues[] = {b->in, b->out, b->compute, b->host};
    for (size_t i = 0; i < PS_ARRAY_LEN(queues); i++) ps_queue_destroy(queues[i]);
    ps_disk_close(b->disk);
    ps_device_destroy(b->dev);
    ps_sim_time_destroy(b->time);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static ps_event copy(ps_queue *q, int64_t bytes)
{
    assert_ok(ps_queue_copy(q, NULL, NULL, bytes));
    return ps_queue_event(q);
}

static void expect_last(const ps_queue *q, int64_t begin_ns, int64_t end_ns)
{
    const ps_sim_item item = ps_sim_queue_last(q);
    assert_int_equal(item.begin_ns, begin_ns);
    assert_int_equal(item.end_ns, end_ns);
}

static void an_item_waits_for_its_queue_and_its_events(void **state)
{
    (void)state;
    bed b = set_up(OUT, 0);
    const ps_event first = copy(b.in, 990);
    (void)copy(b.in, 490);
    expect_last(b.in, 1000, 1500);
    ps_sim_queue_spend(b.compute, 300, true); /* waits for nothing */
    expect_last(b.compute, 0, 300);
    assert_ok(ps_queue_wait(b.compute, first)); /* and for no later copy */
    ps_sim_queue_spend(b.compute, 300, true);
    expect_last(b.compute, 1000, 1300);
    assert_ok(ps_queue_wait(b.out, ps_queue_event(b.compute)));
    (void)copy(b.out, 90);
    expect_last(b.out, 1300, 1400);
    assert_int_equal(*ps_sim_queue_clock(b.compute), 1300);
    const ps_sim_sums s = ps_sim_time_sums(b.time);
    assert_int_equal(s.compute_ns, 600);
    assert_int_equal(s.lost_ns, 0);
    assert_int_equal(s.waits_ns[IN], 700);
    assert_int_equal(s.busy_ns[IN], 1500);
    assert_int_equal(s.busy_ns[OUT], 100);
    assert_int_equal(s.busy_ns[COMPUTE], 600);
    assert_int_equal(s.host_waits_ns, 0);
    tear_down(&b);
}

/* Both ways on one wire: a copy that can begin only later leaves the gap before it to the others. */
static void copies_take_the_first_gap(void **state)
{
    (void)state;
    bed b = set_up(IN, 0);
    ps_sim_queue_spend(b.compute, 1000, true);
    assert_ok(ps_queue_wait(b.out, ps_queue_event(b.compute)));
    (void)copy(b.out, 190);
    expect_last(b.out, 1000, 1200);
    (void)copy(b.in, 590);
    expect_last(b.in, 0, 600); /* before it */
    (void)copy(b.in, 490);
    expect_last(b.in, 1190, 1690); /* too long for the gap; without the latency of the copy before it */
    tear_down(&b);
    b = set_up(OUT, 0);
    (void)copy(b.out, 990);
    (void)copy(b.in, 990);
    expect_last(b.in, 0, 1000);
    tear_down(&b);
}

/* Both ways at once move three quarters of each alone: what is issued later bears it. */
static void both_ways_slow_each_other(void **state)
{
    (void)state;
    bed b = set_up_throughput(OUT, 0, 0.5);
    (void)copy(b.in, 1000); /* its wire is free at 1000, 10 ns of latency later it has ended */
    (void)copy(b.out, 400);
    expect_last(b.out, 0, 810);
    (void)copy(b.out, 395); /* from 810 on: 95 next to the copy in, 300 alone */
    expect_last(b.out, 810, 1310);
    ps_sim_queue_spend(b.compute, 1400, true);
    assert_ok(ps_queue_wait(b.out, ps_queue_event(b.compute)));
    (void)copy(b.out, 100);
    expect_last(b.out, 1400, 1510);
    (void)copy(b.in, 495); /* from 1010 on: 145 until 1300, 100 until 1400, 50 until 1500, 200 alone */
    expect_last(b.in, 1010, 1710);
    tear_down(&b);
}

/* The share of a copy that runs meanwhile; never more than of the lengthened item. */
static void copies_slow_computing_down(void **state)
{
    (void)state;
    bed b = set_up(OUT, 0.5);
    (void)copy(b.in, 990);
    ps_sim_queue_spend(b.compute, 10000, true);
    expect_last(b.compute, 0, 10495); /* not of its latency */
    assert_ok(ps_queue_wait(b.in, ps_queue_event(b.compute)));
    (void)copy(b.in, 99990);
    ps_sim_queue_spend(b.compute, 1000, true);
    expect_last(b.compute, 10495, 12495); /* at half speed */
    ps_sim_queue_spend(b.host, 1000, false);
    expect_last(b.host, 0, 1000);
    assert_int_equal(ps_sim_time_sums(b.time).compute_ns, 11000);
    assert_int_equal(ps_sim_time_sums(b.time).lost_ns, 1495);
    tear_down(&b);
}

/* What computing waits for, and what that had waited for. */
static void waits_are_those_of_the_cause(void **state)
{
    (void)state;
    bed b = set_up(OUT, 0);
    ps_sim_queue_spend(b.compute, 100, true);
    ps_sim_queue_spend(b.host, 700, false);
    assert_ok(ps_queue_wait(b.in, ps_queue_event(b.host)));
    assert_ok(ps_queue_wait(b.compute, copy(b.in, 190)));
    ps_sim_queue_spend(b.compute, 100, true);
    expect_last(b.compute, 900, 1000);
    assert_int_equal(ps_sim_queue_last(b.compute).free_ns, 100);
    assert_int_equal(ps_sim_queue_last(b.compute).cause, IN);
    ps_sim_sums s = ps_sim_time_sums(b.time);
    assert_int_equal(s.waits_ns[IN], 200);
    assert_int_equal(s.waits_ns[HOST], 600);
    /* copies one after another are waited for as copies */
    (void)copy(b.in, 990);
    assert_ok(ps_queue_wait(b.compute, copy(b.in, 990)));
    ps_sim_queue_spend(b.compute, 100, true);
    expect_last(b.compute, 2900, 3000);
    s = ps_sim_time_sums(b.time);
    assert_int_equal(s.waits_ns[IN], 200 + 1900);
    assert_int_equal(s.waits_ns[HOST], 600);
    tear_down(&b);
}

/* The next items begin when it has read back; what was issued before continues meanwhile. */
static void the_host_stands_still_where_it_waits(void **state)
{
    (void)state;
    bed b = set_up(OUT, 0);
    ps_sim_queue_spend(b.compute, 100, true);
    ps_sim_queue_spend(b.host, 400, false);
    ps_sim_queue_read_back(b.compute, 50);
    ps_sim_queue_spend(b.compute, 100, true);
    expect_last(b.compute, 150, 250);
    assert_int_equal(ps_sim_queue_last(b.compute).cause, -1);
    (void)copy(b.in, 40);
    expect_last(b.in, 150, 200);
    ps_sim_queue_spend(b.host, 100, false);
    expect_last(b.host, 400, 500);
    assert_ok(ps_event_wait(ps_queue_event(b.host))); /* any wait of the host */
    ps_sim_queue_spend(b.compute, 100, true);
    expect_last(b.compute, 500, 600);
    assert_int_equal(ps_sim_time_sums(b.time).host_waits_ns, 50 + 250);
    tear_down(&b);
}

/* Its transfers end in any order, each after its own events; a wait for one of them blocks the host. */
static void the_disk_has_wires(void **state)
{
    (void)state;
    bed b = set_up(OUT, 0);
    ps_events after = {.n = 0};
    ps_event wrote, read;
    ps_events_add(&after, copy(b.out, 990));
    assert_ok(ps_disk_write(b.disk, 0, NULL, PS_PAGE_BYTES, &after, &wrote));
    assert_ok(ps_disk_read(b.disk, PS_PAGE_BYTES, NULL, PS_PAGE_BYTES, NULL, &read));
    assert_ok(ps_queue_wait(b.in, wrote));
    (void)copy(b.in, 0);
    expect_last(b.in, 1000 + 10 + PS_PAGE_BYTES, 1020 + PS_PAGE_BYTES);
    assert_ok(ps_queue_wait(b.compute, read));
    ps_sim_queue_spend(b.compute, 0, true);
    expect_last(b.compute, 10 + PS_PAGE_BYTES, 10 + PS_PAGE_BYTES);
    assert_ok(ps_event_wait(wrote));
    ps_sim_queue_spend(b.compute, 1, true);
    expect_last(b.compute, 1010 + PS_PAGE_BYTES, 1011 + PS_PAGE_BYTES);
    assert_int_equal(ps_sim_time_sums(b.time).busy_ns[WRITE], 10 + PS_PAGE_BYTES);
    assert_int_equal(ps_sim_time_sums(b.time).busy_ns[READ], 10 + PS_PAGE_BYTES);
    tear_down(&b);
}

/* Memory that was freed last is allocated first: its next user comes after the last one. */
static void memory_is_given_back_in_time(void **state)
{
    (void)state;
    bed b = set_up(OUT, 0);
    void *block;
    assert_ok(ps_device_alloc(b.dev, PS_PAGE_BYTES, &block));
    ps_events after = {.n = 0};
    ps_sim_queue_spend(b.compute, 700, true);
    ps_events_add(&after, ps_queue_event(b.compute));
    ps_device_free(b.dev, block, PS_PAGE_BYTES, &after);
    assert_ok(ps_device_alloc(b.dev, PS_PAGE_BYTES, &block));
    assert_ok(ps_queue_wait(b.in, ps_device_gave_after(b.dev)));
    (void)copy(b.in, 90);
    expect_last(b.in, 700, 800);
    ps_device_free(b.dev, block, PS_PAGE_BYTES, NULL);
    tear_down(&b);
}

/* More items than are remembered: of an old one it is known that it has ended by what is. */
static void old_events_have_ended(void **state)
{
    (void)state;
    bed b = set_up(OUT, 0);
    ps_sim_queue_spend(b.compute, 10, true);
    const ps_event old = ps_queue_event(b.compute);
    for (int i = 0; i < 10000; i++) ps_sim_queue_spend(b.compute, 10, true);
    assert_ok(ps_queue_wait(b.in, old));
    (void)copy(b.in, 90);
    assert_in_range(ps_sim_queue_last(b.in).begin_ns, 10, 100010);
    assert_ok(ps_queue_wait(b.in, ps_queue_event(b.compute)));
    (void)copy(b.in, 90);
    expect_last(b.in, 100010, 100110);
    tear_down(&b);
}

static void without_time_nothing_is_counted(void **state)
{
    (void)state;
    ps_device *dev;
    ps_queue *q;
    assert_ok(ps_device_create(&ps_device_sim_ops, "device", PS_MIB, &dev));
    assert_null(ps_sim_time_of(dev));
    assert_ok(ps_queue_create(dev, "q", PS_QUEUE_COMPUTE, &q));
    ps_sim_queue_join(q, COMPUTE);
    ps_sim_queue_spend(q, 100, true);
    ps_sim_queue_read_back(q, 100);
    ps_sim_queue_come_after(q, q);
    assert_null(ps_sim_queue_clock(q));
    assert_int_equal(ps_sim_queue_last(q).end_ns, 0);
    assert_int_equal(ps_queue_event(q).ticket, 0);
    ps_queue_destroy(q);
    ps_device_destroy(dev);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_item_waits_for_its_queue_and_its_events),
        cmocka_unit_test(copies_take_the_first_gap),
        cmocka_unit_test(both_ways_slow_each_other),
        cmocka_unit_test(copies_slow_computing_down),
        cmocka_unit_test(waits_are_those_of_the_cause),
        cmocka_unit_test(the_host_stands_still_where_it_waits),
        cmocka_unit_test(the_disk_has_wires),
        cmocka_unit_test(memory_is_given_back_in_time),
        cmocka_unit_test(old_events_have_ended),
        cmocka_unit_test(without_time_nothing_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
