/* test_external_stream.c - another framework on the device: its tensors are views of payloads, and it computes on the stream
 * that kernels are issued to. What it computes is the same whatever moves. Over the fake driver, with the checker of
 * order looking on. */
#include "chunk/chunk_fixture.h"

#include "chunk/view.h"
#include "cuda/fake_cpu.h"
#include "train/state/tiers.h"

enum { CHUNKS = 10, WORDS = 2048, OPERATIONS = 300, SEEDS = 6 };

static const ps_lists lists = {.n = 1, .list = {{"A", {4, 1}}}};

typedef struct world {
    dice d;
    const ps_cuda_driver *driver;
    ps_gpu *gpu;
    ps_cu_stream cuda_stream;
    ps_order *order;
    ps_queue *stream; /* the framework's */
    ps_layout *layout;
    ps_tiers tiers;
    uint32_t content[CHUNKS][WORDS]; /* what the payloads are to hold */
} world;

static void open_world(world *w, uint64_t seed)
{
    const int64_t elements[CHUNKS] = {WORDS, WORDS, WORDS, WORDS, WORDS, WORDS, WORDS, WORDS, WORDS, WORDS};
    *w = (world){.d = dice_of(seed)};
    w->driver = fake_cpu_begin(&(fake_options){.seed = seed, .page_bytes = PS_PAGE_BYTES});
    assert_ok(fake_cpu_open(&w->gpu));
    assert_int_equal(w->driver->stream_create(&w->cuda_stream, PS_CU_STREAM_NON_BLOCKING, 0), PS_CU_SUCCESS);
    assert_ok(ps_gpu_open_external(w->gpu, "stream", w->cuda_stream, &w->stream));
    assert_ok(ps_order_create(false, &w->order));
    assert_ok(ps_layout_create(elements, NULL, CHUNKS, WORDS, &w->layout));
    assert_int_equal(w->layout->n_chunks, CHUNKS);
    const ps_tiers_desc o = {.space = ps_gpu_space(w->gpu),
                             .budgets.bytes = {7 * PS_PAGE_BYTES, 2 * CHUNKS * PS_PAGE_BYTES, 0},
                             .layout = w->layout,
                             .lists = lists,
                             .order = w->order,
                             .options = &(ps_tier_options){.disk_folders = ""}};
    assert_ok(ps_tiers_open(&o, &w->tiers));
    void *non_model;
    assert_ok(ps_store_reserve_non_model(w->tiers.store, PS_PAGE_BYTES, &non_model));
    assert_ptr_equal(w->tiers.compute[PS_TIER_DEVICE], w->stream);
}

static void close_world(world *w)
{
    if (ps_order_get_stats(w->order).n_reports > 0) fail_msg("%s", ps_order_text(w->order, 0));
    assert_true(ps_order_get_stats(w->order).n_items > OPERATIONS);
    ps_tiers_close(&w->tiers);
    ps_layout_destroy(w->layout);
    ps_event e; /* it is still the caller's */
    assert_ok(ps_queue_mark(w->stream, &e));
    assert_ok(ps_event_wait(e));
    ps_queue_destroy(w->stream);
    ps_order_destroy(w->order);
    assert_int_equal(w->driver->stream_destroy(w->cuda_stream), PS_CU_SUCCESS);
    ps_gpu_close(w->gpu);
    assert_true(fake_cpu_end());
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- the framework's kernel ---- */

typedef struct mix_args {
    uint32_t *x;
    const uint32_t *y;
} mix_args;

static ps_status mix(void *self, const void *args)
{
    (void)self;
    const mix_args *a = args;
    for (int i = 0; i < WORDS; i++) a->x[i] = a->x[i] * 3 + a->y[i] + 1;
    return PS_OK;
}

static void issue_mix(ps_queue *q, uint32_t *x, const uint32_t *y)
{
    const mix_args args = {x, y};
    const ps_use uses[] = {{x, WORDS * 4, true, "x"}, {y, WORDS * 4, false, "y"}};
    assert_ok(fake_cpu_call(
        q, &(ps_call){.name = "mix", .run = mix, .args = &args, .args_bytes = sizeof args, .uses = uses, .n_uses = 2}));
}

/* x of one chunk and y of another. */
static void operate(world *w)
{
    ps_store *s = w->tiers.store;
    const int32_t a = roll(&w->d, CHUNKS), b = (a + 1 + roll(&w->d, CHUNKS - 1)) % CHUNKS;
    void *x, *y;
    assert_ok(ps_store_begin_moment(s, 0));
    assert_ok(ps_store_pin(s, a, PS_TIER_DEVICE, PS_ACCESS_WRITE, &x));
    assert_ok(ps_store_pin(s, b, PS_TIER_DEVICE, PS_ACCESS_READ, &y));
    issue_mix(w->stream, x, y);
    ps_store_unpin(s, b);
    ps_store_unpin(s, a);
    for (int i = 0; i < WORDS; i++) w->content[a][i] = w->content[a][i] * 3 + w->content[b][i] + 1;
}

static void expect_content(world *w)
{
    for (ps_chunk_id id = 0; id < CHUNKS; id++) {
        ps_view v;
        assert_ok(ps_view_open(w->tiers.store, id, PS_TIER_DEVICE, 0, WORDS * 4, PS_ACCESS_READ, &v));
        for (int i = 0; i < WORDS; i++)
            if (((const uint32_t *)v.bytes)[i] != w->content[id][i])
                fail_msg("chunk %d, word %d: %x, not %x", id, i, ((const uint32_t *)v.bytes)[i], w->content[id][i]);
        assert_ok(ps_view_close(w->tiers.store, &v));
    }
}

static void test_payloads_of_a_framework(void **state)
{
    (void)state;
    static world w;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_world(&w, seed);
        for (int i = 0; i < OPERATIONS; i++) {
            operate(&w);
            if (i % 100 == 99) expect_content(&w);
        }
        assert_true(ps_store_get_stats(w.tiers.store).n_moves[PS_LINK_DEVICE_TO_HOST] > OPERATIONS / 4);
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_payloads_of_a_framework),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
