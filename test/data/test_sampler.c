/* The program's own file: it is not in the library. */
#include "../../cli/sampler.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { V = 2000 };

/* Insertion and sorting, the likeliest and drawn. */
static const struct {
    double temperature;
    int64_t top_k;
} ways[] = {{0, 0}, {1, 10}, {1, 0}};

static void values_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static float logits[V];
    for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
        sampler s;
        int32_t token = -1;
        assert_int_equal(sampler_init(&s, V, ways[w].temperature, ways[w].top_k, 1), PS_OK);
        for (size_t b = 0; b < PS_ARRAY_LEN(bad); b++) {
            logits[V - 3] = bad[b];
            assert_int_equal(sampler_choose(&s, logits, 0, &token), PS_ENUMERIC);
            assert_non_null(strstr(ps_last_error(), "of token 1997"));
        }
        logits[V - 3] = 0;
        assert_int_equal(sampler_choose(&s, logits, 0, &token), PS_OK);
        assert_in_range(token, 0, V - 1);
        sampler_deinit(&s);
    }
}

static void the_same_word_draws_the_same_token(void **state)
{
    (void)state;
    static float logits[V];
    for (int v = 0; v < V; v++) logits[v] = (float)((v * 7919) % V) / V;
    for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
        sampler s;
        int32_t a, b;
        assert_int_equal(sampler_init(&s, V, ways[w].temperature, ways[w].top_k, 1), PS_OK);
        assert_int_equal(sampler_choose(&s, logits, 5, &a), PS_OK);
        assert_int_equal(sampler_choose(&s, logits, 5, &b), PS_OK);
        assert_int_equal(a, b);
        if (ways[w].top_k > 0) assert_true(logits[a] >= (float)(V - ways[w].top_k) / V);
        if (ways[w].temperature == 0) assert_true(logits[a] == (float)(V - 1) / V);
        sampler_deinit(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_are_not_finite_are_refused),
        cmocka_unit_test(the_same_word_draws_the_same_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
