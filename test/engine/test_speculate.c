/* Updates within the backward pass that may turn out to be wrong: validated or taken back when the norm is known, with
 * the bits of updates that wait for it, in memory as planned; and what is seen of the model in between. All of it with
 * gradients that are kept, and once more with passes that are made a second time. */
#include <jansson.h>
#include <math.h>

#include "checkpoint/checkpoint_fixture.h"
#include "engine/candidate_fixture.h"
#include "engine/ranks_fixture.h"

enum { STEPS = 9 };

/* The passes of wrong steps are made a second time. */
static bool recomputes;

#define BF16 "bf16.enabled=true"
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"
#define SPLIT "optimizer.params.state_format=compact_split"
#define STOCHASTIC "optimizer.params.state_format=bf16_stochastic"
#define SPECULATE "memory.update_in_backward=speculate"
#define LATE "memory.update_in_backward=never"
#define SMALL SPECULATE, "memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048"
#define IN_MEMORY LATE, "memory.device=64MB", "memory.host=64MB", "memory.disk=0"
/* Of the tiny model: no step is clipped, or each one. */
#define CLIPS_NONE "gradient_clipping=100"
#define CLIPS_ALL "gradient_clipping=0.1"

typedef struct course {
    uint64_t hash;
    double losses[STEPS], norms[STEPS];
    int n_skipped, n_right, n_wrong; /* steps; those whose speculative updates were right, and wrong */
} course;

static void take_step(const ps_engine *e, int step, course *r)
{
    ps_step_info info = {.struct_size = sizeof info};
    assert_ok(ps_engine_get_step_info(e, &info));
    r->losses[step] = info.loss;
    r->norms[step] = info.grad_norm;
    r->n_skipped += info.is_skipped;
    r->n_right += info.n_speculated > 0 && info.n_taken_back == 0;
    r->n_wrong += info.n_taken_back > 0;
    assert_true(info.n_taken_back == 0 || info.n_taken_back == info.n_speculated);
    assert_int_equal(info.recomputed, recomputes && info.n_taken_back > 0 && !info.is_skipped);
}

/* With so many sixths of the chunks updated early; 0: as planned. */
static ps_engine *engine_with(ps_config *c, int sixths, ps_exec_plan **former)
{
    ps_engine *e = engine_of(c);
    *former = NULL;
    if (sixths == 0) return e;
    const ps_candidate v = share_of(e, sixths, PS_UPDATE_DEFERRED);
    assert_ok(use_candidate(e, v, former));
    assert_true(e->exec_plan->speculates);
    assert_int_equal(e->exec_plan->recompute != NULL, recomputes);
    assert_int_equal(e->exec_plan->candidate.n_early, v.n_early);
    return e;
}

static void expect_budgets_kept(const ps_engine *e)
{
    ps_memory_info m = {.struct_size = sizeof m};
    assert_ok(ps_engine_get_memory_info(e, &m));
    assert_true(m.device_peak_bytes <= m.device_budget_bytes);
    assert_true(m.host_peak_bytes <= m.host_budget_bytes);
    assert_true(m.disk_peak_bytes <= m.disk_budget_bytes);
    assert_ordered(e);
}

/* The engine and the configuration are given up. has_nan: two steps are skipped. */
static course follow(ps_config *c, int sixths, bool has_nan)
{
    course r = {0};
    ps_exec_plan *former;
    ps_engine *e = engine_with(c, sixths, &former);
    for (int step = 0; step < STEPS; step++) {
        const bool is_nan = has_nan && (step == 4 || step == 5);
        const float nan_value = NAN;
        float value;
        if (is_nan) assert_ok(ps_engine_read_tensor(e, 4, 3, 1, &value));
        if (is_nan) assert_ok(ps_engine_write_tensor(e, 4, 3, 1, &nan_value));
        assert_ok(tiny_step(e, step));
        take_step(e, step, &r);
        if (is_nan) assert_ok(ps_engine_write_tensor(e, 4, 3, 1, &value));
    }
    r.hash = hash_of(e);
    expect_budgets_kept(e);
    ps_engine_destroy(e);
    ps_exec_plan_destroy(former);
    ps_config_destroy(c);
    return r;
}

