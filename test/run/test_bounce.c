/* test_bounce.c - chunks between the disk and a device that the host cannot touch, by way of pieces of host memory: no
 * content is lost or mixed up, whatever fails at the disk, and the host waits for the disk alone. Over the fake driver,
 * with the checker of order looking on. */
#include "chunk/chunk_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "cuda/fake_cpu.h"
#include "device/blocking.h"
#include "train/state/tiers.h"

enum { CHUNKS = 12, WORDS = 8192, PAYLOAD = WORDS * 4, OPERATIONS = 250, ON_DEVICE = 3 };

static const ps_lists lists = {.n = 1, .list = {{"A", {4, 1}}}};

typedef struct world {
    dice d;
    ps_gpu *gpu;
    ps_order *order;
    ps_layout *layout;
    ps_tiers tiers;
    uint32_t content[CHUNKS]; /* first word of what the chunk is to hold; 0: nothing */
    uint32_t next_content;
} world;

static void open_world(world *w, uint64_t seed, int64_t host_bytes, ps_disk_backend backend, bool is_checked)
{
    int64_t elements[CHUNKS];
    for (int i = 0; i < CHUNKS; i++) elements[i] = WORDS;
    *w = (world){.d = dice_of(seed), .next_content = 1};
    fake_cpu_begin(&(fake_options){.seed = seed, .page_bytes = PS_PAGE_BYTES});
    assert_ok(fake_cpu_open(&w->gpu));
    if (is_checked) assert_ok(ps_order_create(false, &w->order));
    assert_ok(ps_layout_create(elements, NULL, CHUNKS, WORDS, &w->layout));
    const ps_tiers_desc o = {.space = ps_gpu_space(w->gpu),
                             .budgets.bytes = {ON_DEVICE * PAYLOAD, host_bytes, CHUNKS * PAYLOAD},
                             .options = &(ps_tier_options){.disk_folders = "/tmp", .disk_backend = backend},
                             .layout = w->layout,
                             .lists = lists,
                             .order = w->order};
    assert_ok(ps_tiers_open(&o, &w->tiers));
}

static void close_world(world *w)
{
    if (w->order != NULL) {
        if (ps_order_get_stats(w->order).n_reports > 0) fail_msg("%s", ps_order_text(w->order, 0));
        assert_true(ps_order_get_stats(w->order).n_items > 0);
    }
    ps_tiers_close(&w->tiers);
    ps_layout_destroy(w->layout);
    ps_order_destroy(w->order);
    ps_gpu_close(w->gpu);
    assert_true(fake_cpu_end());
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- a kernel that makes content ---- */

typedef struct count_args {
    uint32_t *x;
    uint32_t first;
} count_args;

static ps_status count_up(void *self, const void *args)
{
    (void)self;
    const count_args *a = args;
    for (uint32_t i = 0; i < WORDS; i++) a->x[i] = a->first + i;
    return PS_OK;
}

static void make_content(world *w, ps_chunk_id id, void *payload)
{
    const count_args args = {.x = payload, .first = w->next_content};
    const ps_use use = {payload, PAYLOAD, true, "x"};
    assert_ok(fake_cpu_call(
        w->tiers.compute[PS_TIER_DEVICE],
        &(ps_call){
            .name = "count", .run = count_up, .args = &args, .args_bytes = sizeof args, .uses = &use, .n_uses = 1}));
    w->content[id] = w->next_content;
    w->next_content += WORDS;
}

static void expect_content(world *w, ps_chunk_id id, const void *payload)
{
    static uint32_t x[WORDS];
    assert_ok(ps_queue_get(w->tiers.compute[PS_TIER_DEVICE], x, payload, PAYLOAD));
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint32_t want = w->content[id] == 0 ? 0 : w->content[id] + i;
        if (x[i] != want) fail_msg("chunk %d, word %u is %u, not %u", id, i, x[i], want);
    }
}

/* ---- use ---- */

/* Fails only with `may_fail`; then the chunk has the content that it had. */
static bool use(world *w, ps_chunk_id id, ps_access_mode mode, ps_status may_fail)
{
    void *payload = NULL;
    const ps_status st = ps_store_pin(w->tiers.store, id, PS_TIER_DEVICE, mode, &payload);
    if (st == may_fail && st != PS_OK) return false;
    assert_ok(st);
    if (mode != PS_ACCESS_OVERWRITE) expect_content(w, id, payload);
    if (mode != PS_ACCESS_READ) make_content(w, id, payload);
    ps_store_unpin(w->tiers.store, id);
    return true;
}

