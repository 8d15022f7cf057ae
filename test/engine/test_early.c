/* Updates within the backward pass, of all chunks or of some: the bits of all other times, in memory as planned, each
 * after the last use of its chunk; and what happens to steps whose gradients are not finite. */
#include <math.h>

#include "checkpoint/checkpoint_fixture.h"
#include "engine/candidate_fixture.h"
#include "engine/ranks_fixture.h"

enum { STEPS = 4 };

#define BF16 "bf16.enabled=true"
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"
#define LEGAL "gradient_clipping=0", "train.max_nonfinite_steps=1"
#define EARLY LEGAL, "memory.update_in_backward=always"
#define LATE LEGAL, "memory.update_in_backward=never"

static void assert_same(const char *what, const run_result *a, const run_result *b)
{
    for (int s = 0; s < STEPS; s++) {
        if (memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) != 0)
            fail_msg("%s: loss of step %d is %.9g, not %.9g", what, s, (double)b->losses[s], (double)a->losses[s]);
        if (a->norms[s] != b->norms[s])
            fail_msg("%s: norm of step %d is %g, not %g", what, s, b->norms[s], a->norms[s]);
    }
    if (a->hash != b->hash) fail_msg("%s: other weights", what);
}

/* ---- same bits --------------------------------------------------------------------------------------------------- */

static void vary_memory(const char *format, const char *more)
{
    const run_result base = train(on_cpu(TINY(format, more, DROPOUT, LATE)), STEPS);
    assert_true(base.losses[STEPS - 1] < base.losses[0] + 0.5f && base.losses[0] > 1 && base.norms[0] > 0);
#define SAME(what, ...)                                                                                                \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        const run_result r_ = train(TINY(format, more, DROPOUT, EARLY, __VA_ARGS__), STEPS);                           \
        assert_same(what, &base, &r_);                                                                                 \
    } while (0)
    SAME("all in memory", "train.seed=7");
    SAME("small chunks", "default_chunk_size=2048");
    SAME("large chunks", "default_chunk_size=262144");
    SAME("checkpointing", "activation_checkpointing.enabled=true");
    SAME("one segment", "activation_checkpointing.enabled=true", "activation_checkpointing.number_checkpoints=1");
    SAME("inputs on disk", OFFLOAD, "memory.device=900KB", "memory.host=100KB", "memory.disk=20MB",
         "default_chunk_size=2048");
    SAME("host tier", "memory.device=900KB", "memory.host=4MB", "default_chunk_size=2048");
    SAME("disk tier", "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048");
    SAME("three tiers", "memory.device=900KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096");
    SAME("no prefetch", "memory.device=900KB", "memory.host=300KB", "memory.disk=20MB", "memory.prefetch=0");
    SAME("a slow disk", "memory.device=900KB", "memory.disk=20MB", "hardware=test/engine/endless_disk.json");
    SAME("embedding on host", "memory.host=4MB", "use_cpu_embedding=true");
    SAME("Adam on host", "memory.host=4MB", "optimizer.params.use_hybrid_adam=false");
    SAME("small margin", "memory.device=1200KB", "memory.host=4MB", "client.mem_tracer.margin_use_ratio=0.3");
    SAME("as it is found", "memory.device=900KB", "memory.disk=20MB", "memory.update_in_backward=auto",
         "hardware=examples/hardware/laptop.json");
#undef SAME
}

static void test_same_bits_f32(void **state)
{
    (void)state;
    vary_memory("bf16.enabled=false", "gradient_accumulation_steps=1");
}

/* Each gradient in a list of its own, and tables with two uses. */
static void test_same_bits_bf16(void **state)
{
    (void)state;
    vary_memory(BF16, "gradient_accumulation_steps=1");
    vary_memory(BF16, "zero.reuse_fp16_shard=false");
    vary_memory(BF16, "optimizer.params.state_format=compact");
    vary_memory(BF16, "optimizer.params.state_format=compact_split");
    vary_memory(BF16, "optimizer.params.state_format=bf16_stochastic");
}

/* Only the last micro-batch's backward pass updates. */
static void test_same_bits_accumulated(void **state)
{
    (void)state;
    vary_memory(BF16, "gradient_accumulation_steps=3");
}

