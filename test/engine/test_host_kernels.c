/* What the host's kernels compute beside a device whose memory they have no part in (the fake GPU): Adam on the host, on
 * a thread of its own while the device computes on. Whatever the order that events allow, the bits are the cpu's. */
#include "engine/engine_fixture.h"

#include "device/async.h"

#define STEPS 4
#define N_SEEDS 3
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})
/* dropout everywhere: masks must not depend on who computes either */
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"

static ps_config *config_with(const char *const *changes, int seed)
{
    ps_config *c = tiny_with(changes);
    char text[32];
    if (seed == 0) return c;
    snprintf(text, sizeof text, "%d", seed);
    assert_ok(ps_config_set(c, "train.backend", "cpu_async"));
    assert_ok(ps_config_set(c, "cpu_async.page_size", "4KiB"));
    assert_ok(ps_config_set(c, "cpu_async.seed", text));
    assert_ok(ps_config_validate(c));
    return c;
}

static void assert_same(const char *what, int seed, const run_result *a, const run_result *b)
{
    for (int s = 0; s < STEPS; s++) {
        if (memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) != 0)
            fail_msg("%s, seed %d: loss of step %d is %.9g, not %.9g", what, seed, s, (double)b->losses[s],
                     (double)a->losses[s]);
        if (a->norms[s] != b->norms[s])
            fail_msg("%s, seed %d: norm of step %d is %.17g, not %.17g", what, seed, s, b->norms[s], a->norms[s]);
    }
    if (a->hash != b->hash) fail_msg("%s, seed %d: other weights", what, seed);
}

/* With the changes the bits are those of `base`, by the cpu and by the fake GPU. */
static void expect_same(const char *what, const run_result *base, const char *const *changes)
{
    for (int seed = 0; seed <= N_SEEDS; seed++) {
        const run_result r = train(config_with(changes, seed), STEPS);
        assert_same(what, seed, base, &r);
    }
}

static void vary(const char *format, const char *more)
{
    const run_result base = train(config_with(CHANGES(format, more, DROPOUT), 0), STEPS);
#define SAME(what, ...) expect_same(what, &base, CHANGES(format, more, DROPOUT, __VA_ARGS__))
    SAME("Adam on host", "memory.host=4MB", "optimizer.params.use_hybrid_adam=false", "default_chunk_size=2048");
    SAME("Adam on host at once", "memory.host=4MB", "optimizer.params.use_hybrid_adam=false", "default_chunk_size=2048",
         "memory.defer_updates=false");
    SAME("hybrid", "memory.device=700KB", "memory.host=3MB", "default_chunk_size=2048");
    SAME("hybrid at once", "memory.device=700KB", "memory.host=3MB", "default_chunk_size=2048",
         "memory.defer_updates=false");
    SAME("hybrid over three tiers", "memory.device=700KB", "memory.host=700KB", "memory.disk=20MB",
         "default_chunk_size=2048");
#undef SAME
}

static void test_same_bits_bf16(void **state)
{
    (void)state;
    vary("bf16.enabled=true", "gradient_accumulation_steps=1");
}

static void test_same_bits_f32_accumulated(void **state)
{
    (void)state;
    vary("bf16.enabled=false", "gradient_accumulation_steps=3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_bf16),
        cmocka_unit_test(test_same_bits_f32_accumulated),
    };
    ps_async_permit();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
