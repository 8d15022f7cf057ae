/* The store driven as a foreign framework would drive it, against a model that only remembers what each chunk should
 * hold. */
#include "chunk/chunk_fixture.h"
#include "chunk/victim_walk.h"

#define CHUNK_ELEMENTS 2048
#define PAGES(n) ((n)*PS_PAGE_BYTES)
#define MAX_IDS (PS_LISTS_MAX * 64)
#define NON_MODEL_BYTES PAGES(6)

typedef struct scenario {
    uint64_t seed;
    bool simulated, scheduled, shares_slots, moves_zero_copy;
    bool counts_non_model;    /* activations lie elsewhere, */
    bool claims_outside_step; /* and have memory outside of the schedule too */
    int64_t device_bytes, host_bytes, disk_bytes;
    ps_disk_backend backend;
    int32_t prefetch;
    bool may_refuse; /* PS_EBUDGET is legal */
    int32_t n_operations;
} scenario;

typedef struct outcome {
    ps_store_stats stats;
    int64_t peak[PS_RAM_TIER_COUNT];
    int64_t refused;
} outcome;

typedef struct world {
    const scenario *sc;
    dice d;
    ps_layout *layout;
    ps_device *ram[PS_RAM_TIER_COUNT];
    ps_disk *disk;
    ps_store *store;
    ps_trace *trace;
    ps_schedule *schedule;
    char *non_model;
    uint32_t content[MAX_IDS]; /* the pattern a chunk holds; 0: zeros or nothing */
    bool has_content[MAX_IDS];
    uint32_t next_pattern;
    int64_t refused, live_bytes;
} world;

/* Some that exist and some that do not. */
static const ps_lists lists = {
    .n = 6, .list = {{"A", {2, 1}}, {"B", {4, 1}}, {"C", {0, 1}}, {"D", {4, 1}}, {"E", {0, 1}}, {"F", {0, 1}}}};

enum { A, B, D = 3 };

static int64_t bytes_of(const world *w, ps_chunk_id id)
{
    return (int64_t)CHUNK_ELEMENTS * lists.list[id / w->layout->n_chunks].item.bytes;
}

static ps_chunk_id any_chunk(world *w)
{
    static const ps_list existing[] = {A, B, D};
    return ps_store_chunk(w->layout, existing[roll(&w->d, 3)], roll(&w->d, w->layout->n_chunks));
}

static void check(const world *w)
{
    assert_ok(ps_store_check(w->store));
    dice d = dice_of(w->sc->seed + w->store->tick + (uint64_t)w->store->s.turn);
    if (roll(&d, 4) == 0) assert_same_victims(w->store, &d);
    assert_ok(ps_store_check(w->store));
}

static void expect(const world *w, ps_chunk_id id, const void *payload)
{
    if (w->sc->simulated) return;
    const uint32_t *words = payload;
    for (int64_t i = 0; i < bytes_of(w, id) / 4; i++) {
        const uint32_t want = w->content[id] == 0 ? 0 : w->content[id] + (uint32_t)i;
        if (words[i] != want)
            fail_msg("seed %llu: chunk id %d, word %lld is %x, not %x", (unsigned long long)w->sc->seed, id,
                     (long long)i, words[i], want);
    }
}

static void put(world *w, ps_chunk_id id, void *payload)
{
    w->content[id] = w->next_pattern += 100000;
    w->has_content[id] = true;
    if (w->sc->simulated) return;
    uint32_t *words = payload;
    for (int64_t i = 0; i < bytes_of(w, id) / 4; i++) words[i] = w->content[id] + (uint32_t)i;
}

/* Pin, check or change, and leave it pinned. False: refused for want of room. */
static bool use(world *w, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
    void *payload = NULL;
    const ps_status st = ps_store_pin(w->store, id, tier, mode, &payload);
    check(w);
    if (st == PS_EBUDGET && w->sc->may_refuse) {
        w->refused++;
        assert_null(payload);
        return false;
    }
    assert_ok(st);
    assert_non_null(payload);
    assert_ptr_equal(payload, ps_store_payload(w->store, id));
    assert_true(copies_of(w->store, id) & 1u << tier);
    assert_true(ps_store_get_chunk(w->store, id).pins > 0 && ps_store_get_chunk(w->store, id).pin_tier == tier);
    if (mode != PS_ACCESS_OVERWRITE) expect(w, id, payload);
    if (mode != PS_ACCESS_READ) {
        assert_int_equal(copies_of(w->store, id), 1u << tier);
        put(w, id, payload);
    }
    w->has_content[id] = true;
    return true;
}

