/* The tokens of Hugging Face's own library for a megabyte of mixed text; test/golden/README.md says how they were
 * made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/tokenizer.h"
#include "golden/tokenizers.h"

#define QWEN3 "build/qwen3/tokenizer.json" /* the Makefile unpacks it from data/ */

static char *text;
static ps_tokenizer *tokenizers[PS_ARRAY_LEN(golden_tokenizers)];

/* mixed_text() of make_tokenizer_golden.py: fragments and lines, drawn by a linear congruential generator. */
static void make_text(void)
{
    char *fragments, *novel;
    int64_t fragments_bytes, novel_bytes;
    assert_int_equal(ps_file_read_all("test/golden/tokenizer_fragments.bin", PS_MIB, &fragments, &fragments_bytes),
                     PS_OK);
    assert_int_equal(ps_file_read_all("data/text/moby-dick.txt", PS_GIB, &novel, &novel_bytes), PS_OK);
    assert_int_equal(ps_mem_alloc(golden_text_bytes, 1, &text), PS_OK);
    enum { MOST = 4096 };
    const char *begin[MOST + 1] = {fragments};
    size_t n_fragments = 0, n = 0;
    for (const char *p = fragments; p < fragments + fragments_bytes; p++)
        if (*p == '\xFF' && n_fragments < MOST) begin[++n_fragments] = p + 1;
    uint64_t state = 1;
    for (const char *line = novel; n < golden_text_bytes;) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const size_t i = (size_t)(state >> 32) % n_fragments;
        const char *part = begin[i];
        size_t part_bytes = (size_t)(begin[i + 1] - part) - 1;
        if (state >> 60 == 0) {
            part = line;
            line = strchr(line, '\n') + 1;
            part_bytes = (size_t)(line - part);
        }
        assert_true(n + part_bytes <= golden_text_bytes);
        memcpy(text + n, part, part_bytes);
        n += part_bytes;
    }
    ps_mem_free(fragments);
    ps_mem_free(novel);
    assert_true(XXH3_64bits(text, golden_text_bytes) == golden_text_hash);
}

static int open_all(void **state)
{
    (void)state;
    make_text();
    for (size_t i = 0; i < PS_ARRAY_LEN(golden_tokenizers); i++) {
        const char *path = golden_tokenizers[i].path;
        if (ps_tokenizer_open(strstr(path, "qwen3") != NULL ? QWEN3 : path, &tokenizers[i]) == PS_OK) continue;
        print_error("%s\n", ps_last_error());
        return 1;
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(golden_tokenizers); i++) ps_tokenizer_close(tokenizers[i]);
    ps_mem_free(text);
    return ps_mem_live_bytes() != 0;
}

/* Parts of 0, 1, 2, ... tokens, one after the other, are the whole. */
static void check_decoding_in_parts(const ps_tokenizer *t, const int32_t *ids, int64_t n)
{
    char *whole, *part;
    int64_t n_whole, n_part, at = 0, i = 0;
    ps_decoding d = {0};
    assert_int_equal(ps_tokenizer_decode(t, ids, n, &whole, &n_whole), PS_OK);
    for (int64_t size = 0; i < n; i += size, size = (size + 1) % 7) {
        size = ps_min_i64(size, n - i);
        assert_int_equal(ps_tokenizer_decode_next(t, &d, ids + i, size, &part, &n_part), PS_OK);
        assert_true(at + n_part <= n_whole);
        assert_memory_equal(part, whole + at, (size_t)n_part);
        at += n_part;
        ps_mem_free(part);
    }
    assert_int_equal(at, n_whole);
    ps_mem_free(whole);
}

