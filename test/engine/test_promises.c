/* The promises of doc/design.md: same bits whatever the memory, budgets that hold, refusal before the first step,
 * evaluation that disturbs nothing. */
#include <math.h>

#include "engine/engine_fixture.h"

#include "chunk/store_stats.h"

#define STEPS 4
#define BF16 "bf16.enabled=true"
/* dropout everywhere: masks must not depend on memory either */
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"

static void assert_same(const char *what, const run_result *a, const run_result *b)
{
    for (int s = 0; s < STEPS; s++)
        if (memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) != 0)
            fail_msg("%s: loss of step %d is %.9g, not %.9g", what, s, (double)b->losses[s], (double)a->losses[s]);
    if (a->hash != b->hash) fail_msg("%s: other weights", what);
}

static run_result train_at(const char *const *changes, int64_t device_bytes)
{
    ps_config *c = tiny_with(changes);
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)device_bytes);
    assert_ok(ps_config_set(c, "memory.device", text));
    return train(c, STEPS);
}

#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* One list of variations, run for a number format; all must give the bits of the first. */
static void vary_memory(const char *format, const char *more)
{
    const run_result base = train(on_cpu(TINY(format, more, DROPOUT)), STEPS);
    assert_true(base.losses[STEPS - 1] < base.losses[0] + 0.5f && base.losses[0] > 1);
#define SAME(what, ...)                                                                                                \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        const run_result r_ = train(TINY(format, more, DROPOUT, __VA_ARGS__), STEPS);                                  \
        assert_same(what, &base, &r_);                                                                                 \
    } while (0)
    SAME("again", "train.seed=7");
    SAME("small chunks", "default_chunk_size=2048");
    SAME("odd chunks", "default_chunk_size=10240");
    SAME("large chunks", "default_chunk_size=262144");
    SAME("checkpointing", "activation_checkpointing.enabled=true");
    SAME("one segment", "activation_checkpointing.enabled=true", "activation_checkpointing.number_checkpoints=1");
    SAME("inputs offloaded", OFFLOAD);
    SAME("inputs on the host", OFFLOAD, "memory.device=650KB", "memory.host=4MB", "default_chunk_size=2048");
    SAME("inputs on disk", OFFLOAD, "memory.device=650KB", "memory.host=100KB", "memory.disk=20MB",
         "default_chunk_size=2048");
    SAME("host tier", "memory.device=700KB", "memory.host=4MB", "default_chunk_size=2048");
    SAME("disk tier", "memory.device=700KB", "memory.disk=20MB", "default_chunk_size=2048");
    SAME("three tiers", "memory.device=700KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096");
    SAME("no prefetch", "memory.device=750KB", "memory.host=300KB", "memory.disk=20MB", "memory.prefetch=0");
    SAME("far prefetch", "memory.device=900KB", "memory.host=300KB", "memory.disk=20MB", "memory.prefetch=16");
    SAME("threads on disk", "memory.device=700KB", "memory.disk=20MB", "memory.disk_backend=threads");
    SAME("two files on disk", "memory.device=700KB", "memory.disk=20MB", "memory.disk_path=/tmp,/tmp");
    SAME("a slow disk", "memory.device=700KB", "memory.disk=20MB", "hardware=test/engine/endless_disk.json");
    SAME("placement cpu", "memory.host=4MB", "zero.tensor_placement_policy=cpu");
    SAME("embedding on host", "memory.host=4MB", "use_cpu_embedding=true");
    SAME("Adam on host", "memory.host=4MB", "optimizer.params.use_hybrid_adam=false");
    SAME("updates at once", "memory.device=800KB", "memory.disk=20MB", "memory.defer_updates=false");
    SAME("small margin", "memory.device=1200KB", "memory.host=4MB", "client.mem_tracer.margin_use_ratio=0.3");
