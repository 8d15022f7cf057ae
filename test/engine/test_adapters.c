/* Low-rank adapters of linear layers: the formula and its gradients in double; the same bits in any memory, with several
 * ranks, from checkpoint to checkpoint, which have no more than what is trained; what is refused. peft's numbers are in
 * test_golden.c. */
#include <math.h>

#include "checkpoint/checkpoint_fixture.h"
#include "engine/ranks_fixture.h"
#include "train/plan/simulate.h"

enum { STEPS = 4 };

#define BF16 "bf16.enabled=true"
#define LORA                                                                                                           \
    "lora.r=3", "lora.lora_alpha=12", "lora.lora_dropout=0.1", "model.resid_pdrop=0.1", "optimizer.params.lr=0.01"
#define SOME                                                                                                           \
    "lora.r=4", "lora.target_modules=h.1.attn.c_attn,c_fc", "lora.rank_pattern=c_fc=2", "lora.use_rslora=true",        \
        "lora.init_lora_weights=gaussian", "lora.modules_to_save=h.1.ln_2,ln_f", "optimizer.params.lr=0.01"
#define EARLY "gradient_clipping=0", "train.max_nonfinite_steps=1", "memory.update_in_backward=always"

static work_folder work;

/* ---- the formula ------------------------------------------------------------------------------------------------- */

enum { V = 7, IN = 5, OUT = 6, R = 2, ROWS = 2 * 4 };

typedef struct formula {
    bool is_conv1d;
    double scale;
} formula;

static ps_status adapted_model(ps_builder *b, void *user)
{
    const formula *f = user;
    const ps_adapter adapter = {.struct_size = sizeof adapter, .r = R, .scale = f->scale};
    ps_set_initializer_range(b, 0.5);
    ps_value x = ps_token_embedding(b, "e", V, IN);
    ps_set_adapter(b, &adapter);
    x = (f->is_conv1d ? ps_conv1d : ps_linear)(b, x, "w", OUT, 1);
    ps_set_adapter(b, NULL);
    ps_cross_entropy(b, x, "h", NULL, V, NULL);
    return PS_OK;
}

static int64_t tensor_of(const ps_engine *e, const char *name)
{
    for (int32_t t = 0; t < e->program->n_params; t++)
        if (strcmp(e->program->params[t].name, name) == 0) return t;
    fail_msg("no %s", name);
    return -1;
}

static int64_t read_named(ps_engine *e, const char *name, bool gradient, float *out)
{
    const int64_t t = tensor_of(e, name), n = e->program->params[t].elements;
    assert_ok(gradient ? ps_engine_read_gradient(e, t, 0, n, out) : ps_engine_read_tensor(e, t, 0, n, out));
    return n;
}

static void compare_gradient(ps_engine *e, const char *name, const double *want)
{
    float have[64];
    const int64_t n = read_named(e, name, true, have);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)have[i] - want[i]) <= 1e-6)) /* of numbers up to 1, rounded a few times */
            fail_msg("gradient %lld of %s: %g, not %g", (long long)i, name, (double)have[i], want[i]);
}

