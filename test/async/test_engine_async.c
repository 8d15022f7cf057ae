/* What there is only over the fake driver: a wait that is missing, or a device that is lost, ends a step with an error
 * that says so. */
#define TEST_OVER_ASYNC
#include "engine/engine_fixture.h"

#include <pthread.h>
#include <time.h>

#include "checkpoint/checkpoint_fixture.h"

enum { T = 16 };

static ps_status step_once(ps_engine *e, int64_t index)
{
    int32_t tokens[2 * T], targets[2 * T];
    fill_batch(tokens, targets, 2, T, TINY_VOCABULARY, index);
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    PS_TRY(ps_backward(e));
    return ps_step(e);
}

static void assert_message(const char *text)
{
    if (strstr(ps_last_error(), text) == NULL) fail_msg("not \"%s\": %s", text, ps_last_error());
}

/* With a wait switched off, a step does what no event orders. That it still has the right bits is luck; the checker
 * finds it whatever the luck. */
static void test_missing_wait(void **state)
{
    (void)state;
    for (int skips = 0; skips < 2; skips++) {
        ps_config *c = TINY("bf16.enabled=true", "memory.device=400KB", "memory.host=2MB", "default_chunk_size=4096");
        ps_engine *e = engine_of(c);
        if (skips) ps_order_skip(e->order, PS_WAIT_ARRIVAL);
        ps_status st = PS_OK;
        for (int step = 0; step < 3 && st == PS_OK; step++) st = step_once(e, step);
        assert_int_equal(st, skips ? PS_EDEVICE : PS_OK);
        if (skips) assert_message("cuda.check_order: ");
        if (skips) assert_int_equal(step_once(e, 9), PS_ESTATE);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- calls that synchronise ---- */

/* Calls of the fourth and fifth step that synchronise the context; fault: one more is made between two operators. */
static int synchronizing_calls(const char *device, const char *host, bool fault)
{
    ps_config *c = TINY("bf16.enabled=true", device, host, "memory.disk=20MB", "default_chunk_size=4096");
    ps_engine *e = engine_of(c);
    int32_t tokens[2 * T], targets[2 * T];
    for (int step = 0; step < 3; step++) assert_ok(step_once(e, step));
    const int n_before = fake_synchronizing_calls();
    for (int step = 3; step < 5; step++) {
        fill_batch(tokens, targets, 2, T, TINY_VOCABULARY, step);
        assert_ok(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
        void *p = NULL;
        if (fault) assert_int_equal(over.driver->host_alloc(&p, 4096, 0), PS_CU_SUCCESS);
        if (fault) assert_int_equal(over.driver->host_free(p), PS_CU_SUCCESS);
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
    }
    const int n = fake_synchronizing_calls() - n_before;
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return n;
}

/* Where all tiers have room beyond the plan's peak, so that freed memory is kept as it is for the next step. With less,
 * pages change between chunks and activations, and are mapped anew. */
static void test_no_call_synchronizes(void **state)
{
    (void)state;
    assert_int_equal(synchronizing_calls("memory.device=1MB", "memory.host=2MB", false), 0);
    assert_int_equal(synchronizing_calls("memory.device=4MB", "memory.host=2MB", false), 0);
    assert_int_equal(synchronizing_calls("memory.device=1MB", "memory.host=2MB", true), 2 * 2);
}

/* ---- the device is lost ---- */

#define THREE_TIERS                                                                                                    \
    "bf16.enabled=true", "memory.device=450KB", "memory.host=200KB", "memory.disk=20MB", "default_chunk_size=4096",    \
        "train.save_interval=1"

/* Whatever was under way: the engine says what happened, does nothing more, and ends. */
static void expect_lost(ps_engine *e, ps_status st)
{
    float value;
    assert_int_equal(st, PS_EDEVICE);
    assert_message("is lost: ");
    assert_int_equal(step_once(e, 0), e->state == PS_ENGINE_FAILED ? PS_ESTATE : PS_EDEVICE);
    assert_true(ps_engine_read_tensor(e, 0, 0, 1, &value) != PS_OK);
    ps_engine_destroy(e);
}

static void lose_device(void)
{
    fake_break(0, PS_CU_LAUNCH_FAILED);
}

/* Lost between two calls: what was issued is not done. */
static void test_lost_between_calls(void **state)
{
    (void)state;
    int32_t tokens[2 * T], targets[2 * T];
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    fill_batch(tokens, targets, 2, T, TINY_VOCABULARY, 0);
    for (int at = 0; at < 5; at++) {
        ps_config *c = TINY(THREE_TIERS);
        ps_engine *e = engine_of(c);
        float loss;
        uint64_t hash;
        assert_ok(step_once(e, 0));
        if (at > 2) lose_device();
        if (at == 3) {
            expect_lost(e, ps_evaluate(e, &batch, &loss));
        } else if (at == 4) {
            expect_lost(e, ps_engine_get_weights_xxh3(e, &hash));
        } else {
            ps_status st = PS_OK;
            if (at == 0) lose_device();
            st = ps_forward(e, &batch, NULL);
            if (at == 1) lose_device();
            if (st == PS_OK) st = ps_backward(e);
            if (at == 2) lose_device();
            if (st == PS_OK) st = ps_step(e);
            expect_lost(e, st);
        }
        e = engine_of(c);
        lose_device();
        ps_engine_destroy(e); /* no call has noticed */
        ps_config_destroy(c);
        fake_break(-1, PS_CU_SUCCESS); /* no item has come to it */
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void *lose_later(void *after_ns)
{
    nanosleep(&(struct timespec){.tv_nsec = *(const int64_t *)after_ns}, NULL);
    lose_device();
    return NULL;
}

/* Lost at any moment of steps and saves: what is on disk can be resumed. */
static void test_lost_meanwhile(void **state)
{
    (void)state;
    const work_folder work = work_make();
    for (int i = 0; i < 8; i++) {
        ps_config *c = TINY(THREE_TIERS);
        ps_engine *e = engine_of(c);
        int64_t after_ns = (i * 7 + over.seed) * 1000 * 1000;
        pthread_t thread;
        ps_status st = PS_OK;
        int64_t step = 0;
        assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
        assert_int_equal(pthread_create(&thread, NULL, lose_later, &after_ns), 0);
        for (; st == PS_OK; step++) {
            st = step_once(e, step);
            if (st == PS_OK && step % 2 == 0) st = ps_engine_begin_checkpoint(e, work.path, NULL);
            if (st == PS_OK && step % 2 == 1) st = ps_engine_finish_checkpoint(e, NULL);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(st, PS_EDEVICE);
        assert_message("is lost: ");
        ps_engine_destroy(e);
        e = engine_of(on_cpu(c));
        assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
        assert_ok(step_once(e, step));
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    work_remove(work.path);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- shapes of real models, on pages of 2 MiB ---- */

/* Two blocks as wide as GPT-2's and Llama's, and a part of the vocabulary. */
static const char *const *const real[] = {
    (const char *const[]){"model.n_embd=768", "model.n_head=12", "model.vocab_size=8192", NULL},
    (const char *const[]){"model.type=llama", "model.n_embd=512", "model.n_head=8", "model.num_key_value_heads=4",
                          "model.intermediate_size=1376", "model.vocab_size=4096", NULL},
};

static ps_config *real_with(const char *const *model, const char *const *changes)
{
    static const char *const every[] = {"bf16.enabled=true", "model.n_positions=64", "data.sequence_length=64", NULL};
    const char *all[32];
    int n = 0;
    for (const char *const *c = every; *c != NULL; c++) all[n++] = *c;
    for (; *model != NULL; model++) all[n++] = *model;
    for (; *changes != NULL; changes++) all[n++] = *changes;
    all[n] = NULL;
    ps_config *c = tiny_with(all);
    return c;
}

static void test_real_shapes(void **state)
{
    (void)state;
    enum { STEPS = 3 };
    assert_true(fake_cpu_end());
    fake_cpu_begin(&(fake_options){.seed = (uint64_t)over.seed, .page_bytes = 2 * PS_MIB, .total_bytes = 4 * PS_GIB});
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})
    for (size_t i = 0; i < PS_ARRAY_LEN(real); i++) {
        if (over.seed <= 3 && (int64_t)i != over.seed % 2) continue;
        const char *const *const budgets[] = {
            CHANGES("memory.device=100MB", "memory.host=600MB"),
            CHANGES("memory.device=100MB", "memory.host=30MB", "memory.disk=600MB"),
            CHANGES("memory.device=120MB", "memory.host=600MB", "activation_checkpointing.enabled=true"),
        };
        const run_result base = train(on_cpu(real_with(real[i], CHANGES("memory.device=1GB"))), STEPS);
        for (size_t b = 0; b < PS_ARRAY_LEN(budgets); b++) {
            const run_result r = train(real_with(real[i], budgets[b]), STEPS);
            for (int s = 0; s < STEPS; s++) assert_memory_equal(&r.losses[s], &base.losses[s], sizeof r.losses[s]);
            assert_true(r.hash == base.hash);
            assert_true(r.memory.device_peak_bytes % (2 * PS_MIB) == 0);
            assert_true(r.memory.device_peak_bytes <= r.memory.planned_device_peak_bytes);
            assert_true(r.memory.host_peak_bytes <= r.memory.planned_host_peak_bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_wait),       cmocka_unit_test(test_no_call_synchronizes),
        cmocka_unit_test(test_lost_between_calls), cmocka_unit_test(test_lost_meanwhile),
        cmocka_unit_test(test_real_shapes),
    };
    return RUN_ON_BACKENDS(tests);
}