#undef SAME
    static const char *const tiers[][3] = {{"memory.disk=20MB", "memory.prefetch=0"},
                                           {"memory.disk=20MB", "memory.prefetch=4"},
                                           {"memory.host=4MB", "memory.prefetch=4"},
                                           {"memory.disk=20MB", "activation_checkpointing.enabled=true"},
                                           {"memory.disk=20MB", OFFLOAD}};
    for (size_t i = 0; i < PS_ARRAY_LEN(tiers); i++) {
        const char *const *changes = CHANGES(format, more, DROPOUT, tiers[i][0], tiers[i][1], tiers[i][2]);
        if (!is_my_share()) continue;
        const int64_t least = smallest_device(changes);
        const run_result r = train_at(changes, least);
        assert_same("smallest budget", &base, &r);
        assert_true(r.memory.device_peak_bytes <= least);
    }
}

static void test_same_bits_f32(void **state)
{
    (void)state;
    vary_memory("bf16.enabled=false", "gradient_accumulation_steps=1");
}

static void test_same_bits_bf16(void **state)
{
    (void)state;
    vary_memory(BF16, "gradient_accumulation_steps=1");
}

static void test_same_bits_accumulated(void **state)
{
    (void)state;
    vary_memory(BF16, "gradient_accumulation_steps=3");
}

static void test_same_bits_compact(void **state)
{
    (void)state;
    vary_memory(BF16, "optimizer.params.state_format=compact");
}

/* A gradient has memory of its own, 2 bytes, unless it is used up at once. */
static void test_same_bits_compact_split(void **state)
{
    (void)state;
#define SPLIT "optimizer.params.state_format=compact_split"
    const run_result compact = train(TINY(BF16, "optimizer.params.state_format=compact"), 1);
    const run_result late = train(TINY(BF16, SPLIT), 1);
    const run_result early = train(
        TINY(BF16, SPLIT, "gradient_clipping=0", "train.max_nonfinite_steps=1", "memory.update_in_backward=always"), 1);
    assert_int_equal(late.memory.model_data_bytes, compact.memory.model_data_bytes);
    assert_int_equal(early.memory.model_data_bytes, late.memory.model_data_bytes - 2 * late.memory.parameters);
    vary_memory(BF16, SPLIT);
#undef SPLIT
}

/* 8 bytes a parameter, with its gradient, or 6. What is rounded at random depends on the seed. */
static void test_same_bits_bf16_stochastic(void **state)
{
    (void)state;
#define STOCHASTIC "optimizer.params.state_format=bf16_stochastic"
    const run_result late = train(TINY(BF16, STOCHASTIC), 2);
    const run_result other = train(TINY(BF16, STOCHASTIC, "train.seed=8"), 2);
    const run_result early = train(TINY(BF16, STOCHASTIC, "gradient_clipping=0", "train.max_nonfinite_steps=1",
                                        "memory.update_in_backward=always"),
                                   1);
    assert_int_equal(late.memory.model_data_bytes, 8 * late.memory.parameters);
    assert_int_equal(early.memory.model_data_bytes, 6 * early.memory.parameters);
    assert_true(late.hash != other.hash);
    vary_memory(BF16, STOCHASTIC);
#undef STOCHASTIC
}

/* One state in place of two, or none. */
static void test_same_bits_optimizers(void **state)
{
    (void)state;
#define SGD "optimizer.type=SGD", "optimizer.params.betas=[0.9, 0.999]", "optimizer.params.lr=0.05"
#define LION "optimizer.type=Lion", "optimizer.params.betas=[0.9, 0.99]", "optimizer.params.lr=1e-4"
#define FORMAT(name) "optimizer.params.state_format=" name
    static const struct {
        const char *options[5];
        double bytes; /* an element: the parameter's 2, the master's 4, the states' */
    } cases[] = {{{SGD, "optimizer.params.momentum=0.9", FORMAT("fp32")}, 10},
                 {{SGD, "optimizer.params.momentum=0", FORMAT("fp32")}, 6},
                 {{SGD, "optimizer.params.momentum=0.9", FORMAT("compact")}, 7.125},
                 {{LION, "optimizer.params.weight_decay=0.1", FORMAT("fp32")}, 10},
                 {{LION, "optimizer.params.weight_decay=0.1", FORMAT("compact")}, 7.125}};
#undef FORMAT
#define OPTIONS(i)                                                                                                     \
    cases[i].options[0], cases[i].options[1], cases[i].options[2], cases[i].options[3], cases[i].options[4]
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const run_result base = train(on_cpu(TINY(BF16, DROPOUT, OPTIONS(i))), STEPS);
        assert_true(base.losses[STEPS - 1] < base.losses[0] + 0.5f && base.losses[0] > 1);
        static const char *const small[][3] = {
            {"memory.device=700KB", "memory.host=300KB", "memory.disk=20MB"},
            {"memory.device=700KB", "memory.disk=20MB", "memory.defer_updates=false"},
            {"memory.host=4MB", "optimizer.params.use_hybrid_adam=false", "default_chunk_size=2048"},
            {"memory.device=900KB", "memory.host=4MB", "activation_checkpointing.enabled=true"}};
        for (size_t k = 0; k < PS_ARRAY_LEN(small); k++) {
            const run_result r = train(TINY(BF16, DROPOUT, OPTIONS(i), small[k][0], small[k][1], small[k][2]), STEPS);
            assert_same(cases[i].options[3], &base, &r);
        }
        const char *const *changes = CHANGES(BF16, DROPOUT, OPTIONS(i), "memory.disk=20MB");
        const run_result least = train_at(changes, smallest_device(changes));
        assert_same("smallest budget", &base, &least);
        const run_result adam = train(TINY(BF16), 1);
        const double bytes = 14 * (double)base.memory.model_data_bytes / (double)adam.memory.model_data_bytes;
        /* a tensor may end within a group */
        assert_true(fabs(bytes - cases[i].bytes) < (cases[i].bytes == floor(cases[i].bytes) ? 1e-9 : 0.02));
    }
