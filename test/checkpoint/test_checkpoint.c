/* Saved and resumed, in other memory, or not: the same bits. Saving changes nothing of training. */
#include "base/machine.h"
#include "checkpoint/checkpoint_fixture.h"

#define AT 3
#define STEPS 6
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"
#define SAVING "train.save_interval=1"
#define SMALL "memory.device=900KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096"

typedef enum way { AT_ONCE, MEANWHILE } way;

typedef struct outcome {
    uint64_t hash;
    float losses[STEPS];
    ps_checkpoint_info info;
} outcome;

static work_folder work;

/* STEPS steps; after AT of them a checkpoint, in either way. */
static outcome run_saving(ps_config *c, way how)
{
    outcome o = {.info.struct_size = sizeof o.info};
    ps_engine *e = engine_of(c);
    train_steps(e, 0, AT, o.losses);
    if (how == AT_ONCE) {
        const int64_t begin_ns = ps_clock_ns();
        assert_ok(ps_engine_save_checkpoint(e, work.path, "{\"note\": \"three\"}", &o.info));
        assert_true(o.info.stall_seconds <= (double)(ps_clock_ns() - begin_ns) * 1e-9); /* no time counts twice */
    } else
        assert_ok(ps_engine_begin_checkpoint(e, work.path, "{\"note\": \"three\"}"));
    train_steps(e, AT, STEPS, o.losses);
    if (how == MEANWHILE) assert_ok(ps_engine_finish_checkpoint(e, &o.info));
    assert_int_equal(o.info.step, AT);
    assert_string_equal(o.info.name, "step-000003");
    o.hash = hash_of(e);
    assert_within_budgets(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return o;
}

static outcome run_resumed(ps_config *c)
{
    outcome o = {.info.struct_size = sizeof o.info};
    char *note = NULL;
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, work.path, &note));
    assert_non_null(strstr(note, "three"));
    ps_free(note);
    train_steps(e, AT, STEPS, o.losses);
    o.hash = hash_of(e);
    assert_within_budgets(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return o;
}

static void assert_same(const char *what, const outcome *a, const outcome *b, int from)
{
    for (int s = from; s < STEPS; s++)
        if (memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) != 0)
            fail_msg("%s: loss of step %d is %.9g, not %.9g", what, s, (double)b->losses[s], (double)a->losses[s]);
    if (a->hash != b->hash) fail_msg("%s: other weights", what);
}

#define COMPACT "optimizer.params.state_format=compact"
#define SPLIT "optimizer.params.state_format=compact_split"
#define STOCHASTIC "optimizer.params.state_format=bf16_stochastic"

static void vary(const char *format, const char *more, const char *and_more)
{
#define CONFIG(...) TINY(format, more, and_more, DROPOUT, SAVING, __VA_ARGS__)
    outcome base = {0};
    ps_config *c = on_cpu(TINY(format, more, and_more, DROPOUT));
    ps_engine *e = engine_of(c);
    train_steps(e, 0, STEPS, base.losses);
    base.hash = hash_of(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);

/* What one backend has saved the other resumes. */
#define SAVE(what, how, ...)                                                                                           \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        work_remove(work_file(work.path, "step-000003").text);                                                         \
        outcome saved_ = run_saving(CONFIG(__VA_ARGS__), how);                                                         \
        assert_same(what, &base, &saved_, 0);                                                                          \
        outcome resumed_ = run_resumed(on_cpu(CONFIG("train.threads=2")));                                             \
        assert_same(what ", resumed", &base, &resumed_, AT);                                                           \
    } while (0)
#define RESUME(what, ...)                                                                                              \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        outcome resumed_ = run_resumed(CONFIG(__VA_ARGS__));                                                           \
        assert_same(what, &base, &resumed_, AT);                                                                       \
    } while (0)
    SAVE("at once", AT_ONCE, "memory.save_buffer=0");
    SAVE("at once, through the ring", AT_ONCE, "memory.save_buffer=auto");
    SAVE("meanwhile", MEANWHILE, "memory.save_buffer=auto");
    SAVE("meanwhile, tiny ring", MEANWHILE, "memory.save_buffer=16KiB");
    SAVE("meanwhile, no ring", MEANWHILE, "memory.save_buffer=0");
    SAVE("meanwhile, updates at once", MEANWHILE, "memory.defer_updates=false");
    SAVE("meanwhile, small chunks", MEANWHILE, "default_chunk_size=2048");
    SAVE("meanwhile, three tiers", MEANWHILE, SMALL, "memory.save_buffer=32KiB");
    SAVE("meanwhile, three tiers, updates at once", MEANWHILE, SMALL, "memory.defer_updates=false");
    work_remove(work_file(work.path, "step-000003").text);
    (void)run_saving(on_cpu(CONFIG("memory.save_buffer=auto")), MEANWHILE);
    RESUME("small chunks", "default_chunk_size=2048");
    RESUME("odd chunks", "default_chunk_size=10240");
    RESUME("large chunks", "default_chunk_size=262144");
    RESUME("three tiers", SMALL);
    RESUME("disk tier", "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048");
    RESUME("updates at once", "memory.defer_updates=false");
    RESUME("checkpointing", "activation_checkpointing.enabled=true");
    RESUME("no prefetch", SMALL, "memory.prefetch=0");