static void test_same_bits_families(void **state)
{
    (void)state;
    static const char *const families[][4] = {
        {"model.type=llama", "model.num_key_value_heads=1", "model.sliding_window=5", "model.tie_word_embeddings=true"},
        {"model.type=qwen2", "model.max_window_layers=1", "gradient_accumulation_steps=2", "model.sliding_window=3"},
        {"model.type=bert", "model.head=masked_lm", "model.hidden_act=gelu", "model.type_vocab_size=2"},
        {"model.type=gpt2", "model.head=sequence_classification", "model.num_labels=4", "optimizer.type=SGD"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(families); i++) {
        const char *const *f = families[i];
#define FAMILY(...)                                                                                                    \
    CHANGES(BF16, DROPOUT, "model.intermediate_size=100", "optimizer.params.betas=[0.9, 0.999]", f[0], f[1], f[2],     \
            f[3], __VA_ARGS__)
        const run_result base = train(on_cpu(tiny_with(FAMILY(LATE))), STEPS);
        const char *const *small[] = {
            FAMILY(EARLY, "memory.device=900KB", "memory.host=300KB", "memory.disk=30MB", "default_chunk_size=4096"),
            FAMILY(EARLY, "activation_checkpointing.enabled=true", "memory.device=900KB", "memory.disk=30MB"),
            FAMILY(EARLY, "memory.device=900KB", "memory.host=30MB")};
        for (size_t k = 0; k < PS_ARRAY_LEN(small); k++) {
            const run_result r = train(tiny_with(small[k]), STEPS);
            assert_same(f[0], &base, &r);
        }
#undef FAMILY
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static run_result train_at(const char *const *changes, int64_t device_bytes)
{
    ps_config *c = tiny_with(changes);
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)device_bytes);
    assert_ok(ps_config_set(c, "memory.device", text));
    return train(c, STEPS);
}

static void test_smallest_budget(void **state)
{
    (void)state;
    static const char *const more[][2] = {{"memory.disk=20MB", "memory.prefetch=4"},
                                          {"memory.host=4MB", "memory.prefetch=0"},
                                          {"memory.disk=20MB", "activation_checkpointing.enabled=true"}};
    const run_result base = train(on_cpu(TINY(BF16, LATE)), STEPS);
    for (size_t i = 0; i < PS_ARRAY_LEN(more); i++) {
        const char *const *changes = CHANGES(BF16, EARLY, more[i][0], more[i][1]);
        const int64_t least = smallest_device(changes);
        const run_result r = train_at(changes, least);
        assert_same("smallest budget", &base, &r);
        assert_true(r.memory.device_peak_bytes <= least);
    }
}

/* Gradients in a list of their own are gone when their chunk is updated: that list is never there as a whole. So less
 * memory holds the model, and what fits in no other way is carried out in this one. */
static void test_gradients_are_transient(void **state)
{
    (void)state;
#define LISTS BF16, "zero.reuse_fp16_shard=false", "default_chunk_size=4096", "activation_checkpointing.enabled=true"
    const char *const *early = CHANGES(LISTS, EARLY), *const *late = CHANGES(LISTS, LATE);
    const char *const *either = CHANGES(LISTS, LEGAL);
    const int64_t least_early = smallest_device(early), least_late = smallest_device(late);
    const run_result base = train(on_cpu(tiny_with(late)), STEPS);
    /* 4 of 18 bytes an element; half of them at least, as the table's gradient is complete at the end only */
    assert_true(least_late - least_early > base.memory.model_data_bytes * 4 / 18 / 2);
    assert_int_equal(smallest_device(either), least_early);
    const run_result r = train_at(either, least_early);
    assert_same("auto in the least memory", &base, &r);
#undef LISTS
}

/* Predicted peaks and moved bytes are what happens. */
static void test_forecast(void **state)
{
    (void)state;
    static const char *const budgets[][4] = {
        {"memory.device=64MB", "memory.host=0", "memory.disk=0", "memory.prefetch=4"},
        {"memory.device=800KB", "memory.host=0", "memory.disk=20MB", "memory.prefetch=4"},
        {"memory.device=800KB", "memory.host=300KB", "memory.disk=20MB", "gradient_accumulation_steps=2"},
        {"memory.device=900KB", "memory.host=4MB", "memory.disk=0", "memory.prefetch=0"},
        {"memory.device=800KB", "memory.disk=20MB", OFFLOAD}};
    for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
        const char *const *changes =
            CHANGES(BF16, EARLY, "default_chunk_size=4096", budgets[i][0], budgets[i][1], budgets[i][2], budgets[i][3]);
        const int n_steps = (int)train(tiny_with(changes), 1).memory.planned_step;
        assert_in_range(n_steps, 2, MAX_STEPS);
        const run_result before = train(tiny_with(changes), n_steps - 1), last = train(tiny_with(changes), n_steps);
        const ps_memory_info *a = &before.memory, *b = &last.memory;
        assert_int_equal(b->device_peak_bytes, b->planned_device_peak_bytes);
        assert_int_equal(b->host_peak_bytes, b->planned_host_peak_bytes);
        assert_int_equal(b->disk_peak_bytes, b->planned_disk_peak_bytes);
        const int64_t moved = b->host_to_device_bytes + b->device_to_host_bytes + b->disk_read_bytes +
                              b->disk_write_bytes - a->host_to_device_bytes - a->device_to_host_bytes -
                              a->disk_read_bytes - a->disk_write_bytes;
        assert_int_equal(moved, b->planned_moved_bytes);
        assert_true(i == 0 ? moved == 0 : moved > 0);
    }
}