/* Plain loops over y = W x + b + s B (A x), and what follows for the gradients of A, B and the table of x. */
static void check_formula(formula f)
{
    float e_[V * IN], w[OUT * IN], bias[OUT], a[R * IN], b[OUT * R], h[V * OUT], loss;
    double de[V * IN] = {0}, da[R * IN] = {0}, db[OUT * R] = {0}, want = 0;
    const int32_t tokens[ROWS] = {0, 3, 6, 3, 1, 2, 5, 0}, targets[ROWS] = {1, 2, 3, 4, 5, 6, 0, 1};
    ps_config *c = TINY("data.sequence_length=4");
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(adapted_model, &f, 0, c, &e));
    const int64_t t_b = tensor_of(e, "w.lora_B.weight");
    for (int i = 0; i < OUT * R; i++) b[i] = (float)(i % 5 - 2) * 0.25f;
    assert_ok(ps_engine_write_tensor(e, t_b, 0, OUT * R, b));
    for (int i = 0; i < OUT; i++) bias[i] = (float)(i % 3 - 1) * 0.5f;
    assert_ok(ps_engine_write_tensor(e, tensor_of(e, "w.bias"), 0, OUT, bias));
    (void)read_named(e, "e.weight", false, e_), (void)read_named(e, "w.weight", false, w);
    (void)read_named(e, "w.lora_A.weight", false, a), (void)read_named(e, "h", false, h);
    for (int i = 0; i < R * IN; i++) assert_true(fabs((double)a[i]) <= 1 / sqrt(IN) && a[i] != 0.0f);
    for (int t = 0; t < ROWS; t++) {
        double y[OUT], low[R] = {0}, logit[V], sum = 0, dy[OUT] = {0}, dlow[R] = {0};
        const float *x = e_ + tokens[t] * IN;
        for (int r = 0; r < R; r++)
            for (int i = 0; i < IN; i++) low[r] += (double)a[r * IN + i] * (double)x[i];
        for (int o = 0; o < OUT; o++) {
            y[o] = (double)bias[o];
            for (int i = 0; i < IN; i++) y[o] += (double)x[i] * (double)(f.is_conv1d ? w[i * OUT + o] : w[o * IN + i]);
            for (int r = 0; r < R; r++) y[o] += f.scale * (double)b[o * R + r] * low[r];
        }
        for (int v = 0; v < V; v++) {
            logit[v] = 0;
            for (int o = 0; o < OUT; o++) logit[v] += (double)h[v * OUT + o] * y[o];
            sum += exp(logit[v]);
        }
        want += (log(sum) - logit[targets[t]]) / ROWS;
        for (int v = 0; v < V; v++)
            for (int o = 0; o < OUT; o++)
                dy[o] += (exp(logit[v]) / sum - (v == targets[t])) / ROWS * (double)h[v * OUT + o];
        for (int r = 0; r < R; r++)
            for (int o = 0; o < OUT; o++) {
                dlow[r] += f.scale * dy[o] * (double)b[o * R + r];
                db[o * R + r] += f.scale * dy[o] * low[r];
            }
        for (int i = 0; i < IN; i++) {
            for (int r = 0; r < R; r++) {
                da[r * IN + i] += dlow[r] * (double)x[i];
                de[tokens[t] * IN + i] += dlow[r] * (double)a[r * IN + i];
            }
            for (int o = 0; o < OUT; o++)
                de[tokens[t] * IN + i] += dy[o] * (double)(f.is_conv1d ? w[i * OUT + o] : w[o * IN + i]);
        }
    }
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    assert_ok(ps_forward(e, &batch, &loss));
    assert_true(fabs((double)loss - want) < 1e-6);
    assert_ok(ps_backward(e));
    compare_gradient(e, "w.lora_A.weight", da);
    compare_gradient(e, "w.lora_B.weight", db);
    compare_gradient(e, "e.weight", de);
    assert_int_equal(ps_engine_read_gradient(e, tensor_of(e, "w.weight"), 0, 1, w), PS_EINVAL);
    assert_int_equal(ps_engine_read_gradient(e, tensor_of(e, "w.bias"), 0, 1, w), PS_EINVAL);
    assert_ok(ps_step(e));
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_formula(void **state)
{
    (void)state;
    check_formula((formula){.scale = 1.5});
    check_formula((formula){.scale = 1});
    check_formula((formula){.scale = 0.75, .is_conv1d = true});
}

/* ---- what is trained --------------------------------------------------------------------------------------------- */

