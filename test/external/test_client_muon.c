/* test_client_muon.c - matrices of another framework, updated as a whole by Muon: programs of client_walk.h see the same in
 * all budgets, with updates at any time, and on all ranks; states, and checkpoints. python/test/test_muon.py has the
 * numbers. */
#include "external/client_walk.h"

#define PLAIN "optimizer.type=Muon "
#define MUON PLAIN "optimizer.params.adamw_names=t.3 "
/* With scratch for the largest matrix, and beside it all chunks of that matrix in all lists. */
#define TIGHT (OVER_DISCRETE ? "memory.device=1300KB " : "memory.device=560KB ")

static uint64_t walked(const char *changes, const walk *as)
{
    walk w = *as;
    w.has_matrices = true;
    w.n_ranks = 1;
    live(&w, changes);
    expect_nothing_left();
    return w.seen;
}

static const char *const formats[] = {"optimizer.params.ns_gemms=fp32 ", "bf16.enabled=true ",
                                      "fp16.enabled=true fp16.initial_scale_power=2 "};

static void test_budgets(void **state)
{
    (void)state;
    static const char *const budgets[] = {THIRD,
                                          "memory.host=4MB memory.disk=0",
                                          "memory.host=0 memory.disk=2MB",
                                          THIRD " memory.prefetch=0",
                                          "memory.host=600KB memory.disk=2MB",
                                          THIRD " default_chunk_size=2048",
                                          THIRD " default_chunk_size=10240 memory.device=900KB"};
    char changes[512];
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        const walk as = {.dice = {.seed = 100 + f, .stream = 5}};
        if (!is_my_share()) continue;
        snprintf(changes, sizeof changes, MUON "%s%s%s", formats[f], ALL,
                 OVER_DISCRETE && !OVER_GPU ? " train.backend=cpu" : "");
        const uint64_t want = walked(changes, &as);
        for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
            if (OVER_DISCRETE && (i + 1 == PS_ARRAY_LEN(budgets) || (OVER_GPU && !is_my_share()))) continue;
            snprintf(changes, sizeof changes, MUON "%s%s%s", formats[f], TIGHT, budgets[i]);
            if (walked(changes, &as) != want) fail_msg("%s: other bits", changes);
        }
    }
}

/* With updates within the backward pass: of matrices in one chunk, and never of those in several. */
static void test_early(void **state)
{
    (void)state;
    static const char *const budgets[] = {THIRD, "memory.host=4MB memory.disk=0", THIRD " memory.defer_updates=false"};
    char changes[512];
    for (uint64_t seed = 50; seed < 53; seed++) {
        walk as = {.dice = {.seed = seed, .stream = 5}, .repeats = true, .has_matrices = true, .n_ranks = 1};
        if (OVER_DISCRETE && !is_my_share()) continue;
        snprintf(changes, sizeof changes, MUON "%s%s gradient_clipping=0 train.max_nonfinite_steps=1",
                 formats[seed % 2], ALL);
        const uint64_t want = walked(changes, &as);
        for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
            walk w = as;
            if (OVER_GPU && !is_my_share()) continue;
            snprintf(changes, sizeof changes,
                     MUON "%s%s%s gradient_clipping=0 train.max_nonfinite_steps=1 memory.update_in_backward=always",
                     formats[seed % 2], TIGHT, budgets[i]);
            live(&w, changes);
            expect_nothing_left();
            if (w.seen != want) fail_msg("seed %d, %s: other bits", (int)seed, changes);
            if (w.n_early == 0) fail_msg("seed %d, %s: no update was early", (int)seed, changes);
        }
    }
}

static void clip_in_turn(walk *w)
{
    assert_ok(ps_client_set_gradient_clipping(w->client, w->step % 2 == 0 ? 0 : -1));
}

static void test_speculative(void **state)
{
    (void)state;
    static const char *const budgets[] = {"memory.host=100KB memory.disk=4MB", "memory.host=0 memory.disk=4MB"};
    char changes[512];
    int64_t n_valid = 0, n_taken_back = 0;
    for (uint64_t seed = 80; seed < 82; seed++) {
        const walk as = {.dice = {.seed = seed, .stream = 5},
                         .repeats = true,
                         .has_matrices = true,
                         .n_ranks = 1,
                         .after_step = clip_in_turn};
        if (OVER_DISCRETE && !is_my_share()) continue;
        snprintf(changes, sizeof changes, MUON "%sgradient_clipping=0.5 %s", formats[seed % 2], ALL);
        const uint64_t want = walked(changes, &as);
        for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
            walk w = as;
            if (OVER_GPU && !is_my_share()) continue;
            snprintf(changes, sizeof changes, MUON "%sgradient_clipping=0.5 memory.update_in_backward=speculate %s%s",
                     formats[seed % 2], TIGHT, budgets[i]);
            live(&w, changes);
            expect_nothing_left();
            if (w.seen != want) fail_msg("seed %d, %s: other bits", (int)seed, changes);
            n_valid += w.n_speculated - w.n_taken_back;
            n_taken_back += w.n_taken_back;
        }
    }
    if (!OVER_DISCRETE) assert_true(n_valid > 0 && n_taken_back > 0);
}

