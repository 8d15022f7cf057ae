/* test_cuda_pinned.c - the host tier next to a GPU over the fake driver: page-locked once, and found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/rig.h"

static void test_pinned_memory(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 6});
    ps_queue *q = queue_new(&r);
    char *d = block_new(r.device, 3 * PS_MIB), *h = block_new(r.host, 3 * PS_MIB);
    memset(h, 42, (size_t)(3 * PS_MIB));
    assert_ok(ps_queue_copy(q, d, h, 3 * PS_MIB));
    assert_ok(ps_queue_copy(q, h + PS_MIB, d, PS_MIB));
    /* freed under way: kept, so still registered */
    ps_device_free(r.host, h, 3 * PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
    const int64_t n_pins = ps_gpu_get_stats(r.gpu).n_pins;
    char *again = block_new(r.host, 3 * PS_MIB);
    assert_ptr_equal(again, h);
    assert_ok(ps_event_wait(ps_device_gave_after(r.host)));
    assert_int_equal((uint8_t)again[3 * PS_MIB - 1], 0xff); /* poisoned after the copies */
    assert_int_equal(ps_gpu_get_stats(r.gpu).n_pins, n_pins);
    ps_device_free(r.host, again, 3 * PS_MIB, NULL);
    /* not kept: unregistered, but not under a copy */
    ps_device_set_keep(r.host, false);
    h = block_new(r.host, PS_MIB);
    for (int i = 0; i < 20; i++) assert_ok(ps_queue_copy(q, d, h, PS_MIB));
    ps_device_free(r.host, h, PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
    finish(q);
    assert_int_equal(ps_gpu_get_stats(r.gpu).pinned_bytes, 0);
    ps_region *region;
    assert_ok(ps_region_create(r.host, 64 * PS_MIB, &region));
    for (int i = 0; i < 4; i++) {
        char *p = (char *)ps_region_base(region) + i * PS_MIB;
        assert_ok(ps_region_commit(region, i * PS_MIB, PS_MIB));
        memset(p, i, (size_t)PS_MIB);
        assert_ok(ps_queue_copy(q, d, p, PS_MIB));
        ps_region_decommit(region, i * PS_MIB, PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
    }
    ps_region_destroy(region);
    finish(q);
    uint8_t got;
    assert_ok(ps_queue_get(q, &got, d, 1));
    assert_int_equal(got, 3);
    ps_device_free(r.device, d, 3 * PS_MIB, NULL);
    ps_queue_destroy(q);
    rig_close(&r);
}

static void test_registering_is_forbidden(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 7});
    ps_queue *q = queue_new(&r);
    fake_fail("host_register", 0, PS_CU_NOT_PERMITTED);
    char *h = block_new(r.host, PS_MIB), *d = block_new(r.device, PS_MIB);
    memset(h, 9, (size_t)PS_MIB);
    assert_ok(ps_queue_copy(q, d, h, PS_MIB));
    ps_device_set_keep(r.host, false);
    ps_device_free(r.host, h, PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
    uint8_t got;
    assert_ok(ps_queue_get(q, &got, d + PS_MIB - 1, 1));
    assert_int_equal(got, 9);
    fake_fail("host_register", 0, PS_CU_OUT_OF_MEMORY);
    fake_fail("host_alloc", 0, PS_CU_OUT_OF_MEMORY);
    void *p;
    assert_fails(ps_device_alloc(r.host, PS_MIB, &p), PS_ENOMEM_HOST, "ulimit -l");
    ps_device_free(r.device, d, PS_MIB, NULL);
    ps_queue_destroy(q);
    rig_close(&r);
}

/* What stops the host or costs it much. */
typedef struct tally {
    int n_registered, n_unregistered, n_allocated, n_waits;
    int64_t n_blocked;
} tally;

static tally count(void)
{
    tally t = {.n_registered = fake_calls("host_register"),
               .n_unregistered = fake_calls("host_unregister"),
               .n_allocated = fake_calls("host_alloc"),
               .n_waits = fake_depth() < PS_GPU_COMMANDS ? 0 : fake_calls("event_wait")};
    for (int i = 0; i < PS_BLOCK_COUNT; i++) /* room in a stream depends on its depth */
        if (i != PS_BLOCK_FULL) t.n_blocked += ps_blocked_so_far().n[i];
    return t;
}

enum { PIECES = 8, STEPS = 6 };

/* Chunks of a tensor that spans several, and others, come and go between the tiers. */
static void step(const rig *r, ps_queue *up, ps_queue *down, ps_region *run, ps_region *other, char *device, int n)
{
    char *base = ps_region_base(run);
    for (int i = 0; i < PIECES; i++) {
        char *p = base + i * PS_MIB;
        assert_ok(ps_region_commit(run, i * PS_MIB, PS_MIB));
        assert_ok(ps_queue_wait(down, ps_device_gave_after(r->host)));
        assert_ok(ps_queue_fill(down, device + i * PS_MIB, (uint8_t)(n + i), PS_MIB));
        assert_ok(ps_queue_copy(down, p, device + i * PS_MIB, PS_MIB));
        assert_ok(ps_queue_wait(up, ps_queue_event(down)));
        assert_ok(ps_queue_copy(up, device + (PIECES + i) * PS_MIB, p, PS_MIB));
        ps_region_decommit(run, i * PS_MIB, PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(up)}});
        void *block = block_new(r->host, PS_MIB);
        ps_device_free(r->host, block, PS_MIB, NULL);
        assert_ok(ps_region_commit(other, i % 2 * 2 * PS_MIB, 2 * PS_MIB));
        ps_region_decommit(other, i % 2 * 2 * PS_MIB, 2 * PS_MIB, NULL);
    }
}