/* B begins at 0, so that the model is its base; then A, B and what is saved change, and nothing else. */
static void check_trained(const char *const *changes, const char *saved)
{
    ps_config *c = tiny_with(changes);
    ps_engine *e = engine_of(c);
    float before[64][8], after[8], losses[STEPS];
    assert_in_range(e->program->n_params, 1, PS_ARRAY_LEN(before));
    for (int32_t t = 0; t < e->program->n_params; t++) assert_ok(ps_engine_read_tensor(e, t, 0, 8, before[t]));
    train_steps(e, 0, STEPS, losses);
    for (int32_t t = 0; t < e->program->n_params; t++) {
        const char *const name = e->program->params[t].name;
        const bool is_adapter = strstr(name, ".lora_") != NULL, is_saved = saved != NULL && strstr(name, saved) != NULL;
        assert_ok(ps_engine_read_tensor(e, t, 0, 8, after));
        if (strstr(name, ".lora_B") != NULL && before[t][0] != 0.0f)
            fail_msg("%s begins with %g", name, (double)before[t][0]);
        if ((memcmp(before[t], after, sizeof after) != 0) != (is_adapter || is_saved))
            fail_msg("%s has %schanged", name, is_adapter || is_saved ? "not " : "");
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_trained(void **state)
{
    (void)state;
    check_trained(CHANGES(LORA), NULL);
    check_trained(CHANGES(LORA, "lora.modules_to_save=h.0.ln_1", BF16), "h.0.ln_1");
    check_trained(CHANGES(LORA, "lora.modules_to_save=n_f"), "ln_f"); /* the end of a name, as in peft */
    check_trained(CHANGES(LORA, "model.head=sequence_classification", "model.num_labels=3"), "score");
    check_trained(CHANGES(LORA, "model.head=sequence_classification", "lora.modules_to_save=classifier,score"),
                  "score");
}

/* The first loss is that of the base; dropout acts in training alone. */
static void test_begins_as_base(void **state)
{
    (void)state;
    const run_result base = train(TINY("optimizer.params.lr=0.01"), 2);
    const run_result plain = train(TINY("lora.r=3", "optimizer.params.lr=0.01"), 2);
    const run_result dropped = train(TINY("lora.r=3", "lora.dropout=0.5", "optimizer.params.lr=0.01"), 3);
    const run_result kept = train(TINY("lora.r=3", "optimizer.params.lr=0.01"), 3);
    assert_true(plain.losses[0] == base.losses[0] && dropped.losses[0] == base.losses[0]);
    assert_true(plain.losses[1] != base.losses[1]);
    assert_true(dropped.losses[2] != kept.losses[2]);
}

/* ---- same bits --------------------------------------------------------------------------------------------------- */

static void assert_same(const char *what, const run_result *a, const run_result *b)
{
    for (int s = 0; s < STEPS; s++)
        if (memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) != 0 || a->norms[s] != b->norms[s])
            fail_msg("%s: step %d has loss %.9g and norm %g, not %.9g and %g", what, s, (double)b->losses[s],
                     b->norms[s], (double)a->losses[s], a->norms[s]);
    if (a->hash != b->hash) fail_msg("%s: other weights", what);
}

static void vary_memory(const char *format, const char *more, const char *const *lora)
{
#define RUN(...)                                                                                                       \
    train(TINY(format, more, lora[0], lora[1], lora[2], lora[3], lora[4], lora[5], lora[6], __VA_ARGS__), STEPS)
    const run_result base = RUN("train.threads=2");
#define SAME(what, ...)                                                                                                \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        const run_result r_ = RUN(__VA_ARGS__);                                                                        \
        assert_same(what, &base, &r_);                                                                                 \
    } while (0)
    SAME("a thread", "train.threads=1");
    SAME("three threads", "train.threads=3");
    SAME("small chunks", "default_chunk_size=2048");
    SAME("large chunks", "default_chunk_size=262144");
    SAME("checkpointing", "activation_checkpointing.enabled=true");
    SAME("inputs on disk", OFFLOAD, "memory.device=450KB", "memory.host=100KB", "memory.disk=20MB",
         "default_chunk_size=2048");
    SAME("host tier", "memory.device=450KB", "memory.host=4MB", "default_chunk_size=2048");
    SAME("disk tier", "memory.device=450KB", "memory.disk=20MB", "default_chunk_size=2048");
    SAME("three tiers", "memory.device=450KB", "memory.host=100KB", "memory.disk=20MB", "default_chunk_size=4096");
    SAME("placement cpu", "memory.host=4MB", "zero.tensor_placement_policy=cpu");
#undef SAME
#undef RUN
}

#define SEVEN(...) ((const char *const[7]){__VA_ARGS__})

static void test_same_bits(void **state)
{
    (void)state;
    vary_memory("bf16.enabled=false", "train.seed=7", SEVEN(LORA, "train.seed=7", "train.seed=7"));
    vary_memory(BF16, "train.seed=7", SEVEN(SOME));
    vary_memory(BF16, "gradient_accumulation_steps=3", SEVEN(LORA, "train.seed=7", "train.seed=7"));
}

