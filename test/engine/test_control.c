/* What a program sets while training runs: rates and weight decay of groups of parameters, gradients, the loss scale;
 * the same bits in any memory, with several ranks. test_golden.c holds groups and changed gradients to PyTorch's. */
#include <math.h>

#include "checkpoint/checkpoint_fixture.h"
#include "engine/ranks_fixture.h"

enum { STEPS = 5 };

#define BF16 "bf16.enabled=true"
#define FP16 "fp16.enabled=true"
#define GROUPS                                                                                                         \
    "optimizer.param_groups=[{\"params\": \"*.w?e.weight\", \"lr\": 2e-4},"                                            \
    "{\"params\": [\"*.h.0.*\"], \"weight_decay\": 0.3, \"betas\": [0.8, 0.9]}]"
#define SMALL "memory.device=900KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096"

static ps_step_info step_of(ps_engine *e)
{
    ps_step_info info = {.struct_size = sizeof info};
    ps_engine_get_step_info(e, &info);
    return info;
}

static ps_group_info group_of(const ps_engine *e, int64_t group)
{
    ps_group_info info = {.struct_size = sizeof info};
    assert_ok(ps_engine_get_group_info(e, group, &info));
    return info;
}

static void forward_backward(ps_engine *e, int64_t index)
{
    int64_t B, T;
    int32_t tokens[64], targets[64];
    ps_engine_get_shape(e, &B, &T, NULL, NULL);
    fill_batch(tokens, targets, B, T, TINY_VOCABULARY, index);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
}

static void train_one(ps_engine *e, int64_t index)
{
    forward_backward(e, index);
    assert_ok(ps_step(e));
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static void test_group_info(void **state)
{
    (void)state;
    ps_config *c =
        TINY(GROUPS, "train.freeze=*.wpe.weight", "scheduler.type=linear", "scheduler.params.total_num_steps=10");
    ps_engine *e = engine_of(c);
    assert_int_equal(ps_engine_get_group_count(e), 3);
    const ps_group_info all = group_of(e, 0), tables = group_of(e, 1), lower = group_of(e, 2);
    assert_string_equal(all.params, "");
    assert_string_equal(tables.params, "*.w?e.weight");
    assert_string_equal(lower.params, "*.h.0.*");
    assert_int_equal(tables.n_tensors, 2);
    assert_int_equal(tables.trained_parameters, TINY_VOCABULARY * 48);
    assert_int_equal(lower.n_tensors, 12);
    assert_int_equal(all.n_tensors, 14);
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(e, &m);
    assert_int_equal(all.trained_parameters + tables.trained_parameters + lower.trained_parameters,
                     m.trained_parameters);
    assert_true(all.learning_rate == 1e-3 && tables.learning_rate == 2e-4 && lower.learning_rate == 1e-3);
    assert_true(all.weight_decay == 0.1 && tables.weight_decay == 0.1 && lower.weight_decay == 0.3);
    for (int i = 0; i < 4; i++) train_one(e, i);
    assert_true(fabs(group_of(e, 0).learning_rate - 6e-4) < 1e-12); /* of the next update */
    assert_true(fabs(group_of(e, 1).learning_rate - 1.2e-4) < 1e-12);
    assert_true(fabs(step_of(e).learning_rate - 7e-4) < 1e-12);
    ps_group_info none = {.struct_size = sizeof none};
    assert_int_equal(ps_engine_get_group_info(e, 3, &none), PS_EINVAL);
    assert_int_equal(ps_engine_get_group_info(e, -1, &none), PS_EINVAL);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Groups that say what is said anyway change nothing; those that do not, do. */
static void test_groups_in_any_memory(void **state)
{
    (void)state;
    static const char *const formats[] = {"bf16.enabled=false", BF16, FP16};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        const run_result plain = train(on_cpu(TINY(formats[f])), STEPS);
        const run_result idle =
            train(on_cpu(TINY(formats[f],
                              "optimizer.param_groups=[{\"params\": \"*.h.*\"}, {\"params\": \"*\", \"lr\": 1e-3}]")),
                  STEPS);
        const run_result base = train(on_cpu(TINY(formats[f], GROUPS)), STEPS);
        assert_true(plain.hash == idle.hash);
        assert_true(plain.hash != base.hash);
        static const char *const other[][4] = {{SMALL},
                                               {"memory.device=900KB", "memory.host=4MB", "default_chunk_size=2048",
                                                "optimizer.params.use_hybrid_adam=false"},
                                               {"memory.device=900KB", "memory.disk=20MB",
                                                "activation_checkpointing.enabled=true", "memory.defer_updates=false"}};
        for (size_t i = 0; i < PS_ARRAY_LEN(other); i++) {
            if (!is_my_share()) continue;
            const run_result r =
                train(TINY(formats[f], GROUPS, other[i][0], other[i][1], other[i][2], other[i][3]), STEPS);
            assert_true(r.hash == base.hash);
            assert_memory_equal(r.losses, base.losses, STEPS * sizeof r.losses[0]);
        }
    }
#define LEGAL BF16, GROUPS, "gradient_clipping=0", "train.max_nonfinite_steps=1"
    const run_result late = train(on_cpu(TINY(LEGAL, "memory.update_in_backward=never")), STEPS);
    const run_result early = train(TINY(LEGAL, "memory.update_in_backward=always", SMALL), STEPS);
    assert_true(early.hash == late.hash);
#undef LEGAL
}

/* A rate of its own is what a run with that rate for all has, as far as it goes: without clipping gradients of the first
 * step are the same, and so are the updates of the group. */
static void test_group_rate_acts(void **state)
{
    (void)state;
    ps_config *c = TINY("gradient_clipping=0", GROUPS), *d = TINY("gradient_clipping=0", "optimizer.params.lr=2e-4");
    ps_engine *e = engine_of(c), *f = engine_of(d);
    train_one(e, 0);
    train_one(f, 0);
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        float a[32], b[32];
        assert_ok(ps_engine_read_tensor(e, t, 0, 32, a));
        assert_ok(ps_engine_read_tensor(f, t, 0, 32, b));
        assert_int_equal(memcmp(a, b, sizeof a) == 0, e->program->params[t].group == 1);
    }
    ps_engine_destroy(e);
    ps_engine_destroy(f);
    ps_config_destroy(c);
    ps_config_destroy(d);
}

