#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/tokenizer.h"
#include "golden/tokens.h"

static ps_tokenizer *gpt2;

static int open_gpt2(void **state)
{
    (void)state;
    return ps_tokenizer_open("data/gpt2", &gpt2) != PS_OK;
}

static int close_gpt2(void **state)
{
    (void)state;
    ps_tokenizer_close(gpt2);
    return ps_mem_live_bytes() != 0;
}

static void assert_tokens(const void *text, int64_t n_bytes, const int32_t *expected, int64_t n_expected)
{
    int32_t *ids;
    int64_t n_ids;
    assert_int_equal(ps_tokenizer_encode(gpt2, text, n_bytes, &ids, &n_ids), PS_OK);
    if (n_ids != n_expected) print_message("text: %.*s\n", (int)n_bytes, (const char *)text);
    assert_int_equal(n_ids, n_expected);
    assert_memory_equal(ids, expected, (size_t)n_ids * sizeof *ids);
    ps_mem_free(ids);
}

#define ASSERT_TOKENS(text, ...)                                                                                       \
    do {                                                                                                               \
        const int32_t expected_[] = {__VA_ARGS__};                                                                     \
        assert_tokens(text, (int64_t)strlen(text), expected_, (int64_t)PS_ARRAY_LEN(expected_));                       \
    } while (0)

/* text -> ids -> the same bytes; returns the number of ids */
static int64_t assert_round_trip(const void *text, int64_t n_bytes)
{
    int32_t *ids;
    int64_t n_ids, n_back;
    char *back;
    assert_int_equal(ps_tokenizer_encode(gpt2, text, n_bytes, &ids, &n_ids), PS_OK);
    assert_int_equal(ps_tokenizer_decode(gpt2, ids, n_ids, &back, &n_back), PS_OK);
    assert_int_equal(n_back, n_bytes);
    assert_memory_equal(back, text, (size_t)n_bytes);
    assert_int_equal(back[n_back], 0);
    ps_mem_free(back);
    ps_mem_free(ids);
    return n_ids;
}

static void test_known_tokens(void **state)
{
    (void)state;
    assert_int_equal(ps_tokenizer_vocab_size(gpt2), 50257);
    assert_int_equal(ps_tokenizer_eot(gpt2), 50256);
    ASSERT_TOKENS("Hello world", 15496, 995);
    ASSERT_TOKENS(" Hello", 18435);
    assert_tokens("", 0, NULL, 0);
}

static void test_golden_strings(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(golden_strings); i++) {
        assert_tokens(golden_strings[i].text, golden_strings[i].n_bytes, golden_strings[i].ids,
                      golden_strings[i].n_ids);
        assert_round_trip(golden_strings[i].text, golden_strings[i].n_bytes);
    }
}

typedef struct expected_ids {
    const int32_t *ids;
    int64_t n, live_bytes; /* before the text */
} expected_ids;

static ps_status take_expected(void *context, const int32_t *ids, int64_t n)
{
    expected_ids *e = context;
    assert_in_range(n, 1, 32768);
    assert_in_range(ps_mem_live_bytes() - e->live_bytes, 0, PS_MIB);
    assert_memory_equal(ids, e->ids, (size_t)n * sizeof *ids);
    e->ids += n;
    e->n -= n;
    return e->n >= 0 ? PS_OK : PS_EFORMAT;
}

static ps_status refuse_ids(void *context, const int32_t *ids, int64_t n)
{
    (void)ids;
    (void)n;
    return ++*(int *)context == 2 ? PS_FAIL(PS_EIO, "no more") : PS_OK;
}

/* The same ids some at a time, with memory for these only; the sink can stop. */
static void assert_ids_into(const char *text, int64_t n_bytes, const int32_t *ids, int64_t n_ids)
{
    int n_calls = 0;
    expected_ids e = {ids, n_ids, ps_mem_live_bytes()};
    assert_int_equal(ps_tokenizer_encode_into(gpt2, text, n_bytes, false, take_expected, &e), PS_OK);
    assert_int_equal(e.n, 0);
    assert_int_equal(ps_tokenizer_encode_into(gpt2, text, n_bytes, false, refuse_ids, &n_calls), PS_EIO);
    assert_int_equal(n_calls, 2);
    assert_int_equal(ps_mem_live_bytes(), e.live_bytes);
}

