/* Parameters that are not trained: they keep their bits, the others get those that they get with trained ones, and
 * memory, moved bytes and time are less by what they would have taken; in any memory, with several ranks, from
 * checkpoint to checkpoint. */
#include <math.h>

#include "checkpoint/checkpoint_fixture.h"
#include "engine/ranks_fixture.h"
#include "train/plan/simulate.h"

enum { STEPS = 4 };

#define BF16 "bf16.enabled=true"
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"
/* tables, the tied one that is the head too, and the lower half; of the upper one a norm, and a weight with its bias left */
#define LOWER "train.freeze=*.w?e.weight,*.h.0.*"
#define MIXED "train.freeze=*.w?e.weight,*.h.0.*,*.h.1.ln_2.*,*.h.1.mlp.c_fc.weight"
#define EARLY "gradient_clipping=0", "train.max_nonfinite_steps=1", "memory.update_in_backward=always"

static work_folder work;

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

/* ---- values and gradients ---------------------------------------------------------------------------------------- */

typedef struct tensors {
    int64_t n, elements[64];
    float *values[64];
} tensors;

/* All values; or all gradients, NULL where there is none. */
static tensors read_tensors(ps_engine *e, bool gradients)
{
    tensors t = {.n = ps_engine_get_tensor_count(e)};
    assert_in_range(t.n, 1, PS_ARRAY_LEN(t.values));
    for (int64_t i = 0; i < t.n; i++) {
        const char *name;
        int n_dims;
        int64_t shape[2];
        assert_ok(get_tensor(e, i, &name, &n_dims, shape));
        t.elements[i] = shape[0] * shape[1];
        t.values[i] = calloc((size_t)t.elements[i], sizeof(float));
        if (!gradients) {
            assert_ok(ps_engine_read_tensor(e, i, 0, t.elements[i], t.values[i]));
        } else if (e->program->params[i].is_frozen) {
            assert_int_equal(ps_engine_read_gradient(e, i, 0, t.elements[i], t.values[i]), PS_EINVAL);
            assert_non_null(strstr(ps_last_error(), "frozen"));
            free(t.values[i]);
            t.values[i] = NULL;
        } else {
            assert_ok(ps_engine_read_gradient(e, i, 0, t.elements[i], t.values[i]));
        }
    }
    return t;
}

static void free_tensors(tensors *t)
{
    for (int64_t i = 0; i < t->n; i++) free(t->values[i]);
}

static bool are_equal(const tensors *a, const tensors *b, int64_t i)
{
    return memcmp(a->values[i], b->values[i], (size_t)a->elements[i] * sizeof(float)) == 0;
}

static void backward_once(ps_engine *e, int64_t step)
{
    int64_t B, T, V;
    ps_engine_get_shape(e, &B, &T, NULL, &V);
    int32_t tokens[64], targets[64];
    assert_in_range(B * T, 1, PS_ARRAY_LEN(tokens));
    fill_batch(tokens, targets, B, T, TINY_VOCABULARY, step);
    for (int64_t b = 0; V != TINY_VOCABULARY && b < B; b++) targets[b] = (int32_t)((tokens[b * T] + b) % V);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
}

static int64_t count_frozen(const ps_engine *e)
{
    int64_t n = 0;
    for (int32_t t = 0; t < e->program->n_params; t++) n += e->program->params[t].is_frozen;
    return n;
}