static void test_same_bits_early(void **state)
{
    (void)state;
    const run_result base = train(TINY(BF16, LORA, "gradient_clipping=0", "train.max_nonfinite_steps=1"), STEPS);
    const run_result r =
        train(TINY(BF16, LORA, EARLY, "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048"), STEPS);
    assert_same("updates in backward", &base, &r);
}

static void test_ranks(void **state)
{
    (void)state;
    const rank_result base = RANKS(2, STEPS, FOR_BITS, BF16, LORA)->result;
    const rank_result *r =
        &RANKS(2, STEPS, BF16, LORA, "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048")->result;
    assert_true(r->hash == base.hash);
    assert_memory_equal(r->losses, base.losses, sizeof r->losses);
    /* what is frozen is gathered, but not reduced */
    assert_true(
        r->sent_bytes <
        RANKS(2, STEPS, BF16, "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048")->result.sent_bytes);
}

/* ---- plans and checkpoints --------------------------------------------------------------------------------------- */

static void test_plan(void **state)
{
    (void)state;
    ps_simulation plan;
    ps_config *c = TINY(BF16, "lora.r=4", "default_chunk_size=2048", "memory.device=900KB", "memory.disk=20MB");
    /* layers [48, 144], [48, 48], [48, 192], [192, 48], twice, of rank 4 */
    const int64_t trained = 2 * 4 * (48 + 144 + 48 + 48 + 48 + 192 + 192 + 48);
    assert_ok(ps_simulate(c, NULL, false, NULL, &plan));
    assert_int_equal(plan.n_trained_params, trained);
    assert_int_equal(plan.checkpoint_bytes, 12 * trained);
    const ps_memory_info m = train(c, STEPS).memory;
    assert_int_equal(m.trained_parameters, trained);
    assert_int_equal(m.checkpoint_bytes, plan.checkpoint_bytes);
    assert_int_equal(m.device_peak_bytes, plan.forecast.peak_bytes[PS_TIER_DEVICE]);
    assert_int_equal(m.model_data_bytes, plan.model_data_bytes);
}

#define SMALL "memory.device=700KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096"

static void check_resume(const char *const *saving, const char *const *resuming, bool at_once)
{
    float losses[STEPS], again[STEPS];
    ps_config *c = tiny_with(saving), *d = tiny_with(resuming);
    ps_engine *e = engine_of(c), *f = engine_of(d);
    ps_checkpoint_info info = {.struct_size = sizeof info};
    ps_memory_info m = {.struct_size = sizeof m};
    uint64_t hash[2];
    work = work_make();
    train_steps(e, 0, 2, losses);
    if (at_once)
        assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, &info));
    else
        assert_ok(ps_engine_begin_checkpoint(e, work.path, NULL));
    train_steps(e, 2, STEPS, losses);
    if (!at_once) assert_ok(ps_engine_finish_checkpoint(e, &info));
    ps_engine_get_memory_info(e, &m);
    assert_in_range(info.bytes, m.checkpoint_bytes, m.checkpoint_bytes + 40000); /* headers, and the configuration */
    assert_ok(ps_engine_load_checkpoint(f, work.path, NULL));
    train_steps(f, 2, STEPS, again);
    assert_memory_equal(losses + 2, again + 2, (STEPS - 2) * sizeof *losses);
    assert_ok(ps_engine_get_weights_xxh3(e, &hash[0]));
    assert_ok(ps_engine_get_weights_xxh3(f, &hash[1]));
    assert_true(hash[0] == hash[1]);
    ps_engine_destroy(e);
    ps_engine_destroy(f);
    ps_config_destroy(c);
    ps_config_destroy(d);
}

static ps_status load_into(const char *const *changes)
{
    ps_config *c = tiny_with(changes);
    ps_engine *e = engine_of(c);
    const ps_status st = ps_engine_load_checkpoint(e, work.path, NULL);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return st;
}

