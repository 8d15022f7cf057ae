/* What tokenizer.json may say, what is refused, and the folders that tokenizers are opened from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/tokenizer.h"

#define QWEN_LIKE "test/golden/tokenizers/qwen_like.json"
#define LLAMA2_LIKE "test/golden/tokenizers/llama2_like.json"
#define METASPACE(mark) "{\"type\": \"Metaspace\", \"replacement\": \"" mark "\"}"
#define BERT_LIKE "test/golden/tokenizers/bert_like.json"

/* ---- refused by name ---- */

/* The file with one value replaced: `path` is keys with dots between, numbers count in arrays. */
static char *file_with(const char *file, const char *path, const char *value)
{
    char key[128];
    json_t *root = json_load_file(file, 0, NULL), *inner = root;
    json_t *new_value = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(root);
    assert_non_null(new_value);
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        inner = json_is_array(inner) ? json_array_get(inner, (size_t)atoi(key)) : json_object_get(inner, key);
    }
    if (json_is_array(inner))
        json_array_set_new(inner, (size_t)atoi(path), new_value);
    else
        json_object_set_new(inner, path, new_value);
    char *text = json_dumps(root, 0);
    json_decref(root);
    return text;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *file, *path, *value, *message;
    } cases[] = {
        {QWEN_LIKE, "model", "{\"type\": \"Unigram\"}", "t.json: model Unigram is not supported"},
        {QWEN_LIKE, "model", "[]", "model: expected an object"},
        {QWEN_LIKE, "model.byte_fallback", "true", "\"byte_fallback\" after ByteLevel is not supported"},
        {QWEN_LIKE, "model.dropout", "0.1", "\"dropout\" is not supported"},
        {QWEN_LIKE, "model.continuing_subword_prefix", "\"##\"", "\"continuing_subword_prefix\" is not supported"},
        {QWEN_LIKE, "model.end_of_word_suffix", "\"</w>\"", "\"end_of_word_suffix\" is not supported"},
        {QWEN_LIKE, "model.new_field", "1", "the field \"new_field\" is not supported"},
        {QWEN_LIKE, "model.vocab merges", "1", "the field \"vocab merges\" is not supported"},
        {QWEN_LIKE, "model.merges.0", "\"a\"", "merge 1: expected two tokens"},
        {QWEN_LIKE, "model.merges.0", "[\"a\", 1]", "merge 1: expected \"left right\""},
        {QWEN_LIKE, "model.merges.1", "\"a \\u4e00\"", "merge 2: the right side"},
        {QWEN_LIKE, "model.vocab.a", "-1", "token \"a\" has no id"},
        {QWEN_LIKE, "model.vocab.a", "1000000", "token \"a\" has no id"},
        {QWEN_LIKE, "model.vocab.a", "1", "both have id 1"},
        {QWEN_LIKE, "model.vocab.a", "1e30", "token \"a\" has no id"},
        {QWEN_LIKE, "new_part", "null", "the field \"new_part\" is not supported"},
        {QWEN_LIKE, "added_tokens.0.content", "\"a\"", "but"},
        {QWEN_LIKE, "added_tokens.0.nose", "true", "added_tokens: the field \"nose\""},
        {QWEN_LIKE, "added_tokens.0.lstrip", "1", "\"lstrip\" is neither true nor false"},
        {QWEN_LIKE, "normalizer", "{\"type\": \"Replace\", \"content\": \"\"}",
         "normalizer Replace: expected an object"},
        {QWEN_LIKE, "normalizer", "{\"type\": \"Replace\", \"content\": \"\", \"pattern\": {\"String\": \"\"}}",
         "normalizer Replace: expected a pattern \"Regex\" or \"String\""},
        {QWEN_LIKE, "normalizer", "{\"type\": \"Replace\", \"content\": \"\", \"pattern\": {\"Regex\": \"[[a]]\"}}",
         "t.json: "},
        {QWEN_LIKE, "normalizer", "{\"type\": \"Prepend\"}", "normalizer Prepend: expected a string \"prepend\""},
        {QWEN_LIKE, "normalizer", "{\"type\": \"Strip\", \"left\": true}", "normalizer Strip: the field \"left\""},
        {QWEN_LIKE, "normalizer", "{\"type\": \"Precompiled\"}", "normalizer Precompiled is not supported"},
        {QWEN_LIKE, "normalizer", "{\"type\": \"Nmt\"}", "normalizer Nmt is not supported"},
        {QWEN_LIKE, "normalizer", "{\"type\": \"Sequence\"}", "expected an array \"normalizers\""},
        {QWEN_LIKE, "normalizer", "{\"type\": \"NFC\", \"x\": 1}", "the field \"x\" is not supported"},
        {QWEN_LIKE, "pre_tokenizer", "null", "decoder ByteLevel is not supported"},
        {QWEN_LIKE, "pre_tokenizer", "{\"type\": \"UnicodeScripts\"}", "pre_tokenizer UnicodeScripts is not supported"},
        {QWEN_LIKE, "pre_tokenizer.pretokenizers.0.behavior", "\"Shuffled\"", "behavior Shuffled is not supported"},
        {QWEN_LIKE, "pre_tokenizer.pretokenizers.0.pattern", "{\"String\": \"\"}", "expected a pattern"},
        {QWEN_LIKE, "pre_tokenizer.pretokenizers.1.type", "\"Whitespace\"", "pre_tokenizer"},
        {QWEN_LIKE, "post_processor", "{\"type\": \"X\"}", "post_processor X is not supported"},
        {QWEN_LIKE, "post_processor", "{\"type\": \"BertProcessing\", \"cls\": [\"a\", 9999], \"sep\": [\"a\", 1]}",
         "expected \"cls\": [\"token\", id below"},
        {QWEN_LIKE, "decoder", "null", "decoder is not supported"},
        {QWEN_LIKE, "decoder", "{\"type\": \"Metaspace\"}", "decoder Metaspace is not supported"},
        {LLAMA2_LIKE, "model.unk_token", "\"none\"", "model BPE: unk_token \"none\" is no token"},
        {LLAMA2_LIKE, "model.fuse_unk", "3", "\"fuse_unk\" is neither true nor false"},
        {LLAMA2_LIKE, "pre_tokenizer", METASPACE(""),
         "pre_tokenizer Metaspace: \"replacement\" is \"\", expected one character"},
        {LLAMA2_LIKE, "pre_tokenizer", METASPACE("__"), "\"replacement\" is \"__\", expected one character"},
        {LLAMA2_LIKE, "pre_tokenizer", METASPACE("_\", \"prepend_scheme\": \"last"),
         "prepend_scheme last is not supported"},
        {LLAMA2_LIKE, "pre_tokenizer", METASPACE("_\", \"add_prefix_space\": false, \"split\": true, \"str_rep\": \"_"),
         "add_prefix_space does not match prepend_scheme always"},
        {LLAMA2_LIKE, "pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [" METASPACE("_") ", " METASPACE("_") "]}",
         "a second pre_tokenizer Metaspace"},
        {LLAMA2_LIKE, "decoder", "{\"type\": \"ByteLevel\"}", "decoder ByteLevel is not supported"},
        {LLAMA2_LIKE, "decoder", "{\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"}",
         "decoder BPEDecoder is not supported"},
        {LLAMA2_LIKE, "decoder.decoders.0.pattern", "{\"Regex\": \"_\"}",
         "decoder Replace: a \"Regex\" is not supported"},
        {LLAMA2_LIKE, "decoder.decoders.0.content", "\"0123456789abcdef\"", "a text of 16 bytes, expected at most 15"},
        {LLAMA2_LIKE, "decoder.decoders.0", "{\"type\": \"Fuse\"}", "decoder ByteFallback after Fuse is not supported"},
        {LLAMA2_LIKE, "decoder.decoders.2", "{\"type\": \"ByteFallback\"}",
         "decoder Strip is supported only after Fuse"},
        {LLAMA2_LIKE, "decoder.decoders.3.stop", "1", "decoder Strip: expected \"start\": a whole number, \"stop\": 0"},
        {LLAMA2_LIKE, "decoder.decoders.3.content", "\"ab\"", "\"content\" is \"ab\", expected one character"},
        {BERT_LIKE, "model.unk_token", "\"<none>\"", "unk_token \"<none>\" is no token"},
        {BERT_LIKE, "pre_tokenizer", "{\"type\": \"ByteLevel\"}", "WordPiece after a ByteLevel"},
        {BERT_LIKE, "decoder", "{\"type\": \"ByteLevel\"}", "decoder ByteLevel is not supported"},
        {BERT_LIKE, "post_processor.single", "[]", "must have each sequence once"},
        {BERT_LIKE, "post_processor.special_tokens", "{}", "special_tokens has no ids for \"[CLS]\""},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char *text = file_with(cases[i].file, cases[i].path, cases[i].value);
        ps_tokenizer *t;
        if (ps_tokenizer_create_json("t.json", text, (int64_t)strlen(text), &t) != PS_EFORMAT)
            fail_msg("%s = %s is no error", cases[i].path, cases[i].value);
        assert_null(t);
        if (strstr(ps_last_error(), cases[i].message) == NULL)
            fail_msg("%s = %s: \"%s\" lacks \"%s\"", cases[i].path, cases[i].value, ps_last_error(), cases[i].message);
        free(text);
    }
    ps_tokenizer *t;
    assert_int_equal(ps_tokenizer_create_json("t.json", "{", 1, &t), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "t.json:1: column"));
}