static void open_world(world *w, const scenario *sc)
{
    *w = (world){.sc = sc, .d = dice_of(sc->seed), .next_pattern = 1, .live_bytes = ps_mem_live_bytes()};
    int64_t elements[16];
    const int32_t n = 6 + roll(&w->d, 6);
    for (int32_t t = 0; t < n; t++) elements[t] = 1 + roll(&w->d, CHUNK_ELEMENTS);
    elements[roll(&w->d, n)] = CHUNK_ELEMENTS * 2 + 100; /* a run of three */
    assert_ok(ps_layout_create(elements, NULL, n, CHUNK_ELEMENTS, &w->layout));
    const ps_device_ops *ops = sc->simulated ? &ps_device_sim_ops : &ps_device_cpu_ops;
    assert_ok(ps_device_create(ops, "device", sc->device_bytes, &w->ram[0]));
    assert_ok(ps_device_create(ops, "host", sc->host_bytes, &w->ram[1]));
    if (sc->disk_bytes > 0) assert_ok(ps_disk_open("/tmp", sc->simulated ? PS_DISK_SIM : sc->backend, 4, &w->disk));
    ps_store_desc desc = {.layout = w->layout,
                          .lists = lists,
                          .ram = {w->ram[0], w->ram[1]},
                          .disk = w->disk,
                          .disk_budget_bytes = sc->disk_bytes,
                          .shares_slots = sc->shares_slots,
                          .options = &(ps_store_options){.prefetch = sc->prefetch},
                          .is_unified_memory = sc->moves_zero_copy,
                          .counts_non_model = sc->counts_non_model};
    assert_ok(ps_store_create(&desc, &w->store));
    if (sc->counts_non_model) return;
    assert_ok(ps_store_reserve_non_model(w->store, NON_MODEL_BYTES, (void *)&w->non_model));
}

static void close_world(world *w, outcome *out)
{
    *out = (outcome){.stats = ps_store_get_stats(w->store), .refused = w->refused};
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) out->peak[t] = ps_device_get_stats(w->ram[t]).peak_bytes;
    ps_store_destroy(w->store);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        assert_int_equal(ps_device_get_stats(w->ram[t]).used_bytes, 0);
        assert_true(out->peak[t] <= (t == 0 ? w->sc->device_bytes : w->sc->host_bytes));
        ps_device_destroy(w->ram[t]);
    }
    assert_true(out->stats.disk_bytes <= w->sc->disk_bytes);
    ps_disk_close(w->disk);
    ps_schedule_destroy(w->schedule);
    ps_trace_destroy(w->trace);
    ps_layout_destroy(w->layout);
    assert_int_equal(ps_mem_live_bytes(), w->live_bytes);
}

/* A step of random accesses; at most three chunks a moment, so that a few pages are enough for each. */
static void make_schedule(world *w)
{
    assert_ok(ps_trace_create(&w->trace));
    const int32_t n_moments = 5 + roll(&w->d, 30);
    for (int32_t m = 0; m < n_moments; m++) {
        const ps_phase phase = m < n_moments / 2 ? PS_PHASE_FORWARD : PS_PHASE_UPDATE;
        assert_ok(ps_trace_add_moment(w->trace, phase, "moment", roll(&w->d, (int32_t)NON_MODEL_BYTES),
                                      100 * roll(&w->d, 100)));
        ps_chunk_id seen[3] = {-1, -1, -1};
        const int32_t n = roll(&w->d, 4);
        for (int32_t k = 0; k < n; k++) {
            const ps_chunk_id id = any_chunk(w);
            if (id == seen[0] || id == seen[1]) continue;
            seen[k] = id;
            const ps_tier tier = w->sc->host_bytes >= PAGES(6) && roll(&w->d, 4) == 0 ? PS_TIER_HOST : PS_TIER_DEVICE;
            assert_ok(ps_trace_add_access(w->trace, id, tier, (ps_access_mode)roll(&w->d, 3)));
        }
    }
    assert_ok(ps_schedule_create(w->trace, lists.n * w->layout->n_chunks, &w->schedule));
    ps_store_set_schedule(w->store, w->schedule);
}

static void fill_non_model(const world *w, int64_t bytes)
{
    if (w->non_model != NULL && !w->sc->simulated) memset(w->non_model, 0x5a, (size_t)bytes);
}

/* One moment of the schedule. */
static void scheduled_moment(world *w, int32_t moment)
{
    const ps_moment *m = &w->trace->moments[moment];
    const ps_status st = ps_store_begin_moment(w->store, m->non_model_bytes);
    check(w);
    if (st == PS_EBUDGET && w->sc->may_refuse) {
        w->refused++;
        return;
    }
    assert_ok(st);
    fill_non_model(w, m->non_model_bytes);
    int32_t n = 0;
    for (; n < m->n_accesses; n++) {
        const ps_access *a = &w->trace->accesses[m->first_access + n];
        if (!use(w, a->chunk, a->tier, a->mode)) break;
    }
    while (n > 0) ps_store_unpin(w->store, w->trace->accesses[m->first_access + --n].chunk);
    check(w);
}

/* A moment that was not announced. */
static void free_moment(world *w)
{
    const int64_t non_model = roll(&w->d, (int32_t)NON_MODEL_BYTES);
    const ps_status st = ps_store_begin_moment(w->store, non_model);
    check(w);
    if (st == PS_EBUDGET && w->sc->may_refuse) {
        w->refused++;
        return;
    }
    assert_ok(st);
    fill_non_model(w, non_model);
    ps_chunk_id pinned[3];
    int32_t n = 0;
    for (int32_t k = roll(&w->d, 4); k > 0; k--) {
        const ps_chunk_id id = any_chunk(w);
        bool already = false;
        for (int32_t i = 0; i < n; i++) already = already || pinned[i] == id;
        if (already) continue;
        const ps_tier tier = w->sc->host_bytes >= PAGES(6) && roll(&w->d, 3) == 0 ? PS_TIER_HOST : PS_TIER_DEVICE;
        if (!use(w, id, tier, (ps_access_mode)roll(&w->d, 3))) break;
        pinned[n++] = id;
    }
    while (n > 0) ps_store_unpin(w->store, pinned[--n]);
    check(w);
}