static void test_mixed_text(void **state)
{
    (void)state;
    bool is_equal = true;
    for (size_t k = 0; k < PS_ARRAY_LEN(golden_tokenizers); k++) {
        int32_t *ids;
        int64_t n, n_back;
        char *back;
        assert_int_equal(ps_tokenizer_encode(tokenizers[k], text, golden_text_bytes, &ids, &n), PS_OK);
        for (int b = 0; b < golden_tokenizers[k].n_blocks && is_equal; b++) {
            const int64_t first = (int64_t)b * golden_block_ids, n_block = ps_min_i64(golden_block_ids, n - first);
            is_equal = n_block > 0 && XXH3_64bits(ids + first, (size_t)n_block * 4) == golden_tokenizers[k].blocks[b];
            if (!is_equal) print_error("%s: block %d, %lld ids\n", golden_tokenizers[k].path, b, (long long)n);
        }
        assert_true(is_equal);
        assert_int_equal(n, golden_tokenizers[k].n_ids);
        assert_true(XXH3_64bits(ids, (size_t)n * 4) == golden_tokenizers[k].hash);
        assert_int_equal(ps_tokenizer_decode(tokenizers[k], ids, n, &back, &n_back), PS_OK);
        assert_true(XXH3_64bits(back, (size_t)n_back) == golden_tokenizers[k].decoded);
        check_decoding_in_parts(tokenizers[k], ids, ps_min_i64(n, 5000));
        ps_mem_free(back);
        ps_mem_free(ids);
    }
}

static void test_sequences(void **state)
{
    (void)state;
    for (size_t k = 0; k < PS_ARRAY_LEN(golden_cases); k++) {
        const char *a = golden_cases[k].a, *b = golden_cases[k].b;
        ps_tokenizer *t = tokenizers[golden_cases[k].tokenizer];
        const ps_encode_options options = {.added_tokens = true, .max_length = golden_cases[k].max_length};
        ps_encoding e;
        char *plain;
        int64_t n_plain;
        assert_int_equal(
            ps_tokenizer_encode_sequence(t, &options, a, (int64_t)strlen(a), b, b != NULL ? (int64_t)strlen(b) : 0, &e),
            PS_OK);
        bool is_equal = e.n == golden_cases[k].n;
        for (int64_t i = 0; i < e.n && is_equal; i++)
            is_equal = e.ids[i] == golden_cases[k].ids[i] && e.type_ids[i] == golden_cases[k].types[i];
        if (!is_equal) {
            print_error("%s: \"%s\" has %lld ids:", golden_tokenizers[golden_cases[k].tokenizer].path, a,
                        (long long)e.n);
            for (int64_t i = 0; i < e.n; i++) print_error(" %d/%d", e.ids[i], e.type_ids[i]);
            print_error("\n");
        }
        assert_true(is_equal);
        assert_int_equal(ps_tokenizer_decode_plain(t, e.ids, e.n, &plain, &n_plain), PS_OK);
        assert_string_equal(plain, golden_cases[k].plain);
        ps_mem_free(plain);
        ps_encoding_deinit(&e);
    }
}

/* Every normalizer and every way to split, put into the file of a small vocabulary. */
static void test_components(void **state)
{
    (void)state;
    int n_wrong = 0;
    for (size_t k = 0; k < PS_ARRAY_LEN(golden_components); k++) {
        json_t *root = json_load_file("test/golden/tokenizers/qwen_like.json", 0, NULL);
        assert_non_null(root);
        json_object_set_new(root, "added_tokens", json_array());
        json_object_set_new(root, "normalizer", json_loads(golden_components[k].normalizer, JSON_DECODE_ANY, NULL));
        json_object_set_new(root, "pre_tokenizer", json_loads(golden_components[k].pre_tokenizer, 0, NULL));
        char *file = json_dumps(root, 0);
        ps_tokenizer *t;
        int32_t *ids;
        int64_t n;
        if (ps_tokenizer_create_json("t.json", file, (int64_t)strlen(file), &t) != PS_OK)
            fail_msg("%s", ps_last_error());
        assert_int_equal(ps_tokenizer_encode(t, text, golden_component_bytes, &ids, &n), PS_OK);
        if (n != golden_components[k].n_ids || XXH3_64bits(ids, (size_t)n * 4) != golden_components[k].hash) {
            print_error("%s %s: %lld ids, expected %lld\n", golden_components[k].normalizer,
                        golden_components[k].pre_tokenizer, (long long)n, (long long)golden_components[k].n_ids);
            n_wrong++;
        }
        ps_mem_free(ids);
        ps_tokenizer_close(t);
        free(file);
        json_decref(root);
    }
    assert_int_equal(n_wrong, 0);
}