/* Expressions that PCRE2 would read in another way than Oniguruma, or not at all. */
static void test_refused_expressions(void **state)
{
    (void)state;
    static const char *const patterns[] = {"\\\\ba",  "\\\\h",      "\\\\Ka",  "\\\\C",    "(?<name>a)", "(?m:a)",
                                           "a(?i)b",  "[[a]]",      "[a&&b]",  "a{,3}",    "a{2}+",      "(*UTF)a",
                                           "[\\\\W]", "\\\\p{Xyz}", "\\\\p{L", "(a",       "[]a]",       "\\\\1",
                                           "\\\\",    "(?(1)a|b)",  "\\\\R",   "\\\\x{zz}"};
    for (size_t i = 0; i < PS_ARRAY_LEN(patterns); i++) {
        char value[64];
        snprintf(value, sizeof value, "{\"Regex\": \"%s\"}", patterns[i]);
        char *text = file_with(QWEN_LIKE, "pre_tokenizer.pretokenizers.0.pattern", value);
        ps_tokenizer *t;
        if (ps_tokenizer_create_json("t.json", text, (int64_t)strlen(text), &t) != PS_EFORMAT)
            fail_msg("%s is no error", patterns[i]);
        assert_non_null(strstr(ps_last_error(), "t.json: regex"));
        free(text);
    }
}

