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

/* Does the tokenizer make of the first `at` bytes just the first n ids? */
static bool is_cut(ps_tokenizer *t, const char *text, int64_t at, const int32_t *ids, int64_t n)
{
    const ps_encode_options options = {.bare = true};
    ps_encoding e;
    assert_int_equal(ps_tokenizer_encode_sequence(t, &options, text, at, NULL, 0, &e), PS_OK);
    const bool is = e.n == n && (n == 0 || memcmp(e.ids, ids, (size_t)n * sizeof *ids) == 0);
    ps_encoding_deinit(&e);
    return is;
}

/* No spaces: one word, longer than what is encoded at once. Latin letters, Chinese, digits and emojis. */
static const char *long_word(char *text, size_t bytes, int n_parts)
{
    static const char *const parts[] = {"\xE5\xA4\xA7\xE9\xAF\xA8", "\xE8\x88\xB9\xE9\x95\xBF\xE8\xAF\xB4\xEF\xBC\x9A",
                                        "Ahab,1851", "\xF0\x9F\x90\x8B", "\xE6\xB5\xB7\xE3\x80\x82"};
    size_t n = 0;
    for (int i = 0; i < n_parts; i++) {
        const char *const part = parts[(i * 7 + i / 5) % (int)PS_ARRAY_LEN(parts)];
        assert_true(n + strlen(part) < bytes);
        n += (size_t)snprintf(text + n, bytes - n, "%s", part);
    }
    return text;
}

/* Each token ends at the last place of the whole text that cuts it from the next, looked for everywhere; one without
 * such a place has the characters that it shares. */
static void test_long_word(void **state)
{
    (void)state;
    char text[1024];
    const int64_t n_bytes = (int64_t)strlen(long_word(text, sizeof text, 60));
    for (size_t p = 0; p < PS_ARRAY_LEN(paths); p++) {
        ps_tokenizer *t = open_tokenizer(paths[p]);
        ps_token_offsets o;
        assert_int_equal(ps_token_offsets_init(&o, t, false, text, n_bytes), PS_OK);
        int64_t begin = 0;
        for (int64_t i = 0; i + 1 < o.n; i++) {
            int64_t end = -1;
            for (int64_t at = begin + 1; at < n_bytes; at++)
                if (((unsigned char)text[at] & 0xC0) != 0x80 && is_cut(t, text, at, o.ids, i + 1)) end = at;
            if (o.begin[i] != begin || (end >= 0 && o.end[i] != end) || (end < 0 && o.end[i] <= begin))
                fail_msg("%s: token %lld has [%lld, %lld), expected [%lld, %lld)", paths[p], (long long)i,
                         (long long)o.begin[i], (long long)o.end[i], (long long)begin, (long long)end);
            if (end >= 0) begin = end;
        }
        ps_token_offsets_deinit(&o);
        ps_tokenizer_close(t);
    }
}

static int64_t work_of(ps_tokenizer *t, const char *text)
{
    ps_token_offsets o;
    assert_int_equal(ps_token_offsets_init(&o, t, false, text, (int64_t)strlen(text)), PS_OK);
    const int64_t bytes = o.encoded_bytes;
    assert_true(o.n > 0 && bytes >= (int64_t)strlen(text));
    ps_token_offsets_deinit(&o);
    return bytes;
}

/* Text without spaces, and a run of nothing but spaces: four times the length is about four times the work. */
static void test_work_is_linear(void **state)
{
    (void)state;
    static char once[8192], four[8192];
    static char spaces[4096];
    long_word(once, sizeof once, 150);
    long_word(four, sizeof four, 600);
    memset(spaces, ' ', sizeof spaces - 1);
    memcpy(spaces + sizeof spaces - 14, "unbelievable!", 14);
    for (size_t p = 0; p < PS_ARRAY_LEN(paths); p++) {
        ps_tokenizer *t = open_tokenizer(paths[p]);
        const int64_t a = work_of(t, once), b = work_of(t, four), n = (int64_t)strlen(four);
        const int64_t few = work_of(t, spaces + 3072), many = work_of(t, spaces);
        if (b > 5 * a || b > 500 * n)
            fail_msg("%s: %lld bytes encoded for %lld, %lld for %lld", paths[p], (long long)b, (long long)n,
                     (long long)a, (long long)strlen(once));
        if (many > 5 * few)
            fail_msg("%s: %lld bytes encoded for 4095 spaces, %lld for 1023", paths[p], (long long)many,
                     (long long)few);
        ps_tokenizer_close(t);
    }
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
        cmocka_unit_test(test_every_tokenizer), cmocka_unit_test(test_places_of_gpt2), cmocka_unit_test(test_long_word),
        cmocka_unit_test(test_work_is_linear),  cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
