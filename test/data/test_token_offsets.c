/* Tokens of real tokenizers: each one's bytes, encoded with what stands before them, and the places worked out by
 * hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"
#include "data/token_offsets.h"

static const char *const paths[] = {"data/gpt2", "test/golden/tokenizers/bert_like.json",
                                    "test/golden/tokenizers/llama2_like.json", "test/golden/tokenizers/llama_like.json",
                                    "test/golden/tokenizers/qwen_like.json"};

static const char *const texts[] = {
    "",
    " ",
    "a",
    "the story",
    "  the  story ",
    "It was 1987, wasn't it?\n\nUnbelievably so.",
    "na\xC3\xAFve caf\xC3\xA9 \xF0\x9F\x98\x80 \xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E end",
    "Moby-Dick; or, The Whale (1851) -- by H. Melville"};

static ps_tokenizer *open_tokenizer(const char *path)
{
    ps_tokenizer *t = NULL;
    if (ps_tokenizer_open(path, &t) != PS_OK) fail_msg("%s", ps_last_error());
    return t;
}

/* In order, within the text, without white space around, together all of it but white space. */
static void check(const char *path, ps_tokenizer *t, const char *text)
{
    const int64_t n_bytes = (int64_t)strlen(text);
    const ps_encode_options options = {.bare = true};
    ps_token_offsets o;
    ps_encoding whole = {0};
    bool is_covered[256] = {false};
    assert_int_equal(ps_token_offsets_init(&o, t, false, text, n_bytes), PS_OK);
    assert_int_equal(ps_tokenizer_encode_sequence(t, &options, text, n_bytes, NULL, 0, &whole), PS_OK);
    assert_int_equal(o.n, whole.n);
    if (o.n > 0) assert_memory_equal(o.ids, whole.ids, (size_t)o.n * sizeof *o.ids);
    for (int64_t i = 0; i < o.n; i++) {
        if (o.begin[i] < 0 || o.end[i] > n_bytes || o.begin[i] > o.end[i] || (i > 0 && o.begin[i] < o.begin[i - 1]))
            fail_msg("%s: \"%s\": token %lld has [%lld, %lld)", path, text, (long long)i, (long long)o.begin[i],
                     (long long)o.end[i]);
        if (o.end[i] > o.begin[i] &&
            (strchr(" \n", text[o.begin[i]]) != NULL || strchr(" \n", text[o.end[i] - 1]) != NULL))
            fail_msg("%s: \"%s\": token %lld has white space around", path, text, (long long)i);
        for (int64_t b = o.begin[i]; b < o.end[i]; b++) is_covered[b] = true;
    }
    for (int64_t b = 0; b < n_bytes; b++)
        if (!is_covered[b] && strchr(" \n", text[b]) == NULL)
            fail_msg("%s: \"%s\": byte %lld is of no token", path, text, (long long)b);
    ps_encoding_deinit(&whole);
    ps_token_offsets_deinit(&o);
}

static void test_every_tokenizer(void **state)
{
    (void)state;
    for (size_t p = 0; p < PS_ARRAY_LEN(paths); p++) {
        ps_tokenizer *t = open_tokenizer(paths[p]);
        for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) check(paths[p], t, texts[i]);
        ps_tokenizer_close(t);
    }
}

static void expect_places(ps_tokenizer *t, const char *text, const int64_t (*places)[2], int64_t n)
{
    ps_token_offsets o;
    assert_int_equal(ps_token_offsets_init(&o, t, false, text, (int64_t)strlen(text)), PS_OK);
    assert_int_equal(o.n, n);
    for (int64_t i = 0; i < n; i++)
        if (o.begin[i] != places[i][0] || o.end[i] != places[i][1])
            fail_msg("\"%s\": token %lld is [%lld, %lld), expected [%lld, %lld)", text, (long long)i,
                     (long long)o.begin[i], (long long)o.end[i], (long long)places[i][0], (long long)places[i][1]);
    ps_token_offsets_deinit(&o);
}

/* GPT-2: "A" "hab", " hunts", ","; two spaces are " " and " whales"; an emoji is three tokens of one character. */
static void test_places_of_gpt2(void **state)
{
    (void)state;
    ps_tokenizer *t = open_tokenizer("data/gpt2");
    expect_places(t, "Ahab hunts, whales", (const int64_t[][2]){{0, 1}, {1, 4}, {5, 10}, {10, 11}, {12, 18}}, 5);
    expect_places(t, "a  whale", (const int64_t[][2]){{0, 1}, {3, 3}, {3, 8}}, 3);
    ps_tokenizer_close(t);
}

static void test_faults(void **state)
{
    (void)state;
    ps_tokenizer *t = open_tokenizer("data/gpt2");
    check("data/gpt2", t, "Ahab hunts"); /* the tokenizer remembers these words from now on */
    const int64_t live_bytes = ps_mem_live_bytes();
    int n_failures = 0;
    for (bool has_struck = true; has_struck; n_failures += has_struck) {
        ps_token_offsets o;
        ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
        const ps_status st = ps_token_offsets_init(&o, t, false, "Ahab hunts", 10);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        ps_token_offsets_deinit(&o);
        assert_int_equal(ps_mem_live_bytes(), live_bytes);
    }
    assert_true(n_failures >= 4);
    ps_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_tokenizer),
        cmocka_unit_test(test_places_of_gpt2),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
