/* ps_engine_dump_memory: its numbers are the engine's, and it is there when a moment finds no room. */
#include "engine/engine_fixture.h"

#include "api/engine/engine.h"
#include "base/bytes.h"
#include "chunk/store_stats.h"
#include "train/run/memory_dump.h"

enum { B = 2, T = 16 };

/* Which moment needs most depends on the scratch of kernels; so it is that of kernels that every processor has. */
#define ISA "train.isa=portable"

/* The words of the line that begins with `name`, after it: as many as wanted. */
static void words_of(const char *text, const char *name, char words[][32], int n)
{
    char line_start[64];
    snprintf(line_start, sizeof line_start, "\n%s ", name);
    const char *at = strstr(text, line_start);
    if (at == NULL) fail_msg("no line %s in:\n%s", name, text);
    at += strlen(line_start);
    for (int i = 0; i < n; i++) {
        at += strspn(at, " ");
        snprintf(words[i], sizeof words[i], "%.*s", (int)strcspn(at, " \n"), at);
        at += strcspn(at, " \n");
    }
}

static void assert_bytes(const char *text, const char *name, int64_t device, int64_t host, int64_t disk)
{
    const int64_t expected[] = {device, host, disk};
    char words[6][32], number[PS_BYTES_TEXT_MAX];
    words_of(text, name, words, 6);
    for (int i = 0, w = 0; i < 3; i++) {
        char found[80];
        const bool none = strcmp(words[w], "-") == 0;
        snprintf(found, sizeof found, none ? "%s" : "%s %s", words[w], words[w + !none]);
        w += none ? 1 : 2;
        assert_string_equal(found, expected[i] == 0 ? "-" : ps_bytes_format(expected[i], number));
    }
}

enum { ALL, ON_DEVICE, ON_HOST, ON_DISK, PINNED, HELD, EMPTY, COUNTS };

/* Of the row of a list in the table of chunks. */
static int64_t count_of(const char *text, const char *list, int column)
{
    const char *table = strstr(text, "\nchunks ");
    char words[COUNTS][32];
    assert_non_null(table);
    words_of(table, list, words, COUNTS);
    return strtoll(words[column], NULL, 10);
}

static void forward(ps_engine *e, ps_status expected)
{
    int32_t tokens[B * T], targets[B * T];
    fill_batch(tokens, targets, B, T, TINY_VOCABULARY, 0);
    assert_int_equal(
        ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL),
        expected);
}

