/* What the host's kernels compute for a device whose memory they cannot reach (a GPU of the fake driver): Adam on the host,
 * on a thread of its own while the device computes on, and embeddings. Whatever the order that events allow, the bits
 * are the cpu's. */
#define TEST_OVER_ASYNC
#include "engine/engine_fixture.h"

#include <math.h>
#include <semaphore.h>
#include <time.h>

#include "base/fault.h"
#include "device/blocking.h"
#include "device/cuda/gpu.h"

#define STEPS 4
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})
/* dropout everywhere: masks must not depend on what computes either */
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

static run_result vary(const char *format, const char *more)
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
    return base;
}

static void test_same_bits_bf16(void **state)
{
    (void)state;
    (void)vary("bf16.enabled=true", "gradient_accumulation_steps=1");
}

static void test_same_bits_f32_accumulated(void **state)
{
    (void)state;
    (void)vary("bf16.enabled=false", "gradient_accumulation_steps=3");
}

/* The first steps overflow, in gradients that the host looks at too. */
static void test_same_bits_overflow(void **state)
{
    (void)state;
    const run_result base = vary("fp16.enabled=true", "fp16.initial_scale_power=18");
    assert_true(isinf(base.norms[0]) && isfinite(base.norms[STEPS - 1]));
}

static void test_same_bits_families(void **state)
{
    (void)state;
    static const char *const families[][2] = {
        {"model.type=bert", "model.type_vocab_size=3"},
        {"model.type=llama", "model.tie_word_embeddings=false"},
        {"model.type=gpt2", "model.tie_word_embeddings=false"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(families); i++) {
        const char *const *f = families[i];
#define FAMILY(...)                                                                                                    \
    CHANGES("bf16.enabled=true", DROPOUT, f[0], f[1], "model.intermediate_size=100", "gradient_accumulation_steps=2",  \
            __VA_ARGS__)
        const run_result base = train(on_cpu(tiny_with(FAMILY("train.seed=7"))), STEPS);
        expect_same(f[0], &base, FAMILY("memory.host=4MB", "use_cpu_embedding=true"));
#undef FAMILY
    }
}

/* ---- inference ---- */

typedef struct said {
    float logits[TINY_VOCABULARY], decoded[TINY_VOCABULARY];
} said;

static said infer(bool by_cpu)
{
    said s;
    int32_t tokens[2 * 16], targets[2 * 16];
    ps_engine *e = NULL;
    ps_config *c = TINY("bf16.enabled=true", "memory.host=4MB", "use_cpu_embedding=true", "generation.max_length=16");
    if (by_cpu) on_cpu(c);
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 3);
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    assert_ok(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, 19, s.logits));
    assert_ordered(e);
    ps_engine_destroy(e);
    assert_ok(ps_initialize_generation_engine(ps_model_from_config, c, 0, c, &e));
    assert_ok(ps_decode(e, tokens, 5, s.decoded));
    assert_ok(ps_decode(e, tokens, 9, s.decoded));
    assert_ordered(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return s;
}

static void test_inference(void **state)
{
    (void)state;
    const said want = infer(true), got = infer(false);
    assert_memory_equal(&want, &got, sizeof want);
}

/* ---- memory ---- */

/* The block that the host's kernels compute embeddings in is planned, and counted. */
static void test_memory(void **state)
{
    (void)state;
    int64_t host_peak[2];
    for (int on_host = 0; on_host < 2; on_host++) {
        const run_result r = train(TINY("bf16.enabled=true", "memory.host=4MB", "memory.device=700KB",
                                        on_host ? "use_cpu_embedding=true" : "use_cpu_embedding=false"),
                                   STEPS);
        assert_int_equal(r.memory.host_peak_bytes, r.memory.planned_host_peak_bytes);
        assert_int_equal(r.memory.device_peak_bytes, r.memory.planned_device_peak_bytes);
        host_peak[on_host] = r.memory.host_peak_bytes;
    }
    assert_true(host_peak[1] > host_peak[0]);
    ps_engine *e = NULL;
    ps_config *c = TINY("bf16.enabled=true", "memory.host=4096", "use_cpu_embedding=true");
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    if (strstr(ps_last_error(), "use_cpu_embedding takes ") == NULL) fail_msg("%s", ps_last_error());
    ps_config_destroy(c);
}

/* ---- a queue of its own ---- */

static int64_t n_stops(void)
{
    const ps_blocked b = ps_blocked_so_far();
    int64_t n = 0;
    for (int why = 0; why < PS_BLOCK_COUNT; why++) n += b.n[why];
    return n;
}

static ps_queue *host_queue(const ps_engine *e)
{
    return e->tiers.compute[PS_TIER_HOST];
}

static ps_ticket n_issued(const ps_engine *e, ps_tier tier)
{
    return ps_queue_event(e->tiers.compute[tier]).ticket;
}

static ps_status pass(ps_engine *e, int64_t index)
{
    int32_t tokens[2 * 16], targets[2 * 16];
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, index);
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    return ps_backward(e);
}

typedef struct gate {
    sem_t may_go;
    bool gave_up; /* the thread that opens it is blocked */
} gate;

/* On the queue's thread. */
static ps_status pass_gate(void *self, const void *args)
{
    gate *g = self;
    struct timespec until;
    (void)args;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    g->gave_up = sem_timedwait(&g->may_go, &until) != 0;
    return PS_OK;
}

/* Weights after two steps. While a gate on the host's queue keeps it from beginning what comes after, the second step
 * is issued: the device has its items, and no thread waits. *n_dependents: items of the host after the gate. */