/* Each matrix in one chunk, and so of one rank. */
static void test_ranks(void **state)
{
    (void)state;
    static const char *const budgets[] = {"memory.device=900KB memory.host=400KB memory.disk=2MB",
                                          "memory.device=900KB memory.host=4MB memory.disk=0",
                                          "memory.device=1MB memory.host=70KB memory.disk=2MB"};
    const walk as = {.dice = {.seed = 22, .stream = 5}, .has_matrices = true};
    char changes[512];
    if (OVER_DISCRETE) return;
    for (int n = 2; n <= RANKS_MAX; n++)
        for (size_t f = 0; f < 2; f++) {
            snprintf(changes, sizeof changes,
                     MUON "%s memory.device=4MB memory.host=70KB memory.disk=0 default_chunk_size=10240", formats[f]);
            const uint64_t want = walked_by(n, changes, &as);
            for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
                snprintf(changes, sizeof changes, MUON "%s default_chunk_size=10240 %s", formats[f], budgets[i]);
                if (walked_by(n, changes, &as) != want) fail_msg("%d ranks, %s: other bits", n, changes);
            }
        }
}

/* ---- states ---- */

enum { MATRIX, LONG, VECTOR, SCOPED, N };

static const int64_t elements[N] = {48 * 40, 100 * 90, 700, 6 * 9}, rows_of[N] = {48, 100, 0, 6};

static ps_client *begun(const char *changes)
{
    static const char *const names[N] = {"matrix", "long", "vector", "scoped"};
    ps_client *c = client_of(changes);
    int32_t number;
    for (int32_t t = 0; t < N; t++)
        assert_ok(add_matrix(c, names[t], rows_of[t], elements[t], PS_DTYPE_F32, 0, t == SCOPED, &number));
    if (OVER_DISCRETE) assert_ok(add_tensor(c, "gradients", LARGEST, PS_DTYPE_F32, 0, 1, &gradients_at));
    assert_ok(ps_client_begin(c));
    return c;
}

static void step(ps_client *c, uint64_t number)
{
    static float of[LARGEST];
    for (int32_t t = 0; t < N; t++) {
        for (int64_t i = 0; i < elements[t]; i++) of[i] = drawn(100 * number + (uint64_t)t, i);
        give_gradient(c, t, of, elements[t], 0);
    }
    (void)stepped(c);
}

/* A matrix keeps its momentum, another tensor mean and variance, both as after one step; an unmanaged matrix is one. */
static void test_states(void **state)
{
    (void)state;
    ps_client *c = begun(PLAIN "memory.device=4MB memory.disk=4MB");
    float values[2];
    step(c, 1);
    for (int32_t t = 0; t < N; t++) {
        ps_client_tensor_info info = {.struct_size = sizeof info};
        const double g = (double)drawn(100 + (uint64_t)t, 1);
        assert_ok(ps_client_get_tensor_info(c, t, &info));
        assert_int_equal(info.states, t == VECTOR ? 6 : 1);
        if (t == VECTOR) {
            assert_ok(ps_client_read_state(c, t, "exp_avg", 0, 2, values));
            assert_true(fabs((double)values[1] - 0.1 * g) <= 1e-6);
            assert_fails(ps_client_read_state(c, t, "momentum_buffer", 0, 2, values), PS_EINVAL,
                         "has no momentum_buffer: optimizer.type = Muon updates it by elements");
        } else {
            assert_ok(ps_client_read_state(c, t, "momentum_buffer", 0, 2, values));
            assert_true(fabs((double)values[1] - 0.05 * g) <= 1e-6);
            assert_fails(ps_client_write_state(c, t, "exp_avg_sq", 0, 2, values), PS_EINVAL,
                         "has no exp_avg_sq: optimizer.type = Muon updates it as a whole matrix");
        }
    }
    ps_client_destroy(c);
    expect_nothing_left();
}

/* A checkpoint is taken before a step, is written while that is made, and resumed in other memory. */
static void test_resume(void **state)
{
    (void)state;
    static float want[LARGEST], is[LARGEST];
    const char *const memories[] = {"memory.device=4MB memory.disk=4MB ",
                                    OVER_DISCRETE ? "memory.device=1300KB memory.host=100KB memory.disk=4MB "
                                                  : "memory.device=560KB memory.host=100KB memory.disk=4MB "};
    char changes[256];
    for (int k = 0; k < 2; k++) {
        temp_folder work = temp_folder_make();
        snprintf(changes, sizeof changes, PLAIN "bf16.enabled=true %s", memories[k]);
        ps_client *c = begun(changes);
        snprintf(changes, sizeof changes, PLAIN "bf16.enabled=true %s", memories[1 - k]);
        ps_client *d = begun(changes);
        for (uint64_t i = 0; i < 3; i++) step(c, i);
        assert_ok(ps_client_begin_checkpoint(c, work.path, NULL));
        step(c, 3);
        assert_ok(ps_client_finish_checkpoint(c, NULL));
        step(d, 7);
        assert_ok(ps_client_load_checkpoint(d, work.path, NULL));
        step(d, 3);
        for (int32_t t = 0; t < N; t++) {
            const char *states[] = {NULL, t == VECTOR ? "exp_avg_sq" : "momentum_buffer"};
            for (int s = 0; s < 2; s++) {
                assert_ok(ps_client_read_state(c, t, states[s], 0, elements[t], want));
                assert_ok(ps_client_read_state(d, t, states[s], 0, elements[t], is));
                if (memcmp(is, want, (size_t)elements[t] * sizeof *is) != 0) fail_msg("tensor %d, state %d", t, s);
            }
        }
        ps_client_destroy(d);
        ps_client_destroy(c);
        temp_folder_remove(&work);
    }
    expect_nothing_left();
}