/* Steady steps register nothing, and the host stops nowhere but at their end. */
static void test_steps_find_what_is_registered(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 11});
    ps_queue *up = queue_new(&r), *down = queue_new(&r);
    ps_region *run, *other;
    assert_ok(ps_region_create(r.host, 100 * PS_MIB, &run)); /* more than the budget */
    assert_ok(ps_region_create(r.host, 4 * PS_MIB, &other));
    char *device = block_new(r.device, 2 * PIECES * PS_MIB);
    for (int n = 0; n < STEPS; n++) {
        const tally before = count();
        step(&r, up, down, run, other, device, n);
        const tally after = count();
        if (n > 0) assert_memory_equal(&before, &after, sizeof before);
        assert_int_equal(after.n_unregistered, 0);
        finish(up);
        uint8_t got[2];
        assert_ok(ps_queue_get(up, &got[0], device + PIECES * PS_MIB, 1));
        assert_ok(ps_queue_get(up, &got[1], device + 2 * PIECES * PS_MIB - 1, 1));
        assert_int_equal(got[0], n);
        assert_int_equal(got[1], n + PIECES - 1);
    }
    assert_int_equal(ps_gpu_get_stats(r.gpu).pinned_bytes, (PIECES + 1 + 4) * PS_MIB);
    assert_int_equal(ps_device_get_stats(r.host).kept_bytes, (PIECES + 1 + 4) * PS_MIB);
    assert_int_equal(ps_device_get_stats(r.host).used_bytes, 0);
    ps_region_destroy(run);
    ps_region_destroy(other);
    assert_int_equal(ps_gpu_get_stats(r.gpu).pinned_bytes, PS_MIB);
    assert_int_equal(ps_device_get_stats(r.host).kept_bytes, PS_MIB);
    ps_device_free(r.device, device, 2 * PIECES * PS_MIB, NULL);
    ps_queue_destroy(up);
    ps_queue_destroy(down);
    rig_close(&r);
}

/* Pieces that stay are within the budget: what wants their room, or other pieces of those addresses, has it. */
static void test_pieces_that_stay_make_room(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 12});
    ps_queue *q = queue_new(&r);
    ps_region *run;
    assert_ok(ps_region_create(r.host, 2 * DEVICE_BYTES, &run));
    char *base = ps_region_base(run);
    char *d = block_new(r.device, 4 * PS_MIB);
    const int64_t all = DEVICE_BYTES / (4 * PS_MIB);
    for (int64_t i = 0; i < all; i++) assert_ok(ps_region_commit(run, i * 4 * PS_MIB, 4 * PS_MIB));
    for (int64_t i = 0; i < all; i++) {
        assert_ok(ps_queue_copy(q, d, base + i * 4 * PS_MIB, 4 * PS_MIB));
        ps_region_decommit(run, i * 4 * PS_MIB, 4 * PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
    }
    assert_int_equal(ps_gpu_get_stats(r.gpu).pinned_bytes, DEVICE_BYTES);
    /* another cut of the first two, one of them untouched by it */
    assert_ok(ps_region_commit(run, 2 * PS_MIB, PS_MIB));
    assert_int_equal(ps_gpu_get_stats(r.gpu).pinned_bytes, DEVICE_BYTES - 3 * PS_MIB);
    base[2 * PS_MIB] = 1;
    base[3 * PS_MIB - 1] = 1;
    /* a block of half the budget: the oldest go */
    char *block = block_new(r.host, DEVICE_BYTES / 2);
    memset(block, 2, DEVICE_BYTES / 2);
    assert_true(ps_gpu_get_stats(r.gpu).pinned_bytes <= DEVICE_BYTES);
    assert_int_equal(base[2 * PS_MIB], 1);
    assert_ok(ps_queue_copy(q, d, base + 2 * PS_MIB, PS_MIB));
    const int n = fake_calls("host_register");
    assert_ok(ps_region_commit(run, (all - 1) * 4 * PS_MIB, 4 * PS_MIB)); /* the newest is still there */
    assert_int_equal(fake_calls("host_register"), n);
    ps_device_free(r.host, block, DEVICE_BYTES / 2, NULL);
    finish(q);
    ps_region_destroy(run); /* two pieces are committed */
    ps_device_set_keep(r.host, false);
    assert_int_equal(ps_gpu_get_stats(r.gpu).pinned_bytes, 0);
    ps_device_free(r.device, d, 4 * PS_MIB, NULL);
    ps_queue_destroy(q);
    rig_close(&r);
}