/* ---- when updates run -------------------------------------------------------------------------------------------- */

static bool touches(const ps_exec_plan *b, int32_t moment, int32_t chunk)
{
    const ps_moment *m = &b->trace->moments[moment];
    for (int32_t i = m->first_access; i < m->first_access + m->n_accesses; i++) {
        const ps_chunk_id id = b->trace->accesses[i].chunk;
        if (!ps_lists_is_standalone(&b->lists, ps_lists_list_of(&b->lists, b->layout, id)) &&
            ps_lists_index_of(&b->lists, b->layout, id) == chunk)
            return true;
    }
    return false;
}

/* Nothing touches a chunk between its update and the end of the step, and no operator runs between the last that does
 * and the update: of those of its own memory that the trace has. */
static void expect_prompt_updates(const char *const *changes)
{
    ps_config *c = tiny_with(changes);
    ps_engine *e = engine_of(c);
    const ps_exec_plan *b = e->exec_plan;
    int32_t n_within = 0, last_backward = -1;
    assert_true(b->candidate.n_early > 0 && b->n_deferred == 0);
    for (int32_t m = 0; m < b->trace->n_moments; m++)
        if (b->trace->moments[m].phase == PS_PHASE_BACKWARD) last_backward = m;
    for (int32_t chunk = 0; chunk < b->layout->n_chunks; chunk++) {
        const int32_t update = b->update_moment[chunk];
        int32_t last = -1;
        for (int32_t m = 0; m < b->trace->n_moments; m++)
            if (m != update && touches(b, m, chunk)) last = m;
        assert_true(last >= 0 && last < update);
        for (int32_t m = last + 1; m < update; m++) assert_int_equal(b->trace->moments[m].phase, PS_PHASE_UPDATE);
        n_within += update < last_backward;
    }
    assert_true(n_within > b->layout->n_chunks / 2);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_each_right_after_its_last_use(void **state)
{
    (void)state;
    expect_prompt_updates(CHANGES(BF16, EARLY, "default_chunk_size=2048"));
    expect_prompt_updates(CHANGES(BF16, EARLY, "default_chunk_size=2048", "activation_checkpointing.enabled=true"));
    expect_prompt_updates(CHANGES(BF16, EARLY, "default_chunk_size=2048", "gradient_accumulation_steps=2",
                                  "model.tie_word_embeddings=false"));
}

/* Where it waits for a disk auto takes them, as long as they are allowed. What a plan comes to on other backends is
 * another matter. */
static void test_chosen_where_allowed(void **state)
{
    (void)state;
#define SLOW BF16, "memory.device=800KB", "memory.disk=20MB", "default_chunk_size=4096"
    const struct {
        const char *const *changes;
        bool is_early;
    } cases[] = {{CHANGES(SLOW, LEGAL), true},
                 {CHANGES(SLOW, LEGAL, "memory.defer_updates=false"), true},
                 {CHANGES(SLOW, LATE), false},
                 {CHANGES(SLOW, LEGAL, "gradient_clipping=1"), false},
                 {CHANGES(SLOW, LEGAL, "train.max_nonfinite_steps=2"), false},
                 {CHANGES(SLOW, LEGAL, "train.max_nonfinite_steps=0"), false},
                 {CHANGES(SLOW, LEGAL, "bf16.enabled=false", "fp16.enabled=true"), false}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        if (OVER_DISCRETE && cases[i].is_early) continue;
        ps_config *c = tiny_with(cases[i].changes);
        ps_engine *e = engine_of(c);
        if ((e->exec_plan->candidate.n_early > 0) != cases[i].is_early) fail_msg("case %zu", i);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
#undef SLOW
}

/* ---- between steps ----------------------------------------------------------------------------------------------- */

static void one_step(ps_engine *e, int64_t step, float *loss)
{
    int32_t tokens[2 * 16], targets[2 * 16];
    int64_t K;
    ps_engine_get_shape(e, NULL, NULL, &K, NULL);
    for (int64_t k = 0; k < K; k++) {
        fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, step * K + k);
        assert_ok(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, loss));
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
    }
}