/* Frozen tensors keep their bits, which are those that they begin with where all is trained, rounded; others change. */
static void check_values(const char *const *changes)
{
    ps_config *c = tiny_with(changes);
    ps_engine *e = engine_of(c);
    tensors before = read_tensors(e, false);
    assert_true(count_frozen(e) > 0);
    for (int s = 0; s < STEPS; s++) {
        backward_once(e, s);
        assert_ok(ps_step(e));
    }
    tensors after = read_tensors(e, false);
    for (int64_t i = 0; i < after.n; i++)
        if (are_equal(&before, &after, i) != e->program->params[i].is_frozen)
            fail_msg("%s has %s", e->program->params[i].name,
                     e->program->params[i].is_frozen ? "changed" : "not changed");
    const ps_dtype dtype = e->settings.dtype;
    assert_ok(ps_config_set(c, "train.freeze", ""));
    ps_engine *all = engine_of(c);
    tensors drawn = read_tensors(all, false);
    for (int64_t i = 0; i < after.n; i++)
        for (int64_t k = 0; e->program->params[i].is_frozen && k < after.elements[i]; k++) {
            char rounded[4];
            ps_dtype_store(dtype, rounded, 0, drawn.values[i][k]);
            assert_true(ps_dtype_load(dtype, rounded, 0) == after.values[i][k]);
        }
    free_tensors(&before);
    free_tensors(&after);
    free_tensors(&drawn);
    ps_engine_destroy(all);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_values_stay(void **state)
{
    (void)state;
    check_values(CHANGES(LOWER));
    check_values(CHANGES(MIXED, BF16));
    check_values(CHANGES(MIXED, "fp16.enabled=true"));
    check_values(CHANGES(MIXED, BF16, "memory.device=700KB", "memory.host=300KB", "memory.disk=20MB",
                         "default_chunk_size=4096"));
}

/* In the first step weights are the same: what is trained has the gradients that it has where all is. */
static void check_gradients(const char *const *changes, const char *freeze)
{
    ps_config *c = tiny_with(changes);
    ps_engine *all = engine_of(c);
    assert_ok(ps_config_set(c, "train.freeze", freeze));
    ps_engine *e = engine_of(c);
    backward_once(all, 0);
    backward_once(e, 0);
    tensors want = read_tensors(all, true), have = read_tensors(e, true);
    assert_true(count_frozen(e) > 0);
    for (int64_t i = 0; i < have.n; i++)
        if (have.values[i] != NULL && !are_equal(&want, &have, i))
            fail_msg("%s: freezing %s changes its gradient", e->program->params[i].name, freeze);
    free_tensors(&want);
    free_tensors(&have);
    assert_ok(ps_step(all));
    assert_ok(ps_step(e));
    ps_engine_destroy(all);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_gradients(void **state)
{
    (void)state;
    static const struct {
        const char *options[4], *freeze[5];
    } families[] = {
        {{"model.type=gpt2", "model.tie_word_embeddings=true", "train.seed=7", "train.seed=7"},
         {"*w?e*,*.h.0.*", "*weight", "*bias", "*ln_*,*.c_attn.*", "*.wte.weight"}},
        {{"model.type=gpt2", "model.tie_word_embeddings=false", "train.seed=7", "model.hidden_act=gelu"},
         {"transformer.*", "lm_head.weight", "*.h.1.*", "*.mlp.*,*.wpe.*", "*.h.?.attn.*,lm_head.*"}},
        {{"model.type=llama", "model.num_key_value_heads=1", "model.sliding_window=5",
          "model.tie_word_embeddings=true"},
         {"*embed_tokens*,*layers.0.*", "*norm*", "*q_proj*,*k_proj*", "*up_proj*", "*layers.0.*,*v_proj*"}},
        {{"model.type=qwen3", "model.head_dim=32", "model.head=sequence_classification", "model.num_labels=5"},
         {"model.*", "*q_norm*", "*k_norm*,*embed*", "*layers.0*,*embed*,*layers.1.*q_proj*", "score.*"}},
        {{"model.type=bert", "model.head=masked_lm", "model.hidden_act=gelu", "model.type_vocab_size=2"},
         {"bert.*", "*embeddings.*", "*LayerNorm*", "*layer.0.*,*embeddings*", "cls.*"}},
        {{"model.type=bert", "model.head=sequence_classification", "model.num_labels=3", "model.type_vocab_size=3"},
         {"bert.*", "*embeddings.*,*layer.0*", "*pooler*", "classifier.*", "*bias"}},
    };
    static const char *const ways[] = {"bf16.enabled=false", BF16, "activation_checkpointing.enabled=true"};
    for (size_t i = 0; i < PS_ARRAY_LEN(families); i++)
        for (size_t f = 0; f < PS_ARRAY_LEN(families[i].freeze); f++)
            for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
                const char *const *o = families[i].options;
                if (!is_my_share()) continue;
                check_gradients(CHANGES("model.intermediate_size=100", o[0], o[1], o[2], o[3], ways[w]),
                                families[i].freeze[f]);
            }
}

/* ---- same bits --------------------------------------------------------------------------------------------------- */

static run_result train_at(const char *const *changes, int64_t device_bytes)
{
    ps_config *c = tiny_with(changes);
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)device_bytes);
    assert_ok(ps_config_set(c, "memory.device", text));
    return train(c, STEPS);
}

