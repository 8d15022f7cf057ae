/* Where chunks are in the disk's file: what an update reads together is together, as long as the budget holds all. */
#include "chunk/chunk_fixture.h"

#define CHUNK_ELEMENTS 2048
#define PAGES(n) ((n)*PS_PAGE_BYTES)

enum {
    N_CHUNKS = 5,
    N_STANDALONE = 7,
    LISTS_PAGES = N_CHUNKS * (1 + 2 + 2),
    ALL_PAGES = LISTS_PAGES + 3 * N_STANDALONE
};
enum { A, NONE, B, C, STANDALONE }; /* lists: of a page a chunk, of none, of two; and of three */

static const ps_lists lists = {
    .n = 4,
    .list = {{"A", {2, 1}}, {"NONE", {0, 1}}, {"B", {4, 1}}, {"C", {4, 1}}, {"APART", {0, 1}}},
    .n_standalone = N_STANDALONE,
    .standalone_bytes = PAGES(3)};

typedef small_world world;

static bool is_short; /* of slots: without those of others there is no room */

/* Tensors from n_mirrored on are in list A alone. */
static void open_parted_world(world *w, int64_t disk_pages, int32_t n_mirrored)
{
    bool in_first_list_only[N_CHUNKS];
    for (int i = 0; i < N_CHUNKS; i++) in_first_list_only[i] = i >= n_mirrored;
    is_short = false;
    open_small_world(w, &(ps_store_desc){.lists = lists, .disk_budget_bytes = PAGES(disk_pages)}, N_CHUNKS,
                     CHUNK_ELEMENTS, in_first_list_only, PAGES(ALL_PAGES), 0);
}

static void open_world(world *w, int64_t disk_pages)
{
    open_parted_world(w, disk_pages, N_CHUNKS);
}

/* Write it, and have it leave. */
static void send_down(world *w, ps_list list, int32_t i)
{
    uint32_t *p;
    const ps_chunk_id id = ps_store_chunk(w->layout, list, i);
    assert_ok(ps_store_pin(w->store, id, PS_TIER_DEVICE, PS_ACCESS_WRITE, (void *)&p));
    for (int64_t k = 0; k < w->store->r.chunks[id].bytes / 4; k++) p[k] = (uint32_t)(id * 100000 + k);
    ps_store_unpin(w->store, id);
    w->store->s.is_short_of_slots = is_short;
    assert_ok(evict_all(w->store, PS_TIER_DEVICE));
}

static int64_t page_of(const world *w, ps_list list, int32_t i)
{
    return w->store->r.chunks[ps_store_chunk(w->layout, list, i)].disk_offset / PS_PAGE_BYTES;
}

static void assert_contents(world *w)
{
    for (ps_chunk_id id = 0; id < ps_lists_n_ids(&lists, w->layout); id++) {
        const chunk *c = &w->store->r.chunks[id];
        const uint32_t *p;
        if (c->disk_offset == NO_SLOT) continue;
        assert_ok(ps_store_pin(w->store, id, PS_TIER_DEVICE, PS_ACCESS_READ, (void *)&p));
        for (int64_t k = 0; k < c->bytes / 4; k++) assert_int_equal(p[k], id * 100000 + k);
        ps_store_unpin(w->store, id);
    }
}

static void each_chunk_has_a_home_next_to_its_states(void **state)
{
    (void)state;
    world w;
    open_world(&w, ALL_PAGES);
    send_down(&w, C, 3);
    send_down(&w, A, 4);
    assert_int_equal(ps_store_get_stats(w.store).disk_bytes, PAGES(3)); /* holes do not count */
    for (int32_t i = N_CHUNKS - 1; i >= 0; i--) {
        send_down(&w, B, i);
        if (i != 3) send_down(&w, C, i);
        if (i != 4) send_down(&w, A, i);
    }
    for (int32_t i = 0; i < N_CHUNKS; i++) {
        assert_int_equal(page_of(&w, A, i), i);
        assert_int_equal(page_of(&w, B, i), N_CHUNKS + 4 * i);
        assert_int_equal(page_of(&w, C, i), N_CHUNKS + 4 * i + 2);
    }
    for (int32_t i = N_STANDALONE - 1; i >= 0; i--) send_down(&w, STANDALONE, i);
    for (int32_t i = 0; i < N_STANDALONE; i++) assert_int_equal(page_of(&w, STANDALONE, i), LISTS_PAGES + 3 * i);
    assert_int_equal(ps_store_get_stats(w.store).disk_bytes, PAGES(ALL_PAGES));
    assert_contents(&w);
    close_small_world(&w);
}

/* Chunks that are in one list only leave no holes, and count for nothing in the budget that all need. */
static void chunks_alone_have_a_home(void **state)
{
    (void)state;
    enum {
        N_MIRRORED = 3,
        PAGES_OF_LISTS = N_CHUNKS + 4 * N_MIRRORED,
        PAGES_OF_ALL = PAGES_OF_LISTS + 3 * N_STANDALONE
    };
    for (int is_small = 0; is_small < 2; is_small++) {
        world w;
        open_parted_world(&w, PAGES_OF_ALL - is_small, N_MIRRORED);
        send_down(&w, A, 4); /* the first to leave */
        assert_int_equal(page_of(&w, A, 4), is_small ? 0 : 4);
        for (int32_t i = 0; i < N_CHUNKS; i++) {
            if (i != 4) send_down(&w, A, i);
            if (i < N_MIRRORED) send_down(&w, C, i);
            if (i < N_MIRRORED && !is_small) assert_int_equal(page_of(&w, C, i), N_CHUNKS + 4 * i + 2);
        }
        for (int32_t i = 0; i < N_MIRRORED; i++) send_down(&w, B, i);
        for (int32_t i = 0; i < N_STANDALONE; i++) send_down(&w, STANDALONE, i);
        if (!is_small) assert_int_equal(page_of(&w, STANDALONE, 0), PAGES_OF_LISTS);
        assert_int_equal(ps_store_get_stats(w.store).disk_bytes, PAGES(PAGES_OF_ALL - 3 * is_small));
        assert_contents(&w);
        close_small_world(&w);
    }
}