/* Where registering is forbidden, blocks are the driver's and pieces of regions are not locked. */
static void test_regions_where_registering_is_forbidden(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 13, .copies_unlocked = true});
    ps_queue *q = queue_new(&r);
    ps_region *run;
    assert_ok(ps_region_create(r.host, 4 * PS_MIB, &run));
    char *p = ps_region_base(run), *d = block_new(r.device, PS_MIB);
    for (int step = 0; step < 3; step++) {
        if (step == 0) fake_fail("host_register", 0, PS_CU_NOT_PERMITTED);
        assert_ok(ps_region_commit(run, PS_MIB, PS_MIB));
        assert_ok(ps_event_wait(ps_device_gave_after(r.host)));
        memset(p + PS_MIB, step, PS_MIB);
        assert_ok(ps_queue_copy(q, d, p + PS_MIB, PS_MIB));
        ps_region_decommit(run, PS_MIB, PS_MIB, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
        uint8_t got;
        assert_ok(ps_queue_get(q, &got, d + PS_MIB - 1, 1));
        assert_int_equal(got, step);
    }
    assert_int_equal(ps_gpu_get_stats(r.gpu).pinned_bytes, 0);
    fake_fail("host_register", 0, PS_CU_OUT_OF_MEMORY);
    assert_fails(ps_region_commit(run, 0, PS_MIB), PS_ENOMEM_HOST, "cannot page-lock 1.05 MB of RAM");
    assert_ok(ps_region_commit(run, 0, PS_MIB));
    ps_region_destroy(run);
    ps_device_free(r.device, d, PS_MIB, NULL);
    ps_queue_destroy(q);
    rig_close(&r);
}

static ps_status wait_for_flag(void *self, const void *args)
{
    (void)args;
    while (!atomic_load((atomic_bool *)self)) usleep(1000);
    return PS_OK;
}

/* A queue of each way has a stream of its own: one that is blocked, for an update on the host, holds up no other. */
static void test_both_ways_at_once(void **state)
{
    (void)state;
    rig r = rig_open((fake_options){.seed = 14});
    char *d = block_new(r.device, 2 * PS_MIB), *h = block_new(r.host, 2 * PS_MIB);
    memset(h, 5, 2 * PS_MIB);
    for (int turn = 0; turn < 2; turn++) {
        atomic_bool flag = false;
        ps_queue *way[2], *updates;
        for (int i = 0; i < 2; i++) assert_ok(ps_queue_create(r.device, "copies", PS_QUEUE_COPY, &way[i]));
        assert_ok(ps_queue_create(r.host, "updates", PS_QUEUE_COMPUTE, &updates));
        assert_ok(ps_queue_call(updates, &(ps_call){.name = "flag", .run = wait_for_flag, .self = &flag}));
        ps_queue *stuck = way[turn], *other = way[1 - turn];
        assert_ok(ps_queue_wait(stuck, ps_queue_event(updates)));
        assert_ok(ps_queue_copy(way[0], d, h, PS_MIB));
        assert_ok(ps_queue_copy(way[1], h + PS_MIB, d + PS_MIB, PS_MIB));
        finish(other);
        assert_false(ps_event_is_done(ps_queue_event(stuck)));
        atomic_store(&flag, true);
        finish(stuck);
        for (int i = 0; i < 2; i++) ps_queue_destroy(way[i]);
        ps_queue_destroy(updates);
    }
    ps_device_free(r.device, d, 2 * PS_MIB, NULL);
    ps_device_free(r.host, h, 2 * PS_MIB, NULL);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_memory),
        cmocka_unit_test(test_steps_find_what_is_registered),
        cmocka_unit_test(test_pieces_that_stay_make_room),
        cmocka_unit_test(test_both_ways_at_once),
        cmocka_unit_test(test_registering_is_forbidden),
        cmocka_unit_test(test_regions_where_registering_is_forbidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