/* SentencePiece's BPE in the layouts that there are: the parts of Llama-2's file, of what transformers 5 writes, of
 * Gemma's. */
static void test_variants(void **state)
{
    (void)state;
    static const char head[] = "A<s>b </s> c<unk>";
    const ps_encode_options options = {.added_tokens = true, .bare = true};
    int n_wrong = 0;
    char *begun;
    const int64_t n_begun = (int64_t)sizeof head - 1 + golden_component_bytes;
    assert_int_equal(ps_mem_alloc((size_t)n_begun, 1, &begun), PS_OK);
    memcpy(begun, head, sizeof head - 1);
    memcpy(begun + sizeof head - 1, text, golden_component_bytes);
    for (size_t k = 0; k < PS_ARRAY_LEN(golden_variants); k++) {
        json_t *root = json_load_file("test/golden/tokenizers/llama2_like.json", 0, NULL), *value;
        json_t *parts = json_loads(golden_variants[k].parts, 0, NULL);
        const char *key;
        assert_non_null(root);
        json_object_foreach(parts, key, value)
            json_object_set(json_object_get(root, key) != NULL ? root : json_object_get(root, "model"), key, value);
        char *file = json_dumps(root, 0), *back;
        ps_tokenizer *t;
        ps_encoding e;
        int64_t n_back;
        if (ps_tokenizer_create_json("t.json", file, (int64_t)strlen(file), &t) != PS_OK)
            fail_msg("%s", ps_last_error());
        assert_int_equal(ps_tokenizer_encode_sequence(t, &options, begun, n_begun, NULL, 0, &e), PS_OK);
        assert_int_equal(ps_tokenizer_decode(t, e.ids, e.n, &back, &n_back), PS_OK);
        const bool ids_differ = XXH3_64bits(e.ids, (size_t)e.n * 4) != golden_variants[k].hash;
        if (ids_differ || XXH3_64bits(back, (size_t)n_back) != golden_variants[k].decoded) {
            print_error("%s: %lld ids, expected %lld; the %s differ\n", golden_variants[k].parts, (long long)e.n,
                        (long long)golden_variants[k].n_ids, ids_differ ? "ids" : "texts");
            n_wrong++;
        }
        check_decoding_in_parts(t, e.ids, ps_min_i64(e.n, 2000));
        ps_mem_free(back);
        ps_encoding_deinit(&e);
        ps_tokenizer_close(t);
        free(file);
        json_decref(parts);
        json_decref(root);
    }
    ps_mem_free(begun);
    assert_int_equal(n_wrong, 0);
}

static void test_qwen3(void **state)
{
    (void)state;
    const ps_tokenizer *t = tokenizers[1];
    assert_int_equal(ps_tokenizer_vocab_size(t), 151669);
    assert_int_equal(ps_tokenizer_eot(t), 151643);
    assert_int_equal(ps_tokenizer_find(t, "<|im_end|>"), 151645);
    assert_true(ps_tokenizer_is_special(t, 151645));
    assert_int_equal(ps_tokenizer_find(t, "<tool_call>"), 151657);
    assert_false(ps_tokenizer_is_special(t, 151657));
    int64_t n;
    assert_memory_equal(ps_tokenizer_token(t, 151657, &n), "<tool_call>", 11);
    assert_int_equal(n, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_text), cmocka_unit_test(test_sequences), cmocka_unit_test(test_components),
        cmocka_unit_test(test_variants),   cmocka_unit_test(test_qwen3),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