static void test_golden_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(golden_texts); i++) {
        char *text;
        int32_t *ids;
        int64_t n_bytes, n_ids;
        uint64_t hash = 0xCBF29CE484222325u;
        assert_int_equal(ps_file_read_all(golden_texts[i].path, PS_GIB, &text, &n_bytes), PS_OK);
        assert_int_equal(ps_tokenizer_encode(gpt2, text, n_bytes, &ids, &n_ids), PS_OK);
        assert_int_equal(n_ids, golden_texts[i].n_ids);
        for (int64_t j = 0; j < n_ids; j++)
            for (int shift = 0; shift < 32; shift += 8)
                hash = (hash ^ ((uint32_t)ids[j] >> shift & 0xFF)) * 0x100000001B3u;
        assert_true(hash == golden_texts[i].fnv1a);
        assert_int_equal(assert_round_trip(text, n_bytes), n_ids);
        assert_ids_into(text, n_bytes, ids, n_ids);
        ps_mem_free(ids);
        ps_mem_free(text);
    }
}

/* Every token decodes to bytes which encode back to these bytes; for nearly all that are text, to the token itself. */
static void test_whole_vocabulary(void **state)
{
    (void)state;
    int n_fixed = 0;
    for (int32_t id = 0; id < ps_tokenizer_vocab_size(gpt2); id++) {
        char *text;
        int32_t *ids;
        int64_t n_bytes, n_ids;
        assert_int_equal(ps_tokenizer_decode(gpt2, &id, 1, &text, &n_bytes), PS_OK);
        assert_true(n_bytes > 0);
        assert_round_trip(text, n_bytes);
        json_t *is_utf8 = json_stringn(text, (size_t)n_bytes);
        assert_int_equal(ps_tokenizer_encode(gpt2, text, n_bytes, &ids, &n_ids), PS_OK);
        n_fixed += is_utf8 != NULL && n_ids == 1 && ids[0] == id;
        json_decref(is_utf8);
        ps_mem_free(ids);
        ps_mem_free(text);
    }
    assert_int_equal(n_fixed, golden_n_fixed_tokens);
}

static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    /* the neighbours of bad bytes have the tokens they have alone */
    ASSERT_TOKENS("Hello\xFF world", 15496, 187, 995);
    static const char *const bad[] = {"\x80",
                                      "\xC0\x80",
                                      "\xC1\xBF",
                                      "\xE0\x9F\xBF",
                                      "\xED\xA0\x80",
                                      "\xF0\x8F\xBF",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "\xE2\x82",
                                      "\xF0\x9F\x98",
                                      "a\xC3",
                                      "\xC3(",
                                      "\xE2(\xA1",
                                      "\xFF\xFE\xFD \xFC"};
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) assert_round_trip(bad[i], (int64_t)strlen(bad[i]));
    uint8_t bytes[256];
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    assert_round_trip(bytes, 256);
    for (uint64_t seed = 0; seed < 300; seed++) {
        const int mask = seed % 3 == 0 ? 0xFF : seed % 3 == 1 ? 0x7F : 0xE3; /* anything, ASCII, broken UTF-8 */
        for (uint64_t i = 0; i < 256; i++) bytes[i] = (uint8_t)((int)ps_rng_u32((ps_rng_key){seed, 1}, i) & mask);
        assert_round_trip(bytes, (int64_t)(seed % 257));
    }
}

/* Pieces beyond any cache entry; were merging quadratic, this would take hours. */
static void test_endless_words(void **state)
{
    (void)state;
    const int64_t n = 1 << 20;
    char *text;
    assert_int_equal(ps_mem_alloc((size_t)n, 1, &text), PS_OK);
    memset(text, ' ', (size_t)n);
    assert_int_equal(assert_round_trip(text, n), n); /* GPT-2 has no token of several spaces */
    for (int64_t i = 0; i < n; i++) text[i] = (char)('a' + ps_rng_u32((ps_rng_key){7, 7}, (uint64_t)i) % 26);
    assert_true(assert_round_trip(text, n) < n);
    memset(text, 0xFF, (size_t)n);
    assert_round_trip(text, n);
    ps_mem_free(text);
}

static void test_decode_refuses_unknown_ids(void **state)
{
    (void)state;
    char *text;
    int64_t n;
    assert_int_equal(ps_tokenizer_decode(gpt2, (const int32_t[]){15496, 50257}, 2, &text, &n), PS_EINVAL);
    assert_null(text);
    assert_non_null(strstr(ps_last_error(), "token 1 has id 50257, expected 0 to 50256"));
    assert_int_equal(ps_tokenizer_decode(gpt2, (const int32_t[]){-1}, 1, &text, &n), PS_EINVAL);
    assert_int_equal(ps_tokenizer_decode(gpt2, NULL, 0, &text, &n), PS_OK);
    assert_int_equal(n, 0);
    ps_mem_free(text);
}

