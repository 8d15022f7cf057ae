/* test_client_walk.c - what programs of client_walk.h see is the same in all budgets, and what plain arrays hold. */
#include "external/client_walk.h"

#define SPLIT "bf16.enabled=true optimizer.params.state_format=compact_split "
#define STOCHASTIC "bf16.enabled=true optimizer.params.state_format=bf16_stochastic "

static int64_t n_deferred; /* by the last one */

static uint64_t walked(const char *changes, uint64_t seed, bool is_plain)
{
    walk w = {.dice = {.seed = seed, .stream = 5}, .is_plain = is_plain, .n_ranks = 1};
    live(&w, changes);
    expect_nothing_left();
    n_deferred = w.n_deferred;
    return w.seen;
}

static uint64_t walked_by_ranks(int n, const char *changes, uint64_t seed, bool is_plain)
{
    return walked_by(n, changes, &(walk){.dice = {.seed = seed, .stream = 5}, .is_plain = is_plain});
}

static void test_values(void **state)
{
    (void)state;
    char third[128];
    snprintf(third, sizeof third, "%s%s", LITTLE, THIRD);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        if (!is_my_share()) continue;
        (void)walked(ALL, seed, true);
        (void)walked(third, seed, true);
    }
}

static void test_budgets(void **state)
{
    (void)state;
    static const char *const formats[] = {"", "bf16.enabled=true ", "fp16.enabled=true fp16.initial_scale_power=2 ",
                                          SPLIT, STOCHASTIC};
    static const char *const budgets[] = {THIRD, "memory.host=4MB memory.disk=0", "memory.host=0 memory.disk=2MB",
                                          THIRD " memory.prefetch=0"};
    char changes[256];
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++)
        for (uint64_t seed = 10; seed < (f == 0 ? 12 : 11); seed++) {
            if (!is_my_share()) continue;
            snprintf(changes, sizeof changes, "%s%s%s", formats[f], ALL,
                     OVER_DISCRETE && !OVER_GPU ? " train.backend=cpu" : "");
            const uint64_t want = walked(changes, seed, false);
            assert_int_equal(n_deferred, 0); /* all chunks are on the device */
            for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
                if (OVER_GPU && !is_my_share()) continue;
                snprintf(changes, sizeof changes, "%s%s%s", formats[f], LITTLE, budgets[i]);
                if (walked(changes, seed, false) != want) fail_msg("seed %d, %s: other bits", (int)seed, changes);
                if (n_deferred == 0) fail_msg("seed %d, %s: no update was deferred", (int)seed, changes);
            }
        }
}

/* Staging of messages is in host memory. */
static void test_ranks(void **state)
{
    (void)state;
    static const char *const budgets[] = {"memory.host=400KB memory.disk=2MB", "memory.host=4MB memory.disk=0",
                                          "memory.host=70KB memory.disk=2MB"};
    static const char all[] = "memory.device=4MB memory.host=70KB memory.disk=0";
    const char *little = OVER_DISCRETE ? "memory.device=900KB" : "memory.device=360KB";
    char changes[256];
    for (int n = 2; n <= RANKS_MAX; n++) {
        if (OVER_DISCRETE && n > 2) continue;
        (void)walked_by_ranks(n, all, 20, true);
        (void)walked_by_ranks(n, all, 38, true); /* drops a gradient that overlaps its parameter */
        snprintf(changes, sizeof changes, "%s %s", little, budgets[0]);
        (void)walked_by_ranks(n, changes, 21, true);
        for (int f = 0; f < 3; f++) {
            const char *format = f == 0 ? "" : f == 1 ? "bf16.enabled=true" : n == 2 ? SPLIT : STOCHASTIC;
            if (OVER_DISCRETE && over.seed % 3 != f) continue;
            snprintf(changes, sizeof changes, "%s %s", format, all);
            const uint64_t want = walked_by_ranks(n, changes, 22, false);
            for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
                if (!is_my_share()) continue;
                snprintf(changes, sizeof changes, "%s %s %s", format, little, budgets[i]);
                if (walked_by_ranks(n, changes, 22, false) != want) fail_msg("%d ranks, %s: other bits", n, changes);
            }
        }
    }
}

