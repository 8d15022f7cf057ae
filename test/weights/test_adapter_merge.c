/* Adapters added to a base: the sums, in each type that a base may have; files that do not go together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/dtype.h"
#include "config/config.h"
#include "temp_folder.h"
#include "weights/adapter_merge.h"
#include "weights/safetensors.h"
#include "weights/weight_copy.h"
#include "weights/weight_source.h"

enum { IN = 5, OUT = 3, R = 2 };

#define LAYER "model.layers.0.self_attn.q_proj"

static temp_folder work;

static float value(int i, int k)
{
    return (float)(i * 7 % 11 - 5) * 0.125f + (float)k * 0.03125f;
}

/* n values of the type, which begin with value(0, k). */
static void store(ps_safetensors_dtype t, void *to, int n, int k)
{
    for (int i = 0; i < n; i++) {
        if (t == PS_SAFETENSORS_F64) ((double *)to)[i] = (double)value(i, k);
        if (t == PS_SAFETENSORS_F32) ((float *)to)[i] = value(i, k);
        if (t == PS_SAFETENSORS_BF16) ps_dtype_store(PS_DTYPE_BF16, to, i, value(i, k));
        if (t == PS_SAFETENSORS_F16) ps_dtype_store(PS_DTYPE_F16, to, i, value(i, k));
        if (t == PS_SAFETENSORS_I8) ((int8_t *)to)[i] = (int8_t)i;
    }
}

typedef struct tensor {
    const char *name;
    int rows, cols;
    ps_safetensors_dtype dtype;
} tensor;

static void write_file(const char *path, const tensor *t, int n)
{
    ps_safetensor all[8];
    double room[64];
    ps_safetensors_writer *w = NULL;
    for (int i = 0; i < n; i++)
        all[i] = (ps_safetensor){.name = t[i].name, .dtype = t[i].dtype, .n_dims = 2, .shape = {t[i].rows, t[i].cols}};
    assert_int_equal(ps_safetensors_writer_open(path, all, n, NULL, 0, &w), PS_OK);
    for (int i = 0; i < n; i++) {
        const int elements = t[i].rows * t[i].cols;
        store(t[i].dtype, room, elements, i);
        assert_int_equal(ps_safetensors_writer_append(w, i, room, elements * ps_safetensors_dtype_bytes(t[i].dtype)),
                         PS_OK);
    }
    assert_int_equal(ps_safetensors_writer_commit(w), PS_OK);
}

static ps_config *configuration(void)
{
    ps_config *c = NULL;
    assert_int_equal(
        ps_config_parse("{\"model\": {\"type\": \"llama\"}, \"lora\": {\"r\": 2, \"lora_alpha\": 3}}", "c.json", &c),
        PS_OK);
    return c;
}

static const tensor adapter[] = {{"base_model.model." LAYER ".lora_A.weight", R, IN, PS_SAFETENSORS_F32},
                                 {"base_model.model." LAYER ".lora_B.weight", OUT, R, PS_SAFETENSORS_F32}};

static ps_status open_merge(const tensor *base, int n_base, const tensor *files, int n, ps_config *c,
                            ps_weight_source *sources[2], ps_adapter_merge **m)
{
    char path[2][300];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d.safetensors", work.path, i);
        write_file(path[i], i == 0 ? base : files, i == 0 ? n_base : n);
        assert_int_equal(ps_weight_source_open(path[i], &sources[i]), PS_OK);
    }
    return ps_adapter_merge_open(c, sources[0], sources[1], path[1], m);
}