static void vary_memory(const char *format, const char *more, const char *freeze)
{
    const run_result base = train(on_cpu(TINY(format, more, DROPOUT, freeze)), STEPS);
    assert_true(base.losses[STEPS - 1] < base.losses[0] + 0.5f && base.losses[0] > 1 && base.norms[0] > 0);
#define SAME(what, ...)                                                                                                \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        const run_result r_ = train(TINY(format, more, DROPOUT, freeze, __VA_ARGS__), STEPS);                          \
        assert_same(what, &base, &r_);                                                                                 \
    } while (0)
    SAME("small chunks", "default_chunk_size=2048");
    SAME("large chunks", "default_chunk_size=262144");
    SAME("checkpointing", "activation_checkpointing.enabled=true");
    SAME("one segment", "activation_checkpointing.enabled=true", "activation_checkpointing.number_checkpoints=1");
    SAME("inputs on disk", OFFLOAD, "memory.device=450KB", "memory.host=100KB", "memory.disk=20MB",
         "default_chunk_size=2048");
    SAME("host tier", "memory.device=450KB", "memory.host=4MB", "default_chunk_size=2048");
    SAME("disk tier", "memory.device=450KB", "memory.disk=20MB", "default_chunk_size=2048");
    SAME("three tiers", "memory.device=450KB", "memory.host=100KB", "memory.disk=20MB", "default_chunk_size=4096");
    SAME("no prefetch", "memory.device=650KB", "memory.host=100KB", "memory.disk=20MB", "memory.prefetch=0");
    SAME("placement cpu", "memory.host=4MB", "zero.tensor_placement_policy=cpu");
    SAME("embedding on host", "memory.host=4MB", "use_cpu_embedding=true");
    SAME("Adam on host", "memory.host=4MB", "optimizer.params.use_hybrid_adam=false");
    SAME("updates at once", "memory.device=650KB", "memory.disk=20MB", "memory.defer_updates=false");