static void expect_same(const char *what, const course *want, const course *is)
{
    assert_int_equal(is->n_skipped, want->n_skipped);
    for (int s = 0; s < STEPS; s++)
        if (memcmp(&want->losses[s], &is->losses[s], sizeof want->losses[s]) != 0 ||
            memcmp(&want->norms[s], &is->norms[s], sizeof want->norms[s]) != 0)
            fail_msg("%s: step %d has loss %.17g and norm %.17g, not %.17g and %.17g", what, s, is->losses[s],
                     is->norms[s], want->losses[s], want->norms[s]);
    if (is->hash != want->hash) fail_msg("%s: other weights", what);
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* "gradient_clipping=N" with which about half of the steps are clipped that have these norms without. Returns text. */
static const char *clips_some(const double norms[STEPS], char text[64])
{
    double sorted[STEPS];
    memcpy(sorted, norms, sizeof sorted);
    qsort(sorted, STEPS, sizeof *sorted, by_size);
    snprintf(text, 64, "gradient_clipping=%.6g", (sorted[STEPS / 2 - 1] + sorted[STEPS / 2]) / 2);
    return text;
}

/* ---- same bits --------------------------------------------------------------------------------------------------- */

/* In the first step there are no states that could be kept, so nothing is updated early. */
static void vary(const char *const *more)
{
    static const struct {
        const char *clips;
        bool has_nan;
        int least_right, least_wrong;
    } courses[] = {{CLIPS_NONE, false, STEPS - 1, 0},
                   {NULL, false, 1, 1}, /* some */
                   {CLIPS_ALL, false, 0, STEPS - 1},
                   {CLIPS_NONE, true, 1, 2},
                   {"gradient_clipping=1e-7", false, 0, STEPS - 1}}; /* less than what is added to the norm */
    char some[64] = "";
    for (size_t i = 0; i < PS_ARRAY_LEN(courses); i++) {
        const char *clips = courses[i].clips != NULL ? courses[i].clips : some;
        const course want =
            follow(on_cpu(TINY(BF16, DROPOUT, more[0], more[1], more[2], clips, IN_MEMORY)), 0, courses[i].has_nan);
        if (i == 0) clips_some(want.norms, some);
        for (int sixths = 2; sixths <= 6; sixths += 2) {
            if (!is_my_share()) continue;
            char what[256];
            snprintf(what, sizeof what, "%s %s %s, %s, %d/6", more[0], more[1], more[2], clips, sixths);
            const course is =
                follow(TINY(BF16, DROPOUT, SMALL, more[0], more[1], more[2], clips), sixths, courses[i].has_nan);
            expect_same(what, &want, &is);
            if (is.n_right < courses[i].least_right || is.n_wrong < courses[i].least_wrong)
                fail_msg("%s: %d steps right, %d wrong", what, is.n_right, is.n_wrong);
        }
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    vary((const char *const[]){NOTHING, NOTHING, NOTHING});
    vary((const char *const[]){"bf16.enabled=false", "memory.host=300KB", "memory.device=1200KB"});
    vary((const char *const[]){"default_chunk_size=8192", "memory.prefetch=0", "memory.device=1MB"});
}

/* Gradients in a list of their own, of one micro-batch or of several, or in both places in one chunk. */
static void test_same_bits_gradient_lists(void **state)
{
    (void)state;
    vary((const char *const[]){"gradient_accumulation_steps=2", "default_chunk_size=4096", "memory.device=1MB"});
    vary((const char *const[]){"zero.reuse_fp16_shard=false", "memory.device=1MB", NOTHING});
    vary((const char *const[]){"train.freeze=*h.0.*", "activation_checkpointing.enabled=true",
                               "model.tie_word_embeddings=false"});
}

static void test_same_bits_optimizers(void **state)
{
    (void)state;
    vary((const char *const[]){"optimizer.params.state_format=compact", NOTHING, NOTHING});
    vary((const char *const[]){SPLIT, NOTHING, NOTHING});
    vary((const char *const[]){STOCHASTIC, "memory.host=600KB", "default_chunk_size=8192"});
    vary((const char *const[]){SPLIT, "gradient_accumulation_steps=2", "memory.device=1MB"});
    vary((const char *const[]){STOCHASTIC, "train.freeze=*h.0.*", "model.tie_word_embeddings=false"});
    vary((const char *const[]){"memory.host=600KB", "optimizer.param_groups=[{\"params\": [\"*bias\"], \"lr\": 2e-3}]",
                               "optimizer.params.use_hybrid_adam=false"});
}

/* The scale falls from one at which gradients overflow, and rises again: overflows are taken back. */
static void test_loss_scale(void **state)
{
    (void)state;
#define FP16                                                                                                           \
    "fp16.enabled=true", "fp16.initial_scale_power=18", "fp16.max_loss_scale=2e12", "fp16.loss_scale_window=2",        \
        "fp16.hysteresis=1", DROPOUT
    static const char *const clips[] = {"gradient_clipping=0", CLIPS_NONE};
    for (size_t i = 0; i < PS_ARRAY_LEN(clips); i++) {
        const course want = follow(on_cpu(TINY(FP16, LATE, clips[i])), 0, false);
        const course is = follow(TINY(FP16, SMALL, clips[i]), 6, false);
        expect_same(clips[i], &want, &is);
        assert_true(is.n_right > 0 && is.n_wrong >= is.n_skipped - 1 && is.n_skipped >= 2);
    }
#undef FP16
}

/* Skipped steps in a row end training, and leave the weights as they were. */
static void test_nonfinite_steps(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, SMALL, "gradient_clipping=0", "train.max_nonfinite_steps=3");
    ps_exec_plan *former;
    ps_engine *e = engine_with(c, 4, &former);
    const float value = NAN;
    ps_step_info info = {.struct_size = sizeof info};
    for (int step = 0; step < 3; step++) assert_ok(tiny_step(e, step));
    assert_ok(ps_engine_write_tensor(e, 4, 3, 1, &value));
    const uint64_t hash = hash_of(e);
    for (int step = 3; step < 6; step++) {
        assert_int_equal(tiny_step(e, step), step < 5 ? PS_OK : PS_ENUMERIC);
        assert_ok(ps_engine_get_step_info(e, &info));
        assert_true(info.is_skipped && info.n_taken_back > 0);
        assert_true(hash_of(e) == hash);
    }
    assert_non_null(strstr(ps_last_error(), "3 steps in a row"));
    ps_engine_destroy(e);
    ps_exec_plan_destroy(former);
    ps_config_destroy(c);
}

/* ---- pausing ----------------------------------------------------------------------------------------------------- */

enum { LONG = 64, FIRST_WRONG = 4, N_WRONG = 14 };

static double clip_norm_of(int step)
{
    return step >= FIRST_WRONG && step < FIRST_WRONG + N_WRONG ? 0.1 : 100;
}

/* Wrong steps in a row pause speculation, and it goes on when enough of the last 32 are right; with accumulation
 * gradients lie in a list of their own. */
static void test_pausing(void **state)
{
    (void)state;
    static const char *const more[][2] = {{NOTHING, NOTHING},
                                          {"gradient_accumulation_steps=2", "memory.device=1MB"},
                                          {"optimizer.params.state_format=compact", "memory.host=300KB"},
                                          {SPLIT, NOTHING}};
    for (size_t i = 0; i < 2 * PS_ARRAY_LEN(more); i++) {
        const char *const *v = more[i / 2];
        const double share = i % 2 == 0 ? 0.25 : 0.03; /* less than two of 32: it goes on when none was wrong */
        uint64_t hashes[2][LONG];
        bool speculates[LONG];
        for (int k = 0; k < 2; k++) {
            ps_exec_plan *former = NULL;
            ps_config *c =
                k == 0 ? on_cpu(TINY(BF16, LATE, CLIPS_NONE, v[0])) : TINY(BF16, SMALL, CLIPS_NONE, v[0], v[1]);
            ps_engine *e = engine_with(c, k == 0 ? 0 : 4, &former);
            ps_exec_plan *b = e->shape->exec_plan;
            if (k == 1) assert_ok(ps_exec_plan_add_paused(b, &e->settings.budgets, b->candidate, NULL));
            ps_runner_set_max_wrong_share(e->runner, share);
            for (int step = 0; step < LONG; step++) {
                e->settings.clip_norm = clip_norm_of(step);
                assert_ok(tiny_step(e, step));
                speculates[step] = e->last_step.n_speculated > 0;
                assert_int_equal(e->last_step.n_taken_back > 0, speculates[step] && clip_norm_of(step) < 1);
                if (k == 1 && step == 12) assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, 1, 8));
                if (k == 1 && step == 12) assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, 2, 16));
                if (step == 12) ps_runner_set_max_wrong_share(e->runner, share);
                hashes[k][step] = step % 3 == 0 || step + 1 == LONG ? hash_of(e) : 0;
            }
            expect_budgets_kept(e);
            ps_engine_destroy(e);
            ps_exec_plan_destroy(former);
            ps_config_destroy(c);
        }
        assert_memory_equal(hashes[0], hashes[1], sizeof hashes[0]);
        const int pauses_after = i % 2 == 0 ? 3 : 1; /* of the first steps three are more than a quarter */
        for (int step = 1; step < FIRST_WRONG + pauses_after; step++) assert_true(speculates[step]);
        for (int step = FIRST_WRONG + pauses_after; step < FIRST_WRONG + N_WRONG + 16; step++)
            assert_false(speculates[step]);
        for (int step = LONG - 12; step < LONG; step++) assert_true(speculates[step]);
    }
}