/* ---- small vocabularies ---- */

/* A vocabulary of the 256 bytes, written by GPT-2's rules, and what `more` adds: `, "ab": 256`. */
static void make_vocabulary(char *json, size_t size, const char *more)
{
    size_t n = (size_t)snprintf(json, size, "{");
    int n_moved = 0;
    for (int b = 0; b < 256; b++) {
        const bool is_kept = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        n += (size_t)snprintf(json + n, size - n, "%s\"\\u%04x\": %d", b ? ", " : "", is_kept ? b : 256 + n_moved++, b);
    }
    snprintf(json + n, size - n, "%s}", more);
}

static ps_status create(const char *more, const char *merges, ps_tokenizer **out)
{
    char json[8192];
    make_vocabulary(json, sizeof json, more);
    return ps_tokenizer_create("v.json", json, (int64_t)strlen(json), "m.txt", merges, (int64_t)strlen(merges), out);
}

static void test_merge_order(void **state)
{
    (void)state;
    static const struct {
        const char *more, *merges, *text;
        int n_ids;
        int32_t ids[8];
    } cases[] = {
        {"", "", "abc", 3, {'a', 'b', 'c'}},
        {"", "#version: 0.2\n", " \n", 2, {' ', '\n'}},
        {", \"ab\": 256, \"bc\": 257", "#version: 0.2\nb c\na b\n", "abc", 2, {'a', 257}},
        {", \"ab\": 256, \"bc\": 257", "a b\r\nb c", "abc", 2, {256, 'c'}},
        {", \"aa\": 256", "a a\n", "aaaaa", 3, {256, 256, 'a'}},
        {", \"ab\": 256, \"abab\": 257", "a b\nab ab\n", "ababab", 2, {257, 256}},
        {", \"ab\": 256, \"abc\": 257, \"cd\": 258", "a b\nc d\nab c\n", "abcd", 2, {256, 258}},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_tokenizer *t;
        int32_t *ids;
        int64_t n_ids;
        assert_int_equal(create(cases[i].more, cases[i].merges, &t), PS_OK);
        assert_int_equal(ps_tokenizer_eot(t), -1);
        assert_int_equal(ps_tokenizer_encode(t, cases[i].text, (int64_t)strlen(cases[i].text), &ids, &n_ids), PS_OK);
        assert_int_equal(n_ids, cases[i].n_ids);
        assert_memory_equal(ids, cases[i].ids, (size_t)n_ids * sizeof *ids);
        ps_mem_free(ids);
        ps_tokenizer_close(t);
    }
}

