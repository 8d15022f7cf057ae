/* Budgets as configurations give them: what "auto" comes to, what is refused and with which advice, values at the ends
 * of their ranges. */
#include "engine/engine_fixture.h"

#include "base/machine.h"
#include "train/settings/settings.h"

#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define BOTH_AUTO "memory.device=auto", "memory.host=auto"

static ps_settings settings_of(const char *const *changes)
{
    ps_settings s;
    ps_config *c = tiny_with(changes);
    assert_ok(ps_settings_read(c, true, &s));
    ps_config_destroy(c);
    return s;
}

/* The message of a refusal by ps_initialize_engine. */
static const char *refused(ps_status why, const char *const *changes)
{
    ps_config *c = tiny_with(changes);
    ps_engine *e = NULL;
    const ps_status st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
    if (st != why) fail_msg("%s instead of %s: %s", ps_status_name(st), ps_status_name(why), ps_last_error());
    ps_config_destroy(c);
    return ps_last_error();
}

static void expect_said(const char *message, const char *text)
{
    if (strstr(message, text) == NULL) fail_msg("not \"%s\": %s", text, message);
}

static void test_host_where_needed(void **state)
{
    (void)state;
    const ps_settings none = settings_of(CHANGES(BOTH_AUTO));
    assert_int_equal(none.budgets.bytes[PS_TIER_HOST], 0);
    static const char *const needs[] = {"use_cpu_embedding=true", "optimizer.params.use_hybrid_adam=false",
                                        "zero.tensor_placement_policy=cpu"};
    for (size_t i = 0; i < PS_ARRAY_LEN(needs); i++) {
        const ps_settings s = settings_of(CHANGES(BOTH_AUTO, needs[i]));
        const int64_t device = s.budgets.bytes[PS_TIER_DEVICE], host = s.budgets.bytes[PS_TIER_HOST];
        /* half each, within what programs come and go meanwhile */
        assert_true(host > 0 && device > 0);
        assert_true((double)(device + host) < 1.3 * (double)none.budgets.bytes[PS_TIER_DEVICE]);
        (void)train(TINY(BOTH_AUTO, needs[i]), 1);
    }
}

static void test_no_host(void **state)
{
    (void)state;
    expect_said(refused(PS_EINVAL, CHANGES("use_cpu_embedding=true")), "use_cpu_embedding needs a host tier");
    expect_said(refused(PS_EINVAL, CHANGES("optimizer.params.use_hybrid_adam=false")), "memory.host is 0");
}

/* The host budget that is named fits, and is the least but for rounding. */
static void test_advice_names_host(void **state)
{
    (void)state;
    char text[64];
    const int64_t least = named_bytes(
        refused(PS_EBUDGET, CHANGES("bf16.enabled=true", "memory.device=480KB", "memory.host=100KB")), "memory.host=");
    snprintf(text, sizeof text, "memory.host=%lld", (long long)least);
    (void)train(TINY("bf16.enabled=true", "memory.device=480KB", text), 2);
    snprintf(text, sizeof text, "memory.host=%lld", (long long)below_named(least));
    (void)refused(PS_EBUDGET, CHANGES("bf16.enabled=true", "memory.device=480KB", text));
}

/* No advice helps: the search ends, and nothing overflows. */
static void test_hopeless(void **state)
{
    (void)state;
    const char *message =
        refused(PS_EBUDGET, CHANGES("memory.host=4096", "memory.device=4096", "use_cpu_embedding=true"));
    assert_null(strstr(message, " -"));
    message = refused(PS_EBUDGET, CHANGES("memory.device=20GB", "memory.host=4096", "use_cpu_embedding=true"));
    assert_null(strstr(message, " -"));
    (void)named_bytes(message, "memory.host=");
}