/* ---- several ranks ----------------------------------------------------------------------------------------------- */

static ps_exec_plan *former_of[RANKS_MAX];
static int64_t n_taken_back_of[RANKS_MAX];

static ps_status train_speculating(ps_engine *e, ps_config *c, rank_task *t)
{
    const int rank = ps_comm_rank(t->comm);
    (void)c;
    n_taken_back_of[rank] = 0;
    PS_TRY(use_candidate(e, share_of(e, 4, PS_UPDATE_DEFERRED), &former_of[rank]));
    for (int step = 0; step < t->n_steps; step++) {
        PS_TRY(rank_step(e, t, step));
        rank_take(e, &t->result, step);
        n_taken_back_of[rank] += t->result.last_step.n_taken_back;
    }
    return e->exec_plan->speculates ? PS_OK : PS_FAIL(PS_EINVAL, "no update is early");
}

static void test_ranks(void **state)
{
    (void)state;
    static const char *const variations[][3] = {
        {NOTHING, NOTHING, NOTHING},
        {MSC, "gradient_accumulation_steps=2", NOTHING},
        {"zero.reuse_fp16_shard=false", "memory.host=1MB", NOTHING},
        {SPLIT, "memory.host=300KB", NOTHING},
        {STOCHASTIC, MSC, NOTHING},
    };
    for (int32_t n = 2; n <= 3; n++)
        for (size_t i = 0; i < PS_ARRAY_LEN(variations); i++) {
            const char *const *v = variations[i];
            if (!is_my_share()) continue;
            char some[64];
            clips_some(RANKS(n, STEPS, BF16, LATE, CLIPS_NONE, v[0], v[1], FOR_BITS)->result.norms, some);
            const uint64_t want = RANKS(n, STEPS, BF16, LATE, some, v[0], v[1], FOR_BITS)->result.hash;
            const rank_task *t = run_ranks(n, STEPS, train_speculating, CHANGES(BF16, SMALL, some, v[0], v[1], v[2]));
            if (t->result.hash != want) fail_msg("%d ranks, %s %s: other bits", n, v[0], v[1]);
            for (int r = 0; r < n; r++) {
                ps_exec_plan_destroy(former_of[r]);
                if (n_taken_back_of[r] == 0) fail_msg("%d ranks, %s %s: nothing was taken back", n, v[0], v[1]);
            }
        }
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static int64_t moved_bytes(const ps_engine *e)
{
    const ps_store_stats s = ps_store_get_stats(e->tiers.store);
    int64_t bytes = 0;
    for (int l = 0; l < PS_LINK_COLLECTIVES; l++) bytes += s.moved_bytes[l];
    return bytes;
}

static int64_t sum_of(const int64_t moved[PS_LINK_COUNT])
{
    int64_t bytes = 0;
    for (int l = 0; l < PS_LINK_COLLECTIVES; l++) bytes += moved[l];
    return bytes;
}

/* A wrong step, and those while speculation is paused. */
static void expect_paused_steps(ps_engine *e, const ps_forecast *f, int64_t step)
{
    int64_t before = 0;
    assert_true(f->paused_step.all_ns > f->step.all_ns && f->max_wrong_share > 0);
    ps_runner_set_max_wrong_share(e->runner, -1);
    assert_true(f->paused_steps > 2);
    const double clip_norm = e->settings.clip_norm;
    e->settings.clip_norm = 0.01;
    assert_ok(tiny_step(e, step));
    assert_true(e->last_step.n_taken_back > 0 && !e->last_step.speculation_paused);
    e->settings.clip_norm = clip_norm;
    for (int64_t i = 1; i <= f->paused_steps; i++) {
        before = moved_bytes(e);
        assert_ok(tiny_step(e, step + i));
        assert_true(e->last_step.n_speculated == 0 && e->last_step.speculation_paused);
    }
    assert_int_equal(moved_bytes(e) - before, sum_of(f->paused_moved_bytes));
    ps_runner_set_max_wrong_share(e->runner, INFINITY);
    for (int i = 1; i <= 2; i++) assert_ok(tiny_step(e, step + f->paused_steps + i));
    assert_true(e->last_step.n_speculated > 0 && !e->last_step.speculation_paused);
}

/* Where a step waits for the disk the plan comes to speculation by itself (at one of these budgets, as activations
 * differ among processors); peaks and moved bytes are those of validated steps, and of the step after one that is taken
 * back. */
static void test_forecast(void **state)
{
    (void)state;
    static const char *const more[][2] = {{"memory.device=640KB", NOTHING},
                                          {"memory.device=700KB", NOTHING},
                                          {"memory.device=730KB", NOTHING},
                                          {"memory.device=700KB", "zero.reuse_fp16_shard=false"},
                                          {"memory.device=600KB", "memory.host=100KB"},
                                          {"memory.device=900KB", "gradient_accumulation_steps=2"},
                                          {"memory.device=640KB", SPLIT},
                                          {"memory.device=700KB", SPLIT},
                                          {"memory.device=600KB", STOCHASTIC}};
    int n_speculating = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(more) && !OVER_DISCRETE; i++) {
        ps_config *c = TINY(BF16, SMALL, CLIPS_NONE, "hardware=test/engine/balanced_disk.json", more[i][0], more[i][1]);
        ps_engine *e = engine_of(c);
        const ps_forecast *f = &e->shape->forecast;
        const int64_t last = f->steps - 1;
        ps_memory_info m = {.struct_size = sizeof m};
        int64_t before = 0;
        for (int64_t step = 0; step <= last; step++) {
            before = moved_bytes(e);
            assert_ok(tiny_step(e, step));
        }
        if (f->goes_round) assert_int_equal(moved_bytes(e) - before, sum_of(f->moved_bytes));
        assert_ok(ps_engine_get_memory_info(e, &m));
        assert_int_equal(m.device_peak_bytes, m.planned_device_peak_bytes);
        assert_int_equal(m.host_peak_bytes, m.planned_host_peak_bytes);
        assert_int_equal(m.disk_peak_bytes, m.planned_disk_peak_bytes);
        if (e->exec_plan->speculates) {
            n_speculating++;
            assert_int_equal(e->exec_plan->recompute != NULL, recomputes);
            assert_int_equal(f->recompute_step.all_ns > 0, recomputes);
            assert_true(f->n_not_kept == 0 && f->step.all_ns < f->waiting_step_ns &&
                        f->taken_back_step.all_ns > f->step.all_ns);
            const double clip_norm = e->settings.clip_norm;
            e->settings.clip_norm = 0.01;
            before = moved_bytes(e);
            assert_ok(tiny_step(e, last + 1));
            e->settings.clip_norm = clip_norm;
            assert_true(e->last_step.n_taken_back > 0);
            assert_int_equal(moved_bytes(e) - before, sum_of(f->wrong_moved_bytes));
            before = moved_bytes(e);
            assert_ok(tiny_step(e, last + 2));
            assert_true(e->last_step.n_taken_back == 0 && e->last_step.n_speculated > 0);
            assert_int_equal(moved_bytes(e) - before, sum_of(f->taken_back_moved_bytes));
            expect_paused_steps(e, f, last + 3);
        }
        expect_budgets_kept(e);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(n_speculating > 0 || OVER_DISCRETE);
}

/* The disk must keep the values of before. With n chunks of room no more are updated early. */
static void test_room_on_disk(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, SMALL, CLIPS_ALL);
    ps_engine *e = engine_of(c);
    const int64_t all = ps_exec_plan_keeping_bytes(e->exec_plan, 0),
                  three = ps_exec_plan_keeping_bytes(e->exec_plan, 3);
    assert_string_equal(ps_engine_get_notices(e), "");
    ps_engine_destroy(e);
    ps_config_destroy(c);
    const struct {
        int64_t disk_bytes;
        int32_t n_keeping;
        const char *says;
    } cases[] = {{three, 3, ""}, {three - 1, 2, ""}, {all, 0, "has no room to keep"}, {0, 0, "memory.disk is 0"}};
    const course want = follow(on_cpu(TINY(BF16, LATE, CLIPS_ALL)), 0, false);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char disk[64];
        ps_exec_plan *former;
        snprintf(disk, sizeof disk, "memory.disk=%lld", (long long)cases[i].disk_bytes);
        c = TINY(BF16, SMALL, CLIPS_ALL, "memory.device=64MB", disk);
        e = engine_of(c);
        assert_int_equal(e->exec_plan->n_keeping, cases[i].n_keeping);
        if (cases[i].says[0] == '\0')
            assert_string_equal(ps_engine_get_notices(e), "");
        else if (strstr(ps_engine_get_notices(e), cases[i].says) == NULL)
            fail_msg("not \"%s\": %s", cases[i].says, ps_engine_get_notices(e));
        assert_ok(use_candidate(e, share_of(e, 6, PS_UPDATE_DEFERRED), &former));
        assert_int_equal(e->exec_plan->candidate.n_early, cases[i].n_keeping);
        course is = {0};
        for (int step = 0; step < STEPS; step++) {
            assert_ok(tiny_step(e, step));
            take_step(e, step, &is);
        }
        is.hash = hash_of(e);
        expect_same(disk, &want, &is);
        assert_int_equal(is.n_wrong > 0, cases[i].n_keeping > 0);
        expect_budgets_kept(e);
        ps_engine_destroy(e);
        ps_exec_plan_destroy(former);
        ps_config_destroy(c);
    }
}

