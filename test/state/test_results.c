/* test_results.c - what comes back from a device that the host cannot touch: losses, sums of gradients, outputs; and
 * what goes there: batches, constants. It computes here as the cpu does, in RAM of its own, so the bits are the cpu's;
 * and in as much memory as was planned. */
#include "engine/engine_fixture.h"

#include "config/config.h"
#include "train/plan/shape.h"
#include "train/run/runner.h"
#include "train/state/results.h"

enum { B = 2, T = 16, V = TINY_VOCABULARY, K = 2 };

/* ---- a backend of the cpu that says its memory is not the host's ---- */

static ps_backend *cpu;

static ps_status discrete_run(ps_op op, const void *args, size_t workspace_bytes)
{
    return ps_kernel_run(cpu, op, NULL, args, workspace_bytes);
}

#define XX(op)                                                                                                         \
    static ps_status run_##op(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)             \
    {                                                                                                                  \
        (void)self, (void)queue;                                                                                       \
        return discrete_run(PS_OP_##op, args, workspace_bytes);                                                        \
    }                                                                                                                  \
    static ps_status bytes_##op(ps_backend *self, const void *args, size_t *out)                                       \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        return ps_kernel_measure(cpu, PS_OP_##op, args, out);                                                          \
    }                                                                                                                  \
    static const ps_kernel kernel_##op = {.run = run_##op, .workspace_bytes = bytes_##op};
PS_OPS(XX)
#undef XX

static const ps_kernel *const kernels[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &kernel_##op,
    PS_OPS(XX)
#undef XX
};

static ps_device_ops discrete_device;
static ps_space discrete_space;

static const ps_space *space_of(const ps_backend *b)
{
    (void)b;
    return &discrete_space;
}

static void destroy_nothing(ps_backend *b)
{
    (void)b;
}

static const ps_backend_ops discrete_ops = {
    .name = "apart", .kernels = kernels, .epilogues = PS_EPILOGUES_ALL, .destroy = destroy_nothing, .space = space_of};
static ps_backend unmanaged = {.ops = &discrete_ops};

/* ---- a run ---- */

typedef struct run {
    ps_settings settings;
    ps_shapes shapes;
    ps_tiers tiers;
    ps_runner *runner;
    ps_param_groups groups;
} run;

static void open_run(run *r, ps_config *c, bool training, bool is_discrete)
{
    *r = (run){0};
    assert_ok(ps_settings_read(c, training, &r->settings));
    assert_ok(ps_settings_set_ranks(&r->settings, c, 0, 1));
    r->settings.backend = is_discrete ? &unmanaged : cpu;
    assert_ok(ps_shapes_open(&r->shapes, &r->settings, c, ps_model_from_config, c));
    const ps_exec_plan *b = r->shapes.all[0]->exec_plan;
    const ps_tiers_desc o = ps_exec_plan_tiers(b, &r->settings.budgets);
    assert_true(is_discrete == (o.results_bytes > 0));
    assert_true(is_discrete == (b->code->n_constants > 0));
    assert_ok(ps_tiers_open(&o, &r->tiers));
    assert_ok(ps_runner_create(b, &r->tiers, &(ps_runner_options){.compute = true}, &r->runner));
    assert_ok(ps_runner_create_params(r->runner, true));
    assert_ok(ps_param_groups_init(&r->groups, &r->settings));
}

static void close_run(run *r)
{
    ps_runner_destroy(r->runner);
    ps_param_groups_deinit(&r->groups);
    ps_tiers_close(&r->tiers);
    ps_shapes_close(&r->shapes);
}

static int32_t tokens[B * T], targets[B * T];

static const ps_batch *batch_of(int64_t index)
{
    static const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    fill_batch(tokens, targets, B, T, V, index);
    targets[index % (B * T)] = PS_IGNORE_INDEX;
    return &batch;
}

/* ---- */

typedef struct seen {
    ps_loss_sums losses[K];
    ps_eval_info offload_index;
    ps_grad_sums sums;
} seen;

static void one_step(run *r, int64_t step, seen *s)
{
    memset(s, 0, sizeof *s);
    for (int64_t m = 0; m < K; m++) {
        assert_ok(ps_runner_forward(
            r->runner,
            &(ps_pass){.kind = PS_PASS_TRAIN, .batch = *batch_of(step * K + m), .loss_scale = 1.0f / (K * B * T)}));
        assert_ok(ps_runner_backward(r->runner, NULL));
        assert_true(ps_runner_end_micro(r->runner) == (m == K - 1));
    }
    assert_ok(ps_runner_grad_sums(r->runner, &s->sums));
    for (int64_t m = 0; m < K; m++) assert_ok(ps_runner_loss_sums(r->runner, m, &s->losses[m]));
    r->groups.all[0].lr = 1e-2;
    ps_param_groups_decide(&r->groups, step, false, 1);
    assert_ok(ps_runner_update(r->runner, &r->groups));
    assert_ok(ps_runner_flush(r->runner));
    assert_ok(ps_runner_forward(r->runner, &(ps_pass){.kind = PS_PASS_EVALUATE, .batch = *batch_of(0)}));
    assert_ok(ps_runner_eval(r->runner, &s->offload_index));
}