/* An expression that tries everything ends at a limit: an error, and no other split. */
static void test_hopeless_expression(void **state)
{
    (void)state;
    char *file = file_with(QWEN_LIKE, "pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"(?:a|a|aa)*[bc]\"}");
    char text[200];
    ps_tokenizer *t;
    int32_t *ids;
    int64_t n;
    memset(text, 'a', sizeof text);
    assert_int_equal(ps_tokenizer_create_json("t.json", file, (int64_t)strlen(file), &t), PS_OK);
    assert_int_equal(ps_tokenizer_encode(t, text, sizeof text, &ids, &n), PS_EINVAL);
    assert_null(ids);
    assert_non_null(strstr(ps_last_error(), "splitting text into words, byte 0: the tokenizer's regex has not found"));
    ps_tokenizer_close(t);
    free(file);
}

/* ---- what is encoded ---- */

static void test_special_tokens_are_text_unless_asked_for(void **state)
{
    (void)state;
    static const char text[] = "<|im_end|>";
    ps_tokenizer *t;
    ps_encoding e;
    int32_t *ids;
    int64_t n;
    assert_int_equal(ps_tokenizer_open(QWEN_LIKE, &t), PS_OK);
    const int32_t im_end = ps_tokenizer_find(t, text);
    assert_true(im_end > 0);
    assert_int_equal(ps_tokenizer_encode(t, text, sizeof text - 1, &ids, &n), PS_OK);
    assert_true(n > 1);
    ps_mem_free(ids);
    assert_int_equal(
        ps_tokenizer_encode_sequence(t, &(ps_encode_options){.added_tokens = true}, text, sizeof text - 1, NULL, 0, &e),
        PS_OK);
    assert_int_equal(e.n, 1);
    assert_int_equal(e.ids[0], im_end);
    ps_encoding_deinit(&e);
    ps_tokenizer_close(t);
}

