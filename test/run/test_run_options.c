/* Options that steer where a run keeps its data and how it moves: each does what it says. */
#include "engine/engine_fixture.h"

#include "api/engine/engine.h"
#include "chunk/store_stats.h"

/* An engine that has made so many steps. */
static ps_engine *engine_after(int n_steps, ps_config *c)
{
    ps_engine *e = engine_of(c);
    int32_t tokens[2 * 16], targets[2 * 16];
    for (int step = 0; step < n_steps; step++) {
        float loss;
        fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, step);
        assert_ok(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
    }
    ps_config_destroy(c);
    return e;
}

static ps_device_stats device_of(const ps_engine *e)
{
    return ps_device_get_stats(e->tiers.ram[PS_TIER_DEVICE]);
}

#define ROOMY "bf16.enabled=true", "memory.device=8MB", "memory.host=8MB", "default_chunk_size=2048"

/* Bytes of device memory that chunks hold once the engine is made. */
static int64_t chunks_at_first(const char *change)
{
    ps_engine *e = engine_after(0, TINY(ROOMY, change));
    const int64_t bytes = ps_store_get_stats(e->tiers.store).chunk_bytes[PS_TIER_DEVICE];
    ps_engine_destroy(e);
    return bytes;
}

/* What is used of it at most until two steps are done. */
static int64_t peak_of_steps(const char *change)
{
    ps_engine *e = engine_after(2, TINY(ROOMY, change));
    const int64_t bytes = device_of(e).peak_bytes;
    ps_engine_destroy(e);
    return bytes;
}

static void warmup_ratio_limits_the_beginning(void **state)
{
    (void)state;
    const int64_t all = chunks_at_first("client.mem_tracer.warmup_gpu_chunk_mem_ratio=1");
    const int64_t some = chunks_at_first("client.mem_tracer.warmup_gpu_chunk_mem_ratio=0.0125");
    assert_in_range(some, 1, 100000);
    assert_true(all > 2 * some);
    assert_true(chunks_at_first("zero.warmup_non_model_data_ratio=0.9875") == some);
}

/* The device holds the chunks that the largest moment needs. */
static void placement_cpu_limits_the_steps_too(void **state)
{
    (void)state;
    const int64_t scheduled = peak_of_steps("zero.tensor_placement_policy=auto");
    const int64_t fixed = peak_of_steps("zero.tensor_placement_policy=cpu");
    if (2 * fixed > scheduled) fail_msg("%lld bytes, scheduled %lld", (long long)fixed, (long long)scheduled);
}

/* Where the device has room for all optimizer data. */
static void hybrid_adam_updates_on_the_device(void **state)
{
    (void)state;
    static const char *const changes[] = {"optimizer.params.use_hybrid_adam=false",
                                          "optimizer.params.use_hybrid_adam=true"};
    for (int hybrid = 0; hybrid < 2; hybrid++) {
        ps_engine *e = engine_after(1, TINY(ROOMY, changes[hybrid]));
        const ps_exec_plan *b = e->exec_plan;
        for (int32_t c = 0; c < b->layout->n_chunks; c++)
            assert_int_equal(b->update_tier[c], hybrid ? PS_TIER_DEVICE : PS_TIER_HOST);
        ps_engine_destroy(e);
    }
}

/* A table of 3.8 MB is not brought to a device of 2 MB. */
static void cpu_embedding_needs_no_device_memory(void **state)
{
    (void)state;
#define TABLE(change)                                                                                                  \
    TINY("model.vocab_size=20000", "model.head=sequence_classification", "memory.device=2MB", "memory.host=64MB",      \
         change)
    ps_config *c = TABLE("use_cpu_embedding=false");
    ps_engine *e = NULL;
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    ps_config_destroy(c);
    (void)train(TABLE("use_cpu_embedding=true"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warmup_ratio_limits_the_beginning),
        cmocka_unit_test(placement_cpu_limits_the_steps_too),
        cmocka_unit_test(hybrid_adam_updates_on_the_device),
        cmocka_unit_test(cpu_embedding_needs_no_device_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
