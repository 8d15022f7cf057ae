/* test_gpu_engine.c - the whole engine on CUDA: the processor's losses within rounding, the same bits in all budgets, and
 * no more memory and copies than planned; with attention by our kernels, and by cuDNN. Pages of any size will do, so it runs
 * on hardware too. */
#include "engine/engine_fixture.h"

#include <math.h>

#define STEPS 3
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})

typedef struct model {
    const char *name;
    const char *changes[4];
} model;

static const model models[] = {
    {"gpt2", {"model.type=gpt2"}},
    {"llama", {"model.type=llama", "model.num_key_value_heads=1", "model.intermediate_size=100"}},
    {"bert", {"model.type=bert", "model.type_vocab_size=3", "model.intermediate_size=100"}},
};

/* train.attention of what is tested. */
static const char *attention = "train.attention=own";

/* A configuration of the model with these changes too. */
static ps_config *config_of(const model *m, const char *const *changes)
{
    const char *all[24] = {attention};
    int n = 1;
    for (int i = 0; i < 4 && m->changes[i] != NULL; i++) all[n++] = m->changes[i];
    for (; *changes != NULL; changes++) all[n++] = *changes;
    return tiny_with(all);
}

static void expect_close(const char *what, const run_result *want, const run_result *got, double tolerance)
{
    for (int s = 0; s < STEPS; s++) {
        if (!(fabs((double)got->losses[s] - (double)want->losses[s]) <= tolerance * fabs((double)want->losses[s])))
            fail_msg("%s: loss of step %d is %.9g, on the processor %.9g", what, s, (double)got->losses[s],
                     (double)want->losses[s]);
        if (!(fabs(got->norms[s] - want->norms[s]) <= 10 * tolerance * want->norms[s]))
            fail_msg("%s: norm of step %d is %.9g, on the processor %.9g", what, s, got->norms[s], want->norms[s]);
    }
    if (got->hash == want->hash) fail_msg("%s: the processor's very bits: it was not the GPU that computed", what);
}

static void compare_with_processor(const char *format, double tolerance)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(models); i++) {
        ps_config *c = config_of(&models[i], CHANGES(format));
        over_set(c, "train.backend", "cpu");
        over_set(c, "train.attention", "auto");
        const run_result want = train(c, STEPS), got = train(config_of(&models[i], CHANGES(format)), STEPS);
        expect_close(models[i].name, &want, &got, tolerance);
    }
}

static void test_losses_f32(void **state)
{
    (void)state;
    compare_with_processor("bf16.enabled=false", 1e-5);
}

static void test_losses_bf16(void **state)
{
    (void)state;
    compare_with_processor("bf16.enabled=true", 2e-2);
}

static void test_losses_f16(void **state)
{
    (void)state;
    compare_with_processor("fp16.enabled=true", 2e-2);
}

/* ---- budgets ---- */

/* What the refusal of a page says would fit. */
static int64_t least_device(const model *m, const char *const *changes)
{
    ps_engine *e = NULL;
    ps_config *c = config_of(m, changes);
    over_set(c, "memory.device", "4096");
    const ps_status st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
    ps_config_destroy(c);
    assert_int_equal(st, PS_EBUDGET);
    return named_bytes(ps_last_error(), "memory.device=");
}

static void expect_planned(const char *what, const ps_memory_info *m)
{
    if (m->device_peak_bytes != m->planned_device_peak_bytes || m->host_peak_bytes != m->planned_host_peak_bytes ||
        m->disk_peak_bytes != m->planned_disk_peak_bytes)
        fail_msg("%s: peaks %lld, %lld, %lld, planned %lld, %lld, %lld", what, (long long)m->device_peak_bytes,
                 (long long)m->host_peak_bytes, (long long)m->disk_peak_bytes, (long long)m->planned_device_peak_bytes,
                 (long long)m->planned_host_peak_bytes, (long long)m->planned_disk_peak_bytes);
}

static int64_t moved(const ps_memory_info *m)
{
    return m->host_to_device_bytes + m->device_to_host_bytes + m->disk_read_bytes + m->disk_write_bytes;
}

/* With so much of the device: the bits of `want`, and what was planned. */
static void expect_same(const char *what, const model *m, const char *const *changes, int64_t device_bytes,
                        const run_result *want)
{
    run_result r[2];
    for (int more = 0; more < 2; more++) {
        ps_config *c = config_of(m, changes);
        over_set_number(c, "memory.device", device_bytes);
        r[more] = train(c, STEPS + more);
    }
    for (int s = 0; s < STEPS; s++)
        if (memcmp(&r[0].losses[s], &want->losses[s], sizeof want->losses[s]) != 0)
            fail_msg("%s, %s, %lld bytes: loss of step %d is %.9g, not %.9g", m->name, what, (long long)device_bytes, s,
                     (double)r[0].losses[s], (double)want->losses[s]);
    if (r[0].hash != want->hash) fail_msg("%s, %s, %lld bytes: other weights", m->name, what, (long long)device_bytes);
    expect_planned(what, &r[1].memory);
    if (STEPS + 1 >= r[1].memory.planned_step)
        assert_int_equal(moved(&r[1].memory) - moved(&r[0].memory), r[1].memory.planned_moved_bytes);
}