static uint64_t train_with_gate(ps_config *c, int64_t *n_dependents)
{
    gate g = {.gave_up = false};
    uint64_t hash;
    ps_engine *e = engine_of(c);
    sem_init(&g.may_go, 0, 0);
    assert_ok(pass(e, 0));
    if (e->settings.embedding_on_host) assert_ok(ps_step(e)); /* it reads what the host computes */
    assert_ok(ps_queue_call(host_queue(e), &(ps_call){.name = "gate", .run = pass_gate, .self = &g}));
    const ps_event at_gate = ps_queue_event(host_queue(e));
    const ps_ticket on_device = n_issued(e, PS_TIER_DEVICE);
    fake_let_calls_wait(false); /* the first steps register memory, and the gate is opened here */
    if (!e->settings.embedding_on_host) assert_ok(ps_step(e));
    const int64_t stops = n_stops();
    assert_ok(pass(e, 1));
    fake_let_calls_wait(true);
    assert_int_equal(n_stops(), stops);
    assert_false(ps_event_is_done(at_gate));
    *n_dependents = (int64_t)(n_issued(e, PS_TIER_HOST) - at_gate.ticket);
    assert_true(n_issued(e, PS_TIER_DEVICE) >= on_device + (ps_ticket)e->exec_plan->code->n_instrs);
    sem_post(&g.may_go);
    assert_ok(ps_step(e));
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    assert_false(g.gave_up);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    sem_destroy(&g.may_go);
    return hash;
}

static void test_device_goes_on(void **state)
{
    (void)state;
    if (fake_depth() < PS_GPU_COMMANDS) skip(); /* it would wait for room, and so for the gate */
    static const struct {
        const char *option, *more;
        int64_t n_least;
    } runs[] = {{"optimizer.params.use_hybrid_adam=false", "memory.defer_updates=true", 100},
                {"optimizer.params.use_hybrid_adam=false", "memory.defer_updates=false", 100},
                {"use_cpu_embedding=true", "memory.defer_updates=false", 10}};
    const uint64_t want = train(on_cpu(TINY("bf16.enabled=true")), 2).hash;
    for (size_t i = 0; i < PS_ARRAY_LEN(runs); i++) {
        int64_t n_dependents;
        assert_true(train_with_gate(TINY("bf16.enabled=true", "memory.host=8MB", "default_chunk_size=4096",
                                         runs[i].option, runs[i].more),
                                    &n_dependents) == want);
        if (n_dependents < runs[i].n_least) fail_msg("%lld items", (long long)n_dependents);
    }
}

/* ---- failures ---- */

static ps_status fail_call(void *self, const void *args)
{
    (void)self, (void)args;
    return PS_FAIL(PS_ENOSYS, "a kernel of the host failed");
}

static ps_status steps(ps_engine *e, int n)
{
    for (int step = 0; step < n; step++) {
        PS_TRY(pass(e, step));
        PS_TRY(ps_step(e));
    }
    return PS_OK;
}

static const char *const on_host[] = {"optimizer.params.use_hybrid_adam=false", "use_cpu_embedding=true"};

/* A failure of the host's kernels: the steps after it end with its error, whatever the host has updated or computed. */
static void test_a_kernel_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        ps_config *c = TINY("bf16.enabled=true", "memory.host=4MB", on_host[i]);
        ps_engine *e = engine_of(c);
        assert_ok(steps(e, 1));
        assert_ok(ps_queue_call(host_queue(e), &(ps_call){.name = "fails", .run = fail_call}));
        assert_int_equal(steps(e, 2), PS_ENOSYS);
        if (strstr(ps_last_error(), "a kernel of the host failed") == NULL) fail_msg("%s", ps_last_error());
        assert_int_equal(steps(e, 1), PS_ESTATE);
        ps_engine_destroy(e);
        ps_config_destroy(c);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

/* No thread waits for ever for the host's queue, nor it for the device. */
static void test_the_device_is_lost(void **state)
{
    (void)state;
    enum { STRIDE = 61 };
    for (int i = 0; i < 2; i++) {
        ps_config *c = TINY("bf16.enabled=true", "memory.host=4MB", on_host[i], "memory.device=700KB");
        int n_lost = 0;
        for (long n = over.seed;; n += STRIDE) {
            ps_engine *e = NULL;
            ps_fault_arm(PS_FAULT_LOST, n, false);
            ps_status st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
            const bool is_open = st == PS_OK;
            if (st == PS_OK) st = steps(e, 2);
            const bool has_struck = ps_fault_has_struck(PS_FAULT_LOST);
            if (is_open || st != PS_ENOSYS) assert_int_equal(st, st != PS_OK ? PS_EDEVICE : PS_OK);
            ps_engine_destroy(e);
            ps_fault_arm(PS_FAULT_LOST, -1, false);
            n_lost += st != PS_OK;
            if (!has_struck) break;
        }
        if (n_lost <= 3) fail_msg("%d: lost %d times", i, n_lost);
        ps_config_destroy(c);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_bf16),     cmocka_unit_test(test_same_bits_f32_accumulated),
        cmocka_unit_test(test_same_bits_overflow), cmocka_unit_test(test_same_bits_families),
        cmocka_unit_test(test_inference),          cmocka_unit_test(test_memory),
        cmocka_unit_test(test_device_goes_on),     cmocka_unit_test(test_a_kernel_fails),
        cmocka_unit_test(test_the_device_is_lost),
    };
    return RUN_ON_BACKENDS(tests);
}
