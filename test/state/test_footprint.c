/* test_footprint.c - what chunks, blocks and the margin come to, in bytes worked out by hand; blocks take what was
 * counted. */
#include "engine/engine_fixture.h"

#include "config/config.h"
#include "train/state/footprint.h"
#include "train/state/lists.h"
#include "train/state/tiers.h"

enum { ELEMENTS = 4096, PAGE = 4096 };

typedef struct fixture {
    ps_config *config;
    ps_settings settings;
    ps_layout *layout;
    ps_lists lists;
} fixture;

static void open_fixture(fixture *f)
{
    const int64_t sizes[] = {3 * ELEMENTS};
    f->config = TINY("client.mem_tracer.warmup_gpu_chunk_mem_ratio=0.25", "client.mem_tracer.margin_use_ratio=0.5",
                     "memory.device=1MB", "memory.host=1MB", "memory.save_buffer=20KB", "train.save_interval=1",
                     "optimizer.type=AdamW", "bf16.enabled=true");
    assert_ok(ps_settings_read(f->config, true, &f->settings));
    assert_ok(ps_settings_set_ranks(&f->settings, f->config, 0, 1));
    assert_ok(ps_settings_open_backend(&f->settings));
    assert_ok(ps_layout_create(sizes, NULL, 1, ELEMENTS, &f->layout));
    f->lists = ps_lists_of(&f->settings, 0, 0);
}

static void close_fixture(fixture *f)
{
    ps_layout_destroy(f->layout);
    ps_settings_close_backend(&f->settings);
    ps_config_destroy(f->config);
}

static void test_room(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    ps_settings *s = &f.settings;
    /* bf16, then value, two states and gradient as floats */
    assert_int_equal(ps_payload_bytes(s, f.layout, &f.lists, PS_LIST_PARAM16), 2 * ELEMENTS);
    assert_int_equal(ps_working_set_bytes(s, f.layout, &f.lists, PS_LIST_MASTER + 1), 6 * ELEMENTS);
    assert_int_equal(ps_working_set_bytes(s, f.layout, &f.lists, f.lists.n), 18 * ELEMENTS);
    assert_int_equal(ps_unscheduled_bytes(s, 1000000, 18 * ELEMENTS), 250000);
    assert_int_equal(ps_unscheduled_bytes(s, 200000, 18 * ELEMENTS), 18 * ELEMENTS);
    /* half of the margin, for sets of 12 bytes an element */
    assert_int_equal(ps_margin_chunks(s, f.layout, 2 * 2 * 12 * ELEMENTS), 2);
    assert_int_equal(ps_margin_chunks(s, f.layout, 2 * 2 * 12 * ELEMENTS - 2), 1);
    assert_int_equal(ps_margin_chunks(s, f.layout, -2 * 12 * ELEMENTS), 0);
    /* compact states have 128 groups of 36 bytes: 4608, in two pages */
    s->optimizer.is_compact = true;
    assert_int_equal(ps_optimizer_payload_bytes(s, ELEMENTS), 4 * ELEMENTS + 2 * 2 * PAGE);
    assert_int_equal(ps_margin_chunks(s, f.layout, 2 * 8 * ELEMENTS), 1);
    assert_int_equal(ps_margin_chunks(s, f.layout, 2 * 8 * ELEMENTS - 2), 0);
    s->hybrid_updates = false;
    assert_int_equal(ps_margin_chunks(s, f.layout, 2 * 2 * 12 * ELEMENTS), 0);
    close_fixture(&f);
}

static void test_blocks(void **state)
{
    (void)state;
    fixture f;
    ps_tiers t;
    int64_t blocks[PS_RAM_TIER_COUNT];
    open_fixture(&f);
    f.settings.staging_bytes = ps_settings_save_buffer_bytes(&f.settings);
    for (int has_host = 0; has_host < 2; has_host++) {
        ps_budgets b = f.settings.budgets;
        if (!has_host) b.bytes[PS_TIER_HOST] = 0;
        ps_tiers_desc o = ps_tiers_desc_of(&f.settings, &b, f.layout, &f.lists);
        o.cache_bytes = 1;
        o.results_bytes = PAGE;
        o.unmanaged_bytes = PAGE + 1;
        o.host_block_bytes = has_host ? 2 * PAGE - 1 : 0;
        ps_tiers_count_blocks(&o, blocks);
        /* 20000 bytes are five pages */
        assert_int_equal(blocks[PS_TIER_DEVICE], (has_host ? 4 : 9) * PAGE);
        assert_int_equal(blocks[PS_TIER_HOST], (has_host ? 7 : 0) * PAGE);
        assert_ok(ps_tiers_open(&o, &t));
        for (int i = 0; i < PS_RAM_TIER_COUNT; i++)
            assert_int_equal(ps_device_get_stats(t.ram[i]).used_bytes, blocks[i]);
        ps_tiers_close(&t);
    }
    close_fixture(&f);
}

/* A fixed size, but not one too small to be worth a system call; 8 MiB for auto. */
static void test_save_buffer(void **state)
{
    (void)state;
    ps_settings s = {.save_buffer_bytes = PS_BYTES_AUTO};
    assert_int_equal(ps_settings_save_buffer_bytes(&s), 8388608);
    s.save_buffer_bytes = 1;
    assert_int_equal(ps_settings_save_buffer_bytes(&s), 16384);
    s.save_buffer_bytes = 16385;
    assert_int_equal(ps_settings_save_buffer_bytes(&s), 16385);
    s.save_buffer_bytes = 0;
    assert_int_equal(ps_settings_save_buffer_bytes(&s), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_room), cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_save_buffer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