static void odd_operation(world *w)
{
    const ps_chunk_id id = any_chunk(w);
    switch (roll(&w->d, 5)) {
    case 0:
        ps_store_discard(w->store, id);
        assert_int_equal(copies_of(w->store, id), 0);
        w->content[id] = 0, w->has_content[id] = false;
        break;
    case 1: assert_ok(evict_all(w->store, (ps_tier)roll(&w->d, 2))); break;
    case 2: assert_ok(ps_movement_wait_all(&w->store->m)); break;
    case 3: { /* out of turn, twice on one tier */
        if (!use(w, id, PS_TIER_DEVICE, PS_ACCESS_READ)) break;
        assert_int_equal(ps_store_pin(w->store, id, PS_TIER_HOST, PS_ACCESS_READ, NULL), PS_ESTATE);
        if (use(w, id, PS_TIER_DEVICE, PS_ACCESS_WRITE)) ps_store_unpin(w->store, id);
        ps_store_unpin(w->store, id);
        break;
    }
    default:
        ps_store_limit_chunks(w->store, PS_TIER_DEVICE, roll(&w->d, 2) ? INT64_MAX : PAGES(4 + roll(&w->d, 10)));
        break;
    }
    check(w);
}

/* Between moments, or within one; what is pinned stays. */
static void claim_outside_step(world *w)
{
    const ps_chunk_id id = any_chunk(w);
    const int64_t bytes = roll(&w->d, (int32_t)NON_MODEL_BYTES);
    const bool is_held = roll(&w->d, 2) == 0 && use(w, id, PS_TIER_DEVICE, PS_ACCESS_READ);
    const int64_t before = ps_store_get_stats(w->store).non_model_bytes;
    const ps_status st = ps_store_claim_outside_step(w->store, bytes);
    check(w);
    if (st == PS_OK)
        assert_true(ps_store_get_stats(w->store).non_model_bytes >= bytes);
    else
        assert_int_equal(st, PS_EBUDGET);
    w->refused += st != PS_OK;
    if (st != PS_OK) assert_true(w->sc->may_refuse && ps_store_get_stats(w->store).non_model_bytes <= before);
    if (is_held) expect(w, id, ps_store_payload(w->store, id));
    if (is_held) ps_store_unpin(w->store, id);
}

static outcome play(const scenario *sc)
{
    world w;
    outcome out;
    open_world(&w, sc);
    int32_t moment = 0;
    for (int32_t i = 0; i < sc->n_operations; i++) {
        if (sc->scheduled && w.schedule == NULL && i >= sc->n_operations / 8) make_schedule(&w);
        if (w.schedule == NULL) {
            free_moment(&w);
        } else {
            if (roll(&w.d, 20) == 0) ps_store_go_to(w.store, moment = roll(&w.d, w.trace->n_moments));
            scheduled_moment(&w, moment);
            moment = (moment + 1) % w.trace->n_moments;
        }
        if (roll(&w.d, 4) == 0) odd_operation(&w);
        if (sc->claims_outside_step && roll(&w.d, 3) == 0) claim_outside_step(&w);
        for (int32_t k = 0; k < 3; k++) { /* content is somewhere exactly when there is content */
            const ps_chunk_id id = any_chunk(&w);
            assert_int_equal(copies_of(w.store, id) != 0, w.has_content[id]);
        }
    }
    ps_store_limit_chunks(w.store, PS_TIER_DEVICE, INT64_MAX);
    ps_store_set_schedule(w.store, NULL);
    assert_ok(ps_store_begin_moment(w.store, 0));
    for (ps_chunk_id id = 0; id < lists.n * w.layout->n_chunks; id++) {
        if (lists.list[id / w.layout->n_chunks].item.bytes == 0 || !w.has_content[id]) continue;
        if (use(&w, id, PS_TIER_DEVICE, PS_ACCESS_READ)) ps_store_unpin(w.store, id);
    }
    close_world(&w, &out);
    return out;
}

static void assert_alike(const outcome *a, const outcome *b)
{
    assert_memory_equal(a->stats.moved_bytes, b->stats.moved_bytes, sizeof b->stats.moved_bytes);
    assert_memory_equal(a->stats.n_moves, b->stats.n_moves, sizeof b->stats.n_moves);
    assert_memory_equal(a->peak, b->peak, sizeof b->peak);
    assert_int_equal(a->stats.disk_bytes, b->stats.disk_bytes);
    assert_int_equal(a->stats.n_dropped, b->stats.n_dropped);
    assert_int_equal(a->stats.n_prefetched, b->stats.n_prefetched);
    assert_int_equal(a->refused, b->refused);
}

/* Everything varied; each combination also with activations that only count, and on simulated parts, with the same moves
 * and peaks. */
