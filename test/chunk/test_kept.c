/* Content that is kept on disk over a change, and taken back or not. */
#include <dirent.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "chunk/chunk_fixture.h"
#include "chunk/view.h"

#define CHUNK_ELEMENTS 2048
#define PAGES(n) ((n)*PS_PAGE_BYTES)

enum { N_CHUNKS = 5, N_STANDALONE = 2, N_KEEPING = 3, STATES_PAGES = 4 };
enum { A, B, C, STANDALONE }; /* lists: of a page a chunk, of two, of two; and of three */
enum { LISTS_PAGES = N_CHUNKS * (1 + STATES_PAGES), ALL_PAGES = LISTS_PAGES + 3 * N_STANDALONE };

static const ps_lists lists = {.n = 3,
                               .list = {{"A", {2, 1}}, {"B", {4, 1}}, {"C", {4, 1}}, {"APART", {0, 1}}},
                               .n_standalone = N_STANDALONE,
                               .standalone_bytes = PAGES(3)};

typedef small_world world;

/* Lists from `first` on are kept. */
static void open_world_from(world *w, ps_list first, int64_t device_pages, int64_t disk_pages)
{
    const ps_store_desc desc = {.lists = lists,
                                .disk_budget_bytes = PAGES(disk_pages),
                                .n_keeping = N_KEEPING,
                                .keeping_first = first,
                                .keeping_end = C + 1};
    open_small_world(w, &desc, N_CHUNKS, CHUNK_ELEMENTS, NULL, PAGES(device_pages), 0);
}

static void open_world(world *w, int64_t device_pages, int64_t disk_pages)
{
    open_world_from(w, B, device_pages, disk_pages);
}

static ps_chunk_id id_of(const world *w, ps_list list, int32_t i)
{
    return ps_store_chunk(w->layout, list, i);
}

static void change(world *w, ps_chunk_id id, uint32_t value)
{
    uint32_t *p;
    assert_ok(ps_store_pin(w->store, id, PS_TIER_DEVICE, PS_ACCESS_WRITE, (void *)&p));
    for (int64_t k = 0; k < w->store->r.chunks[id].bytes / 4; k++) p[k] = value + (uint32_t)k;
    ps_store_unpin(w->store, id);
    assert_ok(ps_store_check(w->store));
}

static void change_and_send_down(world *w, ps_chunk_id id, uint32_t value)
{
    change(w, id, value);
    assert_ok(evict_all(w->store, PS_TIER_DEVICE));
}

static void assert_content(world *w, ps_chunk_id id, uint32_t value)
{
    const uint32_t *p;
    assert_ok(ps_store_pin(w->store, id, PS_TIER_DEVICE, PS_ACCESS_READ, (void *)&p));
    for (int64_t k = 0; k < w->store->r.chunks[id].bytes / 4; k++) assert_int_equal(p[k], value + (uint32_t)k);
    ps_store_unpin(w->store, id);
}

static int64_t page_of(const world *w, ps_chunk_id id)
{
    return w->store->r.chunks[id].disk_offset / PS_PAGE_BYTES;
}

static int64_t disk_pages(const world *w)
{
    return ps_store_get_stats(w->store).disk_bytes / PS_PAGE_BYTES;
}

static void test_places_take_turns(void **state)
{
    (void)state;
    enum { I = 2, HOME = N_CHUNKS + STATES_PAGES * I, SECOND = HOME + STATES_PAGES * N_CHUNKS };
    world w;
    open_world(&w, ALL_PAGES, ALL_PAGES + N_KEEPING * STATES_PAGES);
    const ps_chunk_id b = id_of(&w, B, I), c = id_of(&w, C, I);
    change_and_send_down(&w, b, 100);
    change_and_send_down(&w, c, 200);
    for (int turn = 0; turn < 4; turn++) {
        assert_int_equal(page_of(&w, b), turn % 2 == 0 ? HOME : SECOND);
        assert_int_equal(page_of(&w, c), turn % 2 == 0 ? HOME + 2 : SECOND + 2); /* side by side in each */
        assert_int_equal(disk_pages(&w), turn == 0 ? 4 : 8);                     /* the file keeps both places */
        for (ps_list l = B; l <= C; l++) {
            assert_true(ps_store_can_keep(w.store, id_of(&w, l, I)));
            assert_ok(ps_store_keep(w.store, id_of(&w, l, I)));
            assert_false(ps_store_can_keep(w.store, id_of(&w, l, I)));
            change_and_send_down(&w, id_of(&w, l, I), 1000u * (uint32_t)l + 10u * (uint32_t)turn);
        }
        assert_int_equal(disk_pages(&w), 8);
        assert_int_equal(ps_store_get_stats(w.store).use[PS_TIER_DISK].list_bytes[B], PAGES(4));
        ps_store_forget_kept(w.store, b);
        ps_store_forget_kept(w.store, c);
        assert_content(&w, b, 1000u * B + 10u * (uint32_t)turn);
        assert_content(&w, c, 1000u * C + 10u * (uint32_t)turn);
        assert_ok(evict_all(w.store, PS_TIER_DEVICE));
    }
    for (int32_t i = 0; i < N_STANDALONE; i++) change_and_send_down(&w, id_of(&w, STANDALONE, i), 5);
    assert_int_equal(page_of(&w, id_of(&w, STANDALONE, 0)), N_CHUNKS * (1 + 2 * STATES_PAGES));
    close_small_world(&w);
}