/* Where a merge across the border exists, malformed bytes still stay apart from the text before them. */
static void test_malformed_bytes_are_not_merged(void **state)
{
    (void)state;
    static const char *const malformed[] = {"\x80",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",
                                            "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                                            "\xE2\x82"};
    for (size_t i = 0; i < PS_ARRAY_LEN(malformed); i++) {
        char more[32], merges[32], text[8];
        ps_tokenizer *t;
        int32_t *ids;
        int64_t n_ids;
        const unsigned first = (unsigned char)malformed[i][0];
        /* 0x80 is the 35th of the bytes that move, after 0x00 to 0x20 and 0x7F */
        const unsigned character = first == 0x80 ? 256 + 34 : first;
        snprintf(more, sizeof more, ", \"!\\u%04x\": 256", character);
        snprintf(merges, sizeof merges, "! %c%c\n", (int)(0xC0 | character >> 6), (int)(0x80 | (character & 0x3F)));
        snprintf(text, sizeof text, "!%s", malformed[i]);
        assert_int_equal(create(more, merges, &t), PS_OK);
        assert_int_equal(ps_tokenizer_encode(t, text, (int64_t)strlen(text), &ids, &n_ids), PS_OK);
        assert_int_equal(n_ids, strlen(text));
        assert_int_equal(ids[0], '!');
        ps_mem_free(ids);
        ps_tokenizer_close(t);
    }
}

static void test_bad_vocabulary_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *more, *merges, *message;
    } cases[] = {
        {", ", "", "v.json:1: column "},
        {", \"ab\": \"x\"", "", "token \"ab\": its id is not an integer"},
        {", \"ab\": 257", "", "token \"ab\" has id 257, expected 0 to 256 as there are 257 tokens"},
        {", \"ab\": -1", "", "token \"ab\" has id -1"},
        {", \"ab\": 255", "", "both have id 255"},
        {", \"a\": 256", "", "duplicate"},
        {", \"\": 256", "", "token 256, \"\", is empty"},
        {", \"a b\": 256", "", "outside of GPT-2's byte alphabet"},
        {", \"\\u4e00\": 256", "", "outside of GPT-2's byte alphabet"},
        {"", "#version: 0.2\nab\n", "m.txt:2: expected two tokens with one space between, found \"ab\""},
        {"", "a b c\n", "m.txt:1: expected two tokens"},
        {"", "\n\nxy b\n", "m.txt:3: the left side \"xy\" is no token of the vocabulary"},
        {"", "a xy\n", "m.txt:1: the right side \"xy\" is no token"},
        {"", " a\n", "m.txt:1: the left side \"\""},
        {"", "a b\n", "m.txt:1: merging \"a\" and \"b\" gives no token of the vocabulary"},
        {", \"ab\": 256", "a b\na b\n", "m.txt:2: \"a b\" is there twice, first as merge 1"},
    };
    ps_tokenizer *t;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_int_equal(create(cases[i].more, cases[i].merges, &t), PS_EFORMAT);
        assert_null(t);
        if (strstr(ps_last_error(), cases[i].message) == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, ps_last_error(), cases[i].message);
    }
    assert_int_equal(ps_tokenizer_create("v", "[]", 2, "m", "", 0, &t), PS_EFORMAT);
    assert_int_equal(ps_tokenizer_create("v", "", 0, "m", "", 0, &t), PS_EFORMAT);
    assert_int_equal(ps_tokenizer_open("/proc/nonexistent", &t), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "/proc/nonexistent: no such file or folder"));
    char json[8192];
    make_vocabulary(json, sizeof json, "");
    memcpy(strstr(json, "\\u0041"), "AAAAAA", 6);
    assert_int_equal(ps_tokenizer_create("v", json, (int64_t)strlen(json), "m", "", 0, &t), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "no token for the single byte 0x41"));
}

/* The n-th allocation fails: reported, nothing leaks, and the tokenizer stays usable. */
static void test_faults(void **state)
{
    (void)state;
    static const char text[] = "abab \xFF abababababababababababababab, and so on";
    const int64_t live_bytes = ps_mem_live_bytes();
    int n_failures = 0;
    for (bool has_struck = true; has_struck; n_failures += has_struck) {
        ps_tokenizer *t = NULL;
        int32_t *ids = NULL;
        char *back = NULL;
        int64_t n_ids = 0, n_back;
        ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
        ps_status st = create(", \"ab\": 256, \"abab\": 257", "a b\nab ab\n", &t);
        if (st == PS_OK) st = ps_tokenizer_encode(t, text, sizeof text - 1, &ids, &n_ids);
        if (st == PS_OK) st = ps_tokenizer_decode(t, ids, n_ids, &back, &n_back);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        /* without memory for just-in-time code matching is interpreted, which is no failure */
        assert_true(st == PS_ENOMEM_HOST || (st == PS_OK && n_back == sizeof text - 1));
        if (!has_struck) assert_int_equal(st, PS_OK);
        ps_mem_free(ids);
        ps_mem_free(back);
        if (t != NULL) {
            assert_int_equal(ps_tokenizer_encode(t, text, sizeof text - 1, &ids, &n_ids), PS_OK);
            ps_mem_free(ids);
        }
        ps_tokenizer_close(t);
        assert_int_equal(ps_mem_live_bytes(), live_bytes);
    }
    assert_true(n_failures > 8);
    for (int nth = 0; nth < 4; nth++) { /* two files, each opened and read */
        ps_tokenizer *t;
        ps_fault_arm(PS_FAULT_READ, nth, false);
        assert_int_equal(ps_tokenizer_open("data/gpt2", &t), PS_EIO);
        ps_fault_arm(PS_FAULT_READ, -1, false);
        assert_int_equal(ps_mem_live_bytes(), live_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_tokens),
        cmocka_unit_test(test_golden_strings),
        cmocka_unit_test(test_golden_texts),
        cmocka_unit_test(test_whole_vocabulary),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_endless_words),
        cmocka_unit_test(test_decode_refuses_unknown_ids),
        cmocka_unit_test(test_merge_order),
        cmocka_unit_test(test_malformed_bytes_are_not_merged),
        cmocka_unit_test(test_bad_vocabulary_is_an_error),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, open_gpt2, close_gpt2);
}