/* Only NFC text comes back as it was; other bytes do in any case, also malformed ones. */
static void test_round_trip(void **state)
{
    (void)state;
    ps_tokenizer *t;
    char text[1024], *back;
    int32_t *ids;
    int64_t n, n_back;
    assert_int_equal(ps_tokenizer_open("test/golden/tokenizers/llama_like.json", &t), PS_OK);
    for (int i = 0; i < (int)sizeof text; i++) text[i] = (char)(i % 4 < 3 ? i * 37 + i / 64 : ' ');
    assert_int_equal(ps_tokenizer_encode(t, text, sizeof text, &ids, &n), PS_OK);
    assert_int_equal(ps_tokenizer_decode(t, ids, n, &back, &n_back), PS_OK);
    assert_int_equal(n_back, sizeof text);
    assert_memory_equal(back, text, sizeof text);
    ps_mem_free(back);
    ps_mem_free(ids);
    ps_tokenizer_close(t);
}

/* Marks in the wrong order, so many that sorting them pair by pair would take hours. */
static void test_endless_marks(void **state)
{
    (void)state;
    enum { N = 1 << 19 };
    ps_tokenizer *t;
    char *text, *back;
    int32_t *ids;
    int64_t n, n_back;
    assert_int_equal(ps_tokenizer_open(QWEN_LIKE, &t), PS_OK);
    assert_int_equal(ps_mem_alloc(2 * N, 1, &text), PS_OK);
    for (int i = 0; i < N; i++) memcpy(text + 2 * i, i % 2 ? "\xCC\xA3" : "\xCC\x87", 2); /* U+0307 230, U+0323 220 */
    assert_int_equal(ps_tokenizer_encode(t, text, 2 * N, &ids, &n), PS_OK);
    assert_int_equal(ps_tokenizer_decode(t, ids, n, &back, &n_back), PS_OK);
    assert_int_equal(n_back, 2 * N);
    for (int i = 0; i < N; i++) assert_memory_equal(back + 2 * i, i < N / 2 ? "\xCC\xA3" : "\xCC\x87", 2);
    ps_mem_free(back);
    ps_mem_free(ids);
    ps_mem_free(text);
    ps_tokenizer_close(t);
}

static ps_tokenizer *open_with(const char *path, const char *value)
{
    char *file = file_with(QWEN_LIKE, path, value);
    ps_tokenizer *t;
    assert_int_equal(ps_tokenizer_create_json("t.json", file, (int64_t)strlen(file), &t), PS_OK);
    free(file);
    return t;
}

static void test_longest_added_token(void **state)
{
    (void)state;
    ps_encoding e;
    ps_tokenizer *t =
        open_with("added_tokens", "[{\"id\": 2001, \"content\": \"<x\"}, {\"id\": 2002, \"content\": \"<x>\"},"
                                  " {\"id\": 2004, \"content\": \"x>y\"}]");
    assert_int_equal(
        ps_tokenizer_encode_sequence(t, &(ps_encode_options){.added_tokens = true}, "<x><x", 5, NULL, 0, &e), PS_OK);
    assert_int_equal(e.n, 2);
    assert_int_equal(e.ids[0], 2002);
    assert_int_equal(e.ids[1], 2001);
    assert_int_equal(ps_tokenizer_vocab_size(t), 2005);
    int64_t n;
    assert_null(ps_tokenizer_token(t, 2003, &n)); /* a hole */
    ps_encoding_deinit(&e);
    ps_tokenizer_close(t);
}