static void test_what_is_in_the_way(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16);
    ps_engine *e = NULL;
    assert_ok(ps_config_set(c, "memory.update_in_backward", "speculate"));
    assert_ok(ps_config_set(c, "memory.defer_updates", "false"));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "memory.defer_updates = true"));
    ps_config_destroy(c);
}

/* ---- between steps ----------------------------------------------------------------------------------------------- */

/* What is read, hashed and evaluated after a step is what counts, also right after one that was taken back, and with
 * another shape in between. */
static void test_calls_between_steps(void **state)
{
    (void)state;
    static const char *const accumulation[] = {"gradient_accumulation_steps=1", "gradient_accumulation_steps=2"};
    for (int i = 0; i < 4; i++) {
        float evaluated[2][STEPS], values[2][STEPS];
        uint64_t hashes[2][STEPS];
        course r[2] = {{0}};
        char some[64];
        clips_some(follow(on_cpu(TINY(BF16, DROPOUT, LATE, CLIPS_NONE, accumulation[i % 2])), 0, false).norms, some);
        for (int k = 0; k < 2; k++) {
            ps_exec_plan *former;
            ps_config *c = k == 1 ? TINY(BF16, DROPOUT, SMALL, some, accumulation[i % 2], "memory.device=1MB")
                                  : on_cpu(TINY(BF16, DROPOUT, LATE, some, accumulation[i % 2]));
            ps_engine *e = engine_with(c, k == 1 ? 4 : 0, &former);
            int32_t tokens[2 * 16], targets[2 * 16];
            for (int step = 0; step < STEPS; step++) {
                assert_ok(tiny_step(e, step));
                take_step(e, step, &r[k]);
                fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1000);
                const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
                if (i < 2) assert_ok(ps_evaluate(e, &batch, &evaluated[k][step]));
                if (k == 1 && step % 2) assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, 1, 8));
                assert_ok(ps_engine_read_tensor(e, 3, 0, 1, &values[k][step]));
                if (k == 1 && step % 2) assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, 2, 16));
                hashes[k][step] = hash_of(e);
            }
            expect_budgets_kept(e);
            ps_engine_destroy(e);
            ps_exec_plan_destroy(former);
            ps_config_destroy(c);
        }
        assert_true(r[1].n_right > 0 && r[1].n_wrong > 0);
        if (i < 2) assert_memory_equal(evaluated[0], evaluated[1], sizeof evaluated[0]);
        assert_memory_equal(values[0], values[1], sizeof values[0]);
        assert_memory_equal(hashes[0], hashes[1], sizeof hashes[0]);
    }
}

