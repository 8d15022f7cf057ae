/* Victims: the loads that their choice causes on one small tier. */
#include "chunk/chunk_fixture.h"
#include "chunk/store_impl.h"

#define CHUNK_BYTES ((int64_t)4096)

/* A step that reads chunk sequence[m] in moment m. */
static void read_trace(const int32_t *sequence, int32_t n, int32_t n_ids, ps_trace **t, ps_schedule **s)
{
    assert_ok(ps_trace_create(t));
    for (int32_t m = 0; m < n; m++) {
        assert_ok(ps_trace_add_moment(*t, PS_PHASE_FORWARD, "read", 0, 1000));
        assert_ok(ps_trace_add_access(*t, sequence[m], PS_TIER_DEVICE, PS_ACCESS_READ));
    }
    assert_ok(ps_schedule_create(*t, n_ids, s));
}

/* Disk reads of two steps after a first one, with room for `room` of n_chunks chunks on the device. */
static int64_t loads(const int32_t *sequence, int32_t n, int32_t n_chunks, int32_t room)
{
    int64_t elements[64];
    for (int32_t i = 0; i < n_chunks; i++) elements[i] = 2048;
    ps_layout *l = NULL;
    ps_trace *t = NULL;
    ps_schedule *schedule = NULL;
    ps_device *device = NULL, *host = NULL;
    ps_disk *disk = NULL;
    ps_store *s = NULL;
    assert_ok(ps_layout_create(elements, NULL, n_chunks, 2048, &l));
    read_trace(sequence, n, n_chunks, &t, &schedule);
    assert_ok(ps_device_create(&ps_device_sim_ops, "device", room * CHUNK_BYTES, &device));
    assert_ok(ps_device_create(&ps_device_sim_ops, "host", 0, &host));
    assert_ok(ps_disk_open("/tmp", PS_DISK_SIM, 4, &disk));
    const ps_store_desc desc = {.layout = l,
                                .lists = {.n = 1, .list = {{"PARAM16", {2, 1}}}},
                                .ram = {device, host},
                                .disk = disk,
                                .disk_budget_bytes = 1 << 20};
    assert_ok(ps_store_create(&desc, &s));
    for (ps_chunk_id c = 0; c < n_chunks; c++) { /* content for all, then all on disk */
        assert_ok(ps_store_pin(s, c, PS_TIER_DEVICE, PS_ACCESS_WRITE, NULL));
        ps_store_unpin(s, c);
    }
    assert_ok(evict_all(s, PS_TIER_DEVICE));
    ps_store_set_schedule(s, schedule);
    int64_t before = 0;
    for (int32_t step = 0; step < 3; step++) {
        if (step == 1) before = ps_store_get_stats(s).n_moves[PS_LINK_DISK_READ];
        for (int32_t m = 0; m < n; m++) {
            assert_ok(ps_store_begin_moment(s, 0));
            assert_ok(ps_store_pin(s, sequence[m], PS_TIER_DEVICE, PS_ACCESS_READ, NULL));
            ps_store_unpin(s, sequence[m]);
        }
    }
    const ps_store_stats stats = ps_store_get_stats(s);
    assert_int_equal(stats.n_moves[PS_LINK_DISK_WRITE], n_chunks); /* clean ones are dropped, never written again */
    ps_store_destroy(s);
    ps_disk_close(disk);
    ps_device_destroy(device);
    ps_device_destroy(host);
    ps_schedule_destroy(schedule);
    ps_trace_destroy(t);
    ps_layout_destroy(l);
    return stats.n_moves[PS_LINK_DISK_READ] - before;
}

/* Belady's rule on the endless repetition of the sequence, written anew: misses of the second and third repetition. */
static int64_t belady(const int32_t *sequence, int32_t n, int32_t room)
{
    int32_t held[64], n_held = 0;
    int64_t misses = 0;
    for (int32_t at = 0; at < 3 * n; at++) {
        const int32_t want = sequence[at % n];
        bool there = false;
        for (int32_t i = 0; i < n_held; i++) there = there || held[i] == want;
        if (there) continue;
        misses += at >= n;
        if (n_held < room) {
            held[n_held++] = want;
            continue;
        }
        int32_t victim = 0, farthest = -1;
        for (int32_t i = 0; i < n_held; i++) {
            int32_t distance = 1;
            while (distance < 2 * n && sequence[(at + distance) % n] != held[i]) distance++;
            if (distance > farthest) farthest = distance, victim = i;
        }
        held[victim] = want;
    }
    return misses;
}

/* Least misses of all choices, by trying every set of held chunks: best[set] after each request, over three
 * repetitions. */