#undef OPTIONS
#undef LION
#undef SGD
}

static void test_same_bits_untied_fp16(void **state)
{
    (void)state;
    const run_result base = train(on_cpu(TINY("fp16.enabled=true", "model.tie_word_embeddings=false")), STEPS);
    const run_result small = train(TINY("fp16.enabled=true", "model.tie_word_embeddings=false", "memory.device=900KB",
                                        "memory.host=200KB", "memory.disk=20MB", "default_chunk_size=4096"),
                                   STEPS);
    assert_same("fp16 in little memory", &base, &small);
}

/* A plan's peaks are those of all steps until they repeat: they may come later than the run's last one, so then it goes
 * on. */
static void assert_peak(const run_result *r, const char *const *changes)
{
    run_result longer;
    if (r->memory.device_peak_bytes == r->memory.planned_device_peak_bytes) return;
    longer = train(tiny_with(changes), MAX_STEPS);
    assert_int_equal(longer.memory.device_peak_bytes, longer.memory.planned_device_peak_bytes);
}

/* Models with values of one row a sequence, three inputs to an operator, groups of heads, windows, tied tables. */
static void test_same_bits_families(void **state)
{
    (void)state;
    static const char *const families[][5] = {
        {"model.type=llama", "model.num_key_value_heads=1", "model.sliding_window=5", "model.tie_word_embeddings=true"},
        {"model.type=qwen3", "model.head_dim=32", "model.head=sequence_classification", "model.num_labels=5"},
        {"model.type=qwen2", "model.max_window_layers=1", "gradient_accumulation_steps=2", "model.sliding_window=3"},
        {"model.type=bert", "model.head=masked_lm", "model.hidden_act=gelu", "model.type_vocab_size=2"},
        {"model.type=bert", "model.head=sequence_classification", "model.num_labels=3", "model.type_vocab_size=3"},
        {"model.type=gpt2", "model.head=sequence_classification", "model.num_labels=4", "model.hidden_act=gelu"},
        {"model.type=bert", "model.head=sequence_classification", "model.num_labels=1", "model.type_vocab_size=3"},
        {"model.type=llama", "model.head=sequence_classification", "model.num_labels=3",
         "model.problem_type=multi_label_classification", "gradient_accumulation_steps=2"},
        {"model.type=gpt2", "model.head=token_classification", "model.num_labels=3", "train.label_smoothing=0.2",
         "train.class_weights=1,0.5,3"},
        {"model.type=bert", "model.head=question_answering", "model.type_vocab_size=2", "model.hidden_act=gelu"},
        {"model.type=qwen2", "model.head=question_answering", "gradient_accumulation_steps=2"},
        {"model.type=gpt2", "train.z_loss=0.001", "train.label_smoothing=0.1"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(families); i++) {
        if (OVER_GPU && !is_my_share()) continue; /* emulated kernels; what budgets change is the same in test/async */
        const char *f[PS_ARRAY_LEN(families[0])];
        for (size_t k = 0; k < PS_ARRAY_LEN(f); k++) f[k] = families[i][k] != NULL ? families[i][k] : "train.seed=7";
#define FAMILY(...) CHANGES(BF16, DROPOUT, f[0], f[1], f[2], f[3], f[4], "model.intermediate_size=100", __VA_ARGS__)
        const run_result base = train(on_cpu(tiny_with(FAMILY("train.seed=7"))), STEPS);
        const char *const *small[] = {
            FAMILY("memory.device=900KB", "memory.host=300KB", "memory.disk=30MB", "default_chunk_size=4096"),
            FAMILY("activation_checkpointing.enabled=true", "memory.device=900KB", "memory.disk=30MB"),
            FAMILY("memory.defer_updates=false", "memory.device=900KB", "memory.host=30MB")};
        for (size_t k = 0; k < PS_ARRAY_LEN(small); k++) {
            const run_result r = train(tiny_with(small[k]), STEPS);
            assert_same(f[0], &base, &r);
            assert_peak(&r, small[k]);
        }
        const char *const *least_changes = FAMILY("memory.disk=30MB");
        const run_result least = train_at(least_changes, smallest_device(least_changes));
        assert_same("smallest budget", &base, &least);
#undef FAMILY
    }
}

static void test_refusal(void **state)
{
    (void)state;
    const char *const *changes = CHANGES(BF16, "memory.disk=20MB", "default_chunk_size=2048");
    const int64_t least = smallest_device(changes);
    ps_config *c = tiny_with(changes);
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)below_named(least));
    assert_ok(ps_config_set(c, "memory.device", text));
    ps_engine *e = NULL;
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    assert_null(e);
    /* the verdict, which operator (of which pass differs between processors, as the scratch of their kernels does), how
     * much it needs, and what would fit */
    assert_memory_equal(ps_last_error(), "Does not fit: ", strlen("Does not fit: "));
    assert_non_null(strstr(ps_last_error(), "ward needs "));
    assert_non_null(strstr(ps_last_error(), "activations and workspace"));
    assert_int_equal(named_bytes(ps_last_error(), "memory.device="), least);
    assert_non_null(strstr(ps_last_error(), "train_micro_batch_size_per_gpu=1"));
    assert_int_equal(ps_mem_live_bytes() > 0, 1); /* the configuration */
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* A disk that is too small: the one that is named fits, and is the least but for rounding. */
static void test_refusal_names_the_least_disk(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, "memory.device=700KB", "memory.disk=100KB", "default_chunk_size=2048");
    ps_engine *e = NULL;
    char text[32];
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    const int64_t least = named_bytes(ps_last_error(), "memory.disk=");
    snprintf(text, sizeof text, "%lld", (long long)below_named(least));
    assert_ok(ps_config_set(c, "memory.disk", text));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    snprintf(text, sizeof text, "%lld", (long long)least);
    assert_ok(ps_config_set(c, "memory.disk", text));
    assert_ok(ps_initialize_engine(ps_model_from_config, c, 0, c, &e));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Predicted peaks and moved bytes are what happens. */
