/* test_early_validation.c - updates within the backward pass that may be taken back: in steps that are clipped, skipped,
 * or neither, values, states and checkpoints are those of updates in the step; what is refused between; and what is said
 * where there is no room. More programs and budgets: test_client_walk.c. */
#include <dirent.h>

#include "base/fault.h"
#include "base/folder.h"
#include "external/client_fixture.h"

/* Each has a chunk of its own; the last is frozen. */
enum { A, B, C, FROZEN, TENSORS, ELEMENTS = 4096, STEPS = 9 };

#define MEMORY "memory.device=4MB memory.host=0 memory.disk=4MB "
#define TIGHT "memory.device=160KB memory.host=0 memory.disk=4MB "
#define SPECULATE "memory.update_in_backward=speculate "

static ps_client *begun_with(const char *changes)
{
    ps_client *c = client_of_rank(changes, NULL);
    int32_t number;
    for (int32_t t = 0; t < TENSORS; t++)
        assert_ok(add_tensor(c, (const char *[]){"a", "b", "c", "frozen"}[t], ELEMENTS, PS_DTYPE_F32, t == FROZEN, 0,
                             &number));
    assert_ok(ps_client_begin(c));
    return c;
}

static void use(ps_client *c, ps_client_phase phase, int32_t t)
{
    assert_ok(ps_client_moment(c, phase, (const char *[]){"use of a", "use of b", "use of c", "of frozen"}[t], 0));
    (void)pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
    ps_client_unpin(c, t, PS_CLIENT_PARAM);
}

/* Up to the step; the backward pass begins at the last one. a's gradient has this value. */
static void pass(ps_client *c, float value)
{
    float gradient[ELEMENTS];
    const float scale = (float)ps_client_get_loss_scale(c);
    for (int32_t t = A; t < TENSORS; t++) use(c, PS_CLIENT_FORWARD, t);
    assert_ok(ps_client_begin_last_backward(c));
    for (int32_t t = FROZEN; t >= A; t--) {
        use(c, PS_CLIENT_BACKWARD, t);
        if (t == FROZEN) continue;
        for (int i = 0; i < ELEMENTS; i++) gradient[i] = (t == A ? value : drawn((uint64_t)t, i) / 64) * scale;
        assert_ok(ps_client_give_gradient(c, t, gradient, PS_DTYPE_F32, 0));
    }
}

static void see(ps_client *c, float seen[TENSORS])
{
    for (int32_t t = A; t < TENSORS; t++) assert_ok(ps_client_read_state(c, t, NULL, 7, 1, &seen[t]));
}

/* A 1 is clipped, and its like are not. In fp16 times the loss scale a 16 overflows until that has fallen. */
static const float of_steps[STEPS] = {INFINITY, 0.001f, 1, 0.001f, 16, NAN, 0.002f, 0.001f, 1};

typedef struct seen {
    float values[STEPS][TENSORS], ends[TENSORS][2][ELEMENTS];
    double norms[STEPS], scales[STEPS];
    bool skips[STEPS];
    int64_t n_speculated, n_taken_back, n_valid;
} seen;