/* Of the first list, too, whose places are apart from those of the others. */
static void test_first_list_takes_turns(void **state)
{
    (void)state;
    enum { I = 1, KEPT_PAGES = 1 + STATES_PAGES, SECOND = LISTS_PAGES + KEPT_PAGES * I };
    world w;
    open_world_from(&w, A, ALL_PAGES, ALL_PAGES + N_KEEPING * KEPT_PAGES);
    const ps_chunk_id a = id_of(&w, A, I), c = id_of(&w, C, I);
    change_and_send_down(&w, a, 100);
    change_and_send_down(&w, c, 200);
    for (int turn = 0; turn < 4; turn++) {
        assert_int_equal(page_of(&w, a), turn % 2 == 0 ? I : SECOND);
        assert_int_equal(page_of(&w, c), turn % 2 == 0 ? N_CHUNKS + STATES_PAGES * I + 2 : SECOND + 3);
        for (int k = 0; k < 2; k++) {
            assert_ok(ps_store_keep(w.store, k == 0 ? a : c));
            change_and_send_down(&w, k == 0 ? a : c, 1000u + (uint32_t)(10 * turn + k));
        }
        if (turn == 3) {
            ps_store_restore_kept(w.store, a);
            assert_content(&w, a, 1020u);
            assert_content(&w, c, 1031u);
            break;
        }
        ps_store_forget_kept(w.store, a);
        ps_store_forget_kept(w.store, c);
        assert_content(&w, a, 1000u + (uint32_t)(10 * turn));
        assert_ok(evict_all(w.store, PS_TIER_DEVICE));
    }
    change_and_send_down(&w, id_of(&w, STANDALONE, 0), 5);
    assert_int_equal(page_of(&w, id_of(&w, STANDALONE, 0)), LISTS_PAGES + N_CHUNKS * KEPT_PAGES);
    close_small_world(&w);
    open_world_from(&w, A, ALL_PAGES, ALL_PAGES + N_KEEPING * KEPT_PAGES - 1); /* a page less: no second places */
    change_and_send_down(&w, id_of(&w, A, 0), 1);
    assert_false(ps_store_can_keep(w.store, id_of(&w, A, 0)));
    close_small_world(&w);
}

/* The old content counts again: whether the new one is in RAM only, on disk, or on its way there. */
static void test_a_change_is_taken_back(void **state)
{
    (void)state;
    enum { IN_RAM, ON_DISK, IN_FLIGHT, UNCHANGED, N_CASES };
    for (int k = 0; k < N_CASES; k++) {
        world w;
        bool started;
        open_world(&w, ALL_PAGES, ALL_PAGES + N_KEEPING * STATES_PAGES);
        const ps_chunk_id b = id_of(&w, B, 4);
        change_and_send_down(&w, b, 100);
        const int64_t page = page_of(&w, b);
        const uint64_t before = ps_store_residency(w.store);
        assert_ok(ps_store_keep(w.store, b));
        assert_true(ps_store_residency(w.store) != before);
        if (k != UNCHANGED) change(&w, b, 7000);
        if (k != UNCHANGED) change(&w, b, 8000); /* what is kept is the content of before the first change */
        if (k == ON_DISK) assert_ok(evict_all(w.store, PS_TIER_DEVICE));
        if (k == IN_FLIGHT) assert_ok(ps_scheduling_write_back(&w.store->s, b, PS_TIER_DEVICE, PS_TIER_HOST, &started));
        ps_store_restore_kept(w.store, b);
        assert_ok(ps_store_check(w.store));
        assert_int_equal(copies_of(w.store, b), 1u << PS_TIER_DISK);
        assert_int_equal(page_of(&w, b), page);
        assert_int_equal(disk_pages(&w), 4);
        if (k == IN_RAM || k == UNCHANGED) assert_true(ps_store_residency(w.store) == before);
        assert_content(&w, b, 100);
        assert_true(ps_store_can_keep(w.store, b)); /* it can be tried again */
        close_small_world(&w);
    }
}

