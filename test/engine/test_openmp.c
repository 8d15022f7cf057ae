/* The engine's threads are its own: what OpenMP has been set to by the environment or by the program around the
 * engine changes nothing, and that program finds its OpenMP as it was. This program is built with OpenMP; the
 * library is not. */
#include "engine/engine_fixture.h"

#include <math.h>
#include <omp.h>

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
    ps_step_info info = {.struct_size = sizeof info, .grad_norm = -1};
    int32_t tokens[8 * 16], targets[8 * 16];
    fill_batch(tokens, targets, 8, 16, TINY_VOCABULARY, 0);
    *st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
    if (*st == PS_OK)
        *st = ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL);
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

/* ---- children: "<threads> <norm>": that norm ---- */

static int child(const char *word)
{
    ps_status st;
    char *rest;
    const int threads = (int)strtol(word, &rest, 10);
    const double norm = norm_of(threads, &st), want = strtod(rest, NULL);
    if (st != PS_OK) fprintf(stderr, "%s\n", ps_last_error());
    if (norm != want) fprintf(stderr, "norm %.9g instead of %.9g\n", norm, want);
    return norm == want ? 0 : 1;
}

static void environments_change_no_bit(void **state)
{
    (void)state;
    static char dynamic[] = "OMP_DYNAMIC=true", levels[] = "OMP_MAX_ACTIVE_LEVELS=0", one[] = "OMP_NUM_THREADS=1",
                seven[] = "OMP_NUM_THREADS=7", limit[] = "OMP_THREAD_LIMIT=1", stack[] = "OMP_STACKSIZE=16K",
                nonsense[] = "OMP_NUM_THREADS=many";
    char *const environments[] = {dynamic, levels, one, seven, limit, stack, nonsense};
    char word[64];
    snprintf(word, sizeof word, "3 %a", norm_with(3));
    for (size_t i = 0; i < PS_ARRAY_LEN(environments); i++)
        if (own_process(word, (char *[]){environments[i], NULL}) != 0) fail_msg("with %s", environments[i]);
    if (own_process(word, (char *[]){dynamic, levels, one, limit, NULL}) != 0) fail_msg("with four of them");
    snprintf(word, sizeof word, "0 %a", norm_with(0));
    assert_int_equal(own_process(word, (char *[]){limit, NULL}), 0);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    const double norm = norm_with(1);
    assert_true(norm_with(2) == norm);
    assert_true(norm_with(3) == norm);
    assert_true(norm_with(8) == norm);
}

/* ---- the program around the engine ---- */

static void a_caller_finds_its_settings_again(void **state)
{
    (void)state;
    const double norm = norm_with(2);
    const int n_before = omp_get_max_threads(), levels_before = omp_get_max_active_levels();
    omp_set_num_threads(5);
    omp_set_dynamic(1);
    omp_set_max_active_levels(0);
    assert_true(norm_with(2) == norm);
    assert_int_equal(omp_get_max_threads(), 5);
    assert_true(omp_get_dynamic());
    assert_int_equal(omp_get_max_active_levels(), 0);
    omp_set_num_threads(n_before);
    omp_set_dynamic(0);
    omp_set_max_active_levels(levels_before);
}

/* Several engines at once, each from a thread of the program's team. */
static void a_parallel_region_is_a_place_like_any(void **state)
{
    (void)state;
    const double want = norm_with(2);
    double norms[3] = {0};
    ps_status st[3];
#pragma omp parallel for num_threads(3) schedule(static, 1)
    for (int i = 0; i < 3; i++) norms[i] = norm_of(2, &st[i]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(st[i], PS_OK);
        assert_true(norms[i] == want);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environments_change_no_bit),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(a_caller_finds_its_settings_again),
        cmocka_unit_test(a_parallel_region_is_a_place_like_any),
    };
    return argc > 1 ? child(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
