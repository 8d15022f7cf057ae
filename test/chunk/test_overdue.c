/* A disk that is slower than planned: what has ended on the timeline is taken into account at once, and waited for when
 * it is needed. */
#include "base/fault.h"
#include "chunk/chunk_fixture.h"
#include "chunk/view.h"

#define CHUNK_ELEMENTS 2048
#define PAGES(n) ((n)*PS_PAGE_BYTES)
#define N_CHUNKS 4

static const ps_lists lists = {.n = 1, .list = {{"A", {2, 1}}}};

typedef small_world world;

static ps_event opening; /* of the gate: the disk blocks until then */

static void open_world(world *w, int64_t device_pages, int64_t host_pages)
{
    const ps_store_desc desc = {
        .lists = lists, .disk_budget_bytes = PAGES(2 * N_CHUNKS), .is_unified_memory = host_pages > 0};
    open_small_world(w, &desc, N_CHUNKS, CHUNK_ELEMENTS, NULL, PAGES(device_pages), PAGES(host_pages));
    assert_ok(ps_host_queue_create("gate", &w->gate));
    opening = ps_host_queue_begin(w->gate);
}

static void let_disk_work(world *w)
{
    ps_host_queue_end(w->gate, opening.ticket, PS_OK);
}

static uint32_t pattern(ps_chunk_id id)
{
    return 1000u + (uint32_t)id;
}

static void change(world *w, ps_chunk_id id)
{
    void *payload = NULL;
    assert_ok(ps_store_pin(w->store, id, PS_TIER_DEVICE, PS_ACCESS_WRITE, &payload));
    for (int i = 0; i < CHUNK_ELEMENTS / 2; i++) ((uint32_t *)payload)[i] = pattern(id);
    ps_store_unpin(w->store, id);
}

static void assert_content(world *w, ps_chunk_id id, ps_tier tier)
{
    void *payload = NULL;
    assert_ok(ps_store_pin(w->store, id, tier, PS_ACCESS_READ, &payload));
    for (int i = 0; i < CHUNK_ELEMENTS / 2; i++) assert_int_equal(((const uint32_t *)payload)[i], pattern(id));
    ps_store_unpin(w->store, id);
}

/* Enough computing for whatever was issued to have ended. */
static void let_timeline_pass(world *w)
{
    ps_timeline_compute(&w->store->m.time, 1000000000);
    assert_ok(ps_movement_retire_due(&w->store->m));
    assert_int_equal(w->store->m.n_flying, 0);
}

/* A write-back that blocks, and has ended on the timeline; fails: it will. */
static void write_back_late(world *w, ps_chunk_id id, bool fails)
{
    bool started = false;
    change(w, id);
    ps_residency_note_item(&w->store->r, id, PS_TIER_DEVICE, opening, true);
    ps_fault_arm(PS_FAULT_WRITE, fails ? 0 : -1, false);
    assert_ok(ps_scheduling_write_back(&w->store->s, id, PS_TIER_DEVICE, PS_TIER_HOST, &started));
    assert_true(started);
    let_timeline_pass(w);
    assert_int_equal(w->store->m.n_overdue, 1);
    assert_int_equal(copies_of(w->store, id), 1u << PS_TIER_DEVICE | 1u << PS_TIER_DISK);
}

/* The chunk is on the disk only, and a read of it stands still that has ended on the timeline; fails: it will. */
static void read_late(world *w, ps_chunk_id id, bool fails)
{
    change(w, id);
    assert_ok(evict_all(w->store, PS_TIER_DEVICE)); /* to the host, if there is one */
    assert_ok(evict_all(w->store, PS_TIER_HOST));
    assert_ok(ps_residency_allocate(&w->store->r, id, PS_TIER_DEVICE, PS_REASON_LOAD));
    ps_residency_note_item(&w->store->r, id, PS_TIER_DEVICE, opening, false);
    ps_fault_arm(PS_FAULT_READ, fails ? 0 : -1, false);
    assert_ok(ps_movement_start(&w->store->m, id, PS_TIER_DISK, PS_TIER_DEVICE, PS_REASON_PREFETCH));
    let_timeline_pass(w);
    assert_int_equal(w->store->m.n_overdue, 1);
    assert_int_equal(copies_of(w->store, id), 1u << PS_TIER_DEVICE | 1u << PS_TIER_DISK);
}

/* Both calls would block for ever if they waited for the disk. */
static void test_others_go_on(void **state)
{
    (void)state;
    world w;
    open_world(&w, N_CHUNKS, 0);
    write_back_late(&w, 0, false);
    change(&w, 1);
    assert_int_equal(w.store->m.n_overdue, 1);
    let_disk_work(&w);
    close_small_world(&w);
    open_world(&w, N_CHUNKS, 0);
    read_late(&w, 0, false);
    change(&w, 1);
    assert_int_equal(w.store->m.n_overdue, 1);
    let_disk_work(&w);
    assert_content(&w, 0, PS_TIER_DEVICE);
    assert_int_equal(w.store->m.n_overdue, 0);
    close_small_world(&w);
}

