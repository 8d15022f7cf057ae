#include "patrickstar_data.h"

#include <math.h>

#include "assert_status.h"
#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"

enum { V = 2000 };

/* Insertion and sorting, the likeliest and drawn. */
static const ps_sample_options ways[] = {{.struct_size = sizeof(ps_sample_options)},
                                         {.struct_size = sizeof(ps_sample_options), .temperature = 1, .top_k = 10},
                                         {.struct_size = sizeof(ps_sample_options), .temperature = 1, .top_k = 1500},
                                         {.struct_size = sizeof(ps_sample_options), .temperature = 1}};

static int32_t sampled(const float *logits, int64_t n, const ps_sample_options *o, int64_t index)
{
    int32_t token = -1;
    assert_ok(ps_sample_token(logits, n, o, index, &token));
    assert_in_range(token, 0, n - 1);
    return token;
}

static void values_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static float logits[V];
    for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
        int32_t token = -1;
        for (size_t b = 0; b < PS_ARRAY_LEN(bad); b++) {
            logits[V - 3] = bad[b];
            assert_int_equal(ps_sample_token(logits, V, &ways[w], 0, &token), PS_ENUMERIC);
            assert_non_null(strstr(ps_last_error(), "of token 1997"));
        }
        sampled(logits, V - 3, &ways[w], 0); /* after what is looked at */
        logits[V - 3] = 0;
        sampled(logits, V, &ways[w], 0);
    }
}

static void the_same_word_draws_the_same_token(void **state)
{
    (void)state;
    static float logits[V];
    for (int v = 0; v < V; v++) logits[v] = (float)((v * 7919) % V) / V;
    for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
        const ps_sample_options *o = &ways[w];
        int n_other = 0;
        for (int64_t i = 0; i < 20; i++) {
            const int32_t a = sampled(logits, V, o, i);
            assert_int_equal(a, sampled(logits, V, o, i));
            n_other += a != sampled(logits, V, o, i + 1);
            if (o->top_k > 0) assert_true(logits[a] >= (float)(V - o->top_k) / V);
            if (o->temperature <= 0) assert_true(logits[a] == (float)(V - 1) / V);
        }
        assert_int_equal(n_other > 10, o->temperature > 0);
    }
}

/* The k likeliest by insertion are those that sorting has: k = 1024 is the last by insertion. */
static void insertion_and_sorting_agree(void **state)
{
    (void)state;
    static float logits[V];
    for (int v = 0; v < V; v++) logits[v] = v % 2 == 0 ? -1e30F : 0; /* 1000 of them, the others have no share */
    for (int64_t i = 0; i < 50; i++) {
        ps_sample_options few = ways[1], many = ways[1];
        few.top_k = 1024;
        many.top_k = 1025;
        assert_int_equal(sampled(logits, V, &few, i), sampled(logits, V, &many, i));
    }
}

/* exp(ln 3) : 1, so three in four. */
static void shares_are_those_of_softmax(void **state)
{
    (void)state;
    const float logits[] = {0, 1.0986123F};
    enum { N = 4000 };
    int n_second = 0;
    for (int64_t i = 0; i < N; i++) n_second += sampled(logits, 2, &ways[3], i);
    assert_in_range(n_second, N * 3 / 4 - 150, N * 3 / 4 + 150); /* 5 standard deviations are 137 */
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    const float logits[] = {0, 1};
    int32_t token = 7;
    static const struct {
        ps_sample_options options;
        int64_t n;
        const char *says;
    } cases[] = {{{.struct_size = sizeof(ps_sample_options), .temperature = -1}, 2, "temperature of -1"},
                 {{.struct_size = sizeof(ps_sample_options), .temperature = (double)NAN}, 2, "temperature of "},
                 {{.struct_size = sizeof(ps_sample_options), .top_k = -1}, 2, "top_k = -1"},
                 {{.struct_size = sizeof(ps_sample_options)}, 0, "0 logits"},
                 {{.struct_size = 0}, 2, "ps_sample_options"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_int_equal(ps_sample_token(logits, cases[i].n, &cases[i].options, 0, &token), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), cases[i].says));
    }
    assert_int_equal(token, 7);
}

/* Only sorting needs memory. */
static void no_memory(void **state)
{
    (void)state;
    static float logits[V];
    int32_t token;
    for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
        ps_fault_arm(PS_FAULT_ALLOC, 0, false);
        const ps_status st = ps_sample_token(logits, V, &ways[w], 0, &token);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, w < 2 ? PS_OK : PS_ENOMEM_HOST);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_are_not_finite_are_refused),
        cmocka_unit_test(the_same_word_draws_the_same_token),
        cmocka_unit_test(insertion_and_sorting_agree),
        cmocka_unit_test(shares_are_those_of_softmax),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