/* A checkpoint that is saved while a step is speculative has the values of before it, and one saved when it was taken
 * back those after the right update. */
static void save_and_resume(const char *format)
{
    char some[64];
    clips_some(follow(on_cpu(TINY(BF16, format, LATE, CLIPS_NONE)), 0, false).norms, some);
    const course want = follow(on_cpu(TINY(BF16, format, LATE, some)), 0, false);
    for (int after = 1; after < STEPS - 1; after++) {
        const work_folder work = work_make();
        ps_exec_plan *former;
        ps_config *c = TINY(BF16, format, SMALL, some, "train.save_interval=1", "memory.device=1MB");
        ps_engine *e = engine_with(c, 4, &former);
        for (int step = 0; step < after; step++) assert_ok(tiny_step(e, step));
        assert_ok(ps_engine_begin_checkpoint(e, work.path, NULL));
        for (int step = after; step < STEPS; step++) assert_ok(tiny_step(e, step));
        assert_ok(ps_engine_finish_checkpoint(e, NULL));
        assert_true(hash_of(e) == want.hash);
        ps_engine_destroy(e);
        ps_exec_plan_destroy(former);
        e = engine_of(c);
        assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
        for (int step = after; step < STEPS; step++) assert_ok(tiny_step(e, step));
        if (hash_of(e) != want.hash) fail_msg("%s, saved after step %d: other weights", format, after);
        ps_engine_destroy(e);
        ps_config_destroy(c);
        work_remove(work.path);
    }
}