/* BERT: [CLS] a [SEP] b [SEP], the last two of type 1. RoBERTa: <s> a </s> </s> b </s>, all of type 0. */
static void test_pairs(void **state)
{
    (void)state;
    static const struct {
        const char *post;
        int n;
        int32_t ids[6], types[6];
    } cases[] = {
        {"{\"type\": \"BertProcessing\", \"cls\": [\"x\", 7], \"sep\": [\"y\", 8]}",
         5,
         {7, -1, 8, -1, 8},
         {0, 0, 0, 1, 1}},
        {"{\"type\": \"RobertaProcessing\", \"cls\": [\"x\", 7], \"sep\": [\"y\", 8], \"trim_offsets\": true}",
         6,
         {7, -1, 8, 8, -1, 8},
         {0}},
        {"{\"type\": \"ByteLevel\", \"trim_offsets\": true}", 2, {-1, -1}, {0, 1}},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_tokenizer *t = open_with("post_processor", cases[i].post);
        ps_encoding e;
        const int32_t a = ps_tokenizer_find(t, "a");
        assert_int_equal(ps_tokenizer_encode_sequence(t, &(ps_encode_options){0}, "a", 1, "a", 1, &e), PS_OK);
        assert_int_equal(e.n, cases[i].n);
        for (int k = 0; k < cases[i].n; k++) {
            assert_int_equal(e.ids[k], cases[i].ids[k] < 0 ? a : cases[i].ids[k]);
            assert_int_equal(e.type_ids[k], cases[i].types[k]);
        }
        ps_encoding_deinit(&e);
        ps_tokenizer_close(t);
    }
}

/* The space goes before the text, not into it after malformed bytes. */
static void test_prefix_space(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"a", " a"},
                                           {" a", " a"},
                                           {"\xFF"
                                            "a",
                                            "\xFF"
                                            "a"},
                                           {"a\xFF"
                                            "b",
                                            " a\xFF"
                                            "b"}};
    ps_tokenizer *t = open_with("pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}");
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        int32_t *ids;
        char *back;
        int64_t n, n_back;
        assert_int_equal(ps_tokenizer_encode(t, cases[i][0], (int64_t)strlen(cases[i][0]), &ids, &n), PS_OK);
        assert_int_equal(ps_tokenizer_decode(t, ids, n, &back, &n_back), PS_OK);
        assert_string_equal(back, cases[i][1]);
        ps_mem_free(back);
        ps_mem_free(ids);
    }
    ps_tokenizer_close(t);
}

/* A text of SentencePiece is one piece; without borders in it, too, that must not take a quadratic time. */
static void test_endless_piece(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    ps_tokenizer *t;
    char *text, *back;
    int32_t *ids;
    int64_t n, n_back;
    assert_int_equal(ps_tokenizer_open(LLAMA2_LIKE, &t), PS_OK);
    assert_int_equal(ps_mem_alloc(N, 1, &text), PS_OK);
    for (int i = 0; i < N; i++) text[i] = "there"[i % 5];
    assert_int_equal(ps_tokenizer_encode(t, text, N, &ids, &n), PS_OK);
    assert_true(n < N / 2);
    assert_int_equal(ps_tokenizer_decode(t, ids, n, &back, &n_back), PS_OK);
    assert_int_equal(n_back, N);
    assert_memory_equal(back, text, N);
    ps_mem_free(back);
    ps_mem_free(ids);
    ps_mem_free(text);
    ps_tokenizer_close(t);
}

/* Worked out by hand: characters without a token become their bytes, the unknown token, or an error; malformed bytes
 * U+FFFD. */