/* looks: after each step, or only at the end. */
static void run(const char *changes, bool looks, seen *s)
{
    ps_client *c = begun_with(changes);
    *s = (seen){0};
    for (int step = 0; step < STEPS; step++) {
        pass(c, of_steps[step]);
        const ps_client_step_info info = stepped(c);
        s->norms[step] = info.grad_norm;
        s->scales[step] = info.loss_scale;
        s->skips[step] = info.is_skipped;
        s->n_speculated += info.n_speculated;
        s->n_taken_back += info.n_taken_back;
        assert_true(info.n_taken_back == 0 || info.n_taken_back == info.n_speculated);
        if (info.is_skipped) assert_int_equal(info.n_taken_back, info.n_speculated);
        if (looks) see(c, s->values[step]);
    }
    s->n_valid = s->n_speculated - s->n_taken_back;
    for (int32_t t = A; t < TENSORS; t++) {
        assert_ok(ps_client_read_state(c, t, NULL, 0, ELEMENTS, s->ends[t][0]));
        const char *name = ps_client_get_state_name(c, 0);
        if (name != NULL) assert_ok(ps_client_read_state(c, t, name, 0, ELEMENTS, s->ends[t][1]));
    }
    const ps_client_info info = info_of(c);
    for (int tier = 0; tier < 3; tier++) assert_true(info.peak_bytes[tier] <= info.budget_bytes[tier]);
    ps_client_destroy(c);
    expect_nothing_left();
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const formats[] = {"",
                                          "bf16.enabled=true ",
                                          "fp16.enabled=true fp16.initial_scale_power=14 fp16.hysteresis=1 ",
                                          "optimizer.type=SGD ",
                                          "optimizer.type=SGD optimizer.params.momentum=0.9 ",
                                          "optimizer.type=Lion optimizer.params.state_format=compact ",
                                          "bf16.enabled=true optimizer.params.state_format=compact_split ",
                                          "bf16.enabled=true optimizer.params.state_format=bf16_stochastic "};
    static const char *const budgets[] = {MEMORY, TIGHT, "memory.device=160KB memory.host=100KB memory.disk=700KB "};
    static seen want, got;
    char changes[512];
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        snprintf(changes, sizeof changes, "%s%sgradient_clipping=1", MEMORY, formats[f]);
        run(changes, true, &want);
        assert_int_equal(want.n_speculated, 0);
        for (int i = 0; i < 2 * (int)PS_ARRAY_LEN(budgets); i++) {
            snprintf(changes, sizeof changes, "%s%s" SPECULATE "gradient_clipping=1", budgets[i / 2], formats[f]);
            run(changes, i % 2 == 0, &got);
            if (got.n_taken_back == 0 || got.n_valid == 0)
                fail_msg("%s: %lld valid, %lld taken back", changes, (long long)got.n_valid,
                         (long long)got.n_taken_back);
            if (memcmp(want.ends, got.ends, sizeof want.ends) != 0) fail_msg("%s: other bits at the end", changes);
            if (i % 2 == 0 && memcmp(want.values, got.values, sizeof want.values) != 0)
                fail_msg("%s: other bits after a step", changes);
            assert_memory_equal(want.norms, got.norms, sizeof want.norms);
            assert_memory_equal(want.scales, got.scales, sizeof want.scales);
            assert_memory_equal(want.skips, got.skips, sizeof want.skips);
        }
    }
}

/* Steps that are taken back are as the recorded one: the next one is predicted, and has its early updates. */
static void test_prediction_stays(void **state)
{
    (void)state;
    for (int clips = 0; clips < 3; clips++) { /* in no step, in each, in turn */
        ps_client *c = begun_with(TIGHT SPECULATE);
        for (int step = 0; step < 8; step++) {
            assert_ok(ps_client_set_gradient_clipping(c, clips == 1 || (clips == 2 && step % 2 == 0) ? 0.001 : 0));
            pass(c, 0.001f);
            const ps_client_step_info info = stepped(c);
            if (step < 3) continue;
            assert_int_equal(info.is_recorded, 0);
            assert_int_equal(info.n_speculated, 2); /* backward comes to a last, with no moment after it */
        }
        ps_client_destroy(c);
    }
    expect_nothing_left();
}

enum { FAULTY_STEPS = 4 };

/* Up to the first failure, whose status it returns. */
static ps_status steps(ps_client *c)
{
    float gradient[ELEMENTS];
    ps_client_place p = {.struct_size = sizeof p};
    for (int32_t i = 0; i < ELEMENTS; i++) gradient[i] = drawn(3, i);
    for (int step = 0; step < FAULTY_STEPS; step++) {
        PS_TRY(ps_client_set_gradient_clipping(c, step % 2 == 0 ? 0.001 : 0));
        for (int32_t i = 0; i < 2 * FROZEN; i++) {
            const int32_t t = i < FROZEN ? i : 2 * FROZEN - 1 - i;
            if (i == FROZEN) PS_TRY(ps_client_begin_last_backward(c));
            PS_TRY(ps_client_moment(c, i < FROZEN ? PS_CLIENT_FORWARD : PS_CLIENT_BACKWARD, "use", 0));
            PS_TRY(ps_client_pin(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &p));
            ps_client_unpin(c, t, PS_CLIENT_PARAM);
            if (i >= FROZEN) PS_TRY(ps_client_give_gradient(c, t, gradient, PS_DTYPE_F32, 0));
        }
        PS_TRY(ps_client_step(c, NULL));
    }
    return PS_OK;
}

