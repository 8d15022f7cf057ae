/* Micro-batches of changing size: the same bits whatever the memory, budgets that hold, refusals that leave the engine
 * usable, checkpoints that resume, shapes that are kept. */
#include "engine/engine_fixture.h"

#include <math.h>
#include <unistd.h>

#include "temp_folder.h"

#define BF16 "bf16.enabled=true"
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { MOST_TOKENS = 8 * 16, N_SHAPES = 7 };

typedef struct shape {
    int64_t B, T;
} shape;

/* Smaller, larger, the same again, more rows than configured. */
static const shape walk[N_SHAPES] = {{2, 16}, {2, 8}, {2, 16}, {3, 5}, {1, 1}, {2, 8}, {4, 16}};

static float step_in(ps_engine *e, shape s, int64_t index)
{
    int32_t tokens[MOST_TOKENS], targets[MOST_TOKENS];
    int64_t B, T, K;
    float loss, sum = 0;
    ps_engine_get_shape(e, &B, &T, &K, NULL);
    assert_int_equal(B, s.B);
    assert_int_equal(T, s.T);
    for (int64_t k = 0; k < K; k++) {
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, index * K + k);
        assert_ok(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
        sum += loss;
    }
    return sum;
}

static void assert_in_budget(const ps_engine *e)
{
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(e, &m);
    assert_true(m.device_peak_bytes <= m.device_budget_bytes);
    assert_true(m.host_peak_bytes <= m.host_budget_bytes);
    assert_true(m.disk_peak_bytes <= m.disk_budget_bytes);
}

static void set_shape(ps_engine *e, ps_config *c, shape s)
{
    assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, s.B, s.T));
}

/* The walk, a step in each shape; with an evaluation in another shape after each step where asked for. */
static run_result train_walk(ps_config *c, bool evaluates)
{
    run_result r = {0};
    ps_engine *e = engine_of(c);
    for (int i = 0; i < N_SHAPES; i++) {
        set_shape(e, c, walk[i]);
        r.losses[i] = step_in(e, walk[i], i);
        if (evaluates) {
            int32_t tokens[3 * 7], targets[3 * 7];
            set_shape(e, c, (shape){3, 7});
            fill_batch(tokens, targets, 3, 7, TINY_VOCABULARY, 1000 + i);
            assert_ok(ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                                  NULL));
        }
        assert_in_budget(e);
    }
    assert_ok(ps_engine_get_weights_xxh3(e, &r.hash));
    r.memory.struct_size = sizeof r.memory;
    ps_engine_get_memory_info(e, &r.memory);
    assert_ordered(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return r;
}

static void assert_same(const char *what, const run_result *a, const run_result *b)
{
    for (int s = 0; s < N_SHAPES; s++)
        if (memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) != 0)
            fail_msg("%s: loss of step %d is %.9g, not %.9g", what, s, (double)b->losses[s], (double)a->losses[s]);
    if (a->hash != b->hash) fail_msg("%s: other weights", what);
}

static void vary_memory(const char *format, const char *more)
{
    const run_result base = train_walk(on_cpu(TINY(format, more, DROPOUT)), false);
    const run_result evaluated = train_walk(TINY(format, more, DROPOUT), true);
    assert_same("evaluations between", &base, &evaluated);
#define SAME(what, ...)                                                                                                \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        const run_result r_ = train_walk(TINY(format, more, DROPOUT, __VA_ARGS__), true);                              \
        assert_same(what, &base, &r_);                                                                                 \
    } while (0)
    SAME("small chunks", "default_chunk_size=2048");
    SAME("large chunks", "default_chunk_size=262144");
    SAME("checkpointing", "activation_checkpointing.enabled=true");
    SAME("inputs offloaded", OFFLOAD);
    SAME("inputs on the host", OFFLOAD, "memory.device=800KB", "memory.host=4MB", "default_chunk_size=2048");
    SAME("inputs on disk", OFFLOAD, "memory.device=800KB", "memory.disk=20MB", "default_chunk_size=2048");
    SAME("inputs on a small disk", OFFLOAD, "memory.device=800KB", "memory.host=500KB", "memory.disk=2MB",
         "default_chunk_size=2048");
    SAME("host tier", "memory.device=900KB", "memory.host=4MB", "default_chunk_size=2048");
    SAME("disk tier", "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048");
    SAME("three tiers", "memory.device=900KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096");
    SAME("no prefetch", "memory.device=900KB", "memory.host=300KB", "memory.disk=20MB", "memory.prefetch=0");
    SAME("updates at once", "memory.device=900KB", "memory.disk=20MB", "memory.defer_updates=false");
    SAME("placement cpu", "memory.host=4MB", "zero.tensor_placement_policy=cpu");
    SAME("room for saving", "memory.device=900KB", "memory.host=9MB", "train.save_interval=100",
         "memory.save_buffer=1MB");