#define TIGHT "memory.device=800KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096"

/* Of n chunks early, evenly spread, and the others at this time: each is updated where it should be. */
static void expect_share(const ps_exec_plan *b, int32_t n, ps_update_time others)
{
    const int32_t last_micro = (int32_t)(b->settings->accumulation - 1) * b->code->n_instrs;
    const int32_t first_backward = b->instr_moment[b->code->n_forward];
    const int32_t last_backward = b->instr_moment[last_micro + b->code->n_instrs - 1];
    int32_t n_early = 0, longest = 0, since = 0;
    for (int32_t i = 0; i < b->n_used; i++) {
        const int32_t c = b->use_order[i], update = b->update_moment[c];
        n_early += b->is_early[c];
        since = b->is_early[c] ? 0 : since + 1;
        longest = (int32_t)ps_max_i64(longest, since);
        if (!b->is_early[c]) {
            assert_true(others == PS_UPDATE_DEFERRED ? update < first_backward : update > last_backward);
            continue;
        }
        const int32_t last_use = b->instr_moment[last_micro + b->ready_after[c]];
        assert_true(last_use >= first_backward && update > last_use);
        for (int32_t m = last_use + 1; m < update; m++) assert_int_equal(b->trace->moments[m].phase, PS_PHASE_UPDATE);
    }
    assert_int_equal(n_early, n);
    assert_int_equal(b->n_deferred, others == PS_UPDATE_DEFERRED ? b->n_used - n : 0);
    assert_true(longest <= ps_ceil_div(b->n_used, n));
}

/* Some early, the others deferred or after the pass: of 131 rows of a table that many chunks have, too. */
static void test_same_bits_of_each_share(void **state)
{
    (void)state;
    static const char *const more[][3] = {
        {"default_chunk_size=2048", "gradient_accumulation_steps=1", "memory.host=300KB"},
        {"default_chunk_size=4096", "gradient_accumulation_steps=3", "memory.host=300KB"},
        {"default_chunk_size=2048", "zero.reuse_fp16_shard=false", "memory.device=900KB"},
        {"default_chunk_size=2048", "activation_checkpointing.enabled=true", "model.tie_word_embeddings=false"},
        {"default_chunk_size=2048", "train.freeze=*h.0.*", "memory.prefetch=0"},
        {"default_chunk_size=4096", "optimizer.params.state_format=compact", "memory.host=4MB"},
        {"default_chunk_size=2048", "optimizer.params.state_format=compact_split", "memory.host=300KB"},
        {"default_chunk_size=2048", "optimizer.params.state_format=bf16_stochastic", "memory.host=300KB"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(more); i++) {
        const run_result base = train(on_cpu(TINY(BF16, DROPOUT, LATE, more[i][0], more[i][1], more[i][2],
                                                  "memory.device=64MB", "memory.host=64MB")),
                                      STEPS);
        for (int way = 2; way < 12; way++) {
            if (!is_my_share()) continue;
            const ps_update_time others = way % 2 ? PS_UPDATE_DEFERRED : PS_UPDATE_AFTER;
            ps_config *c = TINY(BF16, DROPOUT, LEGAL, "memory.device=900KB", "memory.disk=20MB", more[i][0], more[i][1],
                                more[i][2]);
            ps_engine *e = engine_of(c);
            ps_exec_plan *former;
            float loss;
            const ps_candidate v = share_of(e, way / 2, others);
            assert_ok(use_candidate(e, v, &former));
            expect_share(e->exec_plan, v.n_early, others);
            for (int step = 0; step < STEPS; step++) one_step(e, step, &loss);
            if (hash_of(e) != base.hash) fail_msg("case %zu, way %d: other weights", i, way);
            assert_ordered(e);
            ps_engine_destroy(e);
            ps_exec_plan_destroy(former);
            ps_config_destroy(c);
        }
    }
}

/* Another share after each step, with updates pending that the next plan has early, or has deferred, too; evaluated in
 * between, or not. */
static void test_shares_change_between_steps(void **state)
{
    (void)state;
    static const char *const accumulation[] = {"gradient_accumulation_steps=1", "gradient_accumulation_steps=2"};
    for (int i = 0; i < 4; i++) {
        enum { MORE_STEPS = 12 };
        float losses[MORE_STEPS];
        ps_config *c = on_cpu(TINY(BF16, DROPOUT, LATE, accumulation[i % 2]));
        ps_engine *e = engine_of(c);
        for (int step = 0; step < MORE_STEPS; step++) one_step(e, step, &losses[step]);
        const uint64_t hash = hash_of(e);
        ps_engine_destroy(e);
        ps_config_destroy(c);
        c = TINY(BF16, DROPOUT, LEGAL, TIGHT, accumulation[i % 2]);
        e = engine_of(c);
        ps_exec_plan *former[MORE_STEPS];
        int32_t tokens[2 * 16], targets[2 * 16];
        for (int step = 0; step < MORE_STEPS; step++) {
            float loss, evaluated;
            const int sixths = (step * 5 + i) % 7;
            const ps_candidate v = share_of(e, sixths, step % 3 ? PS_UPDATE_DEFERRED : PS_UPDATE_AFTER);
            assert_ok(use_candidate(e, v, &former[step]));
            one_step(e, step, &loss);
            if (memcmp(&loss, &losses[step], sizeof loss) != 0)
                fail_msg("%d: loss of step %d is %.9g, not %.9g", i, step, (double)loss, (double)losses[step]);
            if (i / 2 == 0) continue;
            fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1000);
            assert_ok(ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                                  &evaluated));
        }
        assert_true(hash_of(e) == hash);
        ps_engine_destroy(e);
        for (int step = 0; step < MORE_STEPS; step++) ps_exec_plan_destroy(former[step]);
        ps_config_destroy(c);
    }
}