/* The n-th call fails, for n = 0, 1, 2, ...: where no call of the client does, bits are those of a run without; a run
 * that fails leaves nothing behind. */
static void test_faults(void **state)
{
    (void)state;
    for (ps_fault_kind kind = PS_FAULT_ALLOC; kind <= PS_FAULT_WRITE; kind++) {
        float want[TENSORS];
        int n_failed = 0;
        bool has_struck = true;
        for (long nth = -1; has_struck; nth++) {
            ps_client *c = begun_with(TIGHT SPECULATE);
            ps_fault_arm(kind, nth, false);
            const ps_status st = steps(c);
            has_struck = nth < 0 || ps_fault_has_struck(kind);
            ps_fault_arm(kind, -1, false);
            n_failed += st != PS_OK;
            if (nth < 0) see(c, want);
            for (int32_t t = A; t < TENSORS && nth >= 0 && st == PS_OK; t++) {
                float got; /* a write that has failed may show as late as here, once */
                if (ps_client_read_state(c, t, NULL, 7, 1, &got) != PS_OK &&
                    ps_client_read_state(c, t, NULL, 7, 1, &got) != PS_OK)
                    break;
                if (got != want[t]) fail_msg("fault %d, number %ld: other bits", (int)kind, nth);
            }
            ps_client_destroy(c);
        }
        if (kind == PS_FAULT_WRITE) assert_true(n_failed > 0);
    }
    expect_nothing_left();
}

static void expect_refused(ps_status st, const char *what)
{
    assert_int_equal(st, PS_ESTATE);
    if (strstr(ps_last_error(), what) == NULL || strstr(ps_last_error(), "speculate") == NULL)
        fail_msg("%s: \"%s\"", what, ps_last_error());
}

/* The norm to clip by may be set up to the step; the rest is as with always. */
static void test_between(void **state)
{
    (void)state;
    ps_client *c = begun_with(MEMORY SPECULATE), *late = begun_with(MEMORY);
    ps_client_place p = {.struct_size = sizeof p};
    ps_client_step_info info = {.struct_size = sizeof info};
    ps_client_group g = {.struct_size = sizeof g};
    float value, values[2][TENSORS];
    for (int step = 0; step < 3; step++) {
        pass(c, 0.001f);
        (void)stepped(c);
        pass(late, 0.001f);
        (void)stepped(late);
    }
    pass(c, 0.001f);
    pass(late, 0.001f);
    expect_refused(ps_client_pin(c, C, PS_CLIENT_PARAM, PS_CLIENT_READ, &p), "c: its value is asked for");
    expect_refused(ps_client_pin(c, A, PS_CLIENT_GRADIENT, PS_CLIENT_READ, &p), "p.grad");
    expect_refused(ps_client_read_state(c, B, "exp_avg", 0, 1, &value), "b: its value or a state is read");
    expect_refused(ps_client_drop_gradients(c, -1), "zero_grad");
    expect_refused(ps_client_begin_last_backward(c), "has begun already");
    assert_ok(ps_client_get_group(c, 0, &g));
    const double rate = g.learning_rate;
    g.learning_rate = rate * 2;
    assert_ok(ps_client_set_group(c, 0, &g));
    expect_refused(ps_client_step(c, &info), "numbers of group 0");
    g.learning_rate = rate;
    assert_ok(ps_client_set_group(c, 0, &g));
    assert_ok(ps_client_set_gradient_clipping(c, 0.01));
    assert_ok(ps_client_set_gradient_clipping(late, 0.01));
    info = stepped(c);
    (void)stepped(late);
    assert_true(info.n_speculated > 0);
    assert_int_equal(info.n_taken_back, info.n_speculated);
    see(c, values[0]);
    see(late, values[1]);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    pass(c, 0.001f);
    ps_client_destroy(c); /* with updates that are not validated */
    ps_client_destroy(late);
    expect_nothing_left();
}