#define LATE "gradient_clipping=0 train.max_nonfinite_steps=1 "
#define EARLY LATE "memory.update_in_backward=always "

static uint64_t walked_early(const char *changes, uint64_t seed, bool is_plain, int64_t *n_early)
{
    walk w = {.dice = {.seed = seed, .stream = 5}, .is_plain = is_plain, .n_ranks = 1, .repeats = true};
    live(&w, changes);
    expect_nothing_left();
    *n_early = w.n_early;
    return w.seen;
}

/* Updates within the backward pass, in all budgets, and never where they are not asked for. */
static void test_early(void **state)
{
    (void)state;
    static const char *const formats[] = {"", STOCHASTIC, SPLIT};
    static const char *const budgets[] = {THIRD, "memory.host=0 memory.disk=2MB", "memory.host=4MB memory.disk=0",
                                          THIRD " memory.defer_updates=false"};
    char changes[256];
    int64_t n_early;
    for (uint64_t seed = 50; seed < 54; seed++) {
        if (!is_my_share()) continue;
        const char *format = formats[seed % 3];
        snprintf(changes, sizeof changes, LATE "%s%s", format, ALL);
        const uint64_t want = walked_early(changes, seed, false, &n_early);
        assert_int_equal(n_early, 0);
        for (size_t i = 0; i <= PS_ARRAY_LEN(budgets); i++) {
            const bool is_all = i == PS_ARRAY_LEN(budgets);
            if (OVER_GPU && !is_my_share()) continue;
            snprintf(changes, sizeof changes, EARLY "%s%s%s", format, is_all ? "" : LITTLE, is_all ? ALL : budgets[i]);
            if (walked_early(changes, seed, false, &n_early) != want)
                fail_msg("seed %d, %s: other bits", (int)seed, changes);
            if (n_early == 0) fail_msg("seed %d, %s: no update was early", (int)seed, changes);
        }
        snprintf(changes, sizeof changes, EARLY "%s%s", LITTLE, THIRD);
        if (!OVER_DISCRETE) (void)walked_early(changes, seed, true, &n_early);
    }
}

static int64_t n_early_of_ranks;
static pthread_mutex_t n_early_lock = PTHREAD_MUTEX_INITIALIZER;

static void count_early(walk *w)
{
    pthread_mutex_lock(&n_early_lock);
    n_early_of_ranks += w->n_early;
    pthread_mutex_unlock(&n_early_lock);
    w->n_early = 0;
}

static void test_early_of_ranks(void **state)
{
    (void)state;
    static const char *const budgets[] = {"memory.device=4MB memory.host=70KB memory.disk=0",
                                          "memory.device=360KB memory.host=400KB memory.disk=2MB",
                                          "memory.device=360KB memory.host=70KB memory.disk=2MB"};
    char changes[256];
    if (OVER_DISCRETE) return;
    for (int n = 2; n <= RANKS_MAX; n++)
        for (int f = 0; f < 3; f++) {
            const char *format = f == 0 ? "" : f == 1 ? "bf16.enabled=true" : n == 2 ? SPLIT : STOCHASTIC;
            /* here one of two groups of a tensor is updated before the other */
            const uint64_t seed = f == 1 ? 91 : 90;
            const walk first = {.dice = {.seed = seed, .stream = 5}, .repeats = true, .after_step = count_early};
            snprintf(changes, sizeof changes, LATE "%s %s", format, budgets[0]);
            n_early_of_ranks = 0;
            const uint64_t want = walked_by(n, changes, &first);
            assert_int_equal(n_early_of_ranks, 0);
            for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
                if (!is_my_share()) continue;
                snprintf(changes, sizeof changes, EARLY "%s %s", format, budgets[i]);
                n_early_of_ranks = 0;
                if (walked_by(n, changes, &first) != want) fail_msg("%d ranks, %s: other bits", n, changes);
                if (n_early_of_ranks == 0) fail_msg("%d ranks, %s: no update was early", n, changes);
            }
        }
}

