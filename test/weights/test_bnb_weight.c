/* Weights in bitsandbytes' 4 bits: values by its formula, with and without double quantization; damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/quantized.h"
#include "temp_folder.h"
#include "weights/bnb_weight.h"

enum { ROWS = 37, COLS = 11, N = ROWS * COLS, BLOCK = 64, BLOCKS = (N + BLOCK - 1) / BLOCK, NESTED = 4 };

static temp_folder work;

/* What a file has, as a test changes it; a name NULL is left out. */
typedef struct parts {
    ps_safetensor t[6];
    void *data[6];
    uint8_t codes[(N + 1) / 2], absmax8[BLOCKS];
    float map[16], absmax[BLOCKS], nested_map[256], nested_absmax[(BLOCKS + NESTED - 1) / NESTED];
    char state[512];
} parts;

enum { CODES, ABSMAX, MAP, STATE, NESTED_MAP, NESTED_ABSMAX };

static void set(parts *p, int k, const char *name, ps_safetensors_dtype dtype, int64_t n, void *data)
{
    p->t[k] = (ps_safetensor){.name = name, .dtype = dtype, .n_dims = 1, .shape = {n}};
    p->data[k] = data;
}

static void fill(parts *p, bool is_nested)
{
    static const float values[16] = {PS_NF4_VALUES};
    *p = (parts){0};
    memcpy(p->map, values, sizeof values);
    for (int i = 0; i < (N + 1) / 2; i++) p->codes[i] = (uint8_t)(i * 37 + 11);
    for (int i = 0; i < BLOCKS; i++) p->absmax8[i] = (uint8_t)(i * 19 + 3), p->absmax[i] = 0.5f + (float)i;
    for (int i = 0; i < 256; i++) p->nested_map[i] = (float)(i - 128) / 128;
    for (size_t i = 0; i < PS_ARRAY_LEN(p->nested_absmax); i++) p->nested_absmax[i] = 0.25f * (float)(i + 1);
    snprintf(p->state, sizeof p->state,
             "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": \"bfloat16\", \"shape\": [%d, %d]%s}", BLOCK,
             ROWS, COLS,
             is_nested ? ", \"nested_blocksize\": 4, \"nested_dtype\": \"float32\", \"nested_offset\": 1.5" : "");
    set(p, CODES, "q.weight", PS_SAFETENSORS_U8, (N + 1) / 2, p->codes);
    set(p, MAP, "q.weight.quant_map", PS_SAFETENSORS_F32, 16, p->map);
    set(p, STATE, "q.weight.quant_state.bitsandbytes__nf4", PS_SAFETENSORS_U8, (int64_t)strlen(p->state), p->state);
    set(p, ABSMAX, "q.weight.absmax", is_nested ? PS_SAFETENSORS_U8 : PS_SAFETENSORS_F32, BLOCKS,
        is_nested ? (void *)p->absmax8 : p->absmax);
    if (!is_nested) return;
    set(p, NESTED_MAP, "q.weight.nested_quant_map", PS_SAFETENSORS_F32, 256, p->nested_map);
    set(p, NESTED_ABSMAX, "q.weight.nested_absmax", PS_SAFETENSORS_F32, (BLOCKS + NESTED - 1) / NESTED,
        p->nested_absmax);
}