/* What is written leaves memory when it is on the disk, not before. */
static void test_room_waits_for_the_disk(void **state)
{
    (void)state;
    world w;
    open_world(&w, 1, 0);
    write_back_late(&w, 0, false);
    let_disk_work(&w);
    change(&w, 1);
    assert_int_equal(w.store->m.n_overdue, 0);
    assert_int_equal(copies_of(w.store, 0), 1u << PS_TIER_DISK);
    assert_content(&w, 0, PS_TIER_DEVICE);
    close_small_world(&w);
}

/* A change of what the disk is still writing waits, as does another write to the same slot. */
static void test_a_change_waits(void **state)
{
    (void)state;
    world w;
    open_world(&w, N_CHUNKS, 0);
    write_back_late(&w, 0, false);
    let_disk_work(&w);
    change(&w, 0);
    assert_int_equal(w.store->m.n_overdue, 0);
    assert_int_equal(copies_of(w.store, 0), 1u << PS_TIER_DEVICE);
    close_small_world(&w);
}

static void test_moved_meanwhile(void **state)
{
    (void)state;
    world w;
    open_world(&w, N_CHUNKS, N_CHUNKS);
    read_late(&w, 0, false);
    ps_movement_move(&w.store->m, 0, PS_TIER_HOST, PS_REASON_WRITE_BACK);
    assert_int_equal(w.store->m.n_overdue, 1);
    assert_ok(ps_store_check(w.store));
    let_disk_work(&w);
    assert_content(&w, 0, PS_TIER_HOST);
    assert_int_equal(w.store->m.n_overdue, 0);
    close_small_world(&w);
}

/* A view, a discard and the end wait too. */
static void test_what_else_waits(void **state)
{
    (void)state;
    world w;
    ps_view v;
    open_world(&w, N_CHUNKS, 0);
    read_late(&w, 0, false);
    let_disk_work(&w);
    assert_ok(ps_view_open(w.store, 0, PS_TIER_DEVICE, 0, 8, PS_ACCESS_READ, &v));
    assert_int_equal(*(const uint32_t *)v.bytes, pattern(0));
    assert_ok(ps_view_close(w.store, &v));
    close_small_world(&w);
    open_world(&w, N_CHUNKS, 0);
    read_late(&w, 0, false);
    let_disk_work(&w);
    ps_store_discard(w.store, 0);
    assert_int_equal(w.store->m.n_overdue, 0);
    close_small_world(&w);
    open_world(&w, N_CHUNKS, 0);
    write_back_late(&w, 0, false);
    let_disk_work(&w);
    close_small_world(&w);
}

/* A write that fails after the timeline had ended it: said once, and the content is still in memory. */
static void test_late_write_fails(void **state)
{
    (void)state;
    world w;
    void *payload = NULL;
    open_world(&w, 1, 0);
    write_back_late(&w, 0, true);
    let_disk_work(&w);
    assert_int_equal(ps_store_pin(w.store, 1, PS_TIER_DEVICE, PS_ACCESS_OVERWRITE, &payload), PS_EIO);
    assert_true(ps_fault_has_struck(PS_FAULT_WRITE));
    assert_int_equal(copies_of(w.store, 0), 1u << PS_TIER_DEVICE);
    assert_ok(ps_store_check(w.store));
    assert_content(&w, 0, PS_TIER_DEVICE);
    change(&w, 1); /* the second time it is written */
    assert_content(&w, 0, PS_TIER_DEVICE);
    close_small_world(&w);
}

/* A read that fails so: the call that needs it fails, and the content is still on the disk. */
static void test_late_read_fails(void **state)
{
    (void)state;
    for (int moves_zero_copy = 0; moves_zero_copy < 2; moves_zero_copy++) {
        world w;
        void *payload = NULL;
        const ps_tier tier = moves_zero_copy ? PS_TIER_HOST : PS_TIER_DEVICE;
        open_world(&w, N_CHUNKS, moves_zero_copy ? N_CHUNKS : 0);
        read_late(&w, 0, true);
        if (moves_zero_copy) ps_movement_move(&w.store->m, 0, PS_TIER_HOST, PS_REASON_WRITE_BACK);
        let_disk_work(&w);
        assert_int_equal(ps_store_pin(w.store, 0, tier, PS_ACCESS_READ, &payload), PS_EIO);
        assert_true(ps_fault_has_struck(PS_FAULT_READ));
        assert_int_equal(copies_of(w.store, 0), 1u << PS_TIER_DISK);
        assert_ok(ps_store_check(w.store));
        assert_content(&w, 0, tier);
        close_small_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_go_on),    cmocka_unit_test(test_room_waits_for_the_disk),
        cmocka_unit_test(test_a_change_waits),  cmocka_unit_test(test_moved_meanwhile),
        cmocka_unit_test(test_what_else_waits), cmocka_unit_test(test_late_write_fails),
        cmocka_unit_test(test_late_read_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