/* In every second step the program does not clip. */
static void clip_in_turn(walk *w)
{
    assert_ok(ps_client_set_gradient_clipping(w->client, w->step % 2 == 0 ? 0 : -1));
}

static walk walked_speculating(const char *changes, uint64_t seed)
{
    walk w = {.dice = {.seed = seed, .stream = 5}, .n_ranks = 1, .repeats = true};
    if (seed % 2 == 0) w.after_step = clip_in_turn;
    live(&w, changes);
    expect_nothing_left();
    return w;
}

static const char *const norms[] = {"1000", "0.5"}; /* none is clipped, or each */

/* With clipping in no step, in some, and in each: updates within the backward pass are valid, or taken back. */
static void test_speculative(void **state)
{
    (void)state;
    static const char *const formats[] = {"", "bf16.enabled=true ", "optimizer.params.state_format=compact ", SPLIT,
                                          STOCHASTIC};
    static const char *const budgets[] = {"memory.host=100KB memory.disk=4MB", "memory.host=0 memory.disk=4MB",
                                          "memory.host=100KB memory.disk=900KB"}; /* the last: for some chunks */
    char changes[256];
    int64_t n_valid = 0, n_taken_back = 0, n_mixed = 0;
    for (uint64_t seed = 80; seed < 84; seed++)
        for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
            if (OVER_DISCRETE && !is_my_share()) continue;
            const char *norm = norms[seed / 2 % 2];
            snprintf(changes, sizeof changes, "%sgradient_clipping=%s %s", formats[f], norm, ALL);
            const uint64_t want = walked_speculating(changes, seed).seen;
            for (size_t i = 0; i <= PS_ARRAY_LEN(budgets); i++) {
                if (OVER_GPU && !is_my_share()) continue;
                const bool is_all = i == PS_ARRAY_LEN(budgets);
                snprintf(changes, sizeof changes, "%sgradient_clipping=%s memory.update_in_backward=speculate %s%s",
                         formats[f], norm, is_all ? "" : LITTLE,
                         is_all ? "memory.device=4MB memory.host=0 memory.disk=4MB" : budgets[i]);
                const walk w = walked_speculating(changes, seed);
                if (w.seen != want) fail_msg("seed %d, %s: other bits", (int)seed, changes);
                if (w.n_speculated == 0 && !OVER_DISCRETE)
                    fail_msg("seed %d, %s: no update was early", (int)seed, changes);
                assert_int_equal(w.n_speculated, w.n_early);
                n_valid += w.n_speculated - w.n_taken_back;
                n_taken_back += w.n_taken_back;
                n_mixed += w.n_taken_back > 0 && w.n_taken_back < w.n_speculated;
            }
        }
    if (!OVER_DISCRETE) assert_true(n_valid > 0 && n_taken_back > 0 && n_mixed > 0);
}

static int64_t n_taken_back_of_ranks;

static void clip_and_count(walk *w)
{
    pthread_mutex_lock(&n_early_lock);
    n_early_of_ranks += w->n_speculated;
    n_taken_back_of_ranks += w->n_taken_back;
    pthread_mutex_unlock(&n_early_lock);
    w->n_speculated = w->n_taken_back = 0;
    clip_in_turn(w);
}