static void test_unknown_characters(void **state)
{
    (void)state;
    static const char text[] = "\xF0\x90\x80\x80\xF0\x90\x80\x80" /* U+10000 twice, which no vocabulary has */
                               "a\xFF\xFE";
    ps_tokenizer *t;
    int32_t *ids;
    int64_t n;
    assert_int_equal(ps_tokenizer_open(LLAMA2_LIKE, &t), PS_OK);
    const int32_t mark = ps_tokenizer_find(t, "\xE2\x96\x81"), a = ps_tokenizer_find(t, "a"),
                  replaced = ps_tokenizer_find(t, "\xEF\xBF\xBD");
    assert_int_equal(ps_tokenizer_find(t, "<0x00>"), 3);
    assert_int_equal(ps_tokenizer_role(t, PS_ROLE_BOS), 1);
    assert_int_equal(ps_tokenizer_eot(t), 2);
    assert_int_equal(ps_tokenizer_encode(t, text, sizeof text - 1, &ids, &n), PS_OK);
    const int32_t bytes[] = {mark,     3 + 0xF0, 3 + 0x90, 3 + 0x80, 3 + 0x80, 3 + 0xF0,
                             3 + 0x90, 3 + 0x80, 3 + 0x80, a,        replaced};
    assert_int_equal(n, PS_ARRAY_LEN(bytes));
    assert_memory_equal(ids, bytes, sizeof bytes);
    ps_mem_free(ids);
    ps_tokenizer_close(t);
    for (int fuses = 0; fuses <= 2; fuses++) { /* 2: no unknown token either */
        char *file = file_with(LLAMA2_LIKE, "model.byte_fallback", "false");
        json_t *root = json_loads(file, 0, NULL), *model = json_object_get(root, "model");
        free(file);
        json_object_set_new(model, "fuse_unk", json_boolean(fuses));
        if (fuses == 2) json_object_set_new(model, "unk_token", json_null());
        file = json_dumps(root, 0);
        json_decref(root);
        assert_int_equal(ps_tokenizer_create_json("t.json", file, (int64_t)strlen(file), &t), PS_OK);
        free(file);
        const int32_t fused[] = {mark, 0, a, replaced}, separate[] = {mark, 0, 0, a, replaced};
        const ps_status st = ps_tokenizer_encode(t, text, sizeof text - 1, &ids, &n);
        assert_int_equal(st, fuses == 2 ? PS_EINVAL : PS_OK);
        if (fuses == 2) {
            assert_non_null(strstr(ps_last_error(), "the text has a character U+10000, and the vocabulary no token"));
        } else {
            assert_int_equal(n, fuses ? 4 : 5);
            assert_memory_equal(ids, fuses ? fused : separate, (size_t)n * 4);
        }
        ps_mem_free(ids);
        ps_tokenizer_close(t);
    }
}

static void test_max_length(void **state)
{
    (void)state;
    ps_tokenizer *t;
    ps_encoding e;
    assert_int_equal(ps_tokenizer_open(BERT_LIKE, &t), PS_OK);
    assert_int_equal(ps_tokenizer_encode_sequence(t, &(ps_encode_options){.max_length = 2}, "a", 1, "b", 1, &e),
                     PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "max_length = 2, but 3 special tokens"));
    assert_null(e.ids);
    assert_int_equal(ps_tokenizer_encode_sequence(t, &(ps_encode_options){.max_length = 3}, "a", 1, "b", 1, &e), PS_OK);
    assert_int_equal(e.n, 3);
    ps_encoding_deinit(&e);
    assert_int_equal(ps_tokenizer_encode_sequence(t, &(ps_encode_options){.bare = true}, "a \xFF b", 5, "c", 1, &e),
                     PS_OK);
    assert_int_equal(e.n, 3); /* U+FFFD is cleaned away */
    assert_int_equal(e.type_ids[2], 1);
    ps_encoding_deinit(&e);
    ps_tokenizer_close(t);
}

/* ---- folders ---- */

static char folder[] = "/tmp/ps_tokenizer_XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (text == NULL)
        remove(path);
    else
        assert_int_equal(ps_file_write_all(path, text, (int64_t)strlen(text)), PS_OK);
}