/* Evaluated, read and hashed between steps, with another size of micro-batches for one of them. */
static void test_calls_between_steps(void **state)
{
    (void)state;
    static const char *const accumulation[] = {"gradient_accumulation_steps=1", "gradient_accumulation_steps=2"};
    for (int i = 0; i < 2; i++) {
        float losses[2][STEPS];
        uint64_t hashes[2][STEPS];
        for (int early = 0; early < 2; early++) {
            ps_config *c = early ? TINY(BF16, DROPOUT, EARLY, TIGHT, accumulation[i])
                                 : on_cpu(TINY(BF16, DROPOUT, LATE, accumulation[i]));
            ps_engine *e = engine_of(c);
            int32_t tokens[2 * 16], targets[2 * 16];
            float evaluated, value;
            for (int step = 0; step < STEPS; step++) {
                one_step(e, step, &losses[early][step]);
                fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1000);
                if (early) {
                    assert_ok(ps_evaluate(
                        e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                        &evaluated));
                    assert_ok(ps_engine_read_tensor(e, 3, 0, 1, &value));
                    assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, 1, 8));
                    assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, 2, 16));
                }
                hashes[early][step] = hash_of(e);
            }
            ps_engine_destroy(e);
            ps_config_destroy(c);
        }
        assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
        assert_memory_equal(hashes[0], hashes[1], sizeof hashes[0]);
    }
}

static uint64_t save_and_go_on(ps_config *c, const char *folder, bool meanwhile, bool mixes)
{
    ps_exec_plan *former = NULL;
    ps_engine *e = engine_of(c);
    float loss;
    if (mixes) assert_ok(use_candidate(e, share_of(e, 3, PS_UPDATE_DEFERRED), &former));
    for (int step = 0; step < 2; step++) one_step(e, step, &loss);
    if (meanwhile)
        assert_ok(ps_engine_begin_checkpoint(e, folder, NULL));
    else
        assert_ok(ps_engine_save_checkpoint(e, folder, NULL, NULL));
    for (int step = 2; step < STEPS; step++) one_step(e, step, &loss);
    if (meanwhile) assert_ok(ps_engine_finish_checkpoint(e, NULL));
    const uint64_t hash = hash_of(e);
    ps_engine_destroy(e);
    ps_exec_plan_destroy(former);
    ps_config_destroy(c);
    return hash;
}