static void test_speculative_of_ranks(void **state)
{
    (void)state;
    static const char *const budgets[] = {"memory.device=4MB memory.host=70KB memory.disk=0",
                                          "memory.device=360KB memory.host=400KB memory.disk=4MB",
                                          "memory.device=400KB memory.host=70KB memory.disk=4MB"};
    char changes[256];
    if (OVER_DISCRETE) return;
    for (int n = 2; n <= RANKS_MAX; n++)
        for (uint64_t seed = 60; seed < 62; seed++) {
            const char *format = seed % 2 == 0 ? "" : "bf16.enabled=true";
            const walk first = {.dice = {.seed = seed, .stream = 5}, .repeats = true, .after_step = clip_and_count};
            snprintf(changes, sizeof changes, "gradient_clipping=0.5 %s %s", format, budgets[0]);
            const uint64_t want = walked_by(n, changes, &first);
            for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
                if (!is_my_share()) continue;
                snprintf(changes, sizeof changes, "gradient_clipping=0.5 memory.update_in_backward=speculate %s %s",
                         format, budgets[i]);
                n_early_of_ranks = n_taken_back_of_ranks = 0;
                if (walked_by(n, changes, &first) != want) fail_msg("%d ranks, %s: other bits", n, changes);
                if (i == 0) /* no disk */
                    assert_int_equal(n_early_of_ranks, 0);
                else if (n_taken_back_of_ranks == 0 || n_taken_back_of_ranks == n_early_of_ranks)
                    fail_msg("%d ranks, %s: %lld of %lld were taken back", n, changes, (long long)n_taken_back_of_ranks,
                             (long long)n_early_of_ranks);
            }
        }
}

static int64_t to_device_bytes; /* that a walk's steps and accesses took from the host */

static void note_moves(walk *w)
{
    ps_client_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_get_info(w->client, &info));
    to_device_bytes = info.moved_bytes[0];
}

static uint64_t walked_noting(const char *changes, uint64_t seed)
{
    walk w = {.dice = {.seed = seed, .stream = 5}, .n_ranks = 1, .after_step = note_moves};
    live(&w, changes);
    expect_nothing_left();
    n_deferred = w.n_deferred;
    return w.seen;
}

/* Hybrid Adam: updates on the host, in parallel with the next forward pass, where a chunk is not on the device; with
 * the option false all of them, so that no fp32 value or state goes to the device. The bits are the device's. */
static void test_updates_on_host(void **state)
{
    (void)state;
    if (!OVER_DISCRETE) skip(); /* the processor is both */
    static const char *const formats[] = {"", "bf16.enabled=true "};
    char changes[256];
    for (uint64_t seed = 70; seed < 72; seed++) {
        const char *format = formats[seed % 2];
        snprintf(changes, sizeof changes, "%s%s", format, ALL);
        const uint64_t want = walked_noting(changes, seed);
        int64_t moved[2];
        for (int is_hybrid = 0; is_hybrid < 2; is_hybrid++) {
            snprintf(changes, sizeof changes, "%s%smemory.host=4MB memory.disk=0 optimizer.params.use_hybrid_adam=%s",
                     format, LITTLE, is_hybrid ? "true" : "false");
            if (walked_noting(changes, seed) != want) fail_msg("seed %d, %s: other bits", (int)seed, changes);
            if (n_deferred == 0) fail_msg("seed %d, %s: no update was deferred", (int)seed, changes);
            moved[is_hybrid] = to_device_bytes;
        }
        if (moved[0] >= moved[1])
            fail_msg("seed %d, %s: %lld bytes to the device, %lld where updates may run there", (int)seed, format,
                     (long long)moved[0], (long long)moved[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_values, note_live),
        cmocka_unit_test_setup(test_budgets, note_live),
        cmocka_unit_test_setup(test_ranks, note_live),
        cmocka_unit_test_setup(test_early, note_live),
        cmocka_unit_test_setup(test_early_of_ranks, note_live),
        cmocka_unit_test_setup(test_updates_on_host, note_live),
        cmocka_unit_test_setup(test_speculative, note_live),
        cmocka_unit_test_setup(test_speculative_of_ranks, note_live),
    };
    return RUN_ON_BACKENDS_IN(tests, make_folder, remove_folder);
}