#undef CONFIG
#undef SAVE
#undef RESUME
}

static void test_same_bits_f32(void **state)
{
    (void)state;
    vary("bf16.enabled=false", "gradient_accumulation_steps=1", "model.tie_word_embeddings=true");
}

static void test_same_bits_bf16(void **state)
{
    (void)state;
    vary("bf16.enabled=true", "gradient_accumulation_steps=1", "model.tie_word_embeddings=false");
}

static void test_same_bits_accumulated(void **state)
{
    (void)state;
    vary("bf16.enabled=true", "gradient_accumulation_steps=3", "model.tie_word_embeddings=true");
}

/* The first steps overflow and are skipped: scale, hysteresis and counters must come back. */
static void test_same_bits_fp16_skipped(void **state)
{
    (void)state;
    vary("fp16.enabled=true", "fp16.initial_scale_power=23", "fp16.loss_scale_window=2");
    ps_config *c = TINY("fp16.enabled=true", "fp16.initial_scale_power=23", "fp16.loss_scale_window=2", DROPOUT);
    ps_engine *e = engine_of(c);
    ps_step_info info = {.struct_size = sizeof info};
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    ps_engine_get_step_info(e, &info);
    assert_true(info.step < AT); /* some of the three were skipped */
    assert_true(info.loss_scale < 0x1p23);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_same_bits_compact(void **state)
{
    (void)state;
    vary("bf16.enabled=true", COMPACT, "model.tie_word_embeddings=false");
}

static void test_same_bits_compact_split(void **state)
{
    (void)state;
    vary("bf16.enabled=true", SPLIT, "model.tie_word_embeddings=false");
}

static void test_same_bits_bf16_stochastic(void **state)
{
    (void)state;
    vary("bf16.enabled=true", STOCHASTIC, "model.tie_word_embeddings=false");
}

/* From one state_format to another: said, with what is lost. */
static void test_other_state_format(void **state)
{
    (void)state;
#define BF16 "bf16.enabled=true"
    enum { FORMATS = 4, N = 1000 };
    static const char *const formats[FORMATS] = {"optimizer.params.state_format=fp32", COMPACT, SPLIT, STOCHASTIC};
    static const char to_bf16[] = "states of the optimizer are rounded to bf16, and masters are rounded to bf16";
    static const char to_8_bits[] = "states of the optimizer are rounded to 8 bits, and training";
    static const char *const lost[FORMATS][FORMATS] = {
        {NULL, to_8_bits, "to 8 bits, and one master in 131072 is rounded by 2^-24", to_bf16},
        {"converted without loss", NULL, ": one master in 131072 is rounded by 2^-24", to_bf16},
        {"converted without loss", "converted without loss", NULL, to_bf16},
        {"converted without loss", to_8_bits, to_8_bits, NULL}};
    for (int from = 0; from < FORMATS; from++) {
        work_remove(work_file(work.path, "step-000003").text);
        (void)run_saving(TINY(BF16, formats[from], SAVING), AT_ONCE);
        float values[FORMATS][N], weights[FORMATS][N], losses[STEPS];
        for (int to = 0; to < FORMATS; to++) {
            ps_config *c = TINY(BF16, formats[to], SMALL);
            ps_engine *e = engine_of(c);
            assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
            const char *notices = ps_engine_get_notices(e);
            const bool is_right =
                from == to ? strstr(notices, "state_format") == NULL : strstr(notices, lost[from][to]) != NULL;
            if (!is_right) fail_msg("%d to %d: \"%s\"", from, to, notices);
            assert_ok(ps_engine_read_state(e, 0, "exp_avg", 0, N, values[to]));
            assert_ok(ps_engine_read_tensor(e, 0, 0, N, weights[to]));
            train_steps(e, AT, STEPS, losses);
            assert_true(losses[STEPS - 1] < 5.5f);
            ps_engine_destroy(e);
            ps_config_destroy(c);
        }
        float largest = 0;
        for (int i = 0; i < N; i++) largest = fmaxf(largest, fabsf(values[0][i]));
        assert_true(largest > 0);
        for (int i = 0; i < N; i++) assert_true(fabsf(values[0][i] - values[1][i]) <= largest / 127);
        assert_true((memcmp(values[0], values[1], sizeof values[0]) == 0) == (from == 1 || from == 2));
        for (int i = 0; i < N; i++) { /* rounded to nearest */
            assert_true(values[3][i] == ps_bf16_to_f32(ps_bf16_from_f32(values[0][i])));
            assert_true(weights[3][i] == ps_bf16_to_f32(ps_bf16_from_f32(weights[0][i])));
        }
        if (from == 3) assert_memory_equal(weights[0], weights[3], sizeof weights[0]);
        assert_memory_equal(values[1], values[2], sizeof values[1]);
        assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
        for (int i = 0; i < N; i++)
            assert_true(fabsf(weights[0][i] - weights[2][i]) <= 0x1p-23f * fabsf(weights[0][i]));
        if (from >= 2) assert_memory_equal(weights[1], weights[2], sizeof weights[1]);
    }
#undef BF16
}

#define BETAS "optimizer.params.betas=[0.9, 0.999]" /* the default: SGD has none */

static void test_same_bits_sgd(void **state)
{
    (void)state;
    vary("optimizer.type=SGD", BETAS, "optimizer.params.momentum=0.9");
}

static void test_same_bits_lion(void **state)
{
    (void)state;
    vary("optimizer.type=Lion", "optimizer.params.betas=[0.9, 0.99]", "optimizer.params.lr=1e-4");
}

static void test_same_bits_compact_momentum(void **state)
{
    (void)state;
#define MOMENTUM "optimizer.type=SGD", BETAS, "optimizer.params.momentum=0.9", COMPACT
    const outcome saved = run_saving(on_cpu(TINY(MOMENTUM, SAVING, "bf16.enabled=true")), MEANWHILE);
    const outcome resumed = run_resumed(TINY(MOMENTUM, SMALL, "bf16.enabled=true"));
    assert_same("compact momentum of SGD", &saved, &resumed, AT);
    work_remove(work_file(work.path, "step-000003").text);
    vary("optimizer.type=Lion", COMPACT, "optimizer.params.lr=1e-4");
#undef MOMENTUM
}

/* Nothing is kept of an element but its master. */
static void test_same_bits_plain_sgd(void **state)
{
    (void)state;
    const outcome saved = run_saving(on_cpu(TINY("optimizer.type=SGD", BETAS, SAVING, "bf16.enabled=true")), MEANWHILE);
    const outcome resumed = run_resumed(TINY("optimizer.type=SGD", BETAS, SMALL, "bf16.enabled=true"));
    assert_same("plain SGD", &saved, &resumed, AT);
}

/* Refused before anything is replaced, with what is kept now and what to do. */
static void test_other_optimizer(void **state)
{
    (void)state;
    static const char *const kinds[][3] = {
        {"optimizer.type=AdamW", BETAS, "optimizer.params.momentum=0"},
        {"optimizer.type=SGD", BETAS, "optimizer.params.momentum=0.9"},
        {"optimizer.type=SGD", BETAS, "optimizer.params.momentum=0"},
    };
    static const char *const kept[] = {"optimizer.type = AdamW now, which keeps exp_avg, exp_avg_sq of each parameter",
                                       "optimizer.type = SGD now, which keeps momentum_buffer of each parameter",
                                       "optimizer.type = SGD now, which keeps nothing of each parameter"};
    for (int from = 0; from < 3; from++) {
        work_remove(work_file(work.path, "step-000003").text);
        (void)run_saving(TINY(kinds[from][0], kinds[from][1], kinds[from][2], SAVING), AT_ONCE);
        for (int to = 0; to < 3; to++) {
            if (to == from) continue;
            ps_config *c = TINY(kinds[to][0], kinds[to][1], kinds[to][2]);
            ps_engine *e = engine_of(c);
            const uint64_t before = hash_of(e);
            assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_EINVAL);
            if (strstr(ps_last_error(), kept[to]) == NULL) fail_msg("%s", ps_last_error());
            assert_non_null(strstr(ps_last_error(), "train.init_from"));
            assert_true(hash_of(e) == before);
            ps_engine_destroy(e);
            ps_config_destroy(c);
        }
    }
    /* Adam and AdamW keep the same */
    work_remove(work_file(work.path, "step-000003").text);
    (void)run_saving(TINY("optimizer.type=Adam", SAVING), AT_ONCE);
    (void)run_resumed(TINY("optimizer.type=AdamW"));
}