static void remove_folders(const char *path)
{
    DIR *d = opendir(path);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') assert_true(ps_folder_remove(dirfd(d), e->d_name));
    if (d != NULL) closedir(d);
    assert_int_equal(rmdir(path), 0);
}

/* A checkpoint has validated values, whenever it is finished, and training continues from it. */
static void test_checkpoint(void **state)
{
    (void)state;
    char path[512];
    float saved[TENSORS], loaded[TENSORS], once[TENSORS], again[TENSORS];
    for (int when = 0; when < 3; when++) { /* within a step, after a valid one, after one that was taken back */
        ps_client *c = begun_with(MEMORY SPECULATE "gradient_clipping=1");
        snprintf(path, sizeof path, "%s/checkpoints", folder.path);
        for (int step = 0; step < 3; step++) {
            pass(c, step == 2 ? 1 : 0.001f);
            (void)stepped(c);
        }
        see(c, saved);
        assert_ok(ps_client_begin_checkpoint(c, path, NULL));
        pass(c, when == 2 ? 1 : 0.001f);
        if (when == 0) assert_ok(ps_client_finish_checkpoint(c, NULL));
        const ps_client_step_info info = stepped(c);
        assert_int_equal(info.n_taken_back, when == 2 ? info.n_speculated : 0);
        assert_true(info.n_speculated > 0);
        if (when > 0) assert_ok(ps_client_finish_checkpoint(c, NULL));
        see(c, once);
        assert_ok(ps_client_load_checkpoint(c, path, NULL));
        see(c, loaded);
        assert_memory_equal(loaded, saved, sizeof saved);
        pass(c, when == 2 ? 1 : 0.001f);
        (void)stepped(c);
        see(c, again);
        assert_memory_equal(again, once, sizeof once);
        ps_client_destroy(c);
        remove_folders(path);
    }
    expect_nothing_left();
}

static int n_warnings;
static char warning[512];

static void note_warning(void *user, ps_log_level level, const char *line)
{
    (void)user;
    n_warnings += level == PS_LOG_WARNING;
    if (level == PS_LOG_WARNING) snprintf(warning, sizeof warning, "%s", line);
}

/* Then it is as without: budgets that suffice are not refused for it. */
static void test_no_room(void **state)
{
    (void)state;
    static const struct {
        const char *memory, *why;
    } cases[] = {{"memory.device=4MB memory.host=0 memory.disk=0 ", "and memory.disk is 0"},
                 {"memory.device=4MB memory.host=0 memory.disk=200KB ", "memory.disk has no room to keep the values"},
                 {"memory.device=90KB memory.host=0 memory.disk=4MB ", "an update that keeps its gradients needs"}};
    char changes[256];
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        snprintf(changes, sizeof changes, "%s" SPECULATE, cases[i].memory);
        n_warnings = 0;
        ps_set_log(note_warning, NULL);
        ps_client *c = begun_with(changes);
        ps_set_log(NULL, NULL);
        assert_int_equal(n_warnings, 1);
        if (strstr(warning, "speculate: without effect") == NULL || strstr(warning, cases[i].why) == NULL)
            fail_msg("%s: \"%s\"", changes, warning);
        for (int step = 0; step < 3; step++) {
            pass(c, 1);
            assert_int_equal(stepped(c).n_early, 0);
        }
        ps_client_destroy(c);
    }
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_same_bits, note_live),  cmocka_unit_test_setup(test_prediction_stays, note_live),
        cmocka_unit_test_setup(test_faults, note_live),     cmocka_unit_test_setup(test_between, note_live),
        cmocka_unit_test_setup(test_checkpoint, note_live), cmocka_unit_test_setup(test_no_room, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