static void use_any(world *w, ps_status may_fail, int64_t *n_failed)
{
    const ps_access_mode mode = (ps_access_mode)roll(&w->d, 3);
    *n_failed += !use(w, roll(&w->d, CHUNKS), mode, may_fail);
}

static void expect_all(world *w)
{
    for (ps_chunk_id id = 0; id < CHUNKS; id++) assert_true(use(w, id, PS_ACCESS_READ, PS_OK));
}

/* ---- tests ---- */

/* Host memory for one piece, for one each way and one more, for four, and for payloads too; then they go by the
 * host. */
static const int64_t host_bytes[] = {PS_PAGE_BYTES, 3 * PS_PAGE_BYTES, PAYLOAD, 3 * PAYLOAD};

static void test_content_goes_through_pieces(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        world w;
        int64_t n_failed = 0;
        open_world(&w, seed, host_bytes[seed % 4], seed % 3 == 0 ? PS_DISK_THREADS : PS_DISK_AUTO, true);
        const ps_bounce *b = &w.tiers.store->m.bounce;
        assert_int_equal(b->n, seed % 4 == 0 ? 1 : seed % 4 == 1 ? 3 : PS_BOUNCES);
        assert_true(b->n * b->piece_bytes <= PAYLOAD);
        const ps_blocked before = ps_blocked_so_far();
        for (int i = 0; i < OPERATIONS; i++) use_any(&w, PS_OK, &n_failed);
        expect_all(&w);
        const ps_blocked after = ps_blocked_so_far();
        for (int why = 0; why < PS_BLOCK_COUNT; why++) {
            const bool is_waited_for = why == PS_BLOCK_DISK || why == PS_BLOCK_READ;
            if (why != PS_BLOCK_PAGE && is_waited_for != (after.n[why] > before.n[why]))
                fail_msg("seed %d: waited %lld times for %s", (int)seed, (long long)(after.n[why] - before.n[why]),
                         ps_block_name((ps_block)why));
        }
        const ps_store_stats s = ps_store_get_stats(w.tiers.store);
        assert_true(s.n_moves[PS_LINK_DISK_WRITE] > 10 && s.n_moves[PS_LINK_DISK_READ] > 10);
        close_world(&w);
    }
}

/* Each n-th transfer fails, a piece of a payload as a rule. What could not leave stays, what could not come is still on
 * disk. */
static void test_what_fails_is_not_lost(void **state)
{
    (void)state;
    static const ps_fault_kind kinds[] = {PS_FAULT_WRITE, PS_FAULT_READ};
    for (size_t k = 0; k < PS_ARRAY_LEN(kinds); k++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            world w;
            int64_t n_failed = 0;
            open_world(&w, seed, host_bytes[seed], PS_DISK_AUTO, true);
            for (int i = 0; i < OPERATIONS; i++) {
                if (i % 8 == 0) ps_fault_arm(kinds[k], roll(&w.d, 6), false);
                use_any(&w, PS_EIO, &n_failed);
            }
            ps_fault_arm(kinds[k], -1, false);
            assert_true(n_failed > 5);
            expect_all(&w);
            close_world(&w);
        }
}