static uint64_t resume(ps_config *c, const char *folder)
{
    ps_engine *e = engine_of(c);
    float loss;
    assert_ok(ps_engine_load_checkpoint(e, folder, NULL));
    for (int step = 2; step < STEPS; step++) one_step(e, step, &loss);
    const uint64_t hash = hash_of(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return hash;
}

/* Saved with one time of updates, or a mix of two, and resumed with another, at once or during training. */
static void test_saved_and_resumed(void **state)
{
    (void)state;
    const uint64_t want = train(on_cpu(TINY(BF16, LATE)), STEPS).hash;
    for (int way = 0; way < 6; way++) {
        const bool meanwhile = way % 2, saves_early = way / 2 == 0, mixes = way / 2 == 2;
        const work_folder work = work_make();
        ps_config *saves = saves_early ? TINY(BF16, EARLY, TIGHT, "train.save_interval=1")
                           : mixes     ? TINY(BF16, LEGAL, TIGHT, "train.save_interval=1")
                                       : TINY(BF16, LATE, TIGHT, "train.save_interval=1");
        assert_true(save_and_go_on(saves, work.path, meanwhile, mixes) == want);
        assert_true(resume(TINY(BF16, EARLY, TIGHT), work.path) == want);
        assert_true(resume(TINY(BF16, LATE), work.path) == want);
        work_remove(work.path);
    }
}

/* They are gone when it ends: refused wherever they may be, whatever the plan came to. */
static void test_gradients_cannot_be_read(void **state)
{
    (void)state;
    const struct {
        const char *changes[2];
        ps_status st;
    } cases[] = {{{"gradient_clipping=0", "train.max_nonfinite_steps=1"}, PS_ESTATE},
                 {{"gradient_clipping=0", "train.max_nonfinite_steps=5"}, PS_OK}};
    int32_t tokens[2 * 16], targets[2 * 16];
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_config *c = TINY(cases[i].changes[0], cases[i].changes[1]);
        ps_engine *e = engine_of(c);
        float gradient, value;
        uint64_t hash;
        fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 0);
        assert_ok(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
        assert_ok(ps_backward(e));
        assert_int_equal(ps_engine_read_gradient(e, 3, 0, 1, &gradient), cases[i].st);
        if (i == 0) assert_non_null(strstr(ps_last_error(), "memory.update_in_backward = never"));
        assert_int_equal(ps_engine_read_tensor(e, 3, 0, 1, &value), cases[i].st);
        assert_int_equal(ps_engine_get_weights_xxh3(e, &hash), cases[i].st);
        assert_ok(ps_step(e)); /* it continues */
        assert_ok(ps_engine_read_tensor(e, 3, 0, 1, &value));
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
}

/* ---- gradients that are not finite ------------------------------------------------------------------------------- */

/* Some weights have changed by then, so the step is the engine's last. */
static void end_by_nonfinite(bool mixes)
{
    ps_config *c = TINY(BF16, LEGAL, "memory.disk=20MB", "default_chunk_size=4096",
                        mixes ? "memory.update_in_backward=auto" : "memory.update_in_backward=always");
    ps_engine *e = engine_of(c);
    ps_exec_plan *former = NULL;
    const float value = NAN;
    int32_t tokens[2 * 16], targets[2 * 16];
    float loss;
    if (mixes) assert_ok(use_candidate(e, share_of(e, 3, PS_UPDATE_DEFERRED), &former));
    one_step(e, 0, &loss);
    assert_ok(ps_engine_write_tensor(e, 4, 3, 1, &value));
    const work_folder saved = work_make();
    const uint64_t hash = hash_of(e);
    assert_ok(ps_engine_begin_checkpoint(e, saved.path, NULL));
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1);
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    assert_ok(ps_forward(e, &batch, NULL));
    assert_ok(ps_backward(e));
    assert_int_equal(ps_step(e), PS_ENUMERIC);
    static const char *const said[] = {"step 2 has gradients that are not finite", "a loss of", "last checkpoint",
                                       "memory.update_in_backward = never"};
    for (size_t i = 0; i < PS_ARRAY_LEN(said); i++)
        if (strstr(ps_last_error(), said[i]) == NULL) fail_msg("no \"%s\" in: %s", said[i], ps_last_error());
    assert_int_equal(ps_forward(e, &batch, NULL), PS_ESTATE);
    assert_non_null(strstr(ps_last_error(), "ps_forward is not allowed after a failure inside a step: step "));
    assert_int_equal(ps_engine_read_tensor(e, 3, 0, 1, &loss), PS_ESTATE);
    assert_non_null(strstr(ps_last_error(), "has gradients that are not finite")); /* what it was, not what came then */
    /* a checkpoint that was on its way has nothing of that step */
    assert_ok(ps_engine_finish_checkpoint(e, NULL));
    ps_engine_destroy(e);
    ps_exec_plan_destroy(former);
    e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, saved.path, NULL));
    assert_true(hash_of(e) == hash);
    ps_engine_destroy(e);
    work_remove(saved.path);
    ps_config_destroy(c);
}