static void test_training(void **state)
{
    (void)state;
    ps_config *c = TINY("model.type=llama", "model.num_key_value_heads=1", "model.intermediate_size=100",
                        "gradient_accumulation_steps=2", "memory.device=900KB", "memory.host=4MB", "train.threads=2");
    run here, there;
    open_run(&here, c, true, false);
    open_run(&there, c, true, true);
    for (int64_t step = 0; step < 3; step++) {
        seen a, b;
        one_step(&here, step, &a);
        one_step(&there, step, &b);
        assert_true(ps_exact_sum_value(&a.sums.sum_squares) > 0);
        assert_true(ps_exact_sum_value(&a.sums.sum_squares) == ps_exact_sum_value(&b.sums.sum_squares));
        for (int m = 0; m < K; m++) assert_memory_equal(&a.losses[m], &b.losses[m], sizeof a.losses[m]);
        assert_true(a.losses[0].loss != a.losses[1].loss && a.losses[0].n_targets == B * T - 1);
        assert_memory_equal(&a.offload_index, &b.offload_index, sizeof a.offload_index);
    }
    const ps_shape *shape = there.shapes.all[0];
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) {
        const ps_device_stats d = ps_device_get_stats(there.tiers.ram[i]);
        assert_true(d.peak_bytes <= d.budget_bytes && d.peak_bytes == shape->forecast.peak_bytes[i]);
    }
    close_run(&there);
    close_run(&here);
    ps_config_destroy(c);
}

/* All rows, and one of them. */
static void test_inference(void **state)
{
    (void)state;
    static float all[2][B * T * V], one[2][V];
    ps_config *c = TINY("model.type=llama", "model.num_key_value_heads=1", "model.intermediate_size=100");
    for (int is_discrete = 0; is_discrete < 2; is_discrete++) {
        run r;
        open_run(&r, c, false, is_discrete != 0);
        ps_pass pass = {.kind = PS_PASS_INFER, .batch = *batch_of(5), .output = all[is_discrete], .output_row = -1};
        assert_ok(ps_runner_forward(r.runner, &pass));
        pass.output = one[is_discrete], pass.output_row = 7;
        assert_ok(ps_runner_forward(r.runner, &pass));
        ps_eval_info loss = {.struct_size = sizeof loss};
        assert_ok(ps_runner_forward(r.runner, &(ps_pass){.kind = PS_PASS_EVALUATE, .batch = *batch_of(5)}));
        assert_ok(ps_runner_eval(r.runner, &loss));
        assert_true(loss.loss > 1 && loss.n_targets == B * T - 1);
        close_run(&r);
    }
    assert_memory_equal(all[0], all[1], sizeof all[0]);
    assert_memory_equal(one[0], one[1], sizeof one[0]);
    assert_memory_equal(one[0], all[0] + 7 * V, sizeof one[0]);
    ps_config_destroy(c);
}

/* ---- sums of the host's kernels ---- */

static void add(ps_results *r, ps_tier tier, double x, int64_t n_nonfinite, int32_t tensor)
{
    ps_grad_sums *s = ps_results_write_grads(r, tier);
    ps_exact_sum_add(&s->sum_squares, x);
    if (n_nonfinite > 0) ps_grad_sums_count(s, n_nonfinite, tensor);
    ps_results_note_grads(r, tier);
}

static ps_grad_sums read_grads(ps_results *r)
{
    const ps_step_sums *all;
    assert_ok(ps_results_read(r, &all));
    return all->grads;
}

/* The host has sums of its own next to the device's block, which make no difference to a reader. */
static void test_two_places(void **state)
{
    (void)state;
    ps_tiers tiers = {.results_bytes = ps_results_bytes(1)};
    ps_results r;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        assert_ok(ps_device_create(&ps_device_cpu_ops, "ram", PS_MIB, &tiers.ram[t]));
        assert_ok(ps_queue_create(tiers.ram[t], "kernels", PS_QUEUE_COMPUTE, &tiers.compute[t]));
    }
    assert_ok(ps_device_alloc(tiers.ram[PS_TIER_DEVICE], tiers.results_bytes, &tiers.results));
    assert_ok(ps_results_init(&r, &tiers, 1));
    assert_ptr_not_equal(ps_results_write_grads(&r, PS_TIER_DEVICE), ps_results_write_grads(&r, PS_TIER_HOST));
    add(&r, PS_TIER_HOST, 0x1p-300, 2, 7);
    add(&r, PS_TIER_DEVICE, 0x1p300, 0, 3);
    ps_grad_sums got = read_grads(&r), want = {.n_nonfinite = 2, .first_nonfinite = 7};
    ps_exact_sum_add(&want.sum_squares, 0x1p300);
    ps_exact_sum_add(&want.sum_squares, 0x1p-300);
    ps_exact_sum_carry(&want.sum_squares);
    assert_memory_equal(&got, &want, sizeof got);
    add(&r, PS_TIER_DEVICE, 0x1p-300, 5, 3); /* the device's are those before */
    got = read_grads(&r);
    assert_int_equal(got.n_nonfinite, 7);
    assert_int_equal(got.first_nonfinite, 3);
    assert_true(got.sum_squares.digit[1] == 2 * want.sum_squares.digit[1] && want.sum_squares.digit[1] != 0);
    assert_ok(ps_results_clear_grads(&r));
    got = read_grads(&r);
    assert_int_equal(got.n_nonfinite, 0);
    assert_true(ps_exact_sum_value(&got.sum_squares) == 0);
    ps_results_deinit(&r);
    ps_device_free(tiers.ram[PS_TIER_DEVICE], tiers.results, tiers.results_bytes, NULL);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        ps_queue_destroy(tiers.compute[t]);
        ps_device_destroy(tiers.ram[t]);
    }
}

int main(void)
{
    assert_ok(ps_backend_create_cpu(ps_cpu_isa_detect(), 2, &cpu));
    discrete_device = ps_device_cpu_ops;
    discrete_device.name = "apart";
    discrete_device.host_can_touch = false;
    discrete_space = (ps_space){.device = &discrete_device, .host = &ps_device_cpu_ops, .page_bytes = PS_PAGE_BYTES};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_two_places),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    ps_backend_destroy(cpu);
    return rc;
}