static void test_numbers(void **state)
{
    (void)state;
    ps_config *c = TINY(ISA, "bf16.enabled=true", "memory.device=750KB", "memory.host=300KB", "memory.disk=20MB",
                        "default_chunk_size=4096", "train.save_interval=2", "memory.save_buffer=16KiB");
    ps_engine *e = engine_of(c);
    forward(e, PS_OK);
    assert_ok(ps_backward(e));
    assert_ok(ps_step(e));
    char *text = NULL;
    assert_ok(ps_engine_dump_memory(e, &text));
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(e, &m);
    assert_bytes(text, "budget", m.device_budget_bytes / 4096 * 4096, m.host_budget_bytes / 4096 * 4096,
                 m.disk_budget_bytes);
    assert_bytes(text, "peak", m.device_peak_bytes, m.host_peak_bytes, m.disk_peak_bytes);
    assert_bytes(text, "in use", m.device_used_bytes, m.host_used_bytes, m.disk_used_bytes);
    assert_bytes(text, "  staging", 0, 16 * PS_KIB, 0);
    assert_bytes(text, "  other", 0, 0, 0);
    const ps_store *s = e->tiers.store;
    const ps_store_stats stats = ps_store_get_stats(s);
    int64_t device = stats.non_model_bytes;
    assert_bytes(text, "  activations", device, 0, 0);
    const ps_lists *lists = &e->exec_plan->lists;
    assert_int_equal(lists->n, 7);
    for (ps_list list = 0; list <= ps_lists_grad(lists); list++) {
        static const char *const names[] = {"parameters (bf16)", "fp32 parameters", "optimizer momentum",
                                            "optimizer variance", "fp32 gradients"};
        char name[40];
        snprintf(name, sizeof name, "  %s", names[list]);
        const int64_t bytes = stats.use[PS_TIER_DEVICE].list_bytes[list];
        assert_bytes(text, name, bytes, stats.use[PS_TIER_HOST].list_bytes[list],
                     stats.use[PS_TIER_DISK].list_bytes[list]);
        device += bytes;
        int64_t in_states = 0;
        for (int column = PINNED; column < COUNTS; column++) in_states += count_of(text, names[list], column);
        assert_int_equal(in_states, count_of(text, names[list], ALL));
        assert_int_equal(in_states, list >= ps_lists_grad(lists) ? 0 : m.n_chunks);
    }
    assert_int_equal(device, m.device_used_bytes);
    assert_non_null(strstr(text, "disk write"));
    assert_non_null(strstr(text, " backward\n")); /* a moment that needs most */
    assert_string_equal(ps_last_memory_dump(), "");
    ps_free(text);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_refused_model(void **state)
{
    (void)state;
    ps_engine *e = NULL;
    const char *const little[] = {ISA, "bf16.enabled=true", "memory.disk=20MB", "default_chunk_size=4096", NULL};
    char number[32];
    const int64_t too_little = smallest_device(little) - 4096;
    ps_config *c = tiny_with(little);
    snprintf(number, sizeof number, "%lld", (long long)too_little);
    assert_ok(ps_config_set(c, "memory.device", number));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    assert_memory_equal(ps_last_memory_dump(), "no room in moment ", 18);
    assert_bytes(ps_last_memory_dump(), "budget", too_little, 0, 20000000);
    assert_true(count_of(ps_last_memory_dump(), "parameters (bf16)", ON_DEVICE) > 0);
    assert_int_equal(count_of(ps_last_memory_dump(), "fp32 parameters", HELD), /* created by the trial */
                     count_of(ps_last_memory_dump(), "fp32 parameters", ALL));
    ps_config_destroy(c);
    /* too little to create even the parameters */
    c = TINY("memory.device=300KB", "default_chunk_size=4096");
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    assert_memory_equal(ps_last_memory_dump(), "no room while parameters are created", 36);
    ps_config_destroy(c);
    /* the next engine begins without */
    c = TINY("memory.device=64MB", OFFLOAD);
    e = engine_of(c);
    assert_string_equal(ps_last_memory_dump(), "");
    forward(e, PS_OK); /* what its segments keep has a list too */
    char *text = NULL;
    assert_ok(ps_engine_dump_memory(e, &text));
    const ps_lists *lists = &e->exec_plan->lists;
    assert_true(lists->n_standalone > 0);
    assert_int_equal(count_of(text, "offloaded activations", ALL), lists->n_standalone);
    assert_int_equal(count_of(text, "offloaded activations", ON_DEVICE), lists->n_standalone);
    assert_bytes(text, "  offloaded activations", lists->n_standalone * lists->standalone_bytes, 0, 0);
    ps_free(text);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Another process takes device memory that the plan counts on, so that a step fails although the plan fits. */
static void test_failure_in_a_step(void **state)
{
    (void)state;
    ps_config *c = TINY("memory.device=64MB", "default_chunk_size=4096");
    ps_engine *e = engine_of(c);
    ps_device *device = e->tiers.ram[PS_TIER_DEVICE];
    const int64_t taken = ps_device_free_bytes(device);
    void *block = NULL;
    assert_ok(ps_device_alloc(device, taken, &block));
    forward(e, PS_EBUDGET);
    assert_non_null(strstr(ps_last_memory_dump(), "no room in moment 2 of the step, transformer.wte forward\n"));
    assert_bytes(ps_last_memory_dump(), "  other", taken, 0, 0);
    char *text = NULL; /* a failed engine answers too */
    assert_ok(ps_engine_dump_memory(e, &text));
    assert_bytes(text, "  other", taken, 0, 0);
    ps_free(text);
    ps_device_free(device, block, taken, NULL);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* A wide table is cut, never written past its end. */
static void test_length(void **state)
{
    (void)state;
    ps_config *c = TINY("memory.device=64MB", "default_chunk_size=2048");
    ps_engine *e = engine_of(c);
    char text[PS_MEMORY_DUMP_MAX + 8];
    memset(text, 'x', sizeof text);
    ps_memory_dump_write(e->exec_plan, &e->tiers, text);
    assert_in_range(strlen(text), 1500, PS_MEMORY_DUMP_MAX - 1000); /* what names of ordinary models leave free */
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_refused_model),
        cmocka_unit_test(test_failure_in_a_step),
        cmocka_unit_test(test_length),
    };
    return RUN_ON_BACKENDS(tests);
}