/* With weight decay of its own a group's biases and norms decay too: with a rate of 1, and gradients of 0. */
static void test_group_decay(void **state)
{
    (void)state;
    ps_config *c = TINY("optimizer.type=SGD", "optimizer.params.betas=[0.9, 0.999]", "optimizer.params.lr=1",
                        "gradient_clipping=0", "optimizer.params.weight_decay=0.5",
                        "optimizer.param_groups=[{\"params\": \"*.h.0.*\", \"weight_decay\": 0.25}, {\"params\": "
                        "\"*.h.1.*\"}]");
    ps_engine *e = engine_of(c);
    float before[32][8], after[8];
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) assert_ok(ps_engine_read_tensor(e, t, 0, 8, before[t]));
    forward_backward(e, 0);
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        static const float zeros[8] = {0};
        assert_ok(ps_engine_write_gradient(e, t, 0, 8, zeros));
    }
    assert_ok(ps_step(e));
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        const ps_param *p = &e->program->params[t];
        const float kept = p->group == 1 ? 0.75f : p->n_dims == 2 ? 0.5f : 1.0f;
        assert_ok(ps_engine_read_tensor(e, t, 0, 8, after));
        for (int i = 0; i < 8; i++)
            if (after[i] != kept * before[t][i])
                fail_msg("%s: %g of %g", p->name, (double)after[i], (double)before[t][i]);
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void assert_refused(const char *const *changes, const char *said)
{
    ps_config *c = NULL;
    ps_engine *e = NULL;
    ps_status st = ps_config_parse(tiny_config, "tiny", &c);
    for (; st == PS_OK && *changes != NULL; changes++) {
        char key[64];
        const char *equals = strchr(*changes, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *changes), *changes);
        st = ps_config_set(c, key, equals + 1);
    }
    if (st == PS_OK) st = ps_config_validate(c);
    if (st == PS_OK) st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
    assert_int_equal(st, PS_EINVAL);
    if (strstr(ps_last_error(), said) == NULL) fail_msg("no \"%s\" in: %s", said, ps_last_error());
    ps_config_destroy(c);
}

