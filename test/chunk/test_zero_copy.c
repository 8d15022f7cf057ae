/* Device and host of one memory: payloads are handed over where they lie, within both budgets. */
#include "base/fault.h"
#include "chunk/chunk_fixture.h"

#define CHUNK_ELEMENTS 2048
#define PAGES(n) ((n)*PS_PAGE_BYTES)
#define N_CHUNKS 8

enum { A, B }; /* lists: a page a chunk, and two */

static const ps_lists lists = {.n = 2, .list = {{"A", {2, 1}}, {"B", {4, 1}}}};

typedef struct world {
    ps_layout *layout;
    ps_device *ram[PS_RAM_TIER_COUNT];
    ps_disk *disk;
    ps_store *store;
    ps_trace *trace;
    ps_schedule *schedule;
} world;

static void open_world_of(world *w, const int64_t *elements, int32_t n, int64_t device_pages, int64_t host_pages,
                          int64_t disk_pages, bool moves_zero_copy)
{
    *w = (world){0};
    assert_ok(ps_layout_create(elements, NULL, n, CHUNK_ELEMENTS, &w->layout));
    assert_ok(ps_device_create(&ps_device_cpu_ops, "device", PAGES(device_pages), &w->ram[PS_TIER_DEVICE]));
    assert_ok(ps_device_create(&ps_device_cpu_ops, "host", PAGES(host_pages), &w->ram[PS_TIER_HOST]));
    if (disk_pages > 0) assert_ok(ps_disk_open("/tmp", PS_DISK_AUTO, 4, &w->disk));
    const ps_store_desc desc = {.layout = w->layout,
                                .lists = lists,
                                .ram = {w->ram[PS_TIER_DEVICE], w->ram[PS_TIER_HOST]},
                                .disk = w->disk,
                                .disk_budget_bytes = PAGES(disk_pages),
                                .options = &(ps_store_options){.prefetch = 2},
                                .is_unified_memory = moves_zero_copy};
    assert_ok(ps_store_create(&desc, &w->store));
}

static void open_world(world *w, int64_t device_pages, int64_t host_pages, int64_t disk_pages, bool moves_zero_copy)
{
    int64_t elements[N_CHUNKS];
    for (int i = 0; i < N_CHUNKS; i++) elements[i] = CHUNK_ELEMENTS;
    open_world_of(w, elements, N_CHUNKS, device_pages, host_pages, disk_pages, moves_zero_copy);
}

static void close_parts(world *w)
{
    assert_ok(ps_store_check(w->store));
    ps_store_destroy(w->store);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        const ps_device_stats s = ps_device_get_stats(w->ram[t]);
        assert_int_equal(s.used_bytes, 0);
        assert_true(s.peak_bytes <= s.budget_bytes);
        ps_device_destroy(w->ram[t]);
    }
    ps_disk_close(w->disk);
    ps_schedule_destroy(w->schedule);
    ps_trace_destroy(w->trace);
    ps_layout_destroy(w->layout);
}