/* A checkpoint of another base, or of other adapters, is not resumed; nor one without a base to add them to. */
static void test_resume(void **state)
{
    (void)state;
    ps_engine *e = NULL;
    check_resume(CHANGES(LORA), CHANGES(LORA, SMALL), true);
    work_remove(work.path);
    check_resume(CHANGES(LORA, BF16, SMALL), CHANGES(LORA, BF16), false);
    work_remove(work.path);
    check_resume(CHANGES(SOME, BF16), CHANGES(SOME, BF16, SMALL, "activation_checkpointing.enabled=true"), false);
#define REFUSED(words, ...)                                                                                            \
    do {                                                                                                               \
        assert_int_equal(load_into(CHANGES(__VA_ARGS__)), PS_EINVAL);                                                  \
        if (strstr(ps_last_error(), words) == NULL) fail_msg("%s", ps_last_error());                                   \
    } while (0)
    REFUSED("lora.lora_alpha", SOME, BF16, "lora.lora_alpha=3");
    REFUSED("lora.r", BF16, "optimizer.params.lr=0.01");
    REFUSED("another model", SOME, BF16, "model.layer_norm_epsilon=1e-3");
#undef REFUSED
    ps_config *c = TINY(SOME, BF16);
    e = engine_of(c);
    const float changed = 0.5f;
    assert_ok(ps_engine_write_tensor(e, 0, 5, 1, &changed));
    assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "base"));
    ps_engine_destroy(e);
    const ps_engine_options empty = {.struct_size = sizeof empty, .purpose = PS_FOR_TRAINING, .is_empty = 1};
    assert_ok(ps_initialize_engine_with(ps_model_from_config, c, c, &empty, &e));
    assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_ESTATE);
    assert_ok(ps_engine_begin_weights(e, c, c, NULL));
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    work_remove(work.path);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static ps_status wrong_adapter(ps_builder *b, void *user)
{
    ps_set_adapter(b, user);
    ps_value x = ps_token_embedding(b, "e", V, IN);
    ps_cross_entropy(b, ps_linear(b, x, "w", OUT, 0), "h", NULL, V, NULL);
    return PS_OK;
}

static void refuse(ps_model_func model, void *user, const char *const *changes, const char *words)
{
    ps_engine *e = NULL;
    ps_config *c = tiny_with(changes);
    assert_int_equal(ps_initialize_engine(model, user != NULL ? user : c, 0, c, &e), PS_EINVAL);
    if (strstr(ps_last_error(), words) == NULL) fail_msg("%s", ps_last_error());
    ps_config_destroy(c);
}

static void test_refusals(void **state)
{
    (void)state;
    const ps_adapter right = {.struct_size = sizeof right, .r = 2, .scale = 1};
    ps_adapter a = right;
    a.r = 0, refuse(wrong_adapter, &a, CHANGES("train.seed=7"), "rank 0");
    a = right, a.scale = (double)NAN, refuse(wrong_adapter, &a, CHANGES("train.seed=7"), "scale");
    a = right, a.dropout = 1, refuse(wrong_adapter, &a, CHANGES("train.seed=7"), "dropout");
    a = right, a.struct_size = 4, refuse(wrong_adapter, &a, CHANGES("train.seed=7"), "ps_adapter");
    a = right, refuse(wrong_adapter, &a, CHANGES("lora.r=2"), "leave one of them out");
    refuse(ps_model_from_config, NULL, CHANGES("lora.r=2", "lora.target_modules=c_attn,q_proj"), "'q_proj' names no");
    refuse(ps_model_from_config, NULL, CHANGES("lora.r=2", "lora.target_modules=wte"), "modules_to_save");
    refuse(ps_model_from_config, NULL, CHANGES("lora.r=2", "lora.rank_pattern=wte=3"), "lora.rank_pattern");
    refuse(ps_model_from_config, NULL, CHANGES("lora.r=2", "lora.target_modules=c_fc", "lora.alpha_pattern=c_attn=3"),
           "layer with an adapter");
    refuse(ps_model_from_config, NULL, CHANGES("lora.r=2", "lora.modules_to_save=score"), "names no module");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula),   cmocka_unit_test(test_trained),         cmocka_unit_test(test_begins_as_base),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_same_bits_early), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_plan),      cmocka_unit_test(test_resume),          cmocka_unit_test(test_refusals),
    };
    return RUN_ON_BACKENDS(tests);
}
