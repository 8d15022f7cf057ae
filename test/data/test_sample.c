#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/mem.h"
#include "bert_vocab.h"
#include "data/sample.h"

static ps_tokenizer *gpt2, *bert;

static int set_up(void **state)
{
    (void)state;
    bert = bert_tokenizer();
    return bert == NULL || ps_tokenizer_open("data/gpt2", &gpt2) != PS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ps_tokenizer_close(gpt2);
    ps_tokenizer_close(bert);
    return ps_mem_live_bytes() != 0;
}

/* " a" is 257, " b" 275 in both vocabularies; the n-letter texts here are n tokens. */
static void assert_encodes(ps_tokenizer *t, int n_text, int n_pair, int64_t T, const char *expected)
{
    char text[64] = "", pair[64] = "", found[128] = "";
    int32_t ids[32];
    int64_t n, n_first;
    for (int i = 0; i < n_text; i++) strcat(text, " a");
    for (int i = 0; i < n_pair; i++) strcat(pair, " b");
    assert_int_equal(ps_sample_encode(t, false, text, (int64_t)strlen(text), n_pair >= 0 ? pair : NULL,
                                      (int64_t)strlen(pair), T, ids, &n, &n_first),
                     PS_OK);
    assert_true(n <= T);
    for (int64_t i = 0; i < n; i++) {
        if (i == n_first) strcat(found, "|");
        strcat(found, ids[i] == 257 ? "a" : ids[i] == 275 ? "b" : ids[i] == 101 ? "C" : ids[i] == 102 ? "S" : "?");
    }
    assert_string_equal(found, expected);
}

/* data.added_tokens: "[SEP]" in the text of a line. */
static void test_added_tokens(void **state)
{
    (void)state;
    int32_t ids[16];
    int64_t n, n_first;
    assert_int_equal(ps_sample_encode(bert, true, " a[SEP] a", 9, NULL, 0, 16, ids, &n, &n_first), PS_OK);
    assert_int_equal(n, 5);
    assert_int_equal(ids[2], 102);
    assert_int_equal(ps_sample_encode(bert, false, " a[SEP] a", 9, NULL, 0, 16, ids, &n, &n_first), PS_OK);
    for (int64_t i = 0; i < n - 1; i++) assert_int_not_equal(ids[i], 102);
}

static void test_special_tokens_and_cutting(void **state)
{
    (void)state;
    assert_encodes(bert, 3, -1, 10, "CaaaS");
    assert_encodes(bert, 3, -1, 5, "CaaaS");
    assert_encodes(bert, 9, -1, 5, "CaaaS");
    assert_encodes(bert, 0, -1, 5, "CS");
    assert_encodes(bert, 2, 3, 10, "CaaS|bbbS");
    assert_encodes(bert, 2, 0, 10, "CaaS|S");
    assert_encodes(gpt2, 3, -1, 10, "aaa");
    assert_encodes(gpt2, 3, -1, 2, "aa");
    assert_encodes(gpt2, 3, 2, 10, "aaa|bb");
    /* the longer first; when both give way, the longer has the odd one */
    assert_encodes(gpt2, 5, 2, 6, "aaaa|bb");
    assert_encodes(gpt2, 2, 5, 6, "aa|bbbb");
    assert_encodes(gpt2, 9, 9, 6, "aaa|bbb");
    assert_encodes(gpt2, 9, 4, 7, "aaaa|bbb");
    assert_encodes(gpt2, 4, 9, 7, "aaa|bbbb");
    assert_encodes(gpt2, 3, 9, 7, "aaa|bbbb");
    int32_t ids[2];
    int64_t n, n_first;
    assert_int_equal(ps_sample_encode(bert, false, "a", 1, NULL, 0, 1, ids, &n, &n_first), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "special tokens"));
}

static void test_roles(void **state)
{
    (void)state;
    const ps_specials s = ps_specials_of(gpt2), none = ps_specials_of(NULL);
    assert_int_equal(s.eot, 50256);
    assert_int_equal(s.mask, -1);
    const ps_specials of_bert = ps_specials_of(bert);
    assert_int_equal(of_bert.cls, BERT_CLS);
    assert_int_equal(of_bert.sep, BERT_SEP);
    assert_int_equal(of_bert.mask, BERT_MASK);
    assert_int_equal(of_bert.pad, 0);
    assert_int_equal(ps_specials_filler(&s), 50256);
    assert_int_equal(ps_specials_filler(&none), 0);
    assert_int_equal(ps_specials_filler(&(ps_specials){-1, -1, -1, 7, 8}), 7);
    assert_true(ps_specials_contain(&s, 50256));
    assert_false(ps_specials_contain(&s, 5));
    assert_false(ps_specials_contain(&s, -1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_special_tokens_and_cutting),
        cmocka_unit_test(test_roles),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