static void test_saved_and_resumed(void **state)
{
    (void)state;
    save_and_resume("optimizer.params.state_format=fp32");
    save_and_resume(SPLIT);
    save_and_resume(STOCHASTIC);
}

/* Between the backward pass and the step it is open which values count: whatever the plan came to. */
static void test_nothing_is_read_in_between(void **state)
{
    (void)state;
    ps_config *c = TINY(BF16, SPECULATE);
    ps_engine *e = engine_of(c);
    int32_t tokens[2 * 16], targets[2 * 16];
    float value;
    uint64_t hash;
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 0);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
    assert_int_equal(ps_engine_read_gradient(e, 3, 0, 1, &value), PS_ESTATE);
    assert_int_equal(ps_engine_read_tensor(e, 3, 0, 1, &value), PS_ESTATE);
    assert_int_equal(ps_engine_get_weights_xxh3(e, &hash), PS_ESTATE);
    assert_int_equal(ps_engine_set_learning_rate(e, 0, 1e-3), PS_ESTATE);
    assert_ok(ps_step(e));
    assert_ok(ps_engine_read_tensor(e, 3, 0, 1, &value));
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- a profile --------------------------------------------------------------------------------------------------- */

static int64_t arg_of(const json_t *event, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(event, "args"), name));
}