static void test_refused_groups(void **state)
{
    (void)state;
#define REFUSED(said, ...) assert_refused(CHANGES(__VA_ARGS__), said)
#define PG "optimizer.param_groups="
    REFUSED("must be an array of objects", PG "{\"params\": \"*\"}");
    REFUSED("must be an array of objects", PG "[1]");
    REFUSED("group 1: it has no params", PG "[{\"lr\": 1}]");
    REFUSED("group 2: params must be a pattern", PG "[{\"params\": \"*.h.*\"}, {\"params\": 3}]");
    REFUSED("group 1: params must be a pattern", PG "[{\"params\": [\"a,b\"]}]");
    REFUSED("group 1: it has 'rate'", PG "[{\"params\": \"*\", \"rate\": 1}]");
    REFUSED("group 1: it has 'use_hybrid_adam'", PG "[{\"params\": \"*\", \"use_hybrid_adam\": true}]");
    REFUSED("group 1: momentum has no effect with optimizer.type AdamW", PG "[{\"params\": \"*\", \"momentum\": 0.9}]");
    REFUSED("group 1: optimizer.params.lr must be a number of at least 0", PG "[{\"params\": \"*\", \"lr\": -1}]");
    REFUSED("group 1: optimizer.params.betas must be", PG "[{\"params\": \"*\", \"betas\": [0.9]}]");
    REFUSED("lr has no effect with scheduler.type WarmupLR", "scheduler.type=WarmupLR",
            PG "[{\"params\": \"*\", \"lr\": 1}]");
    REFUSED("matches none of the model's", PG "[{\"params\": \"h.0.*\"}]");
    REFUSED("group 2 ('*.h.0.*') has no parameter", PG "[{\"params\": \"*.h.*\"}, {\"params\": \"*.h.0.*\"}]");
    REFUSED("momentum must be 0 in all groups, or in none", "optimizer.params.betas=[0.9, 0.999]", "optimizer.type=SGD",
            PG "[{\"params\": \"*.h.*\", \"momentum\": 0.9}]");
    REFUSED("is no JSON array (real number overflow near '1e400')", PG "[{\"params\": \"*\", \"lr\": 1e400}]");
#undef PG
#undef REFUSED
}

/* [] is none, as a file's and as set. */
static void test_no_groups(void **state)
{
    (void)state;
    ps_config *read = NULL, *set = TINY("optimizer.param_groups=[]", "train.freeze=[]");
    assert_ok(ps_config_parse("{\"optimizer\": {\"param_groups\": []}, \"train\": {\"freeze\": []}}", "none", &read));
    assert_string_equal(ps_config_options(set)->optimizer_param_groups, "");
    assert_string_equal(ps_config_options(set)->train_freeze, "");
    assert_string_equal(ps_config_options(read)->optimizer_param_groups, "");
    assert_string_equal(ps_config_options(read)->train_freeze, "");
    ps_engine *e = engine_of(set);
    assert_int_equal(ps_engine_get_group_count(e), 1);
    ps_engine_destroy(e);
    ps_config_destroy(read);
    ps_config_destroy(set);
}

/* ---- set by the program ------------------------------------------------------------------------------------------ */

