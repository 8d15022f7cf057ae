/* Checkpoints of several ranks, as threads of this process: saved on one back end, resumed on the other. */
#include "checkpoint/checkpoint_fixture.h"
#include "engine/ranks_fixture.h"

static work_folder folder;

/* Saved while the third step runs. */
static ps_status save_and_go_on(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    for (int step = 0; step < 2; step++) PS_TRY(rank_step(e, t, step));
    PS_TRY(ps_engine_begin_checkpoint(e, folder.path, NULL));
    PS_TRY(rank_step(e, t, 2));
    PS_TRY(ps_engine_finish_checkpoint(e, NULL));
    return rank_step(e, t, 3);
}

static ps_status load_and_go_on(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    PS_TRY(ps_engine_load_checkpoint(e, folder.path, NULL));
    for (int step = 2; step < 4; step++) PS_TRY(rank_step(e, t, step));
    return PS_OK;
}

static uint64_t hash_by(rank_run *run, const char *backend, const char *more)
{
    const rank_task *t = run_ranks(2, 0, run,
                                   CHANGES("bf16.enabled=true", "default_chunk_size=4096", "memory.host=2MB",
                                           "memory.save_buffer=64KB", "train.save_interval=3", backend, more));
    return t->result.hash;
}

/* What was saved on the cpu resumes here, and the other way round, in other budgets. */
static void test_checkpoints(void **state)
{
    (void)state;
    const char *const backends[] = {ON_CPU, NOTHING};
    uint64_t want = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(backends); i++) {
        folder = work_make();
        const uint64_t saved = hash_by(save_and_go_on, backends[i], NOTHING);
        if (i == 0) want = saved;
        assert_true(saved == want);
        assert_true(hash_by(load_and_go_on, backends[1 - i], NOTHING) == want);
        assert_true(hash_by(load_and_go_on, backends[i], "memory.device=600KB") == want);
        work_remove(folder.path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoints),
    };
    return RUN_ON_BACKENDS(tests);
}