static void test_budgets(void **state)
{
    (void)state;
    static const char *const tiers[][3] = {
        {"memory.host=64MB", "memory.disk=0", "activation_checkpointing.enabled=false"},
        {"memory.host=16MB", "memory.disk=64MB", "memory.prefetch=2"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(models); i++) {
        const model *m = &models[i];
        const run_result want = train(config_of(m, CHANGES("bf16.enabled=true")), STEPS);
        for (size_t t = 0; t < PS_ARRAY_LEN(tiers); t++) {
            const char *const *changes = CHANGES("bf16.enabled=true", tiers[t][0], tiers[t][1], tiers[t][2],
                                                 t == 0 ? "default_chunk_size=0" : "default_chunk_size=8192");
            const int64_t least = least_device(m, changes), most = want.memory.device_peak_bytes;
            expect_same(tiers[t][0], m, changes, least, &want);
            if (most > least) expect_same(tiers[t][0], m, changes, (least + most) / 2, &want);
        }
    }
}

/* ---- products ---- */

/* Slices of the loss are products of the same shape, whether the logits are kept or computed again. */
static void test_kept_logits(void **state)
{
    (void)state;
    uint64_t hash[2];
    for (int i = 0; i < 2; i++)
        hash[i] =
            train(tiny_with(CHANGES("bf16.enabled=false", "model.n_layer=1", "model.n_embd=12", "model.vocab_size=4250",
                                    "model.n_positions=4", "train_micro_batch_size_per_gpu=1",
                                    i == 0 ? "memory.keep_logits=always" : "memory.keep_logits=never")),
                  STEPS)
                .hash;
    assert_true(hash[0] == hash[1]);
}

/* Additions and gelu's derivative are the product's or kernels', by what the library has: seen in bits, and the same
 * however a model is run. */
static void test_what_follows_a_gemm(void **state)
{
    (void)state;
    if (mock_gpu_is_hardware()) skip(); /* whose library lacks what it lacks */
    static const fake_cublaslt_lack lacks[] = {FAKE_CUBLASLT_NOTHING, FAKE_CUBLASLT_DGELU, FAKE_CUBLASLT_ADDEND_LATE};
    static const char *const ways[] = {"memory.prefetch=2", "activation_checkpointing.enabled=true",
                                       "memory.device=300KB", "default_chunk_size=4096"};
    uint64_t hash[PS_ARRAY_LEN(lacks)];
    for (size_t i = 0; i < PS_ARRAY_LEN(lacks); i++) {
        fake_cublaslt_without(lacks[i]);
        for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
            const uint64_t h = train(tiny_with(CHANGES("bf16.enabled=true", "model.n_layer=2", "model.n_embd=24",
                                                       "memory.host=64MB", ways[w])),
                                     STEPS)
                                   .hash;
            if (w == 0) hash[i] = h;
            if (h != hash[i]) fail_msg("lack %d: %s", (int)lacks[i], ways[w]);
        }
        for (size_t k = 0; k < i; k++) assert_true(hash[k] != hash[i]);
    }
    fake_cublaslt_without(FAKE_CUBLASLT_NOTHING);
}

/* ---- with cuDNN ---- */

/* False: this machine has none. */
static bool use_cudnn(void)
{
    const ps_cudnn *dnn;
    mock_gpu_install_cudnn();
    attention = "train.attention=cudnn";
    return !mock_gpu_is_hardware() || ps_cudnn_load(&dnn) == PS_OK;
}

static void use_own(void)
{
    attention = "train.attention=own";
}

/* Of bf16 and f16 it is cuDNN's, of f32 our kernels'; both are the processor's within rounding. */
static void test_cudnn_losses(void **state)
{
    (void)state;
    if (!use_cudnn()) skip();
    const int n = mock_gpu_is_hardware() ? 0 : fake_cudnn_calls("execute");
    compare_with_processor("bf16.enabled=false", 1e-5);
    if (!mock_gpu_is_hardware()) assert_int_equal(fake_cudnn_calls("execute"), n);
    compare_with_processor("bf16.enabled=true", 2e-2);
    compare_with_processor("fp16.enabled=true", 2e-2);
    /* steps of two formats, models that have no masks, layers, forward and backward */
    if (!mock_gpu_is_hardware()) assert_true(fake_cudnn_calls("execute") >= n + 2 * STEPS * 2 * 2 * 2);
    use_own();
}

static void test_cudnn_budgets(void **state)
{
    if (!use_cudnn()) skip();
    test_budgets(state);
    use_own();
}

static void expect_refused(const char *const *changes, ps_status st, const char *text);

static ps_engine *engine_with(const char *const *changes)
{
    ps_config *c = tiny_with(changes);
    ps_engine *e = engine_of(c);
    ps_config_destroy(c);
    return e;
}