/* The file may not grow beyond what a few payloads take. */
static void test_a_full_disk(void **state)
{
    (void)state;
    struct rlimit was;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (uint64_t seed = 0; seed < 4; seed++) {
        world w;
        int64_t n_failed = 0;
        open_world(&w, seed, host_bytes[seed], seed % 2 == 0 ? PS_DISK_THREADS : PS_DISK_AUTO, true);
        const struct rlimit few = {.rlim_cur = 4 * PAYLOAD + PS_PAGE_BYTES, .rlim_max = was.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
        for (int i = 0; i < OPERATIONS; i++) use_any(&w, PS_EIO, &n_failed);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        assert_true(n_failed > 5);
        expect_all(&w);
        close_world(&w);
    }
    signal(SIGXFSZ, SIG_DFL);
}

/* What cannot be issued as a whole ends before any wait sees it. The checker, which needs memory too, looks away. */
static void test_what_cannot_be_issued(void **state)
{
    (void)state;
    int64_t n_failed = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        world w;
        open_world(&w, seed, host_bytes[seed], PS_DISK_AUTO, false);
        for (int i = 0; i < OPERATIONS; i++) {
            void *payload;
            const ps_chunk_id id = roll(&w.d, CHUNKS);
            ps_fault_arm(PS_FAULT_ALLOC, roll(&w.d, 12), false); /* of a transfer, among others */
            const ps_status st = ps_store_pin(w.tiers.store, id, PS_TIER_DEVICE, PS_ACCESS_WRITE, &payload);
            const bool has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
            ps_fault_arm(PS_FAULT_ALLOC, -1, false);
            if (st != PS_OK) {
                assert_true(has_struck && (st == PS_ENOMEM_HOST || st == PS_ENOMEM_DEV));
                n_failed += st == PS_ENOMEM_HOST;
                continue;
            }
            expect_content(&w, id, payload);
            make_content(&w, id, payload);
            ps_store_unpin(w.tiers.store, id);
        }
        expect_all(&w);
        close_world(&w);
    }
    assert_true(n_failed > 5);
}

/* A copy fails: what was copied is whole where it came from. */
static void test_copies_that_fail(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        world w;
        int64_t n_failed = 0;
        open_world(&w, seed, host_bytes[seed % 4], PS_DISK_AUTO, true);
        for (int i = 0; i < OPERATIONS; i++) {
            void *payload;
            const ps_chunk_id id = roll(&w.d, CHUNKS);
            ps_fault_arm(PS_FAULT_COPY, roll(&w.d, 12), false);
            const ps_status st = ps_store_pin(w.tiers.store, id, PS_TIER_DEVICE, PS_ACCESS_WRITE, &payload);
            ps_fault_arm(PS_FAULT_COPY, -1, false);
            if (st != PS_OK) {
                assert_int_equal(st, PS_EDEVICE);
                n_failed++;
                continue;
            }
            expect_content(&w, id, payload);
            make_content(&w, id, payload);
            ps_store_unpin(w.tiers.store, id);
        }
        assert_true(n_failed > 5);
        expect_all(&w);
        close_world(&w);
    }
}

static void test_no_room_for_a_piece(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const int64_t elements[] = {WORDS}, page_bytes = k == 0 ? PS_PAGE_BYTES : 2 * PS_MIB;
        ps_gpu *gpu = NULL;
        ps_layout *layout = NULL;
        ps_tiers tiers;
        char want[64];
        fake_cpu_begin(&(fake_options){.page_bytes = page_bytes});
        assert_ok(fake_cpu_open(&gpu));
        assert_ok(ps_layout_create(elements, NULL, 1, WORDS, &layout));
        ps_tiers_desc o = {.space = ps_gpu_space(gpu),
                           .budgets.bytes = {2 * PS_MIB, page_bytes - 1, 4 * PS_MIB},
                           .options = &(ps_tier_options){.disk_folders = "/tmp"},
                           .layout = layout,
                           .lists = lists};
        assert_int_equal(ps_tiers_open(&o, &tiers), PS_EBUDGET);
        char text[PS_BYTES_TEXT_MAX];
        snprintf(want, sizeof want, "through %s of host memory at least", ps_bytes_format(page_bytes, text));
        assert_non_null(strstr(ps_last_error(), want));
        o.budgets.bytes[PS_TIER_HOST] = page_bytes;
        assert_ok(ps_tiers_open(&o, &tiers));
        ps_tiers_close(&tiers);
        ps_layout_destroy(layout);
        ps_gpu_close(gpu);
        assert_true(fake_cpu_end());
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

int main(void)
{
    /* of a driver's usual depth: a shorter stream is waited for when it is full */
    if (setenv("FAKE_DEPTH", "1024", 1) != 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content_goes_through_pieces),
        cmocka_unit_test(test_what_fails_is_not_lost),
        cmocka_unit_test(test_a_full_disk),
        cmocka_unit_test(test_what_cannot_be_issued),
        cmocka_unit_test(test_copies_that_fail),
        cmocka_unit_test(test_no_room_for_a_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