static void test_ends_of_ranges(void **state)
{
    (void)state;
    ps_config *c = TINY("train.steps=0");
    assert_int_equal(ps_config_set(c, "memory.device", "9223372036854775807"), PS_EINVAL);
    assert_int_equal(ps_config_set(c, "memory.host", "9EB"), PS_EINVAL);
    ps_config_destroy(c);
    (void)train(
        TINY("memory.device=1152921504606846976", "memory.host=1152921504606846976", "memory.disk=1152921504606846976"),
        1);
    (void)train(TINY("train.steps=0", "scheduler.type=linear"), 1);
    (void)train(TINY("train.steps=0", "scheduler.type=WarmupDecayLR"), 1);
}

/* ---- models too large to count ---- */

typedef struct sizes {
    int64_t vocabulary, columns;
} sizes;

static ps_status large_model(ps_builder *b, void *user)
{
    const sizes *s = user;
    const ps_value x = ps_token_embedding(b, "wte", s->vocabulary, 16);
    ps_cross_entropy(b, ps_linear(b, ps_linear(b, x, "up", s->columns, 0), "down", 16, 0), "wte.weight", NULL,
                     s->vocabulary, NULL);
    return PS_OK;
}

static void test_models_too_large(void **state)
{
    (void)state;
    static const sizes all[] = {{(int64_t)1 << 57, 16}, {100, (int64_t)1 << 44}, {100, INT64_MAX}, {INT64_MAX, 16}};
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
        ps_config *c = TINY("train.threads=1");
        ps_engine *e = NULL;
        sizes s = all[i];
        assert_int_equal(ps_initialize_engine(large_model, &s, 0, c, &e), PS_EINVAL);
        assert_null(e);
        ps_config_destroy(c);
    }
}

/* What the plan puts on disk and the folder has no room for: refused at the start, not found out in the middle of it. */
static void test_full_disk(void **state)
{
    (void)state;
    const char *said = refused(PS_EBUDGET, CHANGES("bf16.enabled=true", "memory.device=700KB", "memory.disk=900TB",
                                                   "default_chunk_size=2048", "memory.disk_path=/proc"));
    expect_said(said, "memory.disk_path = /proc has 0 B free, and the plan puts ");
    expect_said(said, " there: free some, name another folder, or raise memory.device or memory.host");
    ps_config *c = tiny_with(CHANGES("bf16.enabled=true", "memory.device=700KB", "memory.disk=900TB", /* needs less */
                                     "default_chunk_size=2048"));
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(ps_model_from_config, c, 0, c, &e));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Budgets beyond the machine do no harm where they are not used; what would be used is refused before it is taken, of
 * a GPU only what the host needs. */
static void test_more_than_the_machine(void **state)
{
    (void)state;
    enum { WIDTH = 4096 };
    ps_machine_memory_info machine;
    char layers[48];
    assert_ok(ps_machine_memory(NULL, &machine));
    const int64_t layer_bytes = (int64_t)14 * 12 * WIDTH * WIDTH;
    snprintf(layers, sizeof layers, "model.n_layer=%lld", (long long)(machine.total_bytes / layer_bytes + 1));
    const char *const *changes = CHANGES("bf16.enabled=true", "model.n_embd=4096", "model.n_head=32", layers,
                                         OVER_GPU ? "memory.host=900TB" : "memory.device=900TB");
    const char *said = refused(PS_EBUDGET, changes);
    expect_said(said, OVER_GPU ? "memory.host: the plan takes" : "memory.device and memory.host: the plan takes");
    char total[64], text[PS_BYTES_TEXT_MAX];
    snprintf(total, sizeof total, "has %s: lower", ps_bytes_format(machine.total_bytes, text));
    expect_said(said, total);
    (void)train(TINY("memory.device=900TB", "memory.host=900TB"), 1);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_where_needed), cmocka_unit_test(test_no_host),
        cmocka_unit_test(test_advice_names_host), cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_ends_of_ranges),    cmocka_unit_test(test_models_too_large),
        cmocka_unit_test(test_full_disk),         cmocka_unit_test(test_more_than_the_machine),
    };
    return RUN_ON_BACKENDS(tests);
}