/* A run whose rates and decay the program sets before each step, as it would be with a configuration that has them. */
static void test_set_learning_rates(void **state)
{
    (void)state;
    static const double lr[STEPS] = {3e-4, 1e-3, 0, 2e-3, 5e-4};
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) { /* all in memory; in little; with a schedule that continues below */
        ps_config *c = i == 1   ? TINY(BF16, GROUPS, SMALL)
                       : i == 2 ? TINY(BF16, GROUPS, "scheduler.type=linear", "scheduler.params.total_num_steps=10")
                                : on_cpu(TINY(BF16, GROUPS));
        ps_engine *e = engine_of(c);
        for (int s = 0; s < STEPS; s++) {
            for (int64_t g = 0; g < 3; g++) assert_ok(ps_engine_set_learning_rate(e, g, lr[s] / (double)(g + 1)));
            assert_ok(ps_engine_set_weight_decay(e, 1, 0.01 * s));
            train_one(e, s);
            assert_true(step_of(e).learning_rate == lr[s]);
            assert_true(group_of(e, 2).learning_rate == lr[s] / 3);
            assert_true(group_of(e, 1).weight_decay == 0.01 * s);
        }
        assert_ok(ps_engine_get_weights_xxh3(e, &hash[i]));
        assert_true(hash[i] == hash[0]);
        /* back to the configuration, where the schedule has got to */
        assert_ok(ps_engine_set_learning_rate(e, 0, -1));
        assert_ok(ps_engine_set_weight_decay(e, 1, -1));
        assert_true(fabs(group_of(e, 0).learning_rate - (i == 2 ? 5e-4 : 1e-3)) < 1e-12);
        assert_true(group_of(e, 1).weight_decay == 0.1);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    /* what is set is what a schedule would have given */
    ps_config *c = TINY(BF16, "scheduler.type=linear", "scheduler.params.total_num_steps=10"), *d = TINY(BF16);
    ps_engine *e = engine_of(c), *f = engine_of(d);
    for (int s = 0; s < STEPS; s++) {
        assert_ok(ps_engine_set_learning_rate(f, 0, group_of(e, 0).learning_rate));
        train_one(e, s);
        train_one(f, s);
    }
    assert_true(hash_of(e) == hash_of(f));
    ps_engine_destroy(e);
    ps_engine_destroy(f);
    ps_config_destroy(c);
    ps_config_destroy(d);
}

