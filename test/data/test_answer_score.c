/* As the official scripts of SQuAD count. */
#include "../../src/data/answer_score.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"

static ps_tokenizer *gpt2;

static ps_answer_score score(const char *said, const char *const *answers, int64_t n)
{
    const ps_task_question q = {.answers = answers, .n_answers = n};
    ps_answer_score s;
    assert_int_equal(best_of(said, (int64_t)strlen(said), &q, &s), PS_OK);
    return s;
}

static void expect_score(const char *said, const char *answer, double exact_match, double f1)
{
    const ps_answer_score s = score(said, &answer, 1);
    if (s.exact_match != exact_match || fabs(s.f1 - f1) > 1e-12)
        fail_msg("'%s' for '%s': %g, %g, expected %g, %g", said, answer, s.exact_match, s.f1, exact_match, f1);
}

static void test_words(void **state)
{
    (void)state;
    expect_score("The white  whale!", "white whale", 1, 1);
    expect_score("pre-war", "prewar", 1, 1);
    expect_score("a b", "b", 1, 1); /* "a" is an article */
    expect_score("white whale", "whale", 0, 2.0 / 3);
    expect_score("x x y", "x z", 0, 2.0 / 5); /* one x in common: 2 * 1 / (3 + 2) */
    expect_score("x x", "x x y", 0, 4.0 / 5);
    expect_score("north", "nor", 0, 0);
    expect_score("the", "an", 1, 1); /* nothing is left of both */
    expect_score("", "x", 0, 0);
    expect_score("Caf\xC3\xA9", "caf\xC3\xA9", 1, 1);
}

static void test_best_of_answers(void **state)
{
    (void)state;
    const char *const answers[] = {"ship", "white whale"};
    ps_answer_score s = score("whale", answers, 2);
    assert_true(s.exact_match == 0 && fabs(s.f1 - 2.0 / 3) < 1e-12);
    s = score("ship", answers, 2);
    assert_true(s.exact_match == 1 && s.f1 == 1);
    s = score("", NULL, 0);
    assert_true(s.exact_match == 1 && s.f1 == 1);
    s = score("ship", NULL, 0);
    assert_true(s.exact_match == 0 && s.f1 == 0);
}

/* Of two parts of a context, of which tokens 0 to 3 and 2 to 5 are in the rows' columns 2 to 5. */
static void test_spans(void **state)
{
    (void)state;
    const ps_task_sample first = {.context = 2, .context_end = 6, .context_first = 0},
                         second = {.context = 2, .context_end = 6, .context_first = 2};
    /* the best beginning is after the best end: no span */
    const float a[] = {1, 2, 0, 0, 0, 9, 5, 0, 0, 1, 0, 3, 0, 0}, b[] = {-4, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 2, 0, 0};
    ps_answer_span best = PS_ANSWER_SPAN_NONE;
    ps_answer_span_take(&best, &first, a);
    assert_true(best.score == 9 && best.first == 0 && best.last == 0);
    assert_true(best.none_score == 3);
    ps_answer_span_take(&best, &second, b);
    assert_true(best.score == 11 && best.first == 4 && best.last == 5);
    assert_true(best.none_score == -3);
}

static void test_text_of_span(void **state)
{
    (void)state;
    static const char context[] = "Ahab hunts the white whale.";
    const char *answer = "white whale";
    const ps_task_question q = {
        .context = context, .context_bytes = sizeof context - 1, .answers = &answer, .n_answers = 1};
    ps_answer_score s;
    ps_answer_span span = {.score = 2, .none_score = 3, .first = 4, .last = 5}; /* A hab hunts the white whale . */
    assert_int_equal(ps_answer_score_of(gpt2, false, &q, &span, false, &s), PS_OK);
    assert_true(s.exact_match == 1 && s.f1 == 1);
    span.last = 6; /* with the full stop, which is no word */
    assert_int_equal(ps_answer_score_of(gpt2, false, &q, &span, false, &s), PS_OK);
    assert_true(s.exact_match == 1);
    span.first = 5;
    assert_int_equal(ps_answer_score_of(gpt2, false, &q, &span, false, &s), PS_OK);
    assert_true(s.exact_match == 0 && fabs(s.f1 - 2.0 / 3) < 1e-12);
    assert_int_equal(ps_answer_score_of(gpt2, false, &q, &span, true, &s), PS_OK); /* it says that there is none */
    assert_true(s.exact_match == 0 && s.f1 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_best_of_answers),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_text_of_span),
    };
    if (ps_tokenizer_open("data/gpt2", &gpt2) != PS_OK) return 1;
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    ps_tokenizer_close(gpt2);
    return n_failed + (ps_mem_live_bytes() != 0);
}
