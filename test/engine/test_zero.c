/* The options of the section zero, each by what it does. Several ranks: settings only. */
#include "engine/engine_fixture.h"

#include <math.h>

#include "api/engine/engine.h"

enum { STEPS = 4 };

static ps_settings settings_of(ps_config *c)
{
    ps_settings s;
    assert_ok(ps_settings_read(c, true, &s));
    ps_config_destroy(c);
    return s;
}

#define SETTINGS(...) settings_of(TINY(__VA_ARGS__))

/* ---- tensor_placement_policy ---- */

static void test_cuda(void **state)
{
    (void)state;
    const run_result base = train(TINY("bf16.enabled=true"), STEPS);
    const run_result r = train(
        TINY("bf16.enabled=true", "zero.tensor_placement_policy=cuda", "memory.host=auto", "use_cpu_embedding=false"),
        STEPS);
    assert_true(r.hash == base.hash);
    assert_int_equal(r.memory.host_budget_bytes, 0);
    assert_int_equal(r.memory.device_to_host_bytes + r.memory.disk_write_bytes, 0);
    /* where it does not fit it is refused, although the machine has memory */
    ps_engine *e = NULL;
    ps_config *c = TINY("zero.tensor_placement_policy=cuda", "memory.device=900KB", "memory.host=auto");
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    ps_config_destroy(c);
}

/* Chunks leave the device when operators are done with them, though there is room, and are updated on the host. */
static void test_cpu(void **state)
{
    (void)state;
#define HOST "bf16.enabled=true", "default_chunk_size=4096", "memory.host=64MB"
    const run_result base = train(TINY(HOST), STEPS);
    const run_result r = train(TINY(HOST, "zero.tensor_placement_policy=cpu"), STEPS);
    assert_true(r.hash == base.hash);
    assert_int_equal(base.memory.device_to_host_bytes, 0);
    assert_true(r.memory.device_to_host_bytes > 0);
    const int64_t chunks = r.memory.device_peak_bytes - r.memory.non_model_peak_bytes;
    if (chunks > 8 * 4096 * 4) fail_msg("%lld bytes of chunks on the device", (long long)chunks);
    assert_true(r.memory.host_peak_bytes >= r.memory.parameters * 12);
    ps_config *c = TINY(HOST, "zero.tensor_placement_policy=cpu");
    ps_engine *e = engine_of(c);
    for (int32_t i = 0; i < e->exec_plan->layout->n_chunks; i++)
        assert_int_equal(e->exec_plan->update_tier[i], PS_TIER_HOST);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- gradients ---- */

static void test_own_gradient_list(void **state)
{
    (void)state;
    static const char *const ways[] = {"zero.reuse_fp16_shard=false", "zero.fp32_reduce_scatter=true"};
    const run_result base = train(TINY("bf16.enabled=true"), STEPS);
    for (size_t i = 0; i < PS_ARRAY_LEN(ways); i++) {
        const run_result r = train(TINY("bf16.enabled=true", ways[i]), STEPS);
        for (int step = 0; step < STEPS; step++)
            assert_true(fabsf(r.losses[step] - base.losses[step]) < 0.02f * base.losses[step]);
        assert_true(r.hash != base.hash); /* gradients are not rounded */
        /* a third list of 4 bytes next to the moments */
        assert_true(r.memory.model_data_bytes - base.memory.model_data_bytes >= r.memory.parameters * 4 * 9 / 10);
    }
}

/* Division by a power of two and back changes no bit, by another factor the last ones. */
static void test_predivide(void **state)
{
    (void)state;
    const run_result base = train(TINY("gradient_accumulation_steps=2"), STEPS);
    const run_result two = train(TINY("gradient_accumulation_steps=2", "zero.gradient_predivide_factor=2"), STEPS);
    const run_result three = train(TINY("gradient_accumulation_steps=2", "zero.gradient_predivide_factor=3"), STEPS);
    assert_true(two.hash == base.hash);
    assert_true(three.hash != base.hash);
    for (int step = 0; step < STEPS; step++) {
        assert_true(two.norms[step] == base.norms[step]);
        assert_true(fabs(three.norms[step] - base.norms[step]) < 1e-5 * base.norms[step]);
        assert_true(fabsf(three.losses[step] - base.losses[step]) < 1e-5f * base.losses[step]);
    }
    ps_config *c = TINY("fp16.enabled=true", "fp16.loss_scale=64", "zero.gradient_predivide_factor=8");
    ps_engine *e = engine_of(c);
    int32_t tokens[32], targets[32];
    float loss;
    ps_step_info info = {.struct_size = sizeof info};
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 0);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
    assert_true(e->loss_scale == 8);
    assert_ok(ps_backward(e));
    assert_ok(ps_step(e));
    ps_engine_get_step_info(e, &info);
    assert_true(info.loss_scale == 64);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_predivide_of_ranks(void **state)
{
    (void)state;
    static const struct {
        int32_t n;
        double f;
    } cases[] = {{1, 1}, {2, 2}, {3, 2}, {4, 2}, {8, 4}, {6, 4}, {64, 8}};
    ps_config *c = TINY("zero.gradient_predivide_factor=0"), *fixed = TINY("zero.gradient_predivide_factor=5");
    ps_settings s;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_ok(ps_settings_read(c, true, &s));
        assert_ok(ps_settings_set_ranks(&s, c, 0, cases[i].n));
        if (s.gradient_predivide != cases[i].f) fail_msg("%d ranks: %g", cases[i].n, s.gradient_predivide);
    }
    assert_ok(ps_settings_set_ranks(&s, fixed, 0, 8));
    assert_true(s.gradient_predivide == 5);
    ps_config_destroy(c);
    ps_config_destroy(fixed);
}