#undef SAME
    static const char *const tiers[][2] = {{"memory.disk=20MB", "memory.prefetch=4"},
                                           {"memory.host=4MB", "memory.prefetch=4"},
                                           {"memory.disk=20MB", "activation_checkpointing.enabled=true"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(tiers); i++) {
        const char *const *changes = CHANGES(format, more, DROPOUT, freeze, tiers[i][0], tiers[i][1]);
        if (!is_my_share()) continue;
        const int64_t least = smallest_device(changes);
        const run_result r = train_at(changes, least);
        assert_same("smallest budget", &base, &r);
        assert_true(r.memory.device_peak_bytes <= least);
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    vary_memory("bf16.enabled=false", "train.seed=7", LOWER);
    vary_memory(BF16, "train.seed=7", MIXED);
}

static void test_same_bits_accumulated(void **state)
{
    (void)state;
    vary_memory(BF16, "gradient_accumulation_steps=3", LOWER);
    vary_memory("fp16.enabled=true", "zero.reuse_fp16_shard=false", MIXED);
}

static void test_same_bits_early(void **state)
{
    (void)state;
    const run_result base =
        train(on_cpu(TINY(BF16, DROPOUT, MIXED, "gradient_clipping=0", "train.max_nonfinite_steps=1")), STEPS);
    static const char *const small[][3] = {
        {"memory.device=900KB", "memory.host=300KB", "memory.disk=20MB"},
        {"memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048"},
        {"memory.host=4MB", "activation_checkpointing.enabled=true", "train.seed=7"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(small); i++) {
        const run_result r = train(TINY(BF16, DROPOUT, MIXED, EARLY, small[i][0], small[i][1], small[i][2]), STEPS);
        assert_same("updates in backward", &base, &r);
    }
}

/* ---- savings ----------------------------------------------------------------------------------------------------- */

/* Peaks and moved bytes are those that are predicted. */
static void test_forecast(void **state)
{
    (void)state;
    static const char *const budgets[][3] = {{"memory.host=0", "memory.disk=0", "memory.prefetch=4"},
                                             {"memory.host=0", "memory.disk=20MB", "memory.prefetch=4"},
                                             {"memory.host=100KB", "memory.disk=20MB", "gradient_accumulation_steps=2"},
                                             {"memory.host=4MB", "memory.disk=0", "memory.prefetch=0"},
                                             {"memory.disk=20MB", OFFLOAD}};
    for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
        const char *const *roomy =
            CHANGES(BF16, MIXED, "default_chunk_size=4096", budgets[i][0], budgets[i][1], budgets[i][2]);
        char device[48]; /* all in memory; then little more than must be there */
        snprintf(device, sizeof device, "memory.device=%lld",
                 (long long)(i == 0 ? 64 * PS_MIB : smallest_device(roomy) + 4096));
        const char *const *changes =
            CHANGES(device, BF16, MIXED, "default_chunk_size=4096", budgets[i][0], budgets[i][1], budgets[i][2]);
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

/* Frozen tables and lower half: less memory, fewer bytes moved, a shorter step, in the plan and in the run. */
static void test_savings(void **state)
{
    (void)state;
    static const char *const budgets[][2] = {{"memory.device=64MB", "memory.disk=0"},
                                             {"memory.device=900KB", "memory.disk=20MB"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
        const char *const *all = CHANGES(BF16, "default_chunk_size=2048", "model.n_layer=4", "model.vocab_size=131",
                                         "memory.keep_logits=never", budgets[i][0], budgets[i][1]);
        const char *const *some =
            CHANGES(BF16, "default_chunk_size=2048", "model.n_layer=4", "train.freeze=*.w?e.weight,*.h.[01].*",
                    "memory.keep_logits=never", budgets[i][0], budgets[i][1]);
        ps_simulation plan_all, plan_some;
        ps_config *c = on_cpu(tiny_with(all)), *d = on_cpu(tiny_with(some));
        assert_ok(ps_simulate(c, NULL, false, NULL, &plan_all));
        assert_ok(ps_simulate(d, NULL, false, NULL, &plan_some));
        const ps_memory_info a = train(c, STEPS).memory, b = train(d, STEPS).memory;
        const int64_t frozen = b.parameters - b.trained_parameters;
        assert_int_equal(a.trained_parameters, a.parameters);
        assert_int_equal(a.parameters, b.parameters);
        assert_in_range(frozen, b.parameters / 2, b.parameters * 3 / 4);
        /* master and two states of 4 bytes each */
        assert_int_equal(b.model_data_bytes, a.model_data_bytes - 12 * frozen);
        assert_int_equal(plan_some.model_data_bytes, b.model_data_bytes);
        assert_int_equal(plan_some.frozen_saves_bytes, 12 * frozen);
        assert_int_equal(plan_some.n_trained_params, b.trained_parameters);
        /* activations of the lower half are not kept */
        assert_true(b.non_model_peak_bytes * 4 < a.non_model_peak_bytes * 3);
        assert_true(plan_some.step_flops < 0.68 * plan_all.step_flops);
        assert_true(plan_some.forecast.step.all_ns < plan_all.forecast.step.all_ns);
        assert_int_equal(a.device_peak_bytes, plan_all.forecast.peak_bytes[PS_TIER_DEVICE]);
        assert_int_equal(b.device_peak_bytes, plan_some.forecast.peak_bytes[PS_TIER_DEVICE]);
        if (i == 0) assert_true(a.device_peak_bytes - b.device_peak_bytes >= 12 * frozen);
        if (i == 1) assert_true(b.disk_peak_bytes < a.disk_peak_bytes - 8 * frozen);
        /* of 900 KB kernels of some instruction sets take more */
        if (i == 1) assert_true(b.planned_moved_bytes * 5 < a.planned_moved_bytes * 3);
    }
}

/* Nothing goes backward below the first trained parameter, and nothing is run again there. */
static void test_no_backward_below(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, LOWER, "activation_checkpointing.enabled=true");
    ps_engine *e = engine_of(c);
    const ps_code *p = e->exec_plan->code;
    int n_upper = 0;
    for (int32_t m = p->n_forward; m < p->n_instrs; m++) {
        if (strstr(p->instrs[m].label, "h.0.") != NULL || strstr(p->instrs[m].label, "wte") != NULL ||
            strstr(p->instrs[m].label, "wpe") != NULL)
            fail_msg("%s", p->instrs[m].label);
        n_upper += strstr(p->instrs[m].label, "h.1.") != NULL;
    }
    assert_true(n_upper > 10);
    const ps_layout *l = e->exec_plan->layout;
    assert_true(0 < l->n_mirrored && l->n_mirrored < l->n_chunks);
    for (ps_list list = PS_LIST_MASTER; list < e->exec_plan->lists.n; list++)
        assert_false(ps_exec_plan_has_chunk(e->exec_plan, list, l->n_mirrored));
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

static void test_ranks(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 3; n++) {
        const rank_result base = RANKS(n, STEPS, FOR_BITS, BF16, MIXED)->result;
        static const char *const other[][3] = {
            {"memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048"},
            {"memory.device=900KB", "memory.host=4MB", "activation_checkpointing.enabled=true"},
            {"memory.device=900KB", "memory.disk=20MB", MSC},
            {"memory.device=900KB", "memory.host=4MB", "memory.defer_updates=false"}};
        for (size_t i = 0; i < PS_ARRAY_LEN(other); i++) {
            const rank_result *r = &RANKS(n, STEPS, BF16, MIXED, other[i][0], other[i][1], other[i][2])->result;
            assert_true(r->hash == base.hash);
            assert_memory_equal(r->losses, base.losses, sizeof r->losses);
            assert_memory_equal(r->norms, base.norms, sizeof r->norms);
        }
        /* frozen gradients are not sent */
        const int64_t all = RANKS(n, 2, BF16, "default_chunk_size=2048")->result.sent_bytes;
        assert_true(RANKS(n, 2, BF16, LOWER, "default_chunk_size=2048")->result.sent_bytes < all * 3 / 4);
    }
    const rank_result separate = RANKS(2, STEPS, FOR_BITS, BF16, MIXED, "gradient_accumulation_steps=2")->result;
    const rank_result *small =
        &RANKS(2, STEPS, BF16, MIXED, "gradient_accumulation_steps=2", "memory.device=900KB", "memory.disk=20MB")
             ->result;
    assert_true(small->hash == separate.hash);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

#define SMALL "memory.device=700KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096"

/* Saved after two steps, at once or while training runs, and resumed in other memory. */
static void check_resume(const char *const *saving, const char *const *resuming, bool at_once)
{
    float losses[STEPS], again[STEPS];
    ps_config *c = tiny_with(saving), *d = tiny_with(resuming);
    ps_engine *e = engine_of(c);
    work = work_make();
    train_steps(e, 0, 2, losses);
    if (at_once)
        assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    else
        assert_ok(ps_engine_begin_checkpoint(e, work.path, NULL));
    train_steps(e, 2, STEPS, losses);
    if (!at_once) assert_ok(ps_engine_finish_checkpoint(e, NULL));
    ps_engine *f = engine_of(d);
    tensors before = read_tensors(f, false);
    for (int64_t i = 0; i < before.n; i++) {
        before.values[i][0] += 1; /* what is there is replaced */
        assert_ok(ps_engine_write_tensor(f, i, 0, 1, before.values[i]));
    }
    assert_ok(ps_engine_load_checkpoint(f, work.path, NULL));
    train_steps(f, 2, STEPS, again);
    assert_memory_equal(losses + 2, again + 2, 2 * sizeof losses[0]);
    assert_true(hash_of(e) == hash_of(f));
    free_tensors(&before);
    ps_engine_destroy(e);
    ps_engine_destroy(f);
    ps_config_destroy(c);
    ps_config_destroy(d);
    work_remove(work.path);
}

static void test_resume(void **state)
{
    (void)state;
    for (int at_once = 0; at_once < 2; at_once++) {
        check_resume(CHANGES(BF16, MIXED), CHANGES(BF16, MIXED, SMALL), at_once);
        check_resume(CHANGES(BF16, MIXED, SMALL), CHANGES(BF16, MIXED), at_once);
        check_resume(CHANGES(LOWER, SMALL, "train.save_interval=1"), CHANGES(LOWER), at_once);
        check_resume(CHANGES(BF16, LOWER, "memory.host=4MB", "use_cpu_embedding=true"), CHANGES(BF16, LOWER), at_once);
    }
}

/* Weights as a file, of frozen parameters too: written, read by an engine that has drawn its own, and by one that begins with
 * them. */
static void test_weights_files(void **state)
{
    (void)state;
    work = work_make();
    const work_path path = work_file(work.path, "weights.safetensors");
    char init[300];
    snprintf(init, sizeof init, "train.init_from=%s", path.text);
    ps_config *c = TINY(BF16, MIXED, SMALL), *d = TINY(BF16, MIXED, "train.seed=8"), *b = TINY(BF16, MIXED, init);
    ps_engine *e = engine_of(c), *f = engine_of(d), *g;
    float losses[STEPS], again[STEPS];
    train_steps(e, 0, 2, losses);
    assert_ok(ps_engine_save_weights(e, path.text));
    assert_true(hash_of(e) != hash_of(f));
    assert_ok(ps_engine_load_pretrained(f, path.text, 0, NULL));
    assert_true(hash_of(e) == hash_of(f));
    g = engine_of(b);
    assert_true(hash_of(e) == hash_of(g));
    train_steps(f, 0, 2, losses);
    train_steps(g, 0, 2, again);
    assert_memory_equal(losses, again, 2 * sizeof losses[0]);
    ps_engine_destroy(e);
    ps_engine_destroy(f);
    ps_engine_destroy(g);
    ps_config_destroy(b);
    ps_config_destroy(c);
    ps_config_destroy(d);
    work_remove(work.path);
}

/* What is saved moves no byte more, and is complete when the next step is. */
static void test_saving_moves_nothing(void **state)
{
    (void)state;
    int64_t moved[2];
    work = work_make();
    for (int saves = 0; saves < 2; saves++) {
        float losses[STEPS];
        ps_config *c = TINY(BF16, MIXED, SMALL, "train.save_interval=1");
        ps_engine *e = engine_of(c);
        ps_memory_info m = {.struct_size = sizeof m};
        train_steps(e, 0, 2, losses);
        if (saves) assert_ok(ps_engine_begin_checkpoint(e, work.path, NULL));
        train_steps(e, 2, 4, losses);
        assert_false(ps_snapshot_is_under_way(ps_runner_snapshot(e->runner)));
        ps_engine_get_memory_info(e, &m);
        moved[saves] = m.host_to_device_bytes + m.device_to_host_bytes + m.disk_read_bytes + m.disk_write_bytes;
        if (saves) assert_ok(ps_engine_finish_checkpoint(e, NULL));
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_int_equal(moved[0], moved[1]);
    work_remove(work.path);
}

/* Other parameters may not be frozen than were. */
static void test_resume_of_others(void **state)
{
    (void)state;
    static const char *const freeze[] = {LOWER, "train.freeze=*.w?e.weight", "train.freeze="};
    for (int saved = 0; saved < 3; saved++) {
        float losses[STEPS];
        ps_config *c = TINY(BF16, freeze[saved]);
        ps_engine *e = engine_of(c);
        work = work_make();
        train_steps(e, 0, 1, losses);
        assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
        ps_engine_destroy(e);
        ps_config_destroy(c);
        for (int now = 0; now < 3; now++) {
            c = TINY(BF16, freeze[now]);
            e = engine_of(c);
            const ps_status st = ps_engine_load_checkpoint(e, work.path, NULL);
            assert_int_equal(st, now == saved ? PS_OK : PS_EINVAL);
            if (st != PS_OK) {
                assert_non_null(strstr(ps_last_error(), saved < now ? "was frozen when it was saved, and is trained now"
                                                                    : "was trained when it was saved, and is frozen"));
                assert_non_null(strstr(ps_last_error(), "train.init_from"));
                train_steps(e, 0, 1, losses); /* nothing was changed */
            }
            ps_engine_destroy(e);
            ps_config_destroy(c);
        }
        work_remove(work.path);
    }
}

/* Saved by two ranks, resumed by one with as many micro-batches, and by three chunks sizes. */
static ps_status rank_save(ps_engine *e, ps_config *c, rank_task *t)
{
    PS_TRY(rank_train(e, c, t));
    return ps_engine_save_checkpoint(e, work.path, NULL, NULL);
}

static ps_status rank_load(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c, (void)t;
    return ps_engine_load_checkpoint(e, work.path, NULL);
}

static void test_resume_on_ranks(void **state)
{
    (void)state;
    work = work_make();
    const uint64_t hash = run_ranks(2, 2, rank_save, CHANGES(BF16, MIXED, "default_chunk_size=2048"))->result.hash;
    assert_true(run_ranks(2, 2, rank_load, CHANGES(BF16, MIXED, "default_chunk_size=4096"))->result.hash == hash);
    ps_config *c = TINY(BF16, MIXED, "gradient_accumulation_steps=2");
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    assert_true(hash_of(e) == hash);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    work_remove(work.path);
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static void assert_refused(const char *freeze, const char *said)
{
    ps_config *c = TINY(BF16);
    ps_engine *e = NULL;
    assert_ok(ps_config_set(c, "train.freeze", freeze));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
    if (strstr(ps_last_error(), said) == NULL) fail_msg("no \"%s\" in: %s", said, ps_last_error());
    ps_config_destroy(c);
}

static void test_refused_patterns(void **state)
{
    (void)state;
    assert_refused("*", "nothing is left to train");
    assert_refused("*.w?e.weight,h.0.*", "'h.0.*' matches none of the model's");
    assert_refused("h.0.*", "'*h.0.*' would match transformer.h.0.");
    assert_refused("transformer.wte", "'transformer.wte*' would match transformer.wte.weight");
    assert_refused("transformer.wte.wieght", "did you mean 'transformer.wte.weight'?");
    assert_refused("xyz", "transformer.wte.weight");
}

/* Some by the function, some by the configuration. */
static ps_status model_half(ps_builder *b, void *user)
{
    const bool *tied = user;
    ps_set_trainable(b, 0);
    ps_value x = ps_token_embedding(b, "table", TINY_VOCABULARY, 32);
    x = ps_linear(b, x, "below", 32, 1);
    ps_set_trainable(b, 1);
    ps_value y = ps_linear(b, x, "middle", 32, 1);
    y = ps_layer_norm(b, ps_add(b, x, y), "norm", 1e-5f);
    ps_cross_entropy(b, y, *tied ? "table.weight" : "head.weight", NULL, TINY_VOCABULARY, NULL);
    return PS_OK;
}

static void test_builder(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        bool user = tied;
        ps_config *c = TINY(BF16, "train.freeze=norm.bias", "memory.device=600KB", "memory.disk=20MB");
        ps_engine *e = NULL;
        assert_ok(ps_initialize_engine(model_half, &user, 0, c, &e));
        assert_int_equal(count_frozen(e), 4); /* table, below with its bias, the norm's bias */
        tensors before = read_tensors(e, false);
        for (int s = 0; s < STEPS; s++) {
            backward_once(e, s);
            assert_ok(ps_step(e));
        }
        tensors after = read_tensors(e, false);
        for (int64_t i = 0; i < after.n; i++)
            assert_true(are_equal(&before, &after, i) == e->program->params[i].is_frozen);
        free_tensors(&before);
        free_tensors(&after);
        ps_memory_info m = {.struct_size = sizeof m};
        ps_engine_get_memory_info(e, &m);
        assert_int_equal(m.trained_parameters, 32 * 32 + 32 + 32 + (tied ? 0 : 32 * TINY_VOCABULARY));
        /* in another shape the same must be frozen */
        assert_ok(ps_engine_set_shape(e, model_half, &user, 1, 8));
        backward_once(e, 0);
        assert_ok(ps_step(e));
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
}

/* For inference nothing is frozen: there is nothing to leave out. */
static void test_inference(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, LOWER);
    ps_engine *e = NULL;
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    assert_int_equal(count_frozen(e), 0);
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(e, &m);
    assert_int_equal(m.trained_parameters, 0);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_stay),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_accumulated),
        cmocka_unit_test(test_same_bits_early),
        cmocka_unit_test(test_forecast),
        cmocka_unit_test(test_savings),
        cmocka_unit_test(test_no_backward_below),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_weights_files),
        cmocka_unit_test(test_saving_moves_nothing),
        cmocka_unit_test(test_resume_of_others),
        cmocka_unit_test(test_resume_on_ranks),
        cmocka_unit_test(test_refused_patterns),
        cmocka_unit_test(test_builder),
        cmocka_unit_test(test_inference),
    };
    return RUN_ON_BACKENDS(tests);
}