/* With another size they are still after the others; what no longer fits has no place, and takes none of others. */
static void standalone_chunks_change_their_size(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 2}; /* pages */
    for (int is_small = 0; is_small < 2; is_small++) {
        world w;
        open_world(&w, ALL_PAGES - is_small);
        for (int32_t i = 0; i < N_CHUNKS; i++) send_down(&w, B, i);
        for (size_t k = 0; k < PS_ARRAY_LEN(sizes); k++) {
            ps_store_resize_standalone(w.store, PAGES(sizes[k]));
            for (int32_t i = 0; i < 4; i++) {
                assert_int_equal(copies_of(w.store, ps_store_chunk(w.layout, STANDALONE, i)), 0);
                send_down(&w, STANDALONE, i);
                if (!is_small) assert_int_equal(page_of(&w, STANDALONE, i), LISTS_PAGES + sizes[k] * i);
            }
            if (!is_small) assert_int_equal(ps_store_get_stats(w.store).disk_bytes, PAGES(2 * N_CHUNKS + 4 * sizes[k]));
            assert_contents(&w);
            assert_ok(ps_store_check(w.store));
            const int64_t most = PAGES(2 * N_CHUNKS + 4 * (k < 3 ? sizes[k] : 3));
            assert_int_equal(ps_store_get_stats(w.store).disk_peak_bytes, most);
        }
        close_small_world(&w);
    }
}

/* Their slots are free again, whatever sizes they went through: all lists have room. */
static void standalone_chunks_leave_nothing(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 6}; /* pages */
    for (int is_small = 0; is_small < 2; is_small++) {
        world w;
        open_world(&w, ALL_PAGES - is_small);
        for (size_t k = 0; k < PS_ARRAY_LEN(sizes); k++) {
            ps_store_resize_standalone(w.store, PAGES(sizes[k]));
            for (int32_t i = 0; i < N_STANDALONE; i++) send_down(&w, STANDALONE, i);
            for (int32_t i = 0; i < N_STANDALONE; i++)
                ps_store_discard(w.store, ps_store_chunk(w.layout, STANDALONE, i));
        }
        is_short = true;
        for (int32_t i = 0; i < N_CHUNKS; i++) send_down(&w, C, i), send_down(&w, A, i), send_down(&w, B, i);
        for (ps_list l = A; l <= C; l++)
            for (int32_t i = 0; i < N_CHUNKS && l != NONE; i++)
                assert_int_equal(copies_of(w.store, ps_store_chunk(w.layout, l, i)), 1 << PS_TIER_DISK);
        for (int32_t i = 0; i < N_CHUNKS; i++) send_down(&w, C, i);
        close_small_world(&w);
    }
}

/* Larger than at first they do not all find a place: some get those of others, whose content is elsewhere too. */
static void standalone_chunks_share_too_few_places(void **state)
{
    (void)state;
    world w;
    open_world(&w, ALL_PAGES);
    ps_store_resize_standalone(w.store, PAGES(4));
    is_short = true;
    for (int32_t i = 0; i < N_CHUNKS; i++) send_down(&w, A, i), send_down(&w, B, i), send_down(&w, C, i);
    for (int32_t i = 0; i < N_STANDALONE; i++) {
        const ps_chunk_id before = ps_store_chunk(w.layout, STANDALONE, i > 0 ? i - 1 : 0);
        if (i > 0) {
            assert_ok(ps_store_pin(w.store, before, PS_TIER_DEVICE, PS_ACCESS_READ, NULL));
            ps_store_unpin(w.store, before);
        }
        send_down(&w, STANDALONE, i);
    }
    assert_contents(&w);
    close_small_world(&w);
}

/* A page less: no place is given before it is needed. */
static void a_small_budget_has_no_holes(void **state)
{
    (void)state;
    world w;
    open_world(&w, ALL_PAGES - 1);
    send_down(&w, C, 3);
    send_down(&w, A, 4);
    send_down(&w, B, 0);
    send_down(&w, C, 0);
    assert_int_equal(page_of(&w, C, 3), 0);
    assert_int_equal(page_of(&w, A, 4), 2);
    assert_int_equal(page_of(&w, B, 0), 3);
    assert_int_equal(page_of(&w, C, 0), 5);
    assert_int_equal(ps_store_get_stats(w.store).disk_bytes, PAGES(7));
    assert_contents(&w);
    close_small_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_alone_have_a_home),
        cmocka_unit_test(each_chunk_has_a_home_next_to_its_states),
        cmocka_unit_test(standalone_chunks_change_their_size),
        cmocka_unit_test(standalone_chunks_share_too_few_places),
        cmocka_unit_test(standalone_chunks_leave_nothing),
        cmocka_unit_test(a_small_budget_has_no_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
