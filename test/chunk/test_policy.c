/* Who leaves: the order, and the loads each policy causes on one small tier. */
#include "chunk/chunk_fixture.h"
#include "chunk/patrickstar_policy.h"

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
static int64_t loads(const ps_policy *policy, const int32_t *sequence, int32_t n, int32_t n_chunks, int32_t room)
{
    int64_t elements[64];
    for (int32_t i = 0; i < n_chunks; i++) elements[i] = 2048;
    ps_layout *l = NULL;
    ps_trace *t = NULL;
    ps_schedule *schedule = NULL;
    ps_device *device = NULL, *host = NULL;
    ps_disk *disk = NULL;
    ps_store *s = NULL;
    assert_ok(ps_layout_create(elements, n_chunks, 2048, &l));
    read_trace(sequence, n, n_chunks, &t, &schedule);
    assert_ok(ps_device_create(&ps_device_sim_ops, "device", room * CHUNK_BYTES, &device));
    assert_ok(ps_device_create(&ps_device_sim_ops, "host", 0, &host));
    assert_ok(ps_disk_open("/tmp", PS_DISK_SIM, 4, &disk));
    const ps_store_desc desc = {.layout = l,
                                .lists = {.n = 1, .list = {{"PARAM16", 2}}},
                                .ram = {device, host},
                                .disk = disk,
                                .disk_budget_bytes = 1 << 20,
                                .policy = policy};
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

static void test_opt_is_minimal(void **state)
{
    (void)state;
    int64_t sum_opt = 0, sum_lru = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        dice d = dice_of(seed);
        int32_t sequence[40];
        const int32_t n_chunks = 4 + roll(&d, 4), n = 10 + roll(&d, 30), room = 2 + roll(&d, n_chunks - 2);
        for (int32_t m = 0; m < n; m++) sequence[m] = roll(&d, n_chunks);
        const int64_t opt = loads(&ps_policy_opt, sequence, n, n_chunks, room);
        const int64_t lru = loads(&ps_policy_lru, sequence, n, n_chunks, room);
        const int64_t theirs = loads(&patrickstar_policy, sequence, n, n_chunks, room);
        assert_int_equal(opt, belady(sequence, n, room));
        assert_true(opt <= lru);
        assert_int_equal(opt, theirs); /* without an update phase the rules agree */
        sum_opt += opt, sum_lru += lru;
    }
    assert_true(sum_opt < sum_lru);
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
        const int64_t all = cold + loads(&ps_policy_opt, sequence, n, n_chunks, room);
        const int64_t least = fewest(sequence, n, n_chunks, room);
        assert_true(all >= least && all <= least + room);
    }
}

static int64_t order(const ps_policy *p, const ps_schedule *s, int32_t now, ps_chunk_id id, uint64_t used)
{
    return p->order(&(ps_policy_query){
        .schedule = s, .now = now, .turn = 20 + now, .chunk = id, .tier = PS_TIER_DEVICE, .last_use_tick = used});
}

static void test_orders(void **state)
{
    (void)state;
    ps_trace *t = NULL;
    ps_schedule *s = NULL;
    assert_ok(ps_trace_create(&t));
    for (int32_t m = 0; m < 6; m++) {
        assert_ok(ps_trace_add_moment(t,
                                      m < 2    ? PS_PHASE_FORWARD
                                      : m == 2 ? PS_PHASE_BACKWARD
                                               : PS_PHASE_UPDATE,
                                      "m", 0, 1));
        assert_ok(ps_trace_add_access(t, m, PS_TIER_DEVICE, PS_ACCESS_READ));
    }
    assert_ok(ps_schedule_create(t, 8, &s));
    /* opt: farthest next use, moment m of this round being turn 20 + m; never used is farther than all */
    assert_int_equal(order(&ps_policy_opt, s, 0, 1, 0), 21);
    assert_int_equal(order(&ps_policy_opt, s, 0, 5, 0), 25);
    assert_int_equal(order(&ps_policy_opt, s, 0, 0, 0), 26);
    assert_int_equal(order(&ps_policy_opt, s, 0, 7, 0), PS_ORDER_MOST);
    /* without a schedule: least recently used */
    assert_true(order(&ps_policy_opt, NULL, -1, 1, 30) > order(&ps_policy_opt, NULL, -1, 1, 31));
    assert_true(order(&ps_policy_lru, NULL, -1, 1, 30) > order(&ps_policy_lru, NULL, -1, 1, 31));
    assert_int_equal(order(&ps_policy_lru, s, 3, 1, 99), order(&ps_policy_lru, NULL, -1, 5, 99));
    /* patrickstar: chunks equal without a schedule; the update phase is one moment, 3 */
    assert_int_equal(order(&patrickstar_policy, NULL, -1, 1, 30), order(&patrickstar_policy, NULL, -1, 5, 80));
    assert_int_equal(order(&patrickstar_policy, s, 0, 2, 0), 22);
    for (ps_chunk_id c = 3; c < 6; c++) assert_int_equal(order(&patrickstar_policy, s, 0, c, 0), 23);
    assert_int_equal(order(&patrickstar_policy, s, 0, 0, 0), 26);
    assert_int_equal(order(&patrickstar_policy, s, 0, 7, 0), PS_ORDER_MOST);
    /* in the phase: what comes later in it is wanted now, what is over comes with the next round's */
    assert_int_equal(order(&patrickstar_policy, s, 3, 5, 0), 23);
    assert_int_equal(order(&patrickstar_policy, s, 4, 5, 0), 23);
    assert_int_equal(order(&patrickstar_policy, s, 4, 3, 0), 29);
    assert_int_equal(order(&patrickstar_policy, s, -1, 3, 0), 23);
    /* the same from one use to the next */
    static const ps_policy *const policies[] = {&ps_policy_opt, &ps_policy_lru, &patrickstar_policy};
    for (size_t p = 0; p < PS_ARRAY_LEN(policies); p++)
        for (ps_chunk_id c = 0; c < 8; c++)
            for (int32_t now = -1; now < 5; now++)
                if (now + 1 != c)
                    assert_int_equal(order(policies[p], s, now, c, 7), order(policies[p], s, now + 1, c, 7));
    ps_schedule_destroy(s);
    ps_trace_destroy(t);
}

/* PatrickStar's test_eviction_policy: chunk 0 is used at moment 0, chunk 1 at moment 1. */
static void test_patrickstar_case(void **state)
{
    (void)state;
    ps_trace *t = NULL;
    ps_schedule *s = NULL;
    const int32_t sequence[] = {0, 1};
    read_trace(sequence, 2, 2, &t, &s);
    assert_true(order(&patrickstar_policy, s, 0, 0, 0) > order(&patrickstar_policy, s, 0, 1, 0));
    assert_true(order(&patrickstar_policy, s, 1, 1, 0) > order(&patrickstar_policy, s, 1, 0, 0));
    ps_schedule_destroy(s);
    ps_trace_destroy(t);
}

static void test_find(void **state)
{
    (void)state;
    assert_ptr_equal(ps_policy_find("opt"), &ps_policy_opt);
    assert_ptr_equal(ps_policy_find("lru"), &ps_policy_lru);
    assert_null(ps_policy_find("OPT"));
    assert_null(ps_policy_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opt_is_minimal), cmocka_unit_test(test_belady_is_minimal),
        cmocka_unit_test(test_orders),         cmocka_unit_test(test_patrickstar_case),
        cmocka_unit_test(test_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