/* Steps say how many chunks they speculated on, and took back; moments of a step on another plan have no number. */
static void test_profile(void **state)
{
    (void)state;
    const work_folder work = work_make();
    char option[256];
    ps_exec_plan *former;
    ps_config *c = TINY(BF16, SMALL, CLIPS_NONE);
    snprintf(option, sizeof option, "%s/profile.json", work.path);
    assert_ok(ps_config_set(c, "profile.path", option));
    assert_ok(ps_config_set(c, "profile.steps", "3,5"));
    ps_engine *e = engine_with(c, 4, &former);
    for (int step = 1; step <= 5; step++) {
        e->settings.clip_norm = step == 4 ? 0.1 : 100;
        assert_ok(tiny_step(e, step));
    }
    json_t *p = json_load_file(option, 0, NULL), *event;
    assert_non_null(p);
    size_t i;
    int n_steps = 0, n_ops = 0, n_recomputed = 0;
    json_array_foreach(json_object_get(p, "traceEvents"), i, event)
    {
        const char *category = json_string_value(json_object_get(event, "cat"));
        if (category == NULL) continue;
        if (strcmp(category, "op") == 0) {
            n_ops++;
            const bool again = json_is_true(json_object_get(json_object_get(event, "args"), "recompute"));
            assert_int_equal(arg_of(event, "moment") < 0, again || arg_of(event, "step") == 5);
            assert_true(!again || arg_of(event, "step") == 4);
            n_recomputed += again;
        }
        if (strcmp(category, "step") != 0) continue;
        n_steps++;
        const json_t *computed = json_object_get(json_object_get(event, "args"), "recomputed");
        assert_int_equal(json_is_true(computed), recomputes && arg_of(event, "step") == 4);
        assert_int_equal(arg_of(event, "speculated"), e->exec_plan->candidate.n_early);
        assert_int_equal(arg_of(event, "taken_back"), arg_of(event, "step") == 4 ? e->exec_plan->candidate.n_early : 0);
    }
    assert_true(n_steps == 3 && n_ops > 0);
    assert_int_equal(n_recomputed > 0, recomputes);
    json_decref(p);
    ps_engine_destroy(e);
    ps_exec_plan_destroy(former);
    ps_config_destroy(c);
    work_remove(work.path);
}

/* ---- second passes ----------------------------------------------------------------------------------------------- */

/* A copy of a micro-batch that is not what the first passes had: the norm shows it, and nothing goes on. */
static void test_changed_copy(void **state)
{
    (void)state;
    for (int32_t micro = 0; micro < 2 && recomputes; micro++) {
        ps_exec_plan *former;
        ps_config *c = TINY(BF16, SMALL, CLIPS_ALL, "gradient_accumulation_steps=2", "memory.device=1MB");
        ps_engine *e = engine_with(c, 4, &former);
        int32_t tokens[2 * 16], targets[2 * 16];
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
        ps_step_info info = {.struct_size = sizeof info};
        for (int step = 0; step < 3; step++) assert_ok(tiny_step(e, step));
        assert_ok(ps_engine_get_step_info(e, &info));
        assert_true(info.recomputed == 1);
        for (int i = 0; i < 2; i++) {
            fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 3 + i);
            assert_ok(ps_forward(e, &batch, NULL));
            assert_ok(ps_backward(e));
            if (i == 0) assert_ok(ps_step(e));
        }
        int32_t *copied = (int32_t *)(uintptr_t)e->passes[micro].batch.targets;
        *copied = (*copied + 1) % TINY_VOCABULARY;
        assert_int_equal(ps_step(e), PS_EDEVICE);
        if (strstr(ps_last_error(), "another norm than at first") == NULL) fail_msg("%s", ps_last_error());
        assert_int_equal(ps_forward(e, &batch, NULL), PS_ESTATE);
        ps_engine_destroy(e);
        ps_exec_plan_destroy(former);
        ps_config_destroy(c);
    }
}

/* The copies are as large as the first shape needs: a larger one does not speculate, the first one goes on to. */
static void test_larger_shape(void **state)
{
    (void)state;
    for (int is_larger = 0; is_larger < 2 && recomputes; is_larger++) {
        ps_exec_plan *former[2];
        ps_config *c = TINY(BF16, SMALL, CLIPS_ALL, "memory.device=2MB");
        ps_engine *e = engine_with(c, 4, &former[0]);
        assert_ok(tiny_step(e, 0));
        assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, is_larger ? 3 : 1, 16));
        assert_ok(use_candidate(e, share_of(e, 4, PS_UPDATE_DEFERRED), &former[1]));
        assert_int_equal(e->exec_plan->speculates, !is_larger);
        assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, 2, 16));
        for (int step = 1; step < 3; step++) assert_ok(tiny_step(e, step));
        assert_true(e->last_step.recomputed == 1);
        expect_budgets_kept(e);
        ps_engine_destroy(e);
        for (int i = 0; i < 2; i++) ps_exec_plan_destroy(former[i]);
        ps_config_destroy(c);
    }
}