#undef SAME
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
    vary_memory(BF16, "gradient_accumulation_steps=2");
}

/* Going elsewhere and back between the steps does not change training. */
static void test_back_and_forth(void **state)
{
    (void)state;
    uint64_t hash[2];
    for (int goes = 0; goes < 2; goes++) {
        ps_config *c = TINY(BF16, DROPOUT, "memory.device=750KB", "memory.host=300KB", "memory.disk=20MB");
        ps_engine *e = engine_of(c);
        for (int i = 0; i < 6; i++) {
            if (goes) set_shape(e, c, walk[i]);
            if (goes) set_shape(e, c, (shape){1, 9});
            if (goes) set_shape(e, c, (shape){2, 16});
            (void)step_in(e, (shape){2, 16}, i);
            assert_in_budget(e);
        }
        assert_ok(ps_engine_get_weights_xxh3(e, &hash[goes]));
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(hash[0] == hash[1]);
}

/* ---- kept shapes ---- */

typedef struct counted {
    ps_config *config;
    int n_calls;
} counted;

static ps_status counting_model(ps_builder *b, void *user)
{
    counted *m = user;
    m->n_calls++;
    return ps_model_from_config(b, m->config);
}

static void test_shapes_are_kept(void **state)
{
    (void)state;
    counted m = {.config = TINY(BF16, "memory.device=900KB", "memory.disk=20MB")};
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(counting_model, &m, 0, m.config, &e));
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < N_SHAPES; i++) {
            assert_ok(ps_engine_set_shape(e, counting_model, &m, walk[i].B, walk[i].T));
            (void)step_in(e, walk[i], i);
        }
    assert_int_equal(m.n_calls, 5); /* different shapes */
    const int before = m.n_calls;
    assert_ok(ps_engine_set_shape(e, counting_model, &m, 2, 16));
    assert_int_equal(m.n_calls, before);
    ps_memory_info one = {.struct_size = sizeof one}, other = {.struct_size = sizeof other};
    ps_engine_get_memory_info(e, &one);
    assert_ok(ps_engine_set_shape(e, counting_model, &m, 1, 4));
    ps_engine_get_memory_info(e, &other);
    assert_true(other.non_model_peak_bytes < one.non_model_peak_bytes);
    assert_int_equal(other.chunk_elements, one.chunk_elements);
    ps_engine_destroy(e);
    ps_config_destroy(m.config);
}

static void test_shapes_are_bounded(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, "memory.disk=20MB", "model.n_layer=1");
    ps_engine *e = engine_of(c);
    int64_t first = 0, last = 0;
    for (int round = 0; round < 4; round++) {
        for (int64_t B = 1; B <= 3; B++)
            for (int64_t T = 1; T <= 16; T++) set_shape(e, c, (shape){B, T});
        (void)step_in(e, (shape){3, 16}, round);
        last = ps_mem_live_bytes();
        if (round == 0) first = last;
        set_shape(e, c, (shape){2, 16}); /* the first one is still there */
        (void)step_in(e, (shape){2, 16}, round);
    }
    assert_true(last <= first + first / 8);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* A profile has the names of operators of shapes long gone. */
static void test_profile_over_shapes(void **state)
{
    (void)state;
    char folder[] = "/tmp/ps-shape-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/profile.json", folder);
    ps_config *c = TINY(BF16, "memory.disk=20MB", "model.n_layer=1");
    assert_ok(ps_config_set(c, "profile.path", path));
    assert_ok(ps_config_set(c, "profile.steps", "1,3"));
    ps_engine *e = engine_of(c);
    set_shape(e, c, (shape){2, 11});
    (void)step_in(e, (shape){2, 11}, 0);
    for (int64_t B = 1; B <= 3; B++)
        for (int64_t T = 1; T <= 16; T++)
            if (B != 2 || T != 11) set_shape(e, c, (shape){B, T});
    for (int i = 1; i < 3; i++) (void)step_in(e, (shape){3, 16}, i);
    ps_profile_info info = {.struct_size = sizeof info};
    ps_engine_get_profile_info(e, &info);
    assert_string_equal(info.error, "");
    assert_int_equal(info.last_step, 3);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- refusals ---- */