static void test_what_cannot_be_kept(void **state)
{
    (void)state;
    world w;
    open_world(&w, ALL_PAGES, ALL_PAGES + N_KEEPING * STATES_PAGES);
    assert_false(ps_store_can_keep(w.store, id_of(&w, B, 0))); /* no content */
    change_and_send_down(&w, id_of(&w, A, 0), 1);
    assert_false(ps_store_can_keep(w.store, id_of(&w, A, 0))); /* list 0 */
    change_and_send_down(&w, id_of(&w, STANDALONE, 0), 1);
    assert_false(ps_store_can_keep(w.store, id_of(&w, STANDALONE, 0)));
    for (int32_t i = 0; i < N_CHUNKS; i++) {
        for (ps_list l = B; l <= C; l++) change_and_send_down(&w, id_of(&w, l, i), 1);
        assert_int_equal(ps_store_can_keep(w.store, id_of(&w, B, i)), i < N_KEEPING); /* the second places are taken */
        for (ps_list l = B; l <= C && i < N_KEEPING; l++) assert_ok(ps_store_keep(w.store, id_of(&w, l, i)));
    }
    ps_store_forget_kept(w.store, id_of(&w, C, 1));
    assert_true(ps_store_can_keep(w.store, id_of(&w, C, 1)));
    assert_false(ps_store_can_keep(w.store, id_of(&w, C, 4))); /* the file still has the other one's place */
    close_small_world(&w);
    open_world(&w, ALL_PAGES, ALL_PAGES + N_KEEPING * STATES_PAGES - 1); /* a page less: no second places */
    change_and_send_down(&w, id_of(&w, B, 0), 1);
    assert_int_equal(page_of(&w, id_of(&w, B, 0)), N_CHUNKS); /* and homes all the same */
    assert_false(ps_store_can_keep(w.store, id_of(&w, B, 0)));
    close_small_world(&w);
}

/* Content that RAM alone has is written when it is to be kept, or ahead of that; and stays in RAM. */
static void test_kept_content_is_written(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        world w;
        open_world(&w, ALL_PAGES, ALL_PAGES + N_KEEPING * STATES_PAGES);
        const ps_chunk_id b = id_of(&w, B, 1);
        assert_ok(ps_store_write_ahead(w.store, b)); /* it has no content yet */
        change(&w, b, 100);
        assert_true(ps_store_can_keep(w.store, b));
        for (int twice = 0; ahead && twice < 2; twice++) assert_ok(ps_store_write_ahead(w.store, b));
        assert_int_equal(ps_store_get_stats(w.store).moved_bytes[PS_LINK_DISK_WRITE], PAGES(ahead ? 2 : 0));
        assert_ok(ps_store_keep(w.store, b));
        assert_int_equal(ps_store_get_stats(w.store).moved_bytes[PS_LINK_DISK_WRITE], PAGES(2));
        assert_int_equal(copies_of(w.store, b), 1u << PS_TIER_DEVICE | 1u << PS_TIER_DISK);
        change(&w, b, 200);
        ps_store_restore_kept(w.store, b);
        assert_content(&w, b, 100);
        assert_ok(ps_store_write_ahead(w.store, b)); /* the disk has it */
        assert_int_equal(ps_store_get_stats(w.store).moved_bytes[PS_LINK_DISK_WRITE], PAGES(2));
        close_small_world(&w);
    }
}

/* A write-back that the timeline has done, and that fails when it is looked at: the content is in RAM. */
static void test_a_late_write_fails(void **state)
{
    (void)state;
    world w;
    bool started;
    open_world(&w, ALL_PAGES, ALL_PAGES + N_KEEPING * STATES_PAGES);
    assert_ok(ps_host_queue_create("gate", &w.gate));
    const ps_event opening = ps_host_queue_begin(w.gate);
    const ps_chunk_id b = id_of(&w, B, 0);
    change(&w, b, 100);
    ps_residency_note_item(&w.store->r, b, PS_TIER_DEVICE, opening, true);
    ps_fault_arm(PS_FAULT_WRITE, 0, false);
    assert_ok(ps_scheduling_write_back(&w.store->s, b, PS_TIER_DEVICE, PS_TIER_HOST, &started));
    ps_timeline_compute(&w.store->m.time, 1000000000);
    assert_ok(ps_movement_retire_due(&w.store->m));
    assert_true(ps_store_can_keep(w.store, b));
    ps_host_queue_end(w.gate, opening.ticket, PS_OK);
    assert_int_equal(ps_store_keep(w.store, b), PS_EIO);
    assert_int_equal(copies_of(w.store, b), 1u << PS_TIER_DEVICE);
    ps_fault_arm(PS_FAULT_WRITE, 0, false);
    assert_int_equal(ps_store_keep(w.store, b), PS_EIO); /* what it writes itself */
    ps_fault_arm(PS_FAULT_WRITE, -1, false);
    assert_int_equal(copies_of(w.store, b), 1u << PS_TIER_DEVICE);
    assert_content(&w, b, 100);
    assert_ok(ps_store_keep(w.store, b));
    change(&w, b, 200);
    ps_store_restore_kept(w.store, b);
    assert_content(&w, b, 100);
    close_small_world(&w);
}