/* Memory that steps leave free becomes memory.save_buffer; speculation is paused all the same. */
static void test_pausing_with_save_buffer(void **state)
{
    (void)state;
    static int n_larger; /* of both ways: which budgets leave memory free depends on the processor */
    for (int64_t bytes = 15000000; bytes <= 22000000 && !OVER_DISCRETE; bytes += 333333) {
        char device[64];
        snprintf(device, sizeof device, "memory.device=%lld", (long long)bytes);
        ps_config *c = TINY(BF16, SPECULATE, CLIPS_NONE, "model.n_embd=96", "model.n_layer=6", "memory.disk=200MB",
                            device, "default_chunk_size=16384", "train_micro_batch_size_per_gpu=16",
                            "train.save_interval=1", "hardware=test/engine/balanced_disk.json");
        ps_engine *e = engine_of(c);
        const ps_forecast *f = &e->shape->forecast;
        if (e->exec_plan->speculates && e->settings.staging_bytes > 8 * PS_MIB) {
            n_larger++;
            assert_non_null(e->exec_plan->paused);
            assert_true(f->paused_steps > 0 && f->waiting_step_ns > 0 && isfinite(f->max_wrong_share));
        }
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(n_larger > 0 || OVER_DISCRETE || !recomputes);
}

/* Of a step, if one in 32 is wrong; 0: the plan does not speculate. */
static double expected_us(const char *way, const char *device, bool *again)
{
    setenv("PS_TEST_WRONG_STEPS", way, 1);
    ps_config *c = TINY(BF16, SMALL, CLIPS_NONE, "zero.reuse_fp16_shard=false", "memory.device=1MB", device,
                        "hardware=test/engine/balanced_disk.json");
    ps_engine *e = engine_of(c);
    const ps_forecast *f = &e->shape->forecast;
    const double wrong = (double)(f->taken_back_step.all_ns - f->step.all_ns + f->recompute_step.all_ns);
    const double us = ((double)f->step.all_ns + wrong / 32) * 1e-3;
    const bool speculates = e->exec_plan->speculates;
    *again = e->exec_plan->recompute != NULL;
    assert_int_equal(e->settings.wrong_steps,
                     *again || strcmp(way, "recompute") == 0 ? PS_WRONG_STEPS_RECOMPUTE : PS_WRONG_STEPS_KEEP_GRADS);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return speculates ? us : 0;
}

/* The plan takes the way that is expected to be faster; at some of these budgets the one, at others the other. (Where
 * gradients must be kept it has the memory of the copies, too.) */
static void test_choice(void **state)
{
    (void)state;
    int n_recomputed = 0, n_kept = 0;
    for (int kilobytes = 580; kilobytes <= 800 && !OVER_DISCRETE && recomputes; kilobytes += 20) {
        char device[64];
        bool again;
        snprintf(device, sizeof device, "memory.device=%dKB", kilobytes);
        const double recompute_us = expected_us("recompute", device, &again);
        const double us = expected_us("", device, &again);
        if (us == 0 || recompute_us == 0) continue;
        n_recomputed += again;
        n_kept += !again;
        assert_true(again ? us == recompute_us : us <= 1.02 * recompute_us); /* so much more for fewer bytes written */
    }
    assert_true((n_recomputed > 0 && n_kept > 0) || OVER_DISCRETE || !recomputes);
    setenv("PS_TEST_WRONG_STEPS", recomputes ? "recompute" : "keep", 1);
}

/* All tests. */
static int run_way(bool again)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_pausing),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_same_bits_gradient_lists),
        cmocka_unit_test(test_same_bits_optimizers),
        cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_nonfinite_steps),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_forecast),
        cmocka_unit_test(test_room_on_disk),
        cmocka_unit_test(test_what_is_in_the_way),
        cmocka_unit_test(test_calls_between_steps),
        cmocka_unit_test(test_saved_and_resumed),
        cmocka_unit_test(test_nothing_is_read_in_between),
        cmocka_unit_test(test_changed_copy),
        cmocka_unit_test(test_larger_shape),
        cmocka_unit_test(test_pausing_with_save_buffer),
        cmocka_unit_test(test_choice),
    };
    recomputes = again;
    setenv("PS_TEST_WRONG_STEPS", again ? "recompute" : "keep", 1);
    return RUN_ON_BACKENDS(tests);
}

int main(void)
{
    const int n_failed = run_way(false);
    return n_failed + run_way(true);
}