static void test_forecast(void **state)
{
    (void)state;
    static const char *const budgets[][4] = {
        {"memory.device=64MB", "memory.host=0", "memory.disk=0", "memory.prefetch=4"},
        {"memory.device=700KB", "memory.host=0", "memory.disk=20MB", "memory.prefetch=4"},
        {"memory.device=800KB", "memory.host=300KB", "memory.disk=20MB", "memory.prefetch=2"},
        {"memory.device=900KB", "memory.host=4MB", "memory.disk=0", "memory.prefetch=0"},
        {"memory.host=4MB", "zero.tensor_placement_policy=cpu"},
        {"memory.device=750KB", "memory.disk=20MB", OFFLOAD}};
    for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
        const char *const *changes =
            CHANGES(BF16, "default_chunk_size=4096", budgets[i][0], budgets[i][1], budgets[i][2], budgets[i][3]);
        const int n_steps = (int)train(tiny_with(changes), 1).memory.planned_step;
        assert_in_range(n_steps, 2, MAX_STEPS);
        const run_result early = train(tiny_with(changes), n_steps - 1), late = train(tiny_with(changes), n_steps);
        const ps_memory_info *a = &early.memory, *b = &late.memory;
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

/* What segments keep is kept from a forward pass to its backward pass, and no longer. */
static void assert_no_inputs(const ps_engine *e)
{
    const ps_exec_plan *b = e->exec_plan;
    for (int32_t i = 0; i < b->lists.n_standalone; i++)
        assert_int_equal(ps_store_get_chunk(e->tiers.store, ps_store_chunk(b->layout, b->lists.n, i)).copies, 0);
}

/* A row of the output, as often as it is asked for: the losses of all rows' targets add up to that of the batch. */
static void check_row(ps_engine *e, const int32_t *tokens, const int32_t *targets, float loss)
{
    enum { ROWS = 2 * 16, V = 131 };
    float logits[V];
    double sum = 0;
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens};
    for (int64_t row = 0; row < ROWS; row++) {
        double all = 0;
        assert_ok(ps_infer(e, &batch, row, logits));
        for (int v = 0; v < V; v++) all += exp((double)logits[v]);
        sum += log(all) - (double)logits[targets[row]];
    }
    assert_no_inputs(e);
    if (!(fabs(sum / ROWS - (double)loss) < 1e-4)) fail_msg("%g, not %g", sum / ROWS, (double)loss);
    assert_int_equal(ps_infer(e, &batch, PS_ALL_ROWS, logits), PS_EINVAL);
    assert_int_equal(ps_infer(e, &batch, ROWS, logits), PS_EINVAL);
}