static void test_set_when(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, "gradient_clipping=0", "train.max_nonfinite_steps=1");
    ps_engine *e = engine_of(c);
    assert_int_equal(ps_engine_set_learning_rate(e, 1, 1e-3), PS_EINVAL);
    assert_int_equal(ps_engine_set_learning_rate(e, -1, 1e-3), PS_EINVAL);
    assert_int_equal(ps_engine_set_learning_rate(e, 0, NAN), PS_EINVAL);
    assert_int_equal(ps_engine_set_weight_decay(e, 0, INFINITY), PS_EINVAL);
    forward_backward(e, 0);
    assert_int_equal(ps_engine_set_learning_rate(e, 0, 1e-3), PS_ESTATE); /* updates may have begun */
    assert_non_null(strstr(ps_last_error(), "memory.update_in_backward = never"));
    float value = 0;
    assert_int_equal(ps_engine_write_gradient(e, 0, 0, 1, &value), PS_ESTATE);
    assert_non_null(strstr(ps_last_error(), "memory.update_in_backward"));
    assert_ok(ps_step(e));
    assert_int_equal(ps_engine_write_gradient(e, 0, 0, 1, &value), PS_ESTATE);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    /* where none can: until the step */
    uint64_t hash[2];
    for (int late = 0; late < 2; late++) {
        c = TINY(BF16, SMALL, "train.freeze=*.wpe.weight");
        e = engine_of(c);
        if (!late) assert_ok(ps_engine_set_learning_rate(e, 0, 7e-4));
        forward_backward(e, 0);
        if (late) assert_ok(ps_engine_set_learning_rate(e, 0, 7e-4));
        assert_int_equal(ps_engine_write_gradient(e, 1, 0, 1, &value), PS_EINVAL); /* frozen */
        assert_int_equal(ps_engine_set_learning_rate(e, 0, 1e300), PS_EINVAL);     /* infinite as a float */
        assert_int_equal(ps_engine_write_gradient(e, 0, TINY_VOCABULARY * 48, 1, &value), PS_EINVAL);
        assert_int_equal(ps_engine_set_loss_scale(e, 8), PS_ESTATE);
        assert_ok(ps_step(e));
        hash[late] = hash_of(e);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(hash[0] == hash[1]);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Half of each gradient, a few elements at a time, but of two tensors. */
static void halve(ps_engine *e)
{
    for (int64_t t = 2; t < ps_engine_get_tensor_count(e); t++) {
        const int64_t n = e->program->params[t].elements;
        float values[777];
        for (int64_t at = 0; at < n; at += 777) {
            const int64_t here = ps_min_i64(777, n - at);
            assert_ok(ps_engine_read_gradient(e, t, at, here, values));
            for (int64_t i = 0; i < here; i++) values[i] /= 2;
            assert_ok(ps_engine_write_gradient(e, t, at, here, values));
        }
    }
}

static run_result train_halving(ps_config *c)
{
    run_result r = {0};
    ps_engine *e = engine_of(c);
    int64_t K;
    ps_engine_get_shape(e, NULL, NULL, &K, NULL);
    for (int s = 0; s < STEPS; s++) {
        for (int64_t k = 0; k < K; k++) {
            forward_backward(e, s * K + k);
            if (k == K - 1) halve(e);
            assert_ok(ps_step(e));
        }
        r.norms[s] = step_of(e).grad_norm;
    }
    r.hash = hash_of(e);
    assert_ordered(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return r;
}

static void test_gradients_in_any_memory(void **state)
{
    (void)state;
    static const char *const formats[][2] = {{"bf16.enabled=false", "gradient_accumulation_steps=1"},
                                             {BF16, "gradient_accumulation_steps=1"},
                                             {FP16, "gradient_accumulation_steps=2"},
                                             {BF16, "zero.reuse_fp16_shard=false"}};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        const run_result plain = train(on_cpu(TINY(formats[f][0], formats[f][1])), STEPS);
        const run_result base = train_halving(on_cpu(TINY(formats[f][0], formats[f][1])));
        assert_true(base.norms[0] < plain.norms[0] && base.norms[0] > plain.norms[0] / 2);
        assert_true(base.hash != plain.hash);
        static const char *const other[][4] = {{SMALL},
                                               {"memory.device=900KB", "memory.host=4MB", "default_chunk_size=2048",
                                                "optimizer.params.use_hybrid_adam=false"},
                                               {"memory.device=900KB", "memory.disk=20MB",
                                                "activation_checkpointing.enabled=true", "memory.defer_updates=false"}};
        for (size_t i = 0; i < PS_ARRAY_LEN(other); i++) {
            if (!is_my_share()) continue;
            const run_result r =
                train_halving(TINY(formats[f][0], formats[f][1], other[i][0], other[i][1], other[i][2], other[i][3]));
            assert_true(r.hash == base.hash);
            assert_memory_equal(r.norms, base.norms, sizeof r.norms);
        }
    }
}

/* Written back as they were they change nothing, not a bit of the norm. */
static void test_gradients_written_back(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, SMALL), *d = TINY(BF16, SMALL);
    ps_engine *e = engine_of(c), *f = engine_of(d);
    for (int s = 0; s < STEPS; s++) {
        float values[96];
        train_one(e, s);
        forward_backward(f, s);
        assert_ok(ps_engine_read_gradient(f, s, 0, 48, values));
        assert_ok(ps_engine_write_gradient(f, s, 0, 48, values));
        assert_ok(ps_step(f));
        assert_true(step_of(e).grad_norm == step_of(f).grad_norm);
    }
    assert_true(hash_of(e) == hash_of(f));
    ps_engine_destroy(e);
    ps_engine_destroy(f);
    ps_config_destroy(c);
    ps_config_destroy(d);
}

/* An infinity that is written is an overflow; one that is taken away is none. */
static void test_gradients_and_overflow(void **state)
{
    (void)state;
    ps_config *c = TINY(FP16, "fp16.initial_scale_power=10");
    ps_engine *e = engine_of(c);
    const uint64_t before = hash_of(e);
    const float huge = 1e30f, one = 1;
    forward_backward(e, 0);
    assert_ok(ps_engine_write_gradient(e, 4, 3, 1, &huge));
    assert_ok(ps_step(e));
    assert_true(step_of(e).is_skipped && isinf(step_of(e).grad_norm));
    assert_true(hash_of(e) == before);
    forward_backward(e, 0);
    assert_ok(ps_engine_write_gradient(e, 4, 3, 1, &huge));
    assert_ok(ps_engine_write_gradient(e, 4, 3, 1, &one));
    assert_ok(ps_step(e));
    assert_false(step_of(e).is_skipped);
    assert_true(isfinite(step_of(e).grad_norm));
    assert_true(hash_of(e) != before);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* Each sets rates, and doubles the gradient of a table. */
static ps_status rank_control(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    for (int64_t step = 0; step < t->n_steps; step++) {
        int64_t B, T, K;
        int32_t tokens[RANK_TOKENS_MAX], targets[RANK_TOKENS_MAX];
        float *values = malloc(TINY_VOCABULARY * 48 * sizeof *values);
        ps_engine_get_shape(e, &B, &T, &K, NULL);
        PS_TRY(ps_engine_set_learning_rate(e, 1, 1e-3 / (double)(step + 1)));
        PS_TRY(ps_engine_set_weight_decay(e, 0, 0.2));
        for (int64_t k = 0; k < K; k++) {
            fill_batch(tokens, targets, B, T, TINY_VOCABULARY,
                       (step * K + k) * ps_comm_size(t->comm) + ps_comm_rank(t->comm));
            PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                              NULL));
            PS_TRY(ps_backward(e));
            if (k == K - 1) {
                PS_TRY(ps_engine_read_gradient(e, 0, 0, TINY_VOCABULARY * 48, values));
                for (int i = 0; i < TINY_VOCABULARY * 48; i++) values[i] *= 2;
                PS_TRY(ps_engine_write_gradient(e, 0, 0, TINY_VOCABULARY * 48, values));
            }
            PS_TRY(ps_step(e));
        }
        free(values);
        rank_take(e, &t->result, step);
    }
    return PS_OK;
}