static void test_sums(void **state)
{
    (void)state;
    static const ps_safetensors_dtype types[] = {PS_SAFETENSORS_F64, PS_SAFETENSORS_F32, PS_SAFETENSORS_BF16,
                                                 PS_SAFETENSORS_F16};
    static const double within[] = {1e-7, 1e-7, 0x1p-8, 0x1p-11}; /* of a sum of magnitude 2 */
    for (size_t k = 0; k < PS_ARRAY_LEN(types); k++) {
        ps_config *c = configuration();
        ps_weight_source *sources[2] = {NULL, NULL}, *merged = NULL;
        ps_adapter_merge *m = NULL;
        char path[300];
        double have[IN * OUT];
        const tensor base = {LAYER ".weight", OUT, IN, types[k]};
        assert_int_equal(open_merge(&base, 1, adapter, 2, c, sources, &m), PS_OK);
        const ps_weight_copy copy = {.name = base.name, .delta = ps_adapter_merge_delta(m, base.name)};
        assert_non_null(copy.delta);
        snprintf(path, sizeof path, "%s/merged.safetensors", work.path);
        assert_int_equal(ps_weight_copy_file(sources[0], &copy, 1, NULL, path, NULL), PS_OK);
        assert_int_equal(ps_weight_source_open(path, &merged), PS_OK);
        const ps_weight *w = ps_weight_source_get(merged, 0);
        assert_int_equal(w->tensor.dtype, types[k]);
        assert_int_equal(ps_weight_source_read(merged, w, 0, have, w->tensor.n_bytes), PS_OK);
        for (int o = 0; o < OUT; o++)
            for (int i = 0; i < IN; i++) {
                double want = (double)value(o * IN + i, 0), is;
                for (int r = 0; r < R; r++) want += 1.5 * (double)value(o * R + r, 1) * (double)value(r * IN + i, 0);
                const int at = o * IN + i;
                is = types[k] == PS_SAFETENSORS_F64 ? have[at]
                     : types[k] == PS_SAFETENSORS_F32
                         ? (double)((float *)(void *)have)[at]
                         : (double)ps_dtype_load(types[k] == PS_SAFETENSORS_BF16 ? PS_DTYPE_BF16 : PS_DTYPE_F16, have,
                                                 at);
                if (!(fabs(is - want) <= within[k])) fail_msg("element %d is %g, not %g", at, is, want);
            }
        ps_weight_source_close(merged);
        ps_adapter_merge_close(m);
        ps_weight_source_close(sources[0]), ps_weight_source_close(sources[1]);
        ps_config_destroy(c);
    }
}

static void refused(const tensor *base, const tensor *files, int n, const char *words)
{
    ps_config *c = configuration();
    ps_weight_source *sources[2] = {NULL, NULL};
    ps_adapter_merge *m = NULL;
    assert_int_equal(open_merge(base, 1, files, n, c, sources, &m), PS_EFORMAT);
    assert_null(m);
    if (strstr(ps_last_error(), words) == NULL) fail_msg("%s", ps_last_error());
    ps_weight_source_close(sources[0]), ps_weight_source_close(sources[1]);
    ps_config_destroy(c);
}

static void test_refused(void **state)
{
    (void)state;
    const tensor base = {LAYER ".weight", OUT, IN, PS_SAFETENSORS_F32},
                 quantized = {base.name, OUT, IN, PS_SAFETENSORS_I8},
                 other = {base.name, OUT, IN + 1, PS_SAFETENSORS_F32};
    const tensor a = adapter[0], b = adapter[1];
    refused(&quantized, adapter, 2, "not quantized");
    refused(&other, adapter, 2, "trained on another base");
    refused(&base, &a, 1, "lora_B.weight is missing");
    refused(&base, &b, 1, "lora_A.weight is missing");
    refused(&base, (const tensor[]){a, b, {LAYER ".weight", OUT, IN, PS_SAFETENSORS_F32}}, 3, "both an adapter of");
    refused(&base,
            (const tensor[]){a,
                             b,
                             {LAYER ".lora_A.weight", R, IN, PS_SAFETENSORS_F32},
                             {LAYER ".lora_B.weight", OUT, R, PS_SAFETENSORS_F32}},
            4, "two adapters");
    refused(&base, (const tensor[]){a, b, {"score.weight", 2, IN, PS_SAFETENSORS_F32}}, 3, "none of the base's");
    refused(&base, (const tensor[]){{a.name, R + 1, IN, PS_SAFETENSORS_F32}, {b.name, OUT, R + 1, PS_SAFETENSORS_F32}},
            2, "rank 3");
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