static ps_weight_source *open_parts(const parts *p)
{
    const temp_path path = temp_folder_file(&work, "w.safetensors");
    ps_safetensor t[6];
    int of[6], n = 0;
    ps_safetensors_writer *w = NULL;
    ps_weight_source *s = NULL;
    for (int k = 0; k < 6; k++)
        if (p->t[k].name != NULL) t[n] = p->t[k], of[n++] = k;
    assert_int_equal(ps_safetensors_writer_open(path.text, t, n, NULL, 0, &w), PS_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(
            ps_safetensors_writer_append(w, i, p->data[of[i]], t[i].shape[0] * ps_safetensors_dtype_bytes(t[i].dtype)),
            PS_OK);
    assert_int_equal(ps_safetensors_writer_commit(w), PS_OK);
    assert_int_equal(ps_weight_source_open(path.text, &s), PS_OK);
    return s;
}

static void check_values(bool is_nested)
{
    parts p;
    ps_bnb_weight *w = NULL;
    float all[N], part[N];
    fill(&p, is_nested);
    ps_weight_source *s = open_parts(&p);
    int n_parts = 0;
    for (int i = 0; i < ps_weight_source_count(s); i++) n_parts += ps_bnb_is_part(s, i);
    assert_int_equal(n_parts, is_nested ? 5 : 3);
    assert_int_equal(ps_bnb_weight_read(s, ps_weight_source_find(s, "q.weight"), &w), PS_OK);
    assert_non_null(w);
    assert_true(w->n_dims == 2 && w->shape[0] == ROWS && w->shape[1] == COLS && w->elements == N);
    assert_int_equal(ps_bnb_weight_values(s, w, 0, p.codes, all, N), PS_OK);
    for (int i = 0; i < N; i++) {
        const int block = i / BLOCK;
        const float scale =
            is_nested ? p.nested_map[p.absmax8[block]] * p.nested_absmax[block / NESTED] + 1.5f : p.absmax[block];
        assert_true(all[i] == p.map[p.codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15] * scale);
    }
    for (int first = 0; first < N; first += 58) {
        const int n = N - first < 58 ? N - first : 58;
        assert_int_equal(ps_bnb_weight_values(s, w, first, p.codes + first / 2, part, n), PS_OK);
        assert_memory_equal(part, all + first, (size_t)n * sizeof *part);
    }
    ps_mem_free(w);
    ps_weight_source_close(s);
}

static void test_values(void **state)
{
    (void)state;
    check_values(false);
    check_values(true);
}

static void refused(const parts *p, const char *words)
{
    ps_weight_source *s = open_parts(p);
    ps_bnb_weight *w = NULL;
    assert_int_equal(ps_bnb_weight_read(s, ps_weight_source_find(s, "q.weight"), &w), PS_EFORMAT);
    assert_null(w);
    if (strstr(ps_last_error(), words) == NULL) fail_msg("%s", ps_last_error());
    ps_weight_source_close(s);
}

static void refused_state(const char *state, const char *words)
{
    parts p;
    fill(&p, false);
    snprintf(p.state, sizeof p.state, "%s", state);
    p.t[STATE].shape[0] = (int64_t)strlen(p.state);
    refused(&p, words);
}

static void test_refused(void **state)
{
    (void)state;
    parts p;
    static const int of_nested[] = {ABSMAX, MAP, NESTED_MAP, NESTED_ABSMAX};
    for (size_t k = 0; k < PS_ARRAY_LEN(of_nested); k++) {
        fill(&p, true);
        p.t[of_nested[k]].name = NULL;
        refused(&p, "is missing");
        fill(&p, true);
        p.t[of_nested[k]].shape[0]--;
        refused(&p, "expected");
    }
    fill(&p, false);
    p.t[CODES].shape[0]--;
    refused(&p, "bytes of codes");
    fill(&p, false);
    p.map[3] = INFINITY;
    refused(&p, "value 3");
    fill(&p, true);
    p.nested_map[255] = NAN;
    refused(&p, "value 255");
    fill(&p, true);
    snprintf(p.state, sizeof p.state, "%s", "{\"blocksize\": 64, \"shape\": [37, 11]}"); /* but scales are bytes */
    p.t[STATE].shape[0] = (int64_t)strlen(p.state);
    refused(&p, "expected F32");
    refused_state("", "at byte");
    refused_state("[]", "not a JSON object");
    refused_state("{\"blocksize\": 64}", "\"shape\"");
    refused_state("{\"blocksize\": 64, \"shape\": []}", "\"shape\"");
    refused_state("{\"blocksize\": 64, \"shape\": [37, -11]}", "\"shape\"");
    refused_state("{\"blocksize\": 64, \"shape\": [4611686018427387904, 4]}", "\"shape\"");
    refused_state("{\"blocksize\": 64, \"shape\": [37, 13]}", "bytes of codes");
    refused_state("{\"blocksize\": 0, \"shape\": [37, 11]}", "\"blocksize\"");
    refused_state("{\"blocksize\": 64.5, \"shape\": [37, 11]}", "\"blocksize\"");
    refused_state("{\"blocksize\": 64, \"shape\": [37, 11], \"nested_blocksize\": 1}", "\"nested_blocksize\"");
    refused_state("{\"blocksize\": 64, \"shape\": [37, 11], \"nested_blocksize\": 4}", "\"nested_offset\"");
    refused_state("{\"blocksize\": 64, \"shape\": [37, 11], \"nested_blocksize\": 4, \"nested_offset\": 1e300}",
                  "\"nested_offset\"");
}

/* Names that end so without such a weight are no parts, and a weight without a state is as it is. */
static void test_others(void **state)
{
    (void)state;
    parts p;
    ps_bnb_weight *w = NULL;
    fill(&p, false);
    p.t[STATE].name = NULL;
    p.t[MAP].name = "other.quant_map";
    ps_weight_source *s = open_parts(&p);
    assert_false(ps_bnb_is_part(s, ps_weight_source_find(s, "other.quant_map")));
    assert_int_equal(ps_bnb_weight_read(s, ps_weight_source_find(s, "q.weight"), &w), PS_OK);
    assert_null(w);
    ps_weight_source_close(s);
}

static int set_up(void **state)
{
    (void)state;
    work = temp_folder_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_remove(&work);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