static void vary(uint64_t first_seed, int32_t n_seeds, int32_t n_operations)
{
    static const struct {
        int64_t device_pages, host_pages, disk_pages;
        bool may_refuse;
    } tiers[] = {{200, 200, 0, false}, {200, 0, 0, false},   {14, 200, 0, false}, {14, 0, 200, false},
                 {14, 8, 200, false},  {20, 20, 200, false}, {14, 12, 30, true},  {12, 12, 0, true},
                 {40, 6, 200, false},  {8, 8, 12, true},     {24, 0, 8, true}};
    static const int32_t prefetches[] = {0, 1, 4};
    for (uint64_t seed = first_seed; seed < first_seed + (uint64_t)n_seeds; seed++)
        for (size_t i = 0; i < PS_ARRAY_LEN(tiers); i++) {
            const uint64_t turn = seed * 7 + i;
            scenario sc = {.seed = turn,
                           .scheduled = turn % 4 != 0,
                           .shares_slots = turn % 3 != 0,
                           .moves_zero_copy = (turn / 5) % 2 != 0,
                           .device_bytes = PAGES(tiers[i].device_pages),
                           .host_bytes = PAGES(tiers[i].host_pages),
                           .disk_bytes = PAGES(tiers[i].disk_pages),
                           .backend = turn % 2 ? PS_DISK_THREADS : PS_DISK_AUTO,
                           .prefetch = prefetches[(turn / 3) % 3],
                           .may_refuse = tiers[i].may_refuse,
                           .n_operations = n_operations};
            const outcome real = play(&sc);
            sc.counts_non_model = true;
            const outcome counted = play(&sc);
            sc.claims_outside_step = true;
            (void)play(&sc);
            sc.claims_outside_step = sc.counts_non_model = false;
            sc.simulated = true;
            const outcome sim = play(&sc);
            assert_alike(&real, &counted);
            assert_alike(&real, &sim);
            if (tiers[i].device_pages == 200) assert_int_equal(real.stats.moved_bytes[PS_LINK_DISK_READ], 0);
        }
}

static void test_random_operations(void **state)
{
    (void)state;
    vary(1, 6, 150);
}

static void test_stress(void **state)
{
    (void)state;
    vary(1000, 4, 600);
}

/* ---- single promises ---- */

static const scenario small = {
    .seed = 3, .device_bytes = PAGES(8), .host_bytes = PAGES(8), .disk_bytes = PAGES(64), .backend = PS_DISK_AUTO};

static void touch(world *w, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
    assert_true(use(w, id, tier, mode));
    ps_store_unpin(w->store, id);
}

static int64_t moved(const world *w)
{
    const ps_store_stats s = ps_store_get_stats(w->store);
    int64_t sum = 0;
    for (int l = 0; l < PS_LINK_COUNT; l++) sum += s.moved_bytes[l];
    return sum;
}

static void test_clean_and_dead(void **state)
{
    (void)state;
    world w;
    outcome out;
    open_world(&w, &small);
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    assert_int_equal(moved(&w), 0);
    touch(&w, 0, PS_TIER_HOST, PS_ACCESS_READ); /* a duplicate: both are current */
    assert_int_equal(copies_of(w.store, 0), 3);
    assert_int_equal(moved(&w), PAGES(1));
    assert_ok(evict_all(w.store, PS_TIER_DEVICE)); /* clean: dropped */
    assert_int_equal(copies_of(w.store, 0), 2);
    assert_int_equal(moved(&w), PAGES(1));
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_READ);
    assert_int_equal(moved(&w), PAGES(2));
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_WRITE); /* the host's copy is stale and gone */
    assert_int_equal(copies_of(w.store, 0), 1);
    assert_int_equal(ps_store_get_stats(w.store).chunk_bytes[PS_TIER_HOST], 0);
    touch(&w, 0, PS_TIER_HOST, PS_ACCESS_OVERWRITE); /* dead before: nothing fetched */
    assert_int_equal(moved(&w), PAGES(2));
    assert_int_equal(copies_of(w.store, 0), 2);
    ps_store_discard(w.store, 0); /* used up: nothing moved, nothing kept */
    w.content[0] = 0;
    assert_int_equal(ps_store_get_stats(w.store).chunk_bytes[PS_TIER_HOST], 0);
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_READ); /* zeros */
    assert_int_equal(moved(&w), PAGES(2));
    /* written to disk once, then dropped as often as need be */
    assert_ok(evict_all(w.store, PS_TIER_DEVICE));
    assert_ok(evict_all(w.store, PS_TIER_HOST));
    assert_int_equal(copies_of(w.store, 0), 4);
    assert_int_equal(ps_store_get_stats(w.store).n_moves[PS_LINK_DISK_WRITE], 1);
    for (int i = 0; i < 3; i++) {
        touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_READ);
        assert_ok(evict_all(w.store, PS_TIER_DEVICE));
    }
    assert_int_equal(ps_store_get_stats(w.store).n_moves[PS_LINK_DISK_WRITE], 1);
    assert_int_equal(ps_store_get_stats(w.store).n_moves[PS_LINK_DISK_READ], 3);
    close_world(&w, &out);
}

static void run_moment(world *w, int32_t moment)
{
    const ps_moment *m = &w->trace->moments[moment];
    assert_ok(ps_store_begin_moment(w->store, 0));
    for (int32_t i = 0; i < m->n_accesses; i++) {
        const ps_access *a = &w->trace->accesses[m->first_access + i];
        touch(w, a->chunk, a->tier, a->mode);
    }
}