static void test_evaluation_disturbs_nothing(void **state)
{
    (void)state;
    enum { B = 2, T = 16 };
    int32_t tokens[B * T], targets[B * T];
    for (int i = 0; i < 4; i++) {
        const int accumulation = 1 + i % 2;
        const char *k = accumulation == 1 ? "gradient_accumulation_steps=1" : "gradient_accumulation_steps=2";
        const char *offload = i < 2 ? "train.seed=7" : "client.opts.with_activation_offload=true";
        const char *checkpointing = i < 2 ? "train.seed=7" : "activation_checkpointing.enabled=true";
        uint64_t hash[2];
        for (int with = 0; with < 2; with++) {
            ps_config *c = TINY(BF16, DROPOUT, k, "memory.device=750KB", "memory.disk=20MB", checkpointing, offload);
            ps_engine *e = engine_of(c);
            float first = 0, again = 0;
            for (int64_t step = 0; step < 3 * accumulation; step++) {
                if (with) {
                    fill_batch(tokens, targets, B, T, 131, 1000);
                    assert_ok(ps_evaluate(
                        e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &first));
                    assert_ok(ps_evaluate(
                        e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &again));
                    assert_memory_equal(&first, &again, sizeof first);
                    assert_no_inputs(e);
                    check_row(e, tokens, targets, first);
                }
                fill_batch(tokens, targets, B, T, 131, step);
                assert_ok(ps_forward(
                    e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
                assert_ok(ps_backward(e));
                assert_int_equal(
                    ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                                &again),
                    PS_ESTATE);
                assert_int_equal(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, 0, &again),
                                 PS_ESTATE);
                assert_ok(ps_step(e));
                assert_no_inputs(e);
            }
            assert_ok(ps_engine_get_weights_xxh3(e, &hash[with]));
            ps_engine_destroy(e);
            ps_config_destroy(c);
        }
        assert_true(hash[0] == hash[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_f32),
        cmocka_unit_test(test_same_bits_bf16),
        cmocka_unit_test(test_same_bits_accumulated),
        cmocka_unit_test(test_same_bits_compact),
        cmocka_unit_test(test_same_bits_compact_split),
        cmocka_unit_test(test_same_bits_bf16_stochastic),
        cmocka_unit_test(test_same_bits_optimizers),
        cmocka_unit_test(test_same_bits_untied_fp16),
        cmocka_unit_test(test_same_bits_families),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_refusal_names_the_least_disk),
        cmocka_unit_test(test_forecast),
        cmocka_unit_test(test_evaluation_disturbs_nothing),
    };
    return RUN_ON_BACKENDS(tests);
}