static ps_status rank_disagree(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    const int32_t rank = ps_comm_rank(t->comm);
    if (ps_engine_set_learning_rate(e, 0, 1e-3 * (rank + 1)) != PS_EINVAL) return PS_FAIL(PS_ESTATE, "rates are taken");
    if (strstr(ps_last_error(), "different values") == NULL) return PS_FAIL(PS_ESTATE, "%s", ps_last_error());
    if (ps_engine_set_learning_rate(e, rank == 0 ? 7 : 0, 1e-3) != PS_EINVAL)
        return PS_FAIL(PS_ESTATE, "a group is taken");
    if (ps_engine_set_loss_scale(e, rank == 0 ? -1 : 2) != PS_EINVAL) return PS_FAIL(PS_ESTATE, "a scale is taken");
    ps_group_info info = {.struct_size = sizeof info};
    PS_TRY(ps_engine_get_group_info(e, 0, &info));
    if (info.learning_rate != 1e-3) return PS_FAIL(PS_ESTATE, "a rate was set");
    return rank_train(e, c, t);
}

static void test_ranks(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 3; n++) {
        const rank_result base = run_ranks(n, 3, rank_control, CHANGES(FOR_BITS, BF16, GROUPS))->result;
        const rank_result plain = run_ranks(n, 3, rank_train, CHANGES(FOR_BITS, BF16, GROUPS))->result;
        assert_true(plain.hash != base.hash);
        assert_true(base.norms[0] > plain.norms[0]);
        const rank_result *small =
            &run_ranks(n, 3, rank_control, CHANGES(BF16, GROUPS, "memory.device=900KB", "memory.disk=20MB", MSC))
                 ->result;
        assert_true(small->hash == base.hash);
        assert_memory_equal(small->norms, base.norms, sizeof base.norms);
    }
    const rank_result sums =
        run_ranks(2, 3, rank_control, CHANGES(FOR_BITS, BF16, GROUPS, "gradient_accumulation_steps=2"))->result;
    assert_true(run_ranks(2, 3, rank_control,
                          CHANGES(BF16, GROUPS, "gradient_accumulation_steps=2", "default_chunk_size=2048",
                                  "memory.device=1MB", "memory.disk=20MB"))
                    ->result.hash == sums.hash);
    run_ranks(2, 2, rank_disagree, CHANGES(BF16));
}

/* ---- loss scale -------------------------------------------------------------------------------------------------- */