/* A view for writing is a change, too. */
static void test_a_view_does_not_touch_what_is_kept(void **state)
{
    (void)state;
    world w;
    ps_view v;
    open_world(&w, ALL_PAGES, ALL_PAGES + N_KEEPING * STATES_PAGES);
    const ps_chunk_id b = id_of(&w, B, 1);
    change_and_send_down(&w, b, 100);
    for (int restores = 0; restores < 2; restores++) {
        assert_ok(ps_store_keep(w.store, b));
        assert_ok(ps_view_open(w.store, b, PS_TIER_DEVICE, 0, 4, PS_ACCESS_WRITE, &v));
        *(uint32_t *)v.bytes = 77;
        assert_ok(ps_view_close(w.store, &v));
        assert_ok(ps_view_open(w.store, b, PS_TIER_DEVICE, 0, 4, PS_ACCESS_READ, &v));
        assert_int_equal(*(const uint32_t *)v.bytes, 77);
        assert_ok(ps_view_close(w.store, &v));
        if (restores == 1) {
            ps_store_restore_kept(w.store, b);
            assert_content(&w, b, 100);
        } else {
            ps_store_forget_kept(w.store, b);
            change_and_send_down(&w, b, 100);
        }
    }
    close_small_world(&w);
}

/* Bytes that unnamed files of this process have on disk. */
static int64_t allocated_bytes(void)
{
    int64_t bytes = 0;
    DIR *fds = opendir("/proc/self/fd");
    assert_non_null(fds);
    for (const struct dirent *e = readdir(fds); e != NULL; e = readdir(fds)) {
        struct stat st;
        if (e->d_name[0] != '.' && fstat(atoi(e->d_name), &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0)
            bytes += (int64_t)st.st_blocks * 512;
    }
    closedir(fds);
    return bytes;
}

/* Everything at random, with room for a few chunks in RAM: each chunk has what was written last, or, where that was
 * taken back, what it had when it was kept. */
static void keep_at_random(ps_list first)
{
    enum { N_IDS = 3 * N_CHUNKS + N_STANDALONE, N_TURNS = 4000 };
    uint32_t now[N_IDS] = {0}, old[N_IDS] = {0};
    bool keeps[N_IDS] = {false};
    int n_kept = 0, n_restored = 0;
    world w;
    dice d = dice_of(37);
    const int64_t all_pages = ALL_PAGES + N_KEEPING * (STATES_PAGES + (first == A));
    open_world_from(&w, first, 12, all_pages);
    for (uint32_t turn = 1; turn <= N_TURNS; turn++) {
        const ps_chunk_id id = roll(&d, N_IDS);
        switch (roll(&d, 8)) {
        case 0:
        case 1:
            if (turn % 3 == 0) assert_ok(ps_store_write_ahead(w.store, id));
            if (!ps_store_can_keep(w.store, id)) break;
            assert_ok(ps_store_keep(w.store, id));
            keeps[id] = true;
            old[id] = now[id];
            n_kept++;
            break;
        case 2:
            if (!keeps[id]) break;
            ps_store_forget_kept(w.store, id);
            keeps[id] = false;
            break;
        case 3:
            if (!keeps[id]) break;
            ps_store_restore_kept(w.store, id);
            keeps[id] = false;
            n_restored += now[id] != old[id];
            now[id] = old[id];
            break;
        case 4:
            if (now[id] != 0) assert_content(&w, id, now[id]);
            break;
        default: change(&w, id, 1000 * turn); now[id] = 1000 * turn;
        }
        assert_ok(ps_store_check(w.store));
    }
    assert_true(n_kept > 100 && n_restored > 20);
    assert_ok(ps_movement_wait_all(&w.store->m));
    const int64_t bytes = allocated_bytes(); /* with what the file system needs to find the others */
    assert_true(bytes > 0 && bytes <= PAGES(all_pages + 2));
    for (ps_chunk_id id = 0; id < N_IDS; id++) {
        if (keeps[id]) ps_store_forget_kept(w.store, id);
        assert_content(&w, id, now[id]);
    }
    close_small_world(&w);
}

static void test_at_random(void **state)
{
    (void)state;
    keep_at_random(B);
    keep_at_random(A);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_take_turns),
        cmocka_unit_test(test_first_list_takes_turns),
        cmocka_unit_test(test_a_change_is_taken_back),
        cmocka_unit_test(test_what_cannot_be_kept),
        cmocka_unit_test(test_kept_content_is_written),
        cmocka_unit_test(test_a_late_write_fails),
        cmocka_unit_test(test_a_view_does_not_touch_what_is_kept),
        cmocka_unit_test(test_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