/* A chunk that changes on the device before the host wants it: a copy made sooner would be stale. It is copied once a
 * step each way, after the change, and in time. */
static void test_nothing_stale_is_fetched(void **state)
{
    (void)state;
    enum { BETWEEN = 6, STEPS = 4 };
    scenario sc = small;
    sc.prefetch = 4;
    world w;
    outcome out;
    open_world(&w, &sc);
    assert_ok(ps_trace_create(&w.trace));
    for (int32_t k = 0; k < 2 * BETWEEN; k++) {
        assert_ok(ps_trace_add_moment(w.trace, PS_PHASE_FORWARD, "moment", 0, 1000000));
        if (k == BETWEEN) assert_ok(ps_trace_add_access(w.trace, 0, PS_TIER_DEVICE, PS_ACCESS_WRITE));
        if (k == BETWEEN + 3) assert_ok(ps_trace_add_access(w.trace, 0, PS_TIER_HOST, PS_ACCESS_WRITE));
    }
    assert_ok(ps_schedule_create(w.trace, lists.n * w.layout->n_chunks, &w.schedule));
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    ps_store_set_schedule(w.store, w.schedule);
    for (int step = 1; step <= STEPS; step++) {
        for (int32_t k = 0; k < 2 * BETWEEN; k++) {
            run_moment(&w, k);
            const ps_store_stats s = ps_store_get_stats(w.store);
            if (k == BETWEEN) assert_int_equal(s.n_moves[PS_LINK_DEVICE_TO_HOST], step - 1);
            if (k == BETWEEN + 2) assert_int_equal(s.n_moves[PS_LINK_DEVICE_TO_HOST], step); /* on its way already */
            if (k == BETWEEN + 4) assert_int_equal(s.n_moves[PS_LINK_HOST_TO_DEVICE], step);
        }
        assert_int_equal(moved(&w), PAGES(2) * step);
    }
    close_world(&w, &out);
}

/* A chunk of the host is copied as soon as a step begins; or so many moments before its use. */
static void test_loads_begin_as_far_ahead_as_they_may(void **state)
{
    (void)state;
    enum { MOMENTS = 12, USE = 10 };
    static const int32_t moments_ahead[] = {0, 1, 3, USE, MOMENTS};
    static const int32_t begins[] = {0, USE - 1, USE - 3, 0, 0};
    for (size_t i = 0; i < PS_ARRAY_LEN(begins); i++) {
        scenario sc = small;
        sc.prefetch = 4;
        world w;
        outcome out;
        open_world(&w, &sc);
        assert_ok(ps_trace_create(&w.trace));
        for (int32_t k = 0; k < MOMENTS; k++) {
            assert_ok(ps_trace_add_moment(w.trace, PS_PHASE_FORWARD, "moment", 0, 1000000));
            if (k == USE) assert_ok(ps_trace_add_access(w.trace, 0, PS_TIER_DEVICE, PS_ACCESS_READ));
        }
        assert_ok(ps_schedule_create(w.trace, lists.n * w.layout->n_chunks, &w.schedule));
        touch(&w, 0, PS_TIER_HOST, PS_ACCESS_WRITE);
        ps_store_set_schedule(w.store, w.schedule);
        ps_store_set_options(w.store, &(ps_store_options){.prefetch = 4, .moments_ahead = moments_ahead[i]});
        for (int32_t k = 0; k < MOMENTS; k++) {
            run_moment(&w, k);
            assert_int_equal(ps_store_get_stats(w.store).n_moves[PS_LINK_HOST_TO_DEVICE], k >= begins[i]);
        }
        close_world(&w, &out);
    }
}

/* What is estimated of a step that changes all chunks, one index after the other, on a device that holds a part of
 * them: its time over that in which the disk, both ways at once, moves what is moved. */
static double time_over_disk_time(int64_t device_pages, int32_t prefetch)
{
    enum { STEPS = 8 };
    scenario sc = small;
    sc.simulated = true;
    sc.prefetch = prefetch;
    sc.device_bytes = PAGES(device_pages), sc.host_bytes = 0, sc.disk_bytes = PAGES(200);
    world w;
    outcome out;
    open_world(&w, &sc);
    assert_ok(ps_trace_create(&w.trace));
    static const ps_list existing[] = {A, B, D};
    for (int32_t i = 0; i < w.layout->n_chunks; i++) {
        assert_ok(ps_trace_add_moment(w.trace, PS_PHASE_UPDATE, "update", 0, 11000));
        for (int k = 0; k < 3; k++)
            assert_ok(ps_trace_add_access(w.trace, ps_store_chunk(w.layout, existing[k], i), PS_TIER_DEVICE,
                                          PS_ACCESS_WRITE));
        assert_ok(ps_trace_add_moment(w.trace, PS_PHASE_FORWARD, "forward", 0, 1000));
    }
    assert_ok(ps_schedule_create(w.trace, lists.n * w.layout->n_chunks, &w.schedule));
    ps_store_set_schedule(w.store, w.schedule);
    ps_timeline before = *ps_store_timeline(w.store);
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS / 2) before = *ps_store_timeline(w.store);
        for (int32_t m = 0; m < w.trace->n_moments; m++) scheduled_moment(&w, m);
    }
    const ps_timeline after = *ps_store_timeline(w.store);
    const int64_t reads = after.sums.busy_ns[PS_LINK_DISK_READ] - before.sums.busy_ns[PS_LINK_DISK_READ];
    const int64_t writes = after.sums.busy_ns[PS_LINK_DISK_WRITE] - before.sums.busy_ns[PS_LINK_DISK_WRITE];
    assert_true(reads > 0 && writes > 0);
    close_world(&w, &out);
    return (double)(after.now_ns - before.now_ns) / (double)ps_max_i64(reads, writes);
}