static void test_vocab_txt(void **state)
{
    (void)state;
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\nAB\n##e\n##\xC3\xA9\n!\n\xE4\xB8\x80\n##E\n";
    ps_tokenizer *t;
    ps_encoding e;
    static const struct {
        const char *config;
        int n;
        int32_t ids[8];
    } cases[] = {
        {NULL, 7, {2, 5, 7, 9, 10, 10, 3}},
        {"{\"do_lower_case\": true, \"tokenizer_class\": \"BertTokenizerFast\"}", 7, {2, 5, 7, 9, 10, 10, 3}},
        {"{\"do_lower_case\": false}", 6, {2, 1, 9, 10, 10, 3}}, /* no token for the capital with its accent */
        {"{\"do_lower_case\": false, \"strip_accents\": true}", 7, {2, 6, 11, 9, 10, 10, 3}},
        {"{\"strip_accents\": false}", 7, {2, 5, 8, 9, 10, 10, 3}},
        {"{\"tokenize_chinese_chars\": false}", 6, {2, 5, 7, 9, 1, 3}},
    };
    write_file("vocab.txt", vocab);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        write_file("tokenizer_config.json", cases[i].config);
        assert_int_equal(ps_tokenizer_open(folder, &t), PS_OK);
        assert_int_equal(ps_tokenizer_encode_sequence(t, &(ps_encode_options){0}, "AB\xC3\x89!\xE4\xB8\x80\xE4\xB8\x80",
                                                      11, NULL, 0, &e),
                         PS_OK);
        assert_int_equal(e.n, cases[i].n);
        assert_memory_equal(e.ids, cases[i].ids, (size_t)e.n * sizeof *e.ids);
        assert_int_equal(ps_tokenizer_role(t, PS_ROLE_CLS), 2);
        assert_int_equal(ps_tokenizer_role(t, PS_ROLE_MASK), 4);
        assert_int_equal(ps_tokenizer_role(t, PS_ROLE_EOS), -1);
        assert_int_equal(ps_tokenizer_eot(t), -1);
        ps_encoding_deinit(&e);
        ps_tokenizer_close(t);
    }
    write_file("tokenizer_config.json", "{\"tokenizer_class\": \"MPNetTokenizer\"}");
    assert_int_equal(ps_tokenizer_open(folder, &t), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "the vocab.txt of a MPNetTokenizer"));
    write_file("tokenizer_config.json", NULL);
    write_file("vocab.txt", "[UNK]\n[CLS]\n");
    assert_int_equal(ps_tokenizer_open(folder, &t), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "vocab.txt: no token [SEP]"));
    write_file("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\na\n");
    assert_int_equal(ps_tokenizer_open(folder, &t), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "\"a\" is there twice, as 3 and 4"));
    write_file("vocab.txt", NULL);
}

/* tokenizer_config.json goes with special_tokens_map.json, and before the customary names. */
static void test_roles(void **state)
{
    (void)state;
    char *json;
    int64_t n;
    ps_tokenizer *t;
    ps_encoding e;
    assert_int_equal(ps_file_read_all(QWEN_LIKE, PS_MIB, &json, &n), PS_OK);
    write_file("tokenizer.json", json);
    ps_mem_free(json);
    assert_int_equal(ps_tokenizer_open(folder, &t), PS_OK);
    const int32_t eot = ps_tokenizer_find(t, "<|endoftext|>"), im_end = ps_tokenizer_find(t, "<|im_end|>");
    assert_int_equal(ps_tokenizer_role(t, PS_ROLE_EOS), eot);
    assert_int_equal(ps_tokenizer_role(t, PS_ROLE_BOS), -1);
    ps_tokenizer_close(t);
    write_file(
        "tokenizer_config.json",
        "{\"eos_token\": {\"content\": \"<|im_end|>\"}, \"bos_token\": \"<|im_start|>\", \"add_bos_token\": true, "
        "\"pad_token\": null}");
    write_file("special_tokens_map.json", "{\"sep_token\": \"<|im_end|>\"}");
    assert_int_equal(ps_tokenizer_open(folder, &t), PS_OK);
    assert_int_equal(ps_tokenizer_role(t, PS_ROLE_EOS), im_end);
    assert_int_equal(ps_tokenizer_role(t, PS_ROLE_SEP), im_end);
    assert_int_equal(ps_tokenizer_role(t, PS_ROLE_PAD), -1);
    assert_int_equal(ps_tokenizer_eot(t), eot);
    assert_int_equal(ps_tokenizer_encode_sequence(t, &(ps_encode_options){0}, "", 0, NULL, 0, &e), PS_OK);
    assert_int_equal(e.n, 1);
    assert_int_equal(e.ids[0], ps_tokenizer_find(t, "<|im_start|>"));
    ps_encoding_deinit(&e);
    ps_tokenizer_close(t);
    write_file("tokenizer_config.json", "[");
    assert_int_equal(ps_tokenizer_open(folder, &t), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "tokenizer_config.json:1: column"));
    write_file("special_tokens_map.json", NULL);
    write_file("tokenizer.json", NULL);
    write_file("tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}");
    write_file("vocab.json", "{}");
    assert_int_equal(ps_tokenizer_open(folder, &t), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "of a Qwen2Tokenizer are not supported without its tokenizer.json"));
    write_file("vocab.json", NULL);
    write_file("tokenizer_config.json", NULL);
}