/* Chunks of less than a matrix, of several ranks. */
static void *begin_rank(void *arg)
{
    ps_comm *comm = arg;
    int32_t number;
    ps_client *c = client_of_rank(PLAIN "default_chunk_size=4096 memory.device=4MB memory.host=70KB", comm);
    assert_ok(add_matrix(c, "long", 100, 9000, PS_DTYPE_F32, 0, 0, &number));
    assert_fails(ps_client_begin(c), PS_EINVAL, "with several ranks set default_chunk_size to at least 9000");
    ps_client_destroy(c);
    ps_comm_close(comm);
    return NULL;
}

static void test_small_chunks_of_ranks(void **state)
{
    (void)state;
    const ps_comm_options o = {.timeout_s = 60, .staging_bytes = 1 << 16};
    ps_comm *comms[2];
    pthread_t other;
    if (OVER_DISCRETE) return;
    assert_ok(ps_comm_open_threads(&o, 2, comms));
    assert_int_equal(pthread_create(&other, NULL, begin_rank, comms[1]), 0);
    (void)begin_rank(comms[0]);
    assert_int_equal(pthread_join(other, NULL), 0);
    expect_nothing_left();
}

static void test_names(void **state)
{
    (void)state;
    int32_t number;
    ps_client *c = client_of(PLAIN "memory.device=4MB optimizer.params.adamw_names=long,t.3");
    assert_ok(add_matrix(c, "long", 100, 9000, PS_DTYPE_F32, 0, 0, &number));
    assert_fails(ps_client_begin(c), PS_EINVAL, "optimizer.params.adamw_names: 't.3' matches none of the 1 tensors");
    ps_client_destroy(c);
    c = client_of(PLAIN "memory.device=4MB optimizer.param_groups=[{\"params\":\"long\",\"eps\":1e-6}]");
    assert_ok(add_matrix(c, "long", 100, 9000, PS_DTYPE_F32, 0, 0, &number));
    assert_fails(ps_client_begin(c), PS_EINVAL, "group 1 ('long') has eps, which is for what Muon leaves to AdamW");
    ps_client_destroy(c);
    expect_nothing_left();
}

/* Scratch is counted: the least budget that is named suffices, and one page less does not. */
static void test_refusal(void **state)
{
    (void)state;
    ps_client *c;
    int32_t number;
    if (OVER_DISCRETE) return;
    for (int64_t bytes = 200000;; bytes += 4096) {
        char changes[256];
        snprintf(changes, sizeof changes, PLAIN "memory.host=0 memory.disk=4MB memory.device=%lld", (long long)bytes);
        c = client_of(changes);
        assert_ok(add_matrix(c, "long", 100, 9000, PS_DTYPE_F32, 0, 0, &number));
        const ps_status st = ps_client_begin(c);
        if (st == PS_OK) break;
        assert_int_equal(st, PS_EBUDGET);
        assert_non_null(strstr(ps_last_error(), "memory.device"));
        assert_non_null(strstr(ps_last_error(), "of scratch for Muon of long, a whole matrix"));
        ps_client_destroy(c);
    }
    static float of[LARGEST];
    for (int i = 0; i < 3; i++) {
        for (int64_t k = 0; k < 9000; k++) of[k] = drawn(3, k);
        give_gradient(c, number, of, 9000, 0);
        (void)stepped(c);
    }
    const ps_client_info info = info_of(c);
    assert_true(info.peak_bytes[0] <= info.budget_bytes[0]);
    ps_client_destroy(c);
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_states, note_live),
        cmocka_unit_test_setup(test_resume, note_live),
        cmocka_unit_test_setup(test_refusal, note_live),
        cmocka_unit_test_setup(test_names, note_live),
        cmocka_unit_test_setup(test_small_chunks_of_ranks, note_live),
        cmocka_unit_test_setup(test_budgets, note_live),
        cmocka_unit_test_setup(test_early, note_live),
        cmocka_unit_test_setup(test_speculative, note_live),
        cmocka_unit_test_setup(test_ranks, note_live),
    };
    return RUN_ON_BACKENDS_IN(tests, make_folder, remove_folder);
}
