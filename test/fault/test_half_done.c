/* test_half_done.c - a failure of the device between steps, when a part of what was asked for has been done: the engine
 * says that it has failed, and uses nothing that is half done or lost. */
#include "cuda/fake_cpu.h"
#include "engine/engine_fixture.h"

#include "base/fault.h"

#include "temp_folder.h"

enum { STEPS = 3, LAST_COPY = 40 };

typedef struct outcome {
    bool failed;  /* the call between steps */
    bool refused; /* the step after it */
    uint64_t hash;
} outcome;

typedef ps_status (*between_func)(ps_engine *e, const char *folder);

static ps_status checkpoint(ps_engine *e, const char *folder)
{
    return ps_engine_save_checkpoint(e, folder, NULL, NULL);
}

static ps_status write_tensor(ps_engine *e, const char *folder)
{
    float value;
    PS_TRY(ps_engine_begin_checkpoint(e, folder, NULL));
    PS_TRY(ps_engine_read_tensor(e, 0, 0, 1, &value));
    return ps_engine_write_tensor(e, 0, 0, 1, &value);
}

/* Updates are deferred: when `between` is called after the second step, its updates are still to be made. */
static outcome run(between_func between, int64_t failing_copy)
{
    const temp_folder f = temp_folder_make();
    ps_config *c = TINY("bf16.enabled=true", "default_chunk_size=2048", "memory.defer_updates=true",
                        "memory.device=8MiB", "train.backend=cuda");
    ps_engine *e = engine_of(c);
    int32_t tokens[2 * 16], targets[2 * 16];
    outcome o = {false, false, 0};
    for (int step = 0; step < STEPS && !o.refused; step++) {
        fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, step);
        const ps_status st =
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL);
        if (st != PS_OK) {
            assert_int_equal(st, PS_ESTATE);
            o.refused = true;
            break;
        }
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
        if (step != 1) continue;
        ps_fault_arm(PS_FAULT_COPY, failing_copy, false);
        o.failed = between(e, f.path) != PS_OK;
        if (o.failed) assert_non_null(strstr(ps_last_error(), "failed"));
        ps_fault_arm(PS_FAULT_COPY, -1, false);
    }
    if (!o.refused) assert_ok(ps_engine_get_weights_xxh3(e, &o.hash));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    temp_folder_remove(&f);
    return o;
}

static void walk(between_func between)
{
    const outcome good = run(between, -1);
    int n_failed = 0;
    assert_false(good.failed || good.refused);
    for (int64_t copy = 0; copy < LAST_COPY; copy += 3) {
        const outcome o = run(between, copy);
        n_failed += o.failed;
        assert_true(o.failed == o.refused);
        if (!o.refused) assert_true(o.hash == good.hash);
    }
    assert_true(n_failed > 0);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_checkpoint(void **state)
{
    (void)state;
    walk(checkpoint);
}

static void test_write_tensor(void **state)
{
    (void)state;
    walk(write_tensor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_write_tensor),
    };
    fake_cpu_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES});
    return cmocka_run_group_tests(tests, NULL, NULL) + !fake_cpu_end();
}