/* transformers writes int(1e30) for a tokenizer without a maximum length. */
static void test_no_maximum_length(void **state)
{
    (void)state;
    char *json;
    int64_t n;
    ps_tokenizer *t;
    assert_int_equal(ps_file_read_all(QWEN_LIKE, PS_MIB, &json, &n), PS_OK);
    write_file("tokenizer.json", json);
    ps_mem_free(json);
    write_file("tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656, "
                                        "\"x\": [NaN, -Infinity, 1e999], \"eos_token\": \"<|im_end|>\"}");
    write_file("special_tokens_map.json", "{\"y\": 99999999999999999999, \"sep_token\": \"<|im_end|>\"}");
    if (ps_tokenizer_open(folder, &t) != PS_OK) fail_msg("%s", ps_last_error());
    assert_int_equal(ps_tokenizer_role(t, PS_ROLE_EOS), ps_tokenizer_find(t, "<|im_end|>"));
    assert_int_equal(ps_tokenizer_role(t, PS_ROLE_SEP), ps_tokenizer_find(t, "<|im_end|>"));
    ps_tokenizer_close(t);
    write_file("special_tokens_map.json", NULL);
    write_file("tokenizer.json", NULL);
    write_file("tokenizer_config.json", NULL);
}

/* ---- faults ---- */

/* The n-th allocation fails: reported, and nothing leaks. */
static void test_faults(void **state)
{
    (void)state;
    static const char *const files[] = {
        "test/fuzz/corpus/tokenizer_json/bpe", "test/fuzz/corpus/tokenizer_json/wordpiece",
        "test/fuzz/corpus/tokenizer_json/llama2", "test/fuzz/corpus/tokenizer_json/metaspace_split",
        "test/fuzz/corpus/tokenizer_json/replace"};
    for (size_t f = 0; f < PS_ARRAY_LEN(files); f++) {
        char *json;
        int64_t n_bytes;
        assert_int_equal(ps_file_read_all(files[f], PS_MIB, &json, &n_bytes), PS_OK);
        const int64_t live_bytes = ps_mem_live_bytes();
        static const char text[] = "hell a <b>hell e\xCC\x81";
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            const ps_encode_options options = {.added_tokens = true};
            ps_tokenizer *t = NULL;
            ps_encoding e = {0};
            ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
            ps_status st = ps_tokenizer_create_json("t.json", json, (int64_t)strlen(json), &t);
            if (st == PS_OK)
                st = ps_tokenizer_encode_sequence(t, &options, text, (int64_t)strlen(text), "he ab", 5, &e);
            has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
            ps_fault_arm(PS_FAULT_ALLOC, -1, false);
            /* without memory for just-in-time code matching is interpreted, which is no failure */
            if (st != PS_OK && st != PS_ENOMEM_HOST && has_struck) fail_msg("%d: %s", n_failures, ps_last_error());
            ps_encoding_deinit(&e);
            ps_tokenizer_close(t);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
        }
        assert_true(n_failures > 8);
        ps_mem_free(json);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return remove(folder) != 0 || ps_mem_live_bytes() != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_expressions),
        cmocka_unit_test(test_hopeless_expression),
        cmocka_unit_test(test_special_tokens_are_text_unless_asked_for),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_endless_marks),
        cmocka_unit_test(test_longest_added_token),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_prefix_space),
        cmocka_unit_test(test_endless_piece),
        cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_max_length),
        cmocka_unit_test(test_vocab_txt),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_no_maximum_length),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
