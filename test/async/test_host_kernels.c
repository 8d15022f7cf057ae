/* What the host's kernels compute beside a device whose memory they have no part in (the fake GPU): Adam on the host, on
 * a thread of its own while the device computes on. Whatever the order that events allow, the bits are the cpu's. */
#define TEST_OVER_ASYNC
#include "engine/engine_fixture.h"

#define STEPS 4
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})
/* dropout everywhere: masks must not depend on who computes either */
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"

static void expect_same(const char *what, const run_result *base, const char *const *changes)
{
    const run_result r = train(tiny_with(changes), STEPS);
    for (int s = 0; s < STEPS; s++) {
        if (memcmp(&r.losses[s], &base->losses[s], sizeof r.losses[s]) != 0)
            fail_msg("%s: loss of step %d is %.9g, not %.9g", what, s, (double)r.losses[s], (double)base->losses[s]);
        if (r.norms[s] != base->norms[s])
            fail_msg("%s: norm of step %d is %.17g, not %.17g", what, s, r.norms[s], base->norms[s]);
    }
    if (r.hash != base->hash) fail_msg("%s: other weights", what);
}

static void vary(const char *format, const char *more)
{
    const run_result base = train(on_cpu(TINY(format, more, DROPOUT)), STEPS);
#define SAME(what, ...) expect_same(what, &base, CHANGES(format, more, DROPOUT, __VA_ARGS__))
    SAME("embedding on host", "memory.host=4MB", "use_cpu_embedding=true");
    SAME("embedding on host, tight", "memory.device=700KB", "memory.host=3MB", "use_cpu_embedding=true",
         "default_chunk_size=2048");
    SAME("all on host", "memory.host=4MB", "use_cpu_embedding=true", "optimizer.params.use_hybrid_adam=false",
         "activation_checkpointing.enabled=true", "default_chunk_size=2048");
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
    return RUN_ON_BACKENDS(tests);
}