static int64_t fewest(const int32_t *sequence, int32_t n, int32_t n_chunks, int32_t room)
{
    enum { MAX_SETS = 1 << 7 };
    int32_t best[MAX_SETS], next[MAX_SETS];
    for (int32_t set = 0; set < 1 << n_chunks; set++) best[set] = set == 0 ? 0 : 1 << 20;
    for (int32_t at = 0; at < 3 * n; at++) {
        const int32_t want = 1 << sequence[at % n];
        for (int32_t set = 0; set < 1 << n_chunks; set++) next[set] = 1 << 20;
        for (int32_t set = 0; set < 1 << n_chunks; set++) {
            const int32_t cost = best[set] + !(set & want);
            for (int32_t out = -1; out < n_chunks; out++) { /* at most one leaves */
                const int32_t after = (out < 0 ? set : set & ~(1 << out)) | want;
                if (set & want && out >= 0) break;
                if (__builtin_popcount((unsigned)after) <= room && cost < next[after]) next[after] = cost;
            }
        }
        memcpy(best, next, sizeof best);
    }
    int32_t least = 1 << 20;
    for (int32_t set = 0; set < 1 << n_chunks; set++)
        if (best[set] < least) least = best[set];
    return least;
}

static void test_loads_are_those_of_beladys_rule(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        dice d = dice_of(seed);
        int32_t sequence[40];
        const int32_t n_chunks = 4 + roll(&d, 4), n = 10 + roll(&d, 30), room = 2 + roll(&d, n_chunks - 2);
        for (int32_t m = 0; m < n; m++) sequence[m] = roll(&d, n_chunks);
        assert_int_equal(loads(sequence, n, n_chunks, room), belady(sequence, n, room));
    }
}

/* Belady's rule against every possible choice. */
static void test_belady_is_minimal(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        dice d = dice_of(500 + seed);
        int32_t sequence[12];
        const int32_t n_chunks = 4 + roll(&d, 3), n = 12, room = 2 + roll(&d, 3);
        for (int32_t m = 0; m < n; m++) sequence[m] = roll(&d, n_chunks);
        int32_t held = 0;
        int64_t cold = 0; /* misses of the first repetition, by the store's rule */
        for (int32_t m = 0; m < n; m++) {
            const int32_t bit = 1 << sequence[m];
            if (held & bit) continue;
            cold++;
            if (__builtin_popcount((unsigned)held) == room) {
                int32_t victim = -1, farthest = -1;
                for (int32_t c = 0; c < n_chunks; c++) {
                    if (!(held & 1 << c)) continue;
                    int32_t distance = 1;
                    while (distance < 2 * n && sequence[(m + distance) % n] != c) distance++;
                    if (distance > farthest) farthest = distance, victim = c;
                }
                held &= ~(1 << victim);
            }
            held |= bit;
        }
        /* the end of three repetitions is open: what is held then is worth nothing, so allow one tier's fill */
        const int64_t all = cold + loads(sequence, n, n_chunks, room);
        const int64_t least = fewest(sequence, n, n_chunks, room);
        assert_true(all >= least && all <= least + room);
    }
}

/* PatrickStar's test_eviction_policy: chunk 0 is used in moment 0, chunk 1 in moment 1. Until there is a schedule the one
 * that was not used for longest leaves; then the one whose next use is farther, and first of all one without a use. */
static void test_patrickstar_case(void **state)
{
    (void)state;
    static const int32_t sequence[] = {0, 1};
    static const int64_t elements[] = {2048, 2048, 2048};
    ps_layout *l = NULL;
    ps_trace *t = NULL;
    ps_schedule *schedule = NULL;
    ps_device *device = NULL, *host = NULL;
    ps_store *s = NULL;
    assert_ok(ps_layout_create(elements, NULL, 3, 2048, &l));
    read_trace(sequence, 2, 3, &t, &schedule);
    assert_ok(ps_device_create(&ps_device_sim_ops, "device", 3 * CHUNK_BYTES, &device));
    assert_ok(ps_device_create(&ps_device_sim_ops, "host", 3 * CHUNK_BYTES, &host));
    const ps_store_desc desc = {.layout = l, .lists = {.n = 1, .list = {{"PARAM16", {2, 1}}}}, .ram = {device, host}};
    assert_ok(ps_store_create(&desc, &s));
    for (int i = 2; i >= 0; i--) {
        assert_ok(ps_store_pin(s, i, PS_TIER_DEVICE, PS_ACCESS_WRITE, NULL));
        ps_store_unpin(s, i);
    }
    assert_int_equal(ps_scheduling_pick_victim(&s->s, PS_TIER_DEVICE), 2);
    ps_store_set_schedule(s, schedule);
    assert_ok(ps_store_begin_moment(s, 0));
    assert_int_equal(ps_scheduling_pick_victim(&s->s, PS_TIER_DEVICE), 2);
    ps_scheduling_pass_over(&s->s, 2);
    assert_int_equal(ps_scheduling_pick_victim(&s->s, PS_TIER_DEVICE), 1); /* 0 is wanted now */
    ps_scheduling_clear_passed(&s->s);
    assert_ok(ps_store_begin_moment(s, 0));
    ps_scheduling_pass_over(&s->s, 2);
    assert_int_equal(ps_scheduling_pick_victim(&s->s, PS_TIER_DEVICE), 0);
    ps_scheduling_clear_passed(&s->s);
    ps_store_destroy(s);
    ps_device_destroy(device);
    ps_device_destroy(host);
    ps_schedule_destroy(schedule);
    ps_trace_destroy(t);
    ps_layout_destroy(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads_are_those_of_beladys_rule),
        cmocka_unit_test(test_belady_is_minimal),
        cmocka_unit_test(test_patrickstar_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