static void test_nonfinite_ends_it(void **state)
{
    (void)state;
    end_by_nonfinite(false);
    end_by_nonfinite(true);
}

/* With updates at other times the same configuration leaves the weights as they were, and the engine stays usable. */
static void test_nonfinite_is_skipped_elsewhere(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, LATE, "memory.disk=20MB");
    ps_engine *e = engine_of(c);
    const float value = NAN;
    int32_t tokens[2 * 16], targets[2 * 16];
    float loss;
    one_step(e, 0, &loss);
    assert_ok(ps_engine_write_tensor(e, 4, 3, 1, &value));
    const uint64_t before = hash_of(e);
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
    assert_int_equal(ps_step(e), PS_ENUMERIC);
    assert_true(hash_of(e) == before);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- several ranks ----------------------------------------------------------------------------------------------- */

/* All of a rank's chunks but those of the last groups are updated before the pass has ended. */
static ps_status train_early(ps_engine *e, ps_config *c, rank_task *t)
{
    const ps_exec_plan *b = e->exec_plan;
    int32_t last_backward = -1, n_within = 0, n_own = 0;
    for (int32_t m = 0; m < b->trace->n_moments; m++)
        if (b->trace->moments[m].phase == PS_PHASE_BACKWARD) last_backward = m;
    for (int32_t chunk = 0; chunk < b->layout->n_chunks; chunk++) {
        n_own += b->update_moment[chunk] >= 0;
        n_within += b->update_moment[chunk] >= 0 && b->update_moment[chunk] < last_backward;
    }
    if (n_within < n_own / 2) return PS_FAIL(PS_EINVAL, "%d of %d updates are early", n_within, n_own);
    return rank_train(e, c, t);
}

/* Destroyed after the engines. */
static ps_exec_plan *former_of[RANKS_MAX];

/* Half of them, with the others deferred. */
static ps_status train_mixed(ps_engine *e, ps_config *c, rank_task *t)
{
    const ps_candidate v = share_of(e, 3, PS_UPDATE_DEFERRED);
    PS_TRY(use_candidate(e, v, &former_of[ps_comm_rank(t->comm)]));
    ps_status st = rank_train(e, c, t);
    if (st == PS_OK && (e->exec_plan->candidate.n_early != v.n_early ||
                        (e->exec_plan->n_ordered > 1 && e->exec_plan->n_deferred == 0)))
        st = PS_FAIL(PS_EINVAL, "%d updates are early, %d deferred", e->exec_plan->candidate.n_early,
                     e->exec_plan->n_deferred);
    t->result.forecast = e->shape->forecast;
    return st;
}

static void test_ranks(void **state)
{
    (void)state;
    static const char *const variations[][4] = {
        {NOTHING, NOTHING, NOTHING, NOTHING},
        {MSC, "default_chunk_size=4096", NOTHING, NOTHING},
        {"memory.device=560KB", "memory.host=2MB", "default_chunk_size=4096", NOTHING},
        {"memory.device=560KB", "memory.disk=8MB", "default_chunk_size=4096", MSC},
        {"memory.device=850KB", "memory.disk=8MB", "default_chunk_size=4096", "memory.prefetch=0"},
        {"memory.host=4MB", "optimizer.params.use_hybrid_adam=false", "activation_checkpointing.enabled=true", MSC},
    };
    static const char *const sums[] = {"gradient_accumulation_steps=1", "gradient_accumulation_steps=2"};
    for (int32_t n = 2; n <= 3; n++)
        for (size_t k = 0; k < PS_ARRAY_LEN(sums); k++) {
            const uint64_t want = RANKS(n, STEPS, BF16, LATE, sums[k], FOR_BITS)->result.hash;
            for (size_t i = 0; i < PS_ARRAY_LEN(variations); i++) {
                const char *const *v = variations[i];
                if (!is_my_share()) continue;
                for (int mixes = 0; mixes < 2; mixes++) {
                    const rank_task *t = run_ranks(n, STEPS, mixes ? train_mixed : train_early,
                                                   mixes ? CHANGES(BF16, LEGAL, sums[k], v[0], v[1], v[2], v[3])
                                                         : CHANGES(BF16, EARLY, sums[k], v[0], v[1], v[2], v[3]));
                    if (t->result.hash != want) fail_msg("%d ranks, %s, %s %s: other bits", n, sums[k], v[0], v[1]);
                    assert_int_equal(t->result.sent_bytes, t->result.forecast.moved_bytes[PS_LINK_COLLECTIVES]);
                    for (int r = 0; r < n && mixes; r++) ps_exec_plan_destroy(former_of[r]);
                }
            }
        }
}

