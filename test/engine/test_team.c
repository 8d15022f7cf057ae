/* The team of threads is the one that was planned, whatever OpenMP has been told by the environment or by the program around the
 * engine: the same bits, or an error that says what is in the way. */
#include "engine/engine_fixture.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>

#include "own_process.h"

static ps_config *config_of(int threads)
{
    char text[32];
    snprintf(text, sizeof text, "train.threads=%d", threads);
    return TINY(text, "train_micro_batch_size_per_gpu=8", "model.n_embd=96", "data.sequence_length=16");
}

/* Of one step. Negative: it failed, with *st. */
static double norm_of(int threads, ps_status *st)
{
    ps_config *c = config_of(threads);
    ps_engine *e = NULL;
    ps_step_info info = {.grad_norm = -1};
    int32_t tokens[8 * 16], targets[8 * 16];
    fill_batch(tokens, targets, 8, 16, TINY_VOCABULARY, 0);
    *st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
    if (*st == PS_OK) *st = ps_forward(e, &(ps_batch){.tokens = tokens, .targets = targets}, NULL);
    if (*st == PS_OK) *st = ps_backward(e);
    if (*st == PS_OK) *st = ps_step(e);
    if (*st == PS_OK) ps_engine_get_step_info(e, &info);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return info.grad_norm;
}

static double norm_with(int threads)
{
    ps_status st;
    const double norm = norm_of(threads, &st);
    assert_ok(st);
    assert_true(isfinite(norm) && norm > 0);
    return norm;
}

/* ---- children: "<threads> <norm>": that norm; "<threads> refused": an error that names the limit ---- */

static int child(const char *word)
{
    ps_status st;
    char *rest;
    const int threads = (int)strtol(word, &rest, 10);
    const double norm = norm_of(threads, &st);
    if (strcmp(rest, " refused") == 0)
        return st == PS_ENOSYS && strstr(ps_last_error(), "OMP_THREAD_LIMIT") &&
                       strstr(ps_last_error(), "train.threads")
                   ? 0
                   : 2;
    if (st != PS_OK) fprintf(stderr, "%s\n", ps_last_error());
    if (norm != strtod(rest, NULL)) fprintf(stderr, "norm %.9g instead of%s\n", norm, rest);
    return norm == strtod(rest, NULL) ? 0 : 1;
}

static void environments_change_no_bit(void **state)
{
    (void)state;
    static char dynamic[] = "OMP_DYNAMIC=true", levels[] = "OMP_MAX_ACTIVE_LEVELS=0", one[] = "OMP_NUM_THREADS=1",
                seven[] = "OMP_NUM_THREADS=7", limit_2[] = "OMP_THREAD_LIMIT=2", nested[] = "OMP_NUM_THREADS=3,1";
    char *const environments[] = {dynamic, levels, one, seven, limit_2, nested};
    char word[64];
    snprintf(word, sizeof word, "2 %a", norm_with(2));
    for (size_t i = 0; i < PS_ARRAY_LEN(environments); i++)
        if (own_process(word, (char *[]){environments[i], NULL}) != 0) fail_msg("with %s", environments[i]);
    if (own_process(word, (char *[]){dynamic, levels, one, NULL}) != 0) fail_msg("with three of them");
}

static void a_limit_is_kept_or_named(void **state)
{
    (void)state;
    char limit[] = "OMP_THREAD_LIMIT=1", word[64];
    assert_int_equal(own_process("2 refused", (char *[]){limit, NULL}), 0);
    snprintf(word, sizeof word, "0 %a", norm_with(1)); /* one a core, as far as the limit goes */
    assert_int_equal(own_process(word, (char *[]){limit, NULL}), 0);
}

/* ---- the program around the engine ---- */

static void *on_thread(void *out)
{
    ps_status st;
    omp_set_num_threads(1);
    omp_set_dynamic(1);
    omp_set_max_active_levels(0);
    *(double *)out = norm_of(2, &st);
    return omp_get_max_threads() == 1 && omp_get_dynamic() && omp_get_max_active_levels() == 0 ? out : NULL;
}

static void a_caller_finds_its_settings_again(void **state)
{
    (void)state;
    const double norm = norm_with(2);
    double on_another = 0;
    void *kept = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, on_thread, &on_another), 0);
    pthread_join(thread, &kept);
    assert_true(on_another == norm);
    assert_ptr_equal(kept, &on_another);
    const int before = omp_get_max_threads();
    omp_set_num_threads(5);
    assert_true(norm_with(2) == norm);
    assert_int_equal(omp_get_max_threads(), 5);
    omp_set_num_threads(before);
}

/* A team in a team is none to oneDNN. */
static void a_parallel_region_is_no_place_for_a_team(void **state)
{
    (void)state;
    double norm = 0;
    ps_status st = PS_OK, alone = PS_OK;
    char says[256] = "";
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        (void)norm_of(2, &st);
        snprintf(says, sizeof says, "%s", ps_last_error());
        norm = norm_of(1, &alone);
    }
    assert_int_equal(st, PS_ESTATE);
    assert_non_null(strstr(says, "parallel region"));
    assert_ok(alone);
    assert_true(norm == norm_with(1));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environments_change_no_bit),
        cmocka_unit_test(a_limit_is_kept_or_named),
        cmocka_unit_test(a_caller_finds_its_settings_again),
        cmocka_unit_test(a_parallel_region_is_no_place_for_a_team),
    };
    return argc > 1 ? child(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