static void test_between_steps_only(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, "gradient_accumulation_steps=2");
    ps_engine *e = engine_of(c);
    int32_t tokens[2 * 16], targets[2 * 16];
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 0);
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    for (int micro = 0; micro < 2; micro++) {
        assert_ok(ps_forward(e, &batch, NULL));
        assert_int_equal(ps_engine_set_shape(e, ps_model_from_config, c, 2, 8), PS_ESTATE);
        assert_ok(ps_backward(e));
        assert_int_equal(ps_engine_set_shape(e, ps_model_from_config, c, 2, 8), PS_ESTATE);
        assert_ok(ps_step(e));
        assert_int_equal(ps_engine_set_shape(e, ps_model_from_config, c, 2, 8), micro == 0 ? PS_ESTATE : PS_OK);
    }
    (void)step_in(e, (shape){2, 8}, 1);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static ps_status renamed_model(ps_builder *b, void *user)
{
    ps_begin_block(b, "other", 0);
    const ps_status st = ps_model_from_config(b, user);
    ps_end_block(b);
    return st;
}

static void test_other_parameters(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, "memory.device=900KB", "memory.disk=20MB");
    ps_engine *e = engine_of(c);
    const run_result plain = train(TINY(BF16), 3);
    const char *const *others[] = {CHANGES("model.n_layer=1"), CHANGES("model.n_embd=24"),
                                   CHANGES("model.tie_word_embeddings=false"), CHANGES("model.vocab_size=130")};
    uint64_t hash;
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < PS_ARRAY_LEN(others); k++) {
            ps_config *other = tiny_with(others[k]);
            assert_int_equal(ps_engine_set_shape(e, ps_model_from_config, other, 2, 8), PS_EINVAL);
            ps_config_destroy(other);
        }
        assert_int_equal(ps_engine_set_shape(e, renamed_model, c, 2, 8), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), "other."));
        assert_int_equal(ps_engine_set_shape(e, ps_model_from_config, c, 0, 8), PS_EINVAL);
        assert_int_equal(ps_engine_set_shape(e, ps_model_from_config, c, 2, 17), PS_EINVAL); /* positions */
        assert_int_equal(ps_engine_set_shape(e, NULL, c, 2, 8), PS_EINVAL);
        const float loss = step_in(e, (shape){2, 16}, i);
        assert_memory_equal(&loss, &plain.losses[i], sizeof loss);
    }
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    assert_true(hash == plain.hash);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_refused_shape(void **state)
{
    (void)state;
    const run_result plain = train(TINY(BF16), 3);
    ps_config *c = TINY(BF16, "memory.device=700KB", "memory.disk=20MB", "default_chunk_size=4096");
    ps_engine *e = engine_of(c);
    uint64_t hash;
    for (int i = 0; i < 3; i++) {
        if (i == 1) {
            assert_int_equal(ps_engine_set_shape(e, ps_model_from_config, c, 64, 16), PS_EBUDGET);
            assert_non_null(strstr(ps_last_error(), "Does not fit: "));
            assert_non_null(strstr(ps_last_error(), "train_micro_batch_size_per_gpu="));
            assert_true(ps_last_memory_dump()[0] != '\0');
        }
        const float loss = step_in(e, (shape){2, 16}, i);
        assert_memory_equal(&loss, &plain.losses[i], sizeof loss);
        assert_in_budget(e);
    }
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    assert_true(hash == plain.hash);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Device and host full to the last chunks, no disk: a change may be refused, but what is not refused never fails
 * later. */
static void test_tight_memory(void **state)
{
    (void)state;
    int n_changes = 0;
    for (int host_kb = 1060; host_kb <= 1076; host_kb += 4) {
        char host[32];
        snprintf(host, sizeof host, "memory.host=%dKB", host_kb);
        ps_config *c = TINY(BF16, "memory.device=500KB", host, "default_chunk_size=8192");
        ps_engine *e = NULL;
        const ps_status st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
        shape now = {2, 16};
        for (int i = 0; st == PS_OK && i < 3 * N_SHAPES; i++) {
            const shape wanted = walk[i % (N_SHAPES - 1)];
            const ps_status changed = ps_engine_set_shape(e, ps_model_from_config, c, wanted.B, wanted.T);
            if (changed != PS_EBUDGET) assert_ok(changed);
            n_changes += changed == PS_OK && (wanted.B != now.B || wanted.T != now.T);
            if (changed == PS_OK) now = wanted;
            (void)step_in(e, now, i);
            assert_in_budget(e);
        }
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(n_changes > 15);
}

/* ---- checkpoints ---- */

/* Begun in one shape, written while steps run in others. */
static void test_checkpoint_across_shapes(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++)
        for (int n_after = 0; n_after < 3; n_after++) {
            char folder[] = "/tmp/ps-shape-XXXXXX";
            assert_non_null(mkdtemp(folder));
            const char *const *changes = CHANGES(BF16, DROPOUT, "memory.device=900KB", "memory.disk=20MB",
                                                 deferred ? "memory.defer_updates=true" : "memory.defer_updates=false");
            ps_config *c = tiny_with(changes);
            ps_engine *e = engine_of(c);
            uint64_t hash, loaded, after;
            for (int i = 0; i < 3; i++) {
                set_shape(e, c, walk[i]);
                (void)step_in(e, walk[i], i);
            }
            assert_ok(ps_engine_begin_checkpoint(e, folder, NULL));
            for (int i = 3; i < 3 + n_after; i++) {
                set_shape(e, c, walk[i]);
                (void)step_in(e, walk[i], i);
            }
            set_shape(e, c, (shape){1, 2});
            assert_ok(ps_engine_finish_checkpoint(e, NULL));
            for (int i = 3 + n_after; i < N_SHAPES; i++) {
                set_shape(e, c, walk[i]);
                (void)step_in(e, walk[i], i);
            }
            assert_ok(ps_engine_get_weights_xxh3(e, &after));
            ps_engine_destroy(e);

            /* what was saved, and where it leads */
            ps_engine *plain = engine_of(c);
            for (int i = 0; i < 3; i++) {
                set_shape(plain, c, walk[i]);
                (void)step_in(plain, walk[i], i);
            }
            assert_ok(ps_engine_get_weights_xxh3(plain, &hash));
            ps_engine_destroy(plain);
            e = engine_of(c);
            set_shape(e, c, (shape){3, 3}); /* another shape than the configured one is no hindrance */
            assert_ok(ps_engine_load_checkpoint(e, folder, NULL));
            assert_ok(ps_engine_get_weights_xxh3(e, &loaded));
            assert_true(loaded == hash);
            for (int i = 3; i < N_SHAPES; i++) {
                set_shape(e, c, walk[i]);
                (void)step_in(e, walk[i], i);
            }
            assert_ok(ps_engine_get_weights_xxh3(e, &loaded));
            assert_true(loaded == after);
            ps_engine_destroy(e);
            ps_config_destroy(c);
            char command[64];
            snprintf(command, sizeof command, "rm -r %s", folder);
            assert_int_equal(system(command), 0);
        }
}

/* ---- inference ---- */

/* A causal model's logits of the first tokens do not depend on how many follow, nor on how many rows there are. */
static void test_inference(void **state)
{
    (void)state;
    ps_config *c = TINY("memory.device=420KB", "memory.host=4MB");
    ps_engine *e = NULL;
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    int32_t tokens[2 * 16], targets[2 * 16];
    float *wide = calloc(2 * 16 * TINY_VOCABULARY, sizeof *wide), *narrow = calloc(5 * TINY_VOCABULARY, sizeof *narrow);
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 3);
    assert_ok(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, PS_ALL_ROWS, wide));
    set_shape(e, c, (shape){1, 5});
    assert_ok(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, PS_ALL_ROWS, narrow));
    for (int i = 0; i < 5 * TINY_VOCABULARY; i++) assert_true(fabsf(wide[i] - narrow[i]) <= 1e-5f);
    assert_ok(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, 4, narrow));
    assert_int_equal(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, 5, narrow), PS_EINVAL);
    set_shape(e, c, (shape){2, 16});
    float *again = calloc(2 * 16 * TINY_VOCABULARY, sizeof *again);
    assert_ok(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens}, PS_ALL_ROWS, again));
    assert_memory_equal(wide, again, 2 * 16 * TINY_VOCABULARY * sizeof *wide);
    free(again);
    free(narrow);
    free(wide);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_f32),
        cmocka_unit_test(test_same_bits_bf16),
        cmocka_unit_test(test_same_bits_accumulated),
        cmocka_unit_test(test_back_and_forth),
        cmocka_unit_test(test_shapes_are_kept),
        cmocka_unit_test(test_shapes_are_bounded),
        cmocka_unit_test(test_profile_over_shapes),
        cmocka_unit_test(test_between_steps_only),
        cmocka_unit_test(test_other_parameters),
        cmocka_unit_test(test_refused_shape),
        cmocka_unit_test(test_tight_memory),
        cmocka_unit_test(test_checkpoint_across_shapes),
        cmocka_unit_test(test_inference),
    };
    return RUN_ON_BACKENDS(tests);
}