/* "auto" takes what is there; "cudnn" insists, and is nothing for the processor. */
static void test_choice_of_attention(void **state)
{
    (void)state;
    if (mock_gpu_is_hardware()) skip(); /* which has a library or not */
    ps_engine *e = engine_with(CHANGES("bf16.enabled=true"));
    assert_string_equal(ps_backend_cuda_attention(e->settings.backend), "own kernels");
    assert_string_equal(e->settings.gpu.found.attention, "own kernels");
    ps_engine_destroy(e);
    expect_refused(CHANGES("train.attention=cudnn"), PS_ENOSYS,
                   "train.attention = cudnn: no library for it is available");
    mock_gpu_install_cudnn();
    e = engine_with(CHANGES("bf16.enabled=true"));
    assert_string_equal(ps_backend_cuda_attention(e->settings.backend), "cuDNN 9.20.0");
    assert_string_equal(e->settings.gpu.found.attention, "cuDNN 9.20.0");
    ps_engine_destroy(e);
    e = engine_with(CHANGES("bf16.enabled=true", "train.attention=own"));
    assert_string_equal(ps_backend_cuda_attention(e->settings.backend), "own kernels");
    ps_engine_destroy(e);
    ps_config *c = TINY("train.attention=cudnn");
    over_set(c, "train.backend", "cpu");
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "train.attention = cudnn, but it is not a GPU that computes"));
    ps_config_destroy(c);
}

/* ---- what a GPU is asked for ---- */

static void expect_refused(const char *const *changes, ps_status st, const char *text)
{
    ps_engine *e = NULL;
    ps_config *c = tiny_with(changes);
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), st);
    assert_null(e);
    ps_config_destroy(c);
    if (strstr(ps_last_error(), text) == NULL) fail_msg("not \"%s\": %s", text, ps_last_error());
    assert_null(strchr(ps_last_error(), '\n'));
}

static void test_budget_beyond_the_gpu(void **state)
{
    (void)state;
    expect_refused(CHANGES("memory.device=4TB"), PS_EBUDGET, "memory.device = 4 TB, but of the ");
    expect_refused(CHANGES("train.reproducible=machine"), PS_EINVAL, "train.reproducible = machine: a GPU adds");
}

static void test_auto(void **state)
{
    (void)state;
    ps_config *c = TINY("memory.device=auto", "memory.host=64MB");
    over_set(c, "train.backend", "auto");
    ps_engine *e = engine_of(c);
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(e, &m);
    assert_int_equal(e->settings.backend_kind, PS_BACKEND_CUDA);
    assert_string_equal(ps_backend_name(e->settings.backend), "cuda");
    assert_true(m.device_budget_bytes > e->settings.gpu.found.usable_bytes / 2);
    assert_true(m.device_budget_bytes <= e->settings.gpu.found.usable_bytes);
    ps_engine_destroy(e);
    over_set(c, "train.reproducible", "machine");
    e = engine_of(c);
    assert_int_equal(e->settings.backend_kind, PS_BACKEND_CPU);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Before the first step cuBLASLt has met every shape, and chosen, and cuDNN has executed its plans: a step would wait for
 * what that loads. */
static void test_libraries_are_ready(void **state)
{
    (void)state;
    if (mock_gpu_is_hardware()) skip();
    static const char *const ways[] = {"gradient_accumulation_steps=1", "gradient_accumulation_steps=2",
                                       "activation_checkpointing.enabled=true"};
    for (size_t i = 0; i < PS_ARRAY_LEN(models); i++)
        for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
            ps_config *c = config_of(&models[i], CHANGES("bf16.enabled=true", ways[w]));
            ps_engine *e = engine_of(c);
            const int n = fake_cublaslt_calls("choose");
            assert_true(n > 0);
            for (int step = 0; step < 2; step++) assert_ok(tiny_step(e, step));
            if (fake_cublaslt_calls("choose") != n)
                fail_msg("%s, %s: %d shapes are met in a step", models[i].name, ways[w],
                         fake_cublaslt_calls("choose") - n);
            ps_engine_destroy(e);
            ps_config_destroy(c);
        }
    if (!use_cudnn()) return;
    const int n = fake_cudnn_calls("execute");
    ps_config *c = config_of(&models[0], CHANGES("bf16.enabled=true"));
    ps_engine *e = engine_of(c);
    assert_int_equal(fake_cudnn_calls("execute"), n + 2); /* forward and backward, of both layers */
    ps_engine_destroy(e);
    ps_config_destroy(c);
    use_own();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_f32),
        cmocka_unit_test(test_losses_bf16),
        cmocka_unit_test(test_losses_f16),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_kept_logits),
        cmocka_unit_test(test_what_follows_a_gemm),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_budget_beyond_the_gpu),
        cmocka_unit_test(test_choice_of_attention),
        cmocka_unit_test(test_libraries_are_ready),
        cmocka_unit_test(test_cudnn_losses),
        cmocka_unit_test(test_cudnn_budgets),
    };
    return RUN_ON_BACKENDS(tests);
}
