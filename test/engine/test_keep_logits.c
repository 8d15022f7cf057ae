/* Logits kept from forward to backward, or computed again: the same bits, exact forecasts, and a choice that memory
 * decides. */
#include "engine/engine_fixture.h"

#include "api/engine/engine.h"
#include "train/plan/search.h"

#define STEPS 5
/* The vocabulary goes through the output layer in three slices, so that all logits take more than those of one; and a
 * product of it is estimated to take longer than writing and reading them. */
#define WIDE "model.vocab_size=9000", "model.n_embd=192", "model.n_layer=1", "bf16.enabled=true"
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})

static ps_config *with(const char *const *changes, const char *key, const char *value)
{
    ps_config *c = tiny_with(changes);
    assert_ok(ps_config_set(c, key, value));
    assert_ok(ps_config_validate(c));
    return c;
}

static ps_config *with_device(const char *const *changes, int64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)bytes);
    return with(changes, "memory.device", text);
}

static void assert_same(const run_result *a, const run_result *b)
{
    for (int s = 0; s < STEPS; s++) {
        assert_memory_equal(&a->losses[s], &b->losses[s], sizeof a->losses[s]);
        assert_memory_equal(&a->norms[s], &b->norms[s], sizeof a->norms[s]);
    }
    assert_true(a->hash == b->hash);
}

/* A forecast is of as many steps as it names. */
static void assert_exact(const run_result *r)
{
    const ps_memory_info *m = &r->memory;
    assert_true(m->device_peak_bytes <= m->planned_device_peak_bytes);
    assert_true(m->host_peak_bytes <= m->planned_host_peak_bytes);
    if (m->planned_step > STEPS) return;
    assert_int_equal(m->device_peak_bytes, m->planned_device_peak_bytes);
    assert_int_equal(m->host_peak_bytes, m->planned_host_peak_bytes);
}

static ps_status code(const ps_settings *s, const ps_config *c, bool *keeps)
{
    ps_program *program = NULL;
    ps_code *code = NULL;
    ps_exec_plan *b = NULL;
    ps_forecast f;
    const ps_code_options o = ps_settings_code_options(s);
    assert_ok(ps_program_build(ps_model_from_config, (void *)(uintptr_t)c, NULL, s->B, s->T, &program));
    assert_ok(ps_code_create(program, &o, &code));
    const ps_status st = ps_search_exec_plan(s, program, code, &s->budgets, NULL, &b, &f);
    *keeps = st == PS_OK && b->code->keeps_logits;
    ps_exec_plan_destroy(b);
    ps_code_destroy(code);
    ps_program_destroy(program);
    return st;
}

/* *keeps: whether a run of this configuration keeps logits; false when it does not fit. */
static bool fits(ps_config *c, bool *keeps)
{
    ps_settings s;
    assert_ok(ps_settings_read(c, true, &s));
    assert_ok(ps_settings_open_backend(&s));
    const ps_status st = code(&s, c, keeps);
    assert_true(st == PS_OK || st == PS_EBUDGET);
    ps_settings_close_backend(&s);
    ps_config_destroy(c);
    return st == PS_OK;
}

static bool keeps_at(const char *const *changes, int64_t device)
{
    bool keeps;
    (void)fits(with_device(changes, device), &keeps);
    return keeps;
}

static void test_same_bits(void **state)
{
    (void)state;
    const char *const *const families[] = {
        CHANGES(WIDE),
        CHANGES("model.vocab_size=5003", "model.tie_word_embeddings=false", "fp16.enabled=true"),
        CHANGES("model.vocab_size=4999", "gradient_accumulation_steps=3"),
        CHANGES(WIDE, "activation_checkpointing.enabled=true"),
        CHANGES(WIDE, "model.type=bert", "model.head=masked_lm", "model.type_vocab_size=2"),
        CHANGES("model.head=sequence_classification", "model.num_labels=4"),
        CHANGES(WIDE, "train.backend=ref", "model.vocab_size=301"),
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(families); i++) {
        const run_result again = train(on_cpu(with(families[i], "memory.keep_logits", "never")), STEPS);
        const run_result kept = train(with(families[i], "memory.keep_logits", "always"), STEPS);
        const run_result chosen = train(with(families[i], "memory.keep_logits", "auto"), STEPS);
        assert_same(&again, &kept);
        assert_same(&again, &chosen);
        assert_exact(&again), assert_exact(&kept), assert_exact(&chosen);
        /* with memory for everything what is estimated to be faster: in narrow models, too little is saved */
        const run_result *fast = i == 0 ? &kept : &again;
        if (OVER_DISCRETE && fast == &again) continue; /* whose buffers are others */
        if (i <= 1) assert_int_equal(chosen.memory.non_model_peak_bytes, fast->memory.non_model_peak_bytes);
    }
}

/* Budgets between the least and one where logits are kept: the first of a pair of neighbours where they are and one
 * byte less where they are not. */