static void close_world(world *w)
{
    close_parts(w);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static ps_chunk_id chunk_of(const world *w, ps_list list, int32_t i)
{
    return ps_store_chunk(w->layout, list, i);
}

static int64_t words_of(const world *w, ps_chunk_id id)
{
    return w->store->r.chunks[id].bytes / 4;
}

static void put(world *w, ps_chunk_id id, ps_tier tier)
{
    uint32_t *p;
    assert_ok(ps_store_pin(w->store, id, tier, PS_ACCESS_WRITE, (void *)&p));
    for (int64_t i = 0; i < words_of(w, id); i++) p[i] = (uint32_t)(id * 100000 + i);
    ps_store_unpin(w->store, id);
}

static const void *look(world *w, ps_chunk_id id, ps_tier tier)
{
    const uint32_t *p;
    assert_ok(ps_store_pin(w->store, id, tier, PS_ACCESS_READ, (void *)&p));
    for (int64_t i = 0; i < words_of(w, id); i++) assert_int_equal(p[i], id * 100000 + i);
    ps_store_unpin(w->store, id);
    assert_ok(ps_store_check(w->store));
    return p;
}

static int64_t held(const world *w, ps_tier tier)
{
    return ps_device_get_stats(w->ram[tier]).used_bytes;
}

static void a_payload_stays_where_it_lies(void **state)
{
    (void)state;
    world w;
    open_world(&w, 4, 4, 0, true);
    put(&w, 0, PS_TIER_DEVICE);
    const void *at = look(&w, 0, PS_TIER_DEVICE);
    assert_ptr_equal(look(&w, 0, PS_TIER_HOST), at);
    assert_int_equal(copies_of(w.store, 0), 1u << PS_TIER_HOST);
    assert_true(held(&w, PS_TIER_DEVICE) == 0 && held(&w, PS_TIER_HOST) == PAGES(1));
    assert_ptr_equal(look(&w, 0, PS_TIER_DEVICE), at);
    assert_true(held(&w, PS_TIER_DEVICE) == PAGES(1) && held(&w, PS_TIER_HOST) == 0);
    const ps_store_stats s = ps_store_get_stats(w.store);
    assert_int_equal(s.moved_bytes[PS_LINK_DEVICE_TO_HOST], PAGES(1));
    assert_int_equal(s.n_moves[PS_LINK_HOST_TO_DEVICE], 1);
    assert_int_equal(s.wait_ns, 0);
    const ps_timeline *t = ps_store_timeline(w.store);
    assert_true(t->now_ns == 0 && t->sums.busy_ns[PS_LINK_HOST_TO_DEVICE] == 0);
    /* what is to be overwritten too */
    void *p;
    assert_ok(ps_store_pin(w.store, 0, PS_TIER_HOST, PS_ACCESS_OVERWRITE, &p));
    assert_ptr_equal(p, at);
    ps_store_unpin(w.store, 0);
    close_world(&w);
}

/* Both tiers are full to the page, and there is no disk: nothing could be copied. */
static void full_tiers_swap(void **state)
{
    (void)state;
    for (int moves_zero_copy = 0; moves_zero_copy < 2; moves_zero_copy++) {
        world w;
        open_world(&w, 2, 2, 0, moves_zero_copy);
        for (int32_t i = 0; i < 4; i++) put(&w, chunk_of(&w, A, i), i < 2 ? PS_TIER_HOST : PS_TIER_DEVICE);
        if (moves_zero_copy) {
            for (int32_t turn = 0; turn < 12; turn++) look(&w, chunk_of(&w, A, turn * 3 % 4), (ps_tier)(turn % 2));
            assert_true(held(&w, PS_TIER_DEVICE) == PAGES(2) && held(&w, PS_TIER_HOST) == PAGES(2));
        } else {
            assert_int_equal(ps_store_pin(w.store, 0, PS_TIER_DEVICE, PS_ACCESS_READ, NULL), PS_EBUDGET);
        }
        close_world(&w);
    }
}

/* Two small ones for a large one; a large one for a small one finds no room, and nothing has happened. */
static void chunks_of_two_sizes_swap(void **state)
{
    (void)state;
    world w;
    open_world(&w, 2, 2, 0, true);
    const ps_chunk_id a[] = {chunk_of(&w, A, 0), chunk_of(&w, A, 1)}, b = chunk_of(&w, B, 0);
    put(&w, b, PS_TIER_HOST);
    for (int i = 0; i < 2; i++) put(&w, a[i], PS_TIER_DEVICE);
    look(&w, b, PS_TIER_DEVICE);
    for (int i = 0; i < 2; i++) assert_int_equal(copies_of(w.store, a[i]), 1u << PS_TIER_HOST);
    const int64_t before = ps_store_get_stats(w.store).moved_bytes[PS_LINK_DEVICE_TO_HOST];
    assert_int_equal(ps_store_pin(w.store, a[0], PS_TIER_DEVICE, PS_ACCESS_READ, NULL), PS_EBUDGET);
    assert_int_equal(ps_store_get_stats(w.store).moved_bytes[PS_LINK_DEVICE_TO_HOST], before);
    look(&w, a[1], PS_TIER_HOST);
    look(&w, b, PS_TIER_DEVICE);
    close_world(&w);
}

/* What is pinned stays: the trade takes another one. */
static void pinned_chunks_do_not_swap(void **state)
{
    (void)state;
    world w;
    open_world(&w, 2, 2, 0, true);
    for (int32_t i = 0; i < 4; i++) put(&w, i, i < 2 ? PS_TIER_DEVICE : PS_TIER_HOST);
    void *at, *p;
    assert_ok(ps_store_pin(w.store, 0, PS_TIER_DEVICE, PS_ACCESS_READ, &at));
    look(&w, 2, PS_TIER_DEVICE);
    assert_int_equal(copies_of(w.store, 1), 1u << PS_TIER_HOST);
    assert_int_equal(ps_store_pin(w.store, 0, PS_TIER_HOST, PS_ACCESS_READ, &p), PS_ESTATE);
    assert_ptr_equal(ps_store_payload(w.store, 0), at);
    ps_store_unpin(w.store, 0);
    close_world(&w);
}

/* The disk writes on from where the payload is, whichever chunk has it meanwhile. */
static void what_is_being_written_may_go(void **state)
{
    (void)state;
    world w;
    open_world(&w, 2, 2, 8, true);
    const flight *f = &w.store->m.flights[0];
    bool started = false;
    put(&w, 0, PS_TIER_HOST);
    assert_ok(ps_scheduling_write_back(&w.store->s, 0, PS_TIER_HOST, PS_TIER_HOST, &started));
    assert_true(started && f->active);
    look(&w, 0, PS_TIER_DEVICE);
    assert_true(f->active && f->src == PS_TIER_DEVICE);
    assert_ok(ps_movement_wait_all(&w.store->m));
    assert_int_equal(copies_of(w.store, 0), 1u << PS_TIER_DEVICE | 1u << PS_TIER_DISK);
    ps_residency_free(&w.store->r, 0, PS_TIER_DEVICE, PS_REASON_EVICT);
    look(&w, 0, PS_TIER_HOST); /* read again */
    assert_int_equal(ps_store_get_stats(w.store).n_moves[PS_LINK_DISK_READ], 1);
    /* a change waits until it is written, and what was written is stale */
    ps_residency_forget_disk_content(&w.store->r, 0, PS_REASON_DROP);
    assert_ok(ps_scheduling_write_back(&w.store->s, 0, PS_TIER_HOST, PS_TIER_HOST, &started));
    assert_true(started);
    put(&w, 0, PS_TIER_DEVICE);
    assert_false(f->active);
    assert_int_equal(copies_of(w.store, 0), 1u << PS_TIER_DEVICE);
    close_world(&w);
}

static void run_moment(world *w, int32_t moment)
{
    const ps_moment *m = &w->trace->moments[moment];
    assert_ok(ps_store_begin_moment(w->store, 0));
    for (int32_t i = 0; i < m->n_accesses; i++) {
        const ps_access *a = &w->trace->accesses[m->first_access + i];
        look(w, a->chunk, a->tier);
    }
}

static void use_in_turn(world *w, const ps_chunk_id *chunks, int32_t n)
{
    assert_ok(ps_trace_create(&w->trace));
    for (int32_t k = 0; k < n; k++) {
        assert_ok(ps_trace_add_moment(w->trace, PS_PHASE_FORWARD, "moment", 0, 100000000));
        assert_ok(ps_trace_add_access(w->trace, chunks[k], PS_TIER_DEVICE, PS_ACCESS_READ));
    }
    assert_ok(ps_schedule_create(w->trace, lists.n * w->layout->n_chunks, &w->schedule));
    ps_store_set_schedule(w->store, w->schedule);
}

/* Nothing goes up before it is wanted, and nothing goes to the disk as long as RAM has room. */
static void chunks_go_up_when_wanted(void **state)
{
    (void)state;
    world w;
    open_world(&w, 4, 4, 16, true);
    static const ps_chunk_id turns[] = {0, 1, 2, 3, 4, 5, 6};
    for (int32_t i = 0; i < 7; i++) put(&w, i, PS_TIER_DEVICE);
    use_in_turn(&w, turns, 7);
    for (int32_t k = 0; k < 21; k++) {
        const ps_store_stats s = ps_store_get_stats(w.store);
        const ps_chunk_id id = turns[k % 7];
        const bool was_on_host = copies_of(w.store, id) == 1u << PS_TIER_HOST;
        run_moment(&w, k % 7);
        assert_int_equal(ps_store_get_stats(w.store).n_moves[PS_LINK_HOST_TO_DEVICE],
                         s.n_moves[PS_LINK_HOST_TO_DEVICE] + was_on_host);
    }
    const ps_store_stats s = ps_store_get_stats(w.store);
    assert_true(s.n_moves[PS_LINK_HOST_TO_DEVICE] > 0);
    assert_true(s.n_moves[PS_LINK_DISK_WRITE] == 0 && s.n_prefetched == 0);
    close_world(&w);
}

/* The caller's work continues next to a payload that changes hands, and is known where it is then. */
static void users_of_a_payload_go_with_it(void **state)
{
    (void)state;
    world w;
    ps_queue *user = NULL;
    open_world(&w, 2, 2, 0, true);
    assert_ok(ps_host_queue_create("user", &user));
    put(&w, 0, PS_TIER_DEVICE);
    assert_ok(ps_store_pin(w.store, 0, PS_TIER_DEVICE, PS_ACCESS_READ, NULL));
    const ps_event e = ps_host_queue_begin(user);
    ps_residency_note_item(&w.store->r, 0, PS_TIER_DEVICE, e, false);
    ps_store_unpin(w.store, 0);
    look(&w, 0, PS_TIER_HOST);
    const ps_events *in_use = &w.store->r.chunks[0].in_use[PS_TIER_HOST];
    bool is_known = false;
    for (int i = 0; i < in_use->n; i++)
        is_known = is_known || (in_use->event[i].queue == e.queue && in_use->event[i].ticket == e.ticket);
    assert_true(is_known);
    ps_host_queue_end(user, e.ticket, PS_OK);
    put(&w, 0, PS_TIER_HOST);
    close_parts(&w);
    ps_queue_destroy(user);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* No trade is possible, so others leave for a chunk that changes hands: never the chunk itself, though it has not been
 * used for longest. */
static void a_wanted_chunk_does_not_make_room_for_itself(void **state)
{
    (void)state;
    world w;
    open_world(&w, 2, 2, 16, true);
    const ps_chunk_id wanted = chunk_of(&w, A, 0), large = chunk_of(&w, B, 0);
    put(&w, wanted, PS_TIER_DEVICE);
    put(&w, chunk_of(&w, A, 1), PS_TIER_DEVICE);
    put(&w, large, PS_TIER_HOST);
    const void *at = w.store->r.chunks[wanted].payload[PS_TIER_DEVICE];
    assert_ptr_equal(look(&w, wanted, PS_TIER_HOST), at);
    assert_int_equal(ps_store_get_stats(w.store).n_moves[PS_LINK_DISK_READ], 0);
    assert_int_equal(copies_of(w.store, large), 1u << PS_TIER_DISK);
    look(&w, large, PS_TIER_HOST);
    close_world(&w);
}

/* Content that is to be overwritten is not there any more (DEBUG=3), also where the payload is an old one. */
static void what_is_overwritten_is_undefined(void **state)
{
    (void)state;
    if (PS_DEBUG < 3) skip();
    for (int other = 0; other < 2; other++) {
        world w;
        const uint32_t *p;
        open_world(&w, 2, 2, 0, true);
        put(&w, 1, PS_TIER_DEVICE);
        assert_ok(ps_store_pin(w.store, 1, other ? PS_TIER_HOST : PS_TIER_DEVICE, PS_ACCESS_OVERWRITE, (void *)&p));
        for (int64_t i = 0; i < words_of(&w, 1); i++) assert_int_equal(p[i], UINT32_MAX);
        ps_store_unpin(w.store, 1);
        close_world(&w);
    }
}

/* A tensor larger than a chunk: whatever allocation fails, the next try has the addresses on both tiers. */
static void regions_are_made_in_pairs(void **state)
{
    (void)state;
    bool has_struck = true;
    for (long nth = 0; has_struck; nth++) {
        const int64_t elements = 4 * CHUNK_ELEMENTS;
        world w;
        open_world_of(&w, &elements, 1, 8, 8, 0, true);
        ps_fault_arm(PS_FAULT_ALLOC, nth, false);
        const ps_status st = ps_store_pin(w.store, 0, PS_TIER_DEVICE, PS_ACCESS_WRITE, NULL);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_true(has_struck == (st != PS_OK));
        if (st == PS_OK) ps_store_unpin(w.store, 0);
        put(&w, 0, PS_TIER_DEVICE);
        look(&w, 0, PS_TIER_HOST);
        close_world(&w);
    }
}

/* A chunk chosen to leave is so in the store that a change of shape is tried on. */
static void an_imitation_lets_the_same_leave(void **state)
{
    (void)state;
    for (int moves_zero_copy = 0; moves_zero_copy < 2; moves_zero_copy++) {
        world a, b;
        bool started = false;
        open_world(&a, 4, 4, 16, moves_zero_copy);
        open_world(&b, 4, 4, 16, moves_zero_copy);
        for (int32_t i = 0; i < 4; i++) put(&a, i, PS_TIER_HOST);
        assert_ok(ps_scheduling_write_back(&a.store->s, 2, PS_TIER_HOST, PS_TIER_HOST, &started));
        assert_ok(ps_store_synchronize(a.store));
        assert_ok(ps_store_copy_residency(b.store, a.store));
        assert_true(ps_store_residency(a.store) == ps_store_residency(b.store));
        assert_int_equal(ps_scheduling_pick_victim(&b.store->s, PS_TIER_HOST), 2);
        close_parts(&b);
        close_world(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_payload_stays_where_it_lies),
        cmocka_unit_test(full_tiers_swap),
        cmocka_unit_test(chunks_of_two_sizes_swap),
        cmocka_unit_test(pinned_chunks_do_not_swap),
        cmocka_unit_test(what_is_being_written_may_go),
        cmocka_unit_test(chunks_go_up_when_wanted),
        cmocka_unit_test(users_of_a_payload_go_with_it),
        cmocka_unit_test(regions_are_made_in_pairs),
        cmocka_unit_test(a_wanted_chunk_does_not_make_room_for_itself),
        cmocka_unit_test(what_is_overwritten_is_undefined),
        cmocka_unit_test(an_imitation_lets_the_same_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