/* Write-backs begin before the room that they make is wanted, and loads as soon as there is room: so both ways of the
 * disk have work while computing takes nearly as long. One after the other it would be twice the time. */
static void test_both_ways_of_the_disk_have_work(void **state)
{
    (void)state;
    static const int64_t pages[] = {16, 20, 25};
    for (size_t i = 0; i < PS_ARRAY_LEN(pages); i++)
        for (int32_t prefetch = 8; prefetch <= 16; prefetch *= 2) {
            const double ratio = time_over_disk_time(pages[i], prefetch);
            if (ratio > 1.1) fail_msg("%lld pages, prefetch %d: %.2f", (long long)pages[i], prefetch, ratio);
        }
}

/* Moments are passed over, so the change that the copy waits for comes sooner than the look-ahead had reckoned. */
static void test_copies_begin_in_time_after_a_jump(void **state)
{
    (void)state;
    enum { CHANGE = 8, USE = 11 };
    scenario sc = small;
    sc.prefetch = 4;
    world w;
    outcome out;
    open_world(&w, &sc);
    assert_ok(ps_trace_create(&w.trace));
    for (int32_t k = 0; k <= USE; k++) {
        assert_ok(ps_trace_add_moment(w.trace, PS_PHASE_FORWARD, "moment", 0, 1000000));
        if (k == CHANGE) assert_ok(ps_trace_add_access(w.trace, 0, PS_TIER_HOST, PS_ACCESS_WRITE));
        if (k == USE) assert_ok(ps_trace_add_access(w.trace, 0, PS_TIER_DEVICE, PS_ACCESS_READ));
    }
    assert_ok(ps_schedule_create(w.trace, lists.n * w.layout->n_chunks, &w.schedule));
    touch(&w, 0, PS_TIER_HOST, PS_ACCESS_WRITE);
    ps_store_set_schedule(w.store, w.schedule);
    run_moment(&w, 0);
    ps_store_go_to(w.store, CHANGE);
    run_moment(&w, CHANGE);
    assert_int_equal(ps_store_get_stats(w.store).n_prefetched, 0);
    run_moment(&w, CHANGE + 1);
    assert_int_equal(ps_store_get_stats(w.store).n_prefetched, 1);
    close_world(&w, &out);
}