static void test_threshold(void **state)
{
    (void)state;
    const char *const *const tiers[] = {CHANGES(WIDE, "memory.host=60MB"), CHANGES(WIDE, "memory.disk=80MB"),
                                        CHANGES(WIDE, "memory.host=60MB", "memory.defer_updates=false")};
    for (size_t i = 0; i < PS_ARRAY_LEN(tiers); i++) {
        bool keeps;
        int64_t low = 4096, high = 64 * 1024 * 4096;
        const run_result base = train(on_cpu(with_device(tiers[i], high)), STEPS);
        assert_true(keeps_at(tiers[i], high));
        while (high - low > 4096) {
            const int64_t middle = (low + high) / 2 / 4096 * 4096;
            if (keeps_at(tiers[i], middle))
                high = middle;
            else
                low = middle;
        }
        assert_false(keeps_at(tiers[i], high - 1));
        assert_true(fits(with_device(tiers[i], high - 1), &keeps)); /* what needs more is the logits, not the model */
        const run_result kept = train(with_device(tiers[i], high), STEPS);
        const run_result again = train(with_device(tiers[i], high - 1), STEPS);
        assert_same(&base, &kept);
        assert_same(&base, &again);
        assert_exact(&kept), assert_exact(&again);
        assert_true(kept.memory.non_model_peak_bytes > again.memory.non_model_peak_bytes);
    }
}

/* The least budget is that without them; a refusal of them says what would help. */
static void test_refusal(void **state)
{
    (void)state;
    const char *const *never = CHANGES(WIDE, "memory.disk=80MB", "memory.keep_logits=never");
    const char *const *choice = CHANGES(WIDE, "memory.disk=80MB");
    const char *const *always = CHANGES(WIDE, "memory.disk=80MB", "memory.keep_logits=always");
    const int64_t least = smallest_device(never);
    assert_int_equal(smallest_device(choice), least);
    const int64_t most = smallest_device(always);
    assert_true(most > least);
    bool keeps;
    assert_true(fits(with_device(always, most), &keeps) && keeps);
    assert_false(fits(with_device(always, below_named(most)), &keeps));
    ps_config *c = with_device(always, below_named(most));
    ps_engine *e = NULL;
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), "memory.keep_logits=auto"));
    ps_config_destroy(c);
    assert_true(fits(with_device(choice, least), &keeps));
    assert_false(fits(with_device(choice, below_named(least)), &keeps));
}

/* All logits of a small vocabulary may take less than what computing them again does: the least budget is the lesser
 * one. */
static void test_least_of_both(void **state)
{
    (void)state;
    static const char *const vocabularies[] = {"model.vocab_size=131", "model.vocab_size=2000"};
    for (size_t i = 0; i < PS_ARRAY_LEN(vocabularies); i++) {
#define TIGHT(...)                                                                                                     \
    CHANGES("bf16.enabled=true", "memory.disk=20MB", "default_chunk_size=2048", vocabularies[i], __VA_ARGS__)
        const char *const *choice = TIGHT("memory.keep_logits=auto");
        const int64_t never = smallest_device(TIGHT("memory.keep_logits=never"));
        const int64_t always = smallest_device(TIGHT("memory.keep_logits=always"));
        const int64_t least = never < always ? never : always;
#undef TIGHT
        bool keeps;
        assert_int_equal(smallest_device(choice), least);
        assert_true(fits(with_device(choice, least), &keeps));
        assert_false(fits(with_device(choice, below_named(least)), &keeps));
    }
}

/* Each shape has its own choice; small ones keep where large ones cannot. */
static run_result train_shapes(ps_config *c, bool keeps[2])
{
    static const int64_t sizes[2][2] = {{1, 3}, {4, 16}};
    run_result r = {0};
    ps_engine *e = engine_of(c);
    for (int s = 0; s < STEPS; s++) {
        int32_t tokens[64], targets[64];
        const int64_t B = sizes[s % 2][0], T = sizes[s % 2][1];
        assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, B, T));
        keeps[s % 2] = e->exec_plan->code->keeps_logits;
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, s);
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
        float before;
        assert_ok(ps_evaluate(e, &batch, &before));
        assert_ok(ps_forward(e, &batch, &r.losses[s]));
        assert_memory_equal(&before, &r.losses[s], sizeof before);
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
        r.memory.struct_size = sizeof r.memory;
        ps_engine_get_memory_info(e, &r.memory);
        assert_true(r.memory.device_peak_bytes <= r.memory.device_budget_bytes);
    }
    assert_ok(ps_engine_get_weights_xxh3(e, &r.hash));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return r;
}

static void test_shapes(void **state)
{
    (void)state;
    bool keeps[2], keeps_all[2];
    const char *const *tight = CHANGES(WIDE, "memory.disk=200MB", "default_chunk_size=262144",
                                       OVER_DISCRETE ? "memory.host=2MB" : "memory.host=0");
    const run_result base = train_shapes(on_cpu(with_device(tight, 64 * 1000 * 1000)), keeps_all);
    assert_true(keeps_all[0] && keeps_all[1]);
    const run_result small = train_shapes(with_device(tight, 11300 * 1000), keeps);
    /* with AVX-512 the small one alone; other kernels need more scratch to compute logits again than to keep them */
    assert_true(keeps[0] || !keeps[1]);
    assert_same(&base, &small);
}

/* Without a backward pass nothing is kept, whatever the option says. */
static void test_evaluation_keeps_nothing(void **state)
{
    (void)state;
    ps_config *c = TINY(WIDE, "memory.keep_logits=always");
    ps_engine *e = NULL;
    assert_ok(ps_engine_create(ps_model_from_config, c, c, PS_FOR_INFERENCE, NULL, &e));
    assert_false(e->exec_plan->code->keeps_logits);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_refusal),   cmocka_unit_test(test_least_of_both),
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_evaluation_keeps_nothing),
    };
    return RUN_ON_BACKENDS(tests);
}