static void test_set_loss_scale(void **state)
{
    (void)state;
    ps_config *c = TINY(FP16, "fp16.initial_scale_power=10", "fp16.loss_scale_window=3");
    ps_engine *e = engine_of(c);
    train_one(e, 0);
    assert_true(step_of(e).loss_scale == 1024);
    assert_ok(ps_engine_set_loss_scale(e, 300));
    assert_true(step_of(e).next_loss_scale == 300 && step_of(e).loss_scale == 1024);
    train_one(e, 1);
    assert_true(step_of(e).loss_scale == 300);
    assert_int_equal(ps_engine_set_loss_scale(e, 0.5), PS_EINVAL); /* below fp16.min_loss_scale */
    assert_int_equal(ps_engine_set_loss_scale(e, 0x1p25), PS_EINVAL);
    assert_int_equal(ps_engine_set_loss_scale(e, -1), PS_EINVAL);
    assert_int_equal(ps_engine_set_loss_scale(e, NAN), PS_EINVAL);
    for (int i = 0; i < 3; i++) { /* a window of clean steps after it was set */
        train_one(e, 2 + i);
        assert_true(step_of(e).loss_scale == (i < 2 ? 300 : 600));
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
    /* of a format without one: the same gradients, but for rounding */
    c = TINY("bf16.enabled=false");
    e = engine_of(c);
    assert_ok(ps_engine_set_loss_scale(e, 1000));
    train_one(e, 0);
    const double norm = step_of(e).grad_norm;
    assert_true(step_of(e).loss_scale == 1000);
    ps_engine_destroy(e);
    e = engine_of(c);
    train_one(e, 0);
    assert_true(fabs(norm - step_of(e).grad_norm) < 1e-5 * norm);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Factors and a start that are no powers of two: the scale goes their way, the bits are the same in any memory and after
 * a checkpoint, and the result that of powers of two but for rounding. */
static void test_any_scale(void **state)
{
    (void)state;
#define ANY                                                                                                            \
    FP16, "fp16.initial_scale=3000", "fp16.growth_factor=1.5", "fp16.backoff_factor=0.3", "fp16.growth_interval=2",    \
        "fp16.min_scale=10", "fp16.max_scale=10000"
    ps_config *c = TINY(ANY);
    ps_engine *e = engine_of(c);
    static const double scales[] = {3000, 3000, 4500, 4500, 6750, 6750, 10000, 10000};
    for (int s = 0; s < 8; s++) {
        train_one(e, s);
        assert_true(step_of(e).loss_scale == scales[s] && !step_of(e).is_skipped);
    }
    const float huge = 1e30f;
    for (int i = 0; i < 2; i++) { /* the first is forgiven */
        forward_backward(e, 0);
        assert_ok(ps_engine_write_gradient(e, 4, 3, 1, &huge));
        assert_ok(ps_step(e));
    }
    train_one(e, 8);
    assert_true((float)step_of(e).loss_scale == 10000.0f * 0.3f);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    const run_result base = train(on_cpu(TINY(ANY)), STEPS), small = train(TINY(ANY, SMALL), STEPS);
    assert_true(base.hash == small.hash);
    const run_result two = train(on_cpu(TINY(FP16, "fp16.initial_scale_power=12")), STEPS);
    for (int s = 0; s < STEPS; s++) {
        assert_true(fabs(base.norms[s] - two.norms[s]) < 2e-2 * two.norms[s]);
        assert_true(fabsf(base.losses[s] - two.losses[s]) < 2e-3f * two.losses[s]);
    }
    /* saved in the middle, and gone on with */
    float losses[STEPS], again[STEPS];
    work_folder work = work_make();
    c = TINY(ANY);
    e = engine_of(c);
    train_steps(e, 0, 3, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    train_steps(e, 3, STEPS, losses);
    ps_engine *f = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(f, work.path, NULL));
    train_steps(f, 3, STEPS, again);
    assert_memory_equal(losses + 3, again + 3, 2 * sizeof losses[0]);
    assert_true(hash_of(e) == hash_of(f));
    ps_engine_destroy(e);
    ps_engine_destroy(f);
    ps_config_destroy(c);
    work_remove(work.path);
#undef ANY
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_info),
        cmocka_unit_test(test_groups_in_any_memory),
        cmocka_unit_test(test_group_rate_acts),
        cmocka_unit_test(test_group_decay),
        cmocka_unit_test(test_refused_groups),
        cmocka_unit_test(test_no_groups),
        cmocka_unit_test(test_set_learning_rates),
        cmocka_unit_test(test_set_when),
        cmocka_unit_test(test_gradients_in_any_memory),
        cmocka_unit_test(test_gradients_written_back),
        cmocka_unit_test(test_gradients_and_overflow),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_set_loss_scale),
        cmocka_unit_test(test_any_scale),
    };
    return RUN_ON_BACKENDS(tests);
}