/* ---- names of other options ---- */

static void test_twins(void **state)
{
    (void)state;
    assert_true(SETTINGS("zero.gpu_margin_mem_ratio=0.25").margin_share == 0.25);
    assert_true(SETTINGS("zero.gpu_margin_mem_ratio=0").margin_share == 0);
    assert_true(SETTINGS("client.mem_tracer.margin_use_ratio=0.5").margin_share == 0.5);
    assert_int_equal(SETTINGS("zero.reduce_scatter_bucket_size_mb=3").comm_staging_bytes, 3000000);
    assert_int_equal(SETTINGS("comm.staging=4MiB").comm_staging_bytes, 4 << 20);
    assert_int_equal(SETTINGS("train.seed=1").comm_staging_bytes, 4000000);
}

/* ---- batch ---- */

static void test_batch_of_ranks(void **state)
{
    (void)state;
    ps_config *c = TINY("gradient_accumulation_steps=3", "train_batch_size=24");
    ps_settings s;
    assert_ok(ps_settings_read(c, true, &s));
    assert_ok(ps_settings_set_ranks(&s, c, 2, 4));
    assert_int_equal(s.ranks.rank, 2);
    assert_int_equal(s.ranks.n, 4);
    assert_int_equal(ps_settings_set_ranks(&s, c, 2, 3), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "times 3 ranks is 18"));
    ps_engine *e = NULL;
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "times 1 rank is 6"));
    ps_config_destroy(c);
}

/* Ranks do not write over each other's profile. */
static void test_profile_path(void **state)
{
    (void)state;
    ps_config *c = TINY("profile.path=p.json");
    ps_settings s;
    assert_ok(ps_settings_read(c, true, &s));
    assert_ok(ps_settings_set_ranks(&s, c, 0, 1));
    assert_string_equal(s.profile_path, "p.json");
    assert_ok(ps_settings_set_ranks(&s, c, 1, 2));
    assert_string_equal(s.profile_path, "p.json.rank-1");
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_own_gradient_list),
        cmocka_unit_test(test_predivide),
        cmocka_unit_test(test_predivide_of_ranks),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_batch_of_ranks),
        cmocka_unit_test(test_profile_path),
    };
    return RUN_ON_BACKENDS(tests);
}