/* All pinned: refused, with numbers; unpinned: it continues. */
static void test_refusal(void **state)
{
    (void)state;
    world w;
    outcome out;
    scenario sc = small;
    sc.device_bytes = PAGES(3);
    sc.may_refuse = true;
    open_world(&w, &sc);
    for (ps_chunk_id id = 0; id < 3; id++) assert_true(use(&w, id, PS_TIER_DEVICE, PS_ACCESS_WRITE));
    assert_false(use(&w, 3, PS_TIER_DEVICE, PS_ACCESS_WRITE));
    assert_non_null(strstr(ps_last_error(), "12.3 kB"));
    assert_int_equal(ps_store_begin_moment(w.store, 4096), PS_EBUDGET);
    assert_int_equal(copies_of(w.store, 3), 0);
    for (ps_chunk_id id = 0; id < 3; id++) {
        expect(&w, id, ps_store_payload(w.store, id));
        ps_store_unpin(w.store, id);
    }
    assert_ok(ps_store_begin_moment(w.store, 0));
    for (ps_chunk_id id = 3; id >= 0; id--) touch(&w, id, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    for (ps_chunk_id id = 0; id < 4; id++) touch(&w, id, PS_TIER_DEVICE, PS_ACCESS_READ);
    close_world(&w, &out);
}

/* A dirty chunk with nowhere to go does not keep a clean one from leaving. */
static void test_clean_leaves_when_dirty_cannot(void **state)
{
    (void)state;
    world w;
    outcome out;
    scenario sc = small;
    sc.device_bytes = PAGES(2), sc.host_bytes = 0, sc.disk_bytes = PAGES(1);
    open_world(&w, &sc);
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    assert_ok(evict_all(w.store, PS_TIER_DEVICE)); /* takes the only slot */
    touch(&w, 1, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_READ); /* clean, and used later than the dirty one */
    touch(&w, 2, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    assert_int_equal(copies_of(w.store, 1), 1);
    close_world(&w, &out);
}

/* A full disk, the device, a chunk that is there only: where slots are shared it finds the slot of one that has no use
 * for it now, and that one another slot later. */
static void share_slots(bool shares_slots)
{
    world w;
    outcome out;
    scenario sc = small;
    sc.device_bytes = PAGES(2), sc.host_bytes = 0, sc.disk_bytes = PAGES(2);
    sc.shares_slots = shares_slots, sc.may_refuse = !shares_slots;
    open_world(&w, &sc);
    for (ps_chunk_id id = 0; id < 2; id++) touch(&w, id, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    assert_ok(evict_all(w.store, PS_TIER_DEVICE)); /* takes both slots */
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_WRITE); /* its slot is stale */
    touch(&w, 2, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    assert_true(use(&w, 0, PS_TIER_DEVICE, PS_ACCESS_READ));
    assert_int_equal(use(&w, 1, PS_TIER_DEVICE, PS_ACCESS_WRITE), shares_slots); /* 2 has to leave */
    if (shares_slots) {
        assert_int_equal(copies_of(w.store, 2), 1u << PS_TIER_DISK);
        ps_store_unpin(w.store, 1);
    }
    ps_store_unpin(w.store, 0);
    for (int round = 0; round < 3 && shares_slots; round++)
        for (ps_chunk_id id = 0; id < 3; id++)
            touch(&w, id, PS_TIER_DEVICE, round == 1 ? PS_ACCESS_WRITE : PS_ACCESS_READ);
    assert_int_equal(ps_store_get_stats(w.store).disk_bytes, PAGES(2));
    close_world(&w, &out);
}

static void test_slots_are_shared(void **state)
{
    (void)state;
    share_slots(false);
    share_slots(true);
}

static void test_limit_and_non_model(void **state)
{
    (void)state;
    world w;
    outcome out;
    open_world(&w, &small);
    ps_store_limit_chunks(w.store, PS_TIER_DEVICE, PAGES(2));
    for (ps_chunk_id id = 0; id < 5; id++) {
        touch(&w, id, PS_TIER_DEVICE, PS_ACCESS_WRITE);
        assert_true(ps_store_get_stats(w.store).chunk_bytes[PS_TIER_DEVICE] <= PAGES(2));
    }
    /* the limit is a wish: pinned chunks may pass it */
    for (ps_chunk_id id = 0; id < 4; id++) assert_true(use(&w, id, PS_TIER_DEVICE, PS_ACCESS_READ));
    assert_int_equal(ps_store_get_stats(w.store).chunk_bytes[PS_TIER_DEVICE], PAGES(4));
    for (ps_chunk_id id = 0; id < 4; id++) ps_store_unpin(w.store, id);
    ps_store_limit_chunks(w.store, PS_TIER_DEVICE, INT64_MAX);
    /* chunks leave for growing activations, which shrink when chunks need the room */
    for (ps_chunk_id id = 0; id < 6; id++) touch(&w, id, PS_TIER_DEVICE, PS_ACCESS_READ);
    assert_ok(ps_store_begin_moment(w.store, PAGES(5)));
    fill_non_model(&w, PAGES(5));
    check(&w);
    assert_true(ps_store_get_stats(w.store).chunk_bytes[PS_TIER_DEVICE] <= PAGES(3));
    assert_ok(ps_store_begin_moment(w.store, PAGES(1)));
    for (ps_chunk_id id = 0; id < 6; id++) assert_true(use(&w, id, PS_TIER_DEVICE, PS_ACCESS_READ));
    for (ps_chunk_id id = 0; id < 6; id++) ps_store_unpin(w.store, id);
    close_world(&w, &out);
}

/* ---- activations that are not as traced ---- */

enum { IDLE_MOMENTS = 40, BUSY_MOMENTS = 5, LARGE_MOMENT = 30, CALIBRATION_STEPS = 4 };

typedef struct calibration {
    int64_t wait_ns[CALIBRATION_STEPS], moved_bytes[CALIBRATION_STEPS];
} calibration;

/* Five chunks change early in each step; one later moment was traced with so many bytes of activations, and has
 * others. */
static calibration calibrate(int64_t traced_bytes, int64_t real_bytes)
{
    calibration c;
    world w;
    outcome out;
    const scenario sc = {
        .seed = 5, .simulated = true, .device_bytes = PAGES(8), .host_bytes = PAGES(200), .prefetch = 4};
    open_world(&w, &sc);
    assert_ok(ps_trace_create(&w.trace));
    for (int32_t m = 0; m < IDLE_MOMENTS; m++) {
        assert_ok(
            ps_trace_add_moment(w.trace, PS_PHASE_FORWARD, "moment", m == LARGE_MOMENT ? traced_bytes : 0, 1000000));
        if (m < BUSY_MOMENTS) assert_ok(ps_trace_add_access(w.trace, m, PS_TIER_DEVICE, PS_ACCESS_WRITE));
    }
    assert_ok(ps_schedule_create(w.trace, lists.n * w.layout->n_chunks, &w.schedule));
    for (int32_t m = 0; m < BUSY_MOMENTS; m++) {
        assert_ok(ps_store_begin_moment(w.store, 0));
        assert_true(use(&w, m, PS_TIER_DEVICE, PS_ACCESS_WRITE));
        ps_store_unpin(w.store, m);
    }
    ps_store_set_schedule(w.store, w.schedule);
    int64_t wait_ns = 0, moved = 0;
    for (int step = 0; step < CALIBRATION_STEPS; step++) {
        for (int32_t m = 0; m < IDLE_MOMENTS; m++) {
            assert_ok(ps_store_begin_moment(w.store, m == LARGE_MOMENT ? real_bytes : 0));
            check(&w);
            if (m >= BUSY_MOMENTS) continue;
            assert_true(use(&w, m, PS_TIER_DEVICE, PS_ACCESS_WRITE));
            ps_store_unpin(w.store, m);
        }
        const ps_timeline *t = ps_store_timeline(w.store);
        const ps_store_stats s = ps_store_get_stats(w.store);
        int64_t wait_now = 0, moved_now = 0;
        for (int l = 0; l < PS_LINK_COUNT; l++) wait_now += t->sums.waits_ns[l], moved_now += s.moved_bytes[l];
        c.wait_ns[step] = wait_now - wait_ns, c.moved_bytes[step] = moved_now - moved;
        wait_ns = wait_now, moved = moved_now;
    }
    close_world(&w, &out);
    return c;
}

/* More than traced: the first step waits for chunks to leave; later ones let them leave ahead of time, as if it had
 * been traced. */
static void test_more_than_traced(void **state)
{
    (void)state;
    const calibration traced = calibrate(PAGES(6), PAGES(6)), more = calibrate(0, PAGES(6));
    assert_int_equal(traced.wait_ns[CALIBRATION_STEPS - 1], 0);
    assert_true(traced.moved_bytes[CALIBRATION_STEPS - 1] > 0);
    assert_true(more.wait_ns[0] > 0);
    for (int step = 1; step < CALIBRATION_STEPS; step++) assert_int_equal(more.wait_ns[step], 0);
    assert_int_equal(more.moved_bytes[CALIBRATION_STEPS - 1], traced.moved_bytes[CALIBRATION_STEPS - 1]);
}

/* Less than traced: nothing leaves for it any more. */
static void test_less_than_traced(void **state)
{
    (void)state;
    const calibration less = calibrate(PAGES(6), 0);
    assert_true(less.moved_bytes[0] > 0);
    for (int step = 1; step < CALIBRATION_STEPS; step++) {
        assert_int_equal(less.wait_ns[step], 0);
        if (step > 1) assert_int_equal(less.moved_bytes[step], 0);
    }
}

/* The region for activations may grow between moments. */
static void test_larger_region(void **state)
{
    (void)state;
    world w;
    outcome out;
    open_world(&w, &small);
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    assert_ok(ps_store_begin_moment(w.store, PAGES(4)));
    fill_non_model(&w, PAGES(4));
    char *same = NULL;
    assert_ok(ps_store_reserve_non_model(w.store, PAGES(2), (void *)&same));
    assert_ptr_equal(same, w.non_model);
    assert_ok(ps_store_reserve_non_model(w.store, 100 * NON_MODEL_BYTES, (void *)&w.non_model));
    assert_int_equal(ps_store_get_stats(w.store).non_model_bytes, 0);
    check(&w);
    assert_ok(ps_store_begin_moment(w.store, PAGES(5)));
    fill_non_model(&w, PAGES(5));
    check(&w);
    assert_ok(ps_store_synchronize(w.store));
    assert_int_equal(ps_store_get_stats(w.store).non_model_bytes, 0);
    touch(&w, 0, PS_TIER_DEVICE, PS_ACCESS_READ);
    close_world(&w, &out);
}

static void test_runs_are_contiguous(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        world w;
        outcome out;
        scenario sc = small;
        sc.seed = seed;
        sc.moves_zero_copy = seed >= 10;
        open_world(&w, &sc);
        assert_int_equal(w.layout->n_runs, 1);
        const ps_run run = w.layout->runs[0];
        for (int turn = 0; turn < 6; turn++) {
            const ps_list list = turn % 2 == 0 ? A : B;
            const ps_tier tier = (ps_tier)(turn / 2 % 2);
            char *at[8];
            for (int32_t k = run.n_chunks - 1; k >= 0; k--) {
                const ps_chunk_id id = ps_store_chunk(w.layout, list, run.first + k);
                assert_true(use(&w, id, tier, turn < 2 ? PS_ACCESS_WRITE : PS_ACCESS_READ));
                at[k] = ps_store_payload(w.store, id);
            }
            for (int32_t k = 0; k < run.n_chunks; k++) {
                const ps_chunk_id id = ps_store_chunk(w.layout, list, run.first + k);
                assert_ptr_equal(at[k], at[0] + k * bytes_of(&w, id));
                expect(&w, id, at[k]);
                ps_store_unpin(w.store, id);
            }
            assert_ok(evict_all(w.store, tier));
        }
        close_world(&w, &out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_begin_in_time_after_a_jump),
        cmocka_unit_test(test_loads_begin_as_far_ahead_as_they_may),
        cmocka_unit_test(test_both_ways_of_the_disk_have_work),
        cmocka_unit_test(test_clean_and_dead),
        cmocka_unit_test(test_nothing_stale_is_fetched),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_clean_leaves_when_dirty_cannot),
        cmocka_unit_test(test_slots_are_shared),
        cmocka_unit_test(test_limit_and_non_model),
        cmocka_unit_test(test_more_than_traced),
        cmocka_unit_test(test_less_than_traced),
        cmocka_unit_test(test_larger_region),
        cmocka_unit_test(test_runs_are_contiguous),
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_stress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