/* Resuming with kernels that have bits of their own is reported; with others it is not. */
static void test_other_arithmetic(void **state)
{
    (void)state;
    static const char *const now[][2] = {{"train.isa=avx2", ""},
                                         {"train.isa=portable", "kernels: cpu portable instead of cpu"},
                                         {"train.backend=ref", "kernels: ref instead of cpu"}};
    if (OVER_DISCRETE || ps_cpu_isa_detect() < PS_CPU_AVX2) skip();
    (void)run_saving(TINY("train.backend=cpu", SAVING), AT_ONCE);
    for (size_t i = 0; i < PS_ARRAY_LEN(now); i++) {
        ps_config *c = TINY(now[i][0]);
        ps_engine *e = engine_of(c);
        assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
        const char *notices = ps_engine_get_notices(e);
        if ((now[i][1][0] == '\0') != (notices[0] == '\0') || strstr(notices, now[i][1]) == NULL)
            fail_msg("%s: \"%s\"", now[i][0], notices);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
}

/* Masters do not depend on the number format of the parameters; neither do the moments. */
static void test_other_format(void **state)
{
    (void)state;
    (void)run_saving(TINY("bf16.enabled=true", SAVING), MEANWHILE);
    static const char *const formats[] = {"bf16.enabled=true", "bf16.enabled=false", "fp16.enabled=true"};
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) {
        float losses[STEPS];
        ps_config *c = TINY(formats[i]);
        ps_engine *e = engine_of(c);
        assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
        hash[i] = hash_of(e);
        train_steps(e, AT, STEPS, losses);
        assert_true(losses[STEPS - 1] < 5.5f);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(hash[0] == hash[1] && hash[1] == hash[2]);
}

/* An inference engine computes with the parameters that training had. */
static void test_inference(void **state)
{
    (void)state;
    enum { B = 2, T = 16 };
    int32_t tokens[B * T], targets[B * T];
    float loss[2], losses[STEPS];
    fill_batch(tokens, targets, B, T, 131, 99);
    ps_config *c = TINY("bf16.enabled=true");
    ps_engine *e = engine_of(c);
    train_steps(e, 0, AT, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    assert_ok(
        ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss[0]));
    ps_engine_destroy(e);
    char *none = (char *)(void *)&none;
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    assert_ok(ps_engine_load_checkpoint(e, work.path, &none));
    assert_null(none);
    assert_ok(
        ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss[1]));
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_int_equal(ps_engine_save_checkpoint(e, work.path, NULL, NULL), PS_ESTATE);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Every step saved or none: peaks as predicted, and the same bytes moved, to the byte. */
static void test_saving_moves_nothing(void **state)
{
    (void)state;
    static const char *const budgets[][4] = {
        {"memory.device=64MB", "memory.host=0", "memory.disk=0", "memory.save_buffer=auto"},
        {"memory.device=900KB", "memory.host=0", "memory.disk=20MB", "memory.save_buffer=64KiB"},
        {"memory.device=900KB", "memory.host=400KB", "memory.disk=20MB", "memory.save_buffer=64KiB"},
        {"memory.device=900KB", "memory.host=400KB", "memory.disk=20MB", "memory.save_buffer=auto"},
        {"memory.device=900KB", "memory.host=5MB", "memory.disk=0", "memory.save_buffer=auto"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++)
        for (int deferred = 0; deferred < 2; deferred++) {
            int64_t moved[2];
            for (int with = 0; with < 2; with++) {
                float losses[MAX_STEPS + 1];
                ps_config *c = TINY("bf16.enabled=true", "default_chunk_size=4096", SAVING, budgets[i][0],
                                    budgets[i][1], budgets[i][2], budgets[i][3],
                                    deferred ? "memory.defer_updates=true" : "memory.defer_updates=false");
                ps_engine *e = engine_of(c);
                ps_memory_info m = {.struct_size = sizeof m};
                ps_engine_get_memory_info(e, &m);
                const int n_steps = (int)m.planned_step;
                assert_in_range(n_steps, 2, MAX_STEPS);
                for (int step = 0; step < n_steps; step++) {
                    train_steps(e, step, step + 1, losses);
                    if (!with) continue;
                    if (step > 0) assert_ok(ps_engine_finish_checkpoint(e, NULL));
                    assert_ok(ps_engine_begin_checkpoint(e, work.path, NULL));
                }
                ps_engine_get_memory_info(e, &m);
                assert_int_equal(m.device_peak_bytes, m.planned_device_peak_bytes);
                assert_int_equal(m.host_peak_bytes, m.planned_host_peak_bytes);
                assert_int_equal(m.disk_peak_bytes, m.planned_disk_peak_bytes);
                moved[with] = m.host_to_device_bytes + m.device_to_host_bytes + m.disk_read_bytes + m.disk_write_bytes;
                ps_engine_destroy(e); /* gives the last one up */
                ps_config_destroy(c);
            }
            assert_int_equal(moved[0], moved[1]);
        }
}

/* The buffer is as large as what is left over allows, counted, and nothing where nothing is left. */
static void test_buffer_is_counted(void **state)
{
    (void)state;
    ps_memory_info with = {.struct_size = sizeof with}, without = {.struct_size = sizeof without};
    for (int saving = 0; saving < 2; saving++) {
        ps_config *c = TINY("bf16.enabled=true", "memory.device=900KB", "memory.host=5MB",
                            saving ? SAVING : "train.save_interval=0");
        ps_engine *e = engine_of(c);
        ps_engine_get_memory_info(e, saving ? &with : &without);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(with.host_used_bytes > without.host_used_bytes + 12 * with.parameters / 2);
    ps_config *c =
        TINY("bf16.enabled=true", "memory.device=900KB", "memory.disk=20MB", SAVING, "memory.save_buffer=890KB",
             "default_chunk_size=4096", OVER_DISCRETE ? "memory.host=4096" : "memory.host=0");
    ps_engine *e = NULL;
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    ps_config_destroy(c);
}

static void test_calls_in_order(void **state)
{
    (void)state;
    int32_t tokens[32], targets[32];
    float losses[STEPS], value = 2;
    ps_config *c = TINY("gradient_accumulation_steps=2", SAVING);
    ps_engine *e = engine_of(c);
    assert_int_equal(ps_engine_finish_checkpoint(e, NULL), PS_ESTATE);
    assert_int_equal(ps_engine_checkpoint_is_done(e), 1);
    assert_int_equal(ps_engine_save_checkpoint(e, work.path, "[1]", NULL), PS_EINVAL);
    assert_int_equal(ps_engine_save_checkpoint(e, work.path, "{", NULL), PS_EINVAL);
    assert_int_equal(ps_engine_save_checkpoint(e, "/nowhere/at/all", NULL, NULL), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "/nowhere/at/all"));
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL)); /* before the first step */
    assert_true(work_has(work.path, "step-000000"));
    train_steps(e, 0, 1, losses);
    fill_batch(tokens, targets, 2, 16, 131, 0);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_int_equal(ps_engine_begin_checkpoint(e, work.path, NULL), PS_ESTATE);
    assert_ok(ps_backward(e));
    assert_ok(ps_step(e));
    assert_int_equal(ps_engine_begin_checkpoint(e, work.path, NULL), PS_ESTATE);
    assert_non_null(strstr(ps_last_error(), "micro-batch 1 of 2"));
    assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_ESTATE);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
    assert_ok(ps_step(e));
    const uint64_t hash = hash_of(e);
    assert_ok(ps_engine_begin_checkpoint(e, work.path, NULL));
    assert_int_equal(ps_engine_begin_checkpoint(e, work.path, NULL), PS_ESTATE);
    assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_ESTATE);
    /* what is saved is what was there at begin */
    assert_ok(ps_engine_write_tensor(e, 0, 0, 1, &value));
    assert_ok(ps_engine_finish_checkpoint(e, NULL));
    assert_true(hash_of(e) != hash);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    assert_true(hash_of(e) == hash);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static int set_up(void **state)
{
    (void)state;
    work = work_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    work_remove(work.path);
    assert_int_equal(ps_mem_live_bytes(), 0);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_same_bits_f32),
        TEST(test_same_bits_bf16),
        TEST(test_same_bits_accumulated),
        TEST(test_same_bits_fp16_skipped),
        TEST(test_same_bits_compact),
        TEST(test_same_bits_compact_split),
        TEST(test_same_bits_bf16_stochastic),
        TEST(test_same_bits_compact_momentum),
        TEST(test_other_state_format),
        TEST(test_same_bits_sgd),
        TEST(test_same_bits_plain_sgd),
        TEST(test_same_bits_lion),
        TEST(test_other_arithmetic),
        TEST(test_other_optimizer),
        TEST(test_other_format),
        TEST(test_inference),
        TEST(test_saving_moves_nothing),
        TEST(test_buffer_is_counted),
        TEST(test_calls_in_order),
    };
    return RUN_ON_BACKENDS(tests);
}
