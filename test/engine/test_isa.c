/* test_isa.c - train.reproducible = machine: every instruction set from avx2 on and every number of threads trains to
 * the same bits, which stand here, so that a processor or a compiler that has others shows. */
#include "checkpoint/checkpoint_fixture.h"
#include "kernel/cpu/cpu_backend.h"

#define STEPS 6
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Whatever has an arithmetic of its own: a schedule that is no straight line, dropout, clipping, several micro-batches,
 * more than one tile of keys, and sizes that fill no vector and no tile. */
#define COMMON                                                                                                         \
    "model.n_positions=84", "gradient_accumulation_steps=2", "scheduler.type=cosine",                                  \
        "scheduler.params.warmup_num_steps=2", "scheduler.params.total_num_steps=7", "train.reproducible=machine"
#define GPT2 COMMON, "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"
#define LLAMA                                                                                                          \
    COMMON, "model.type=llama", "model.n_embd=96", "model.n_head=6", "model.num_key_value_heads=2",                    \
        "model.sliding_window=21", "model.intermediate_size=100"

typedef struct one_model {
    const char *name;
    const char *const *changes;
    uint64_t hash; /* of losses, norms and weights */
} one_model;

static uint64_t train_on(const one_model *m, const char *isa, int threads)
{
    char number[16];
    ps_config *c = tiny_with(m->changes);
    snprintf(number, sizeof number, "%d", threads);
    assert_ok(ps_config_set(c, "train.isa", isa));
    assert_ok(ps_config_set(c, "train.threads", number));
    const run_result r = train(c, STEPS);
    uint64_t hash = r.hash;
    for (int s = 0; s < STEPS; s++) {
        uint64_t words[2] = {0};
        memcpy(&words[0], &r.losses[s], sizeof r.losses[s]);
        memcpy(&words[1], &r.norms[s], sizeof r.norms[s]);
        for (int i = 0; i < 2; i++) hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
    }
    return hash;
}

static void follow(const one_model *m)
{
    if (ps_cpu_isa_detect() < PS_CPU_AVX2) skip();
    const uint64_t first = train_on(m, "avx2", 1);
    for (int isa = PS_CPU_AVX2; isa <= (int)ps_cpu_isa_detect(); isa++)
        for (int threads = 1; threads <= 3; threads++) {
            const char *const name = ps_cpu_isa_name((ps_cpu_isa)isa);
            if (train_on(m, name, threads) != first)
                fail_msg("%s: %s with %d threads has other bits than avx2 with one", m->name, name, threads);
        }
    if (first != m->hash)
        fail_msg("%s: all instruction sets here agree on 0x%llx, but this test has 0x%llx: another arithmetic since, "
                 "or another "
                 "processor or compiler",
                 m->name, (unsigned long long)first, (unsigned long long)m->hash);
}

static void test_gpt2_f32(void **state)
{
    (void)state;
    follow(&(one_model){"gpt2 f32", CHANGES(GPT2), UINT64_C(0xe1eaf098c1ebe9c5)});
}

static void test_gpt2_bf16(void **state)
{
    (void)state;
    follow(&(one_model){"gpt2 bf16", CHANGES(GPT2, "bf16.enabled=true"), UINT64_C(0xafce43d99092a468)});
}

static void test_gpt2_compact(void **state)
{
    (void)state;
    follow(&(one_model){"gpt2 compact", CHANGES(GPT2, "bf16.enabled=true", "optimizer.params.state_format=compact"),
                        UINT64_C(0x281a499e08dbd519)});
}

static void test_gpt2_compact_split(void **state)
{
    (void)state;
    follow(&(one_model){"gpt2 compact_split",
                        CHANGES(GPT2, "bf16.enabled=true", "optimizer.params.state_format=compact_split"),
                        UINT64_C(0xb637c882330db0ca)});
}

static void test_gpt2_bf16_stochastic(void **state)
{
    (void)state;
    follow(&(one_model){"gpt2 bf16_stochastic",
                        CHANGES(GPT2, "bf16.enabled=true", "optimizer.params.state_format=bf16_stochastic"),
                        UINT64_C(0x7f006a4640ac020f)});
}

static void test_llama_f32(void **state)
{
    (void)state;
    follow(&(one_model){"llama f32", CHANGES(LLAMA), UINT64_C(0x3d3ee656ff82744f)});
}

static void test_llama_bf16(void **state)
{
    (void)state;
    follow(&(one_model){"llama bf16", CHANGES(LLAMA, "bf16.enabled=true"), UINT64_C(0x12fd4e272bb7a451)});
}

static ps_engine *engine_on(const char *isa, const char *threads, ps_config **c)
{
    *c = tiny_with(CHANGES(GPT2, "bf16.enabled=true"));
    assert_ok(ps_config_set(*c, "train.isa", isa));
    assert_ok(ps_config_set(*c, "train.threads", threads));
    return engine_of(*c);
}

static uint64_t end_run(ps_engine *e, ps_config *c, float *loss)
{
    int32_t tokens[2 * 84], targets[2 * 84];
    uint64_t hash;
    fill_batch(tokens, targets, 2, 84, TINY_VOCABULARY, 1000);
    assert_ok(ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, loss));
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return hash;
}

/* Begun with one instruction set and resumed with another: the bits of a run in one go, and of its evaluation. */
static void test_resume(void **state)
{
    (void)state;
    if (ps_cpu_isa_detect() < PS_CPU_AVX2) skip();
    const char *const best = ps_cpu_isa_name(ps_cpu_isa_detect());
    const work_folder work = work_make();
    ps_config *c = NULL;
    float losses[4], loss, resumed_loss;
    ps_engine *e = engine_on(best, "2", &c);
    train_steps(e, 0, 4, losses);
    const uint64_t hash = end_run(e, c, &loss);

    e = engine_on("avx2", "1", &c);
    train_steps(e, 0, 2, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    e = engine_on(best, "3", &c);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    train_steps(e, 2, 4, losses);
    assert_true(end_run(e, c, &resumed_loss) == hash);
    assert_memory_equal(&resumed_loss, &loss, sizeof loss);
    work_remove(work.path);
}

/* Kernels without FMA round differently: refused, not ignored. */
static void test_refusals(void **state)
{
    (void)state;
    if (ps_cpu_isa_detect() < PS_CPU_AVX2) skip();
    static const char *const without[] = {"train.isa=portable", "train.backend=ref"};
    for (size_t i = 0; i < PS_ARRAY_LEN(without); i++) {
        ps_config *c = tiny_with(CHANGES("train.reproducible=machine", without[i]));
        ps_engine *e = NULL;
        assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), "train.reproducible = run"));
        ps_config_destroy(c);
    }
}

/* AMD's own product of bf16 adds in another order; no AMD is needed to see that it is not taken. */
static void test_amd(void **state)
{
    (void)state;
    assert_true(ps_cpu_uses_dpbf16("AuthenticAMD", PS_CPU_AVX512_BF16, false));
    assert_false(ps_cpu_uses_dpbf16("AuthenticAMD", PS_CPU_AVX512_BF16, true));
    assert_false(ps_cpu_uses_dpbf16("GenuineIntel", PS_CPU_AVX512_BF16, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_f32),
        cmocka_unit_test(test_gpt2_bf16),
        cmocka_unit_test(test_gpt2_compact),
        cmocka_unit_test(test_gpt2_compact_split),
        cmocka_unit_test(test_gpt2_bf16_stochastic),
        cmocka_unit_test(test_llama_f32),
        cmocka_unit_test(test_llama_bf16),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_amd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