/* As each rank has planned. */
static bool plans_early[2];

/* One rank's own plan may update at another time than the others'; what is not finite ends all of them. */
static ps_status train_into_nan(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    const float value = NAN;
    plans_early[ps_comm_rank(t->comm)] = e->exec_plan->candidate.n_early > 0;
    PS_TRY(rank_step(e, t, 0));
    PS_TRY(ps_engine_write_tensor(e, 4, 3, 1, &value));
    const ps_status st = rank_step(e, t, 1);
    if (st != PS_ENUMERIC) return PS_FAIL(PS_EINVAL, "the step ended with %s", ps_status_name(st));
    if (strstr(ps_last_error(), "last checkpoint") == NULL) return PS_FAIL(PS_EINVAL, "%s", ps_last_error());
    const ps_status after = rank_step(e, t, 2);
    return after == PS_ESTATE ? PS_ENUMERIC : PS_FAIL(PS_EINVAL, "it goes on with %s", ps_status_name(after));
}

static void test_ranks_end_together(void **state)
{
    (void)state;
    const char *const *const of_rank[][2] = {
        {CHANGES(BF16, EARLY), CHANGES(BF16, EARLY)},
        {CHANGES(BF16, LEGAL), CHANGES(BF16, EARLY)},
        {CHANGES(BF16, EARLY, "gradient_accumulation_steps=2"), CHANGES(BF16, LEGAL, "gradient_accumulation_steps=2")}};
    static const bool are_early[][2] = {{true, true}, {false, true}, {true, false}};
    for (size_t i = 0; i < PS_ARRAY_LEN(of_rank); i++) {
        rank_task tasks[2];
        ps_comm *comms[2];
        pthread_t threads[2];
        assert_ok(ps_comm_open_threads(
            &(ps_comm_options){.timeout_s = rank_timeout_s, .staging_bytes = RANKS_STAGING_BYTES}, 2, comms));
        for (int k = 0; k < 2; k++) {
            tasks[k] = (rank_task){
                .comm = comms[k], .model = ps_model_from_config, .run = train_into_nan, .changes = of_rank[i][k]};
            assert_int_equal(pthread_create(&threads[k], NULL, rank_main, &tasks[k]), 0);
        }
        for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
        for (int k = 0; k < 2; k++)
            if (tasks[k].result.st != PS_ENUMERIC) fail_msg("%zu, rank %d: %s", i, k, tasks[k].result.error);
        assert_memory_equal(plans_early, are_early[i], sizeof plans_early);
    }
}

/* What is in the way of `always` is named, though the configuration was not validated, and no older error. */
static void test_what_is_in_the_way(void **state)
{
    (void)state;
    static const char *const ways[][3] = {
        {"gradient_clipping=0", "train.max_nonfinite_steps=50", "train.max_nonfinite_steps"},
        {"gradient_clipping=1", "train.max_nonfinite_steps=1", "gradient_clipping"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(ways); i++) {
        ps_engine *e = NULL;
        ps_config *c = TINY(ways[i][0], ways[i][1]);
        assert_ok(ps_config_set(c, "memory.update_in_backward", "always"));
        (void)ps_set_last_error(PS_EIO, "an older error");
        assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), ways[i][2]));
        assert_null(strstr(ps_last_error(), "older"));
        ps_config_destroy(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_in_the_way),
        cmocka_unit_test(test_same_bits_f32),
        cmocka_unit_test(test_same_bits_bf16),
        cmocka_unit_test(test_same_bits_accumulated),
        cmocka_unit_test(test_same_bits_families),
        cmocka_unit_test(test_smallest_budget),
        cmocka_unit_test(test_gradients_are_transient),
        cmocka_unit_test(test_forecast),
        cmocka_unit_test(test_each_right_after_its_last_use),
        cmocka_unit_test(test_chosen_where_allowed),
        cmocka_unit_test(test_same_bits_of_each_share),
        cmocka_unit_test(test_shares_change_between_steps),
        cmocka_unit_test(test_calls_between_steps),
        cmocka_unit_test(test_saved_and_resumed),
        cmocka_unit_test(test_gradients_cannot_be_read),
        cmocka_unit_test(test_nonfinite_ends_it),
        cmocka_unit_test(test_nonfinite_is_skipped_elsewhere),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_ranks_end_together),
    };
    return RUN_ON_BACKENDS(tests);
}
