#include "weights/adapter_merge.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/lora.h"
#include "base/mem.h"
#include "config/model/family.h"
#include "weights/weight_convert.h"
#include "weights/weight_names.h"

typedef struct layer {
    char *weight; /* name of the base's tensor */
    ps_weight_delta delta;
} layer;

struct ps_adapter_merge {
    const ps_config *config;
    const ps_weight_source *base, *adapter;
    const char *path; /* of the adapter, for messages */
    layer *layers;
    int n;
};

static const char *bare(const char *name)
{
    const size_t n = strlen(PS_LORA_PREFIX);
    return strncmp(name, PS_LORA_PREFIX, n) == 0 ? name + n : name;
}

/* The base's tensor of that name, with or without its class's prefix; -1: none. */
static int find_base(const ps_adapter_merge *m, const char *name)
{
    char candidate[PS_WEIGHT_NAME_MAX];
    int found = -1;
    for (int i = 0; found < 0 && ps_weight_name_candidate(name, i, candidate); i++)
        found = ps_weight_source_find(m->base, candidate);
    return found;
}

/* A matrix of the adapter as floats [rows, cols], or transposed. */
static ps_status read_matrix(const ps_adapter_merge *m, const ps_weight *w, bool transposes, float **out)
{
    const int64_t rows = w->tensor.shape[0], cols = w->tensor.shape[1];
    const int64_t item = ps_safetensors_dtype_bytes(w->tensor.dtype);
    char *raw = NULL;
    ps_dtype dtype;
    ps_status st;
    if (!ps_weight_dtype(w->tensor.dtype, &dtype))
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is %s, expected F32, BF16 or F16", m->path, w->tensor.name,
                       ps_safetensors_dtype_name(w->tensor.dtype));
    PS_TRY_GOTO(ps_mem_alloc((size_t)w->tensor.n_bytes, 1, &raw));
    PS_TRY_GOTO(ps_mem_alloc((size_t)(rows * cols), sizeof **out, out));
    PS_TRY_GOTO(ps_weight_source_read(m->adapter, w, 0, raw, rows * cols * item));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            (*out)[transposes ? j * rows + i : i * cols + j] = ps_dtype_load(dtype, raw, i * cols + j);
out:
    ps_mem_free(raw);
    return st;
}

static ps_status check_layer(const ps_adapter_merge *m, const ps_weight *a, const ps_weight *b, const ps_weight *w)
{
    const ps_weight_delta *d = &m->layers[m->n].delta;
    const int64_t first = d->is_in_out ? d->n_in : d->n_out, second = d->is_in_out ? d->n_out : d->n_in;
    if (a->tensor.n_dims != 2 || b->tensor.n_dims != 2 || b->tensor.shape[1] != a->tensor.shape[0])
        return PS_FAIL(PS_EFORMAT,
                       "%s: tensors %.128s and %.100s do not go together: expected [r, n_in] and [n_out, r]", m->path,
                       a->tensor.name, b->tensor.name);
    if (!ps_weight_is_float(w->tensor.dtype))
        return PS_FAIL(PS_EFORMAT,
                       "the base's %.128s is %s, expected F64, F32, BF16 or F16: merge into weights that are not "
                       "quantized",
                       w->tensor.name, ps_safetensors_dtype_name(w->tensor.dtype));
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->layers[i].weight, w->tensor.name) == 0)
            return PS_FAIL(PS_EFORMAT, "%s: two adapters in it are of the base's %.128s; one is %.128s", m->path,
                           w->tensor.name, a->tensor.name);
    if (w->tensor.n_dims == 2 && w->tensor.shape[0] == first && w->tensor.shape[1] == second) return PS_OK;
    return PS_FAIL(
        PS_EFORMAT,
        "%s: the adapter %.128s is of a matrix [%lld, %lld], but the base's %.100s is another: it was trained "
        "on another base",
        m->path, a->tensor.name, (long long)first, (long long)second, w->tensor.name);
}

static ps_status add_layer(ps_adapter_merge *m, const ps_weight *a, int length)
{
    const ps_options *o = ps_config_options(m->config);
    char module[PS_WEIGHT_NAME_MAX], name[PS_WEIGHT_NAME_MAX];
    int64_t r = o->lora_r;
    PS_TRY(ps_mem_reserve(&m->layers, (size_t)m->n + 1, sizeof *m->layers));
    layer *l = &m->layers[m->n];
    *l = (layer){0};
    snprintf(name, sizeof name, "%.*s" PS_LORA_B, length, a->tensor.name);
    const int found_b = ps_weight_source_find(m->adapter, name);
    if (found_b < 0) return PS_FAIL(PS_EFORMAT, "%s: tensor %.200s is missing", m->path, name);
    const ps_weight *b = ps_weight_source_get(m->adapter, found_b);
    snprintf(module, sizeof module, "%.*s", length, a->tensor.name);
    snprintf(name, sizeof name, "%.480s.weight", bare(module));
    const int found = find_base(m, name);
    if (found < 0)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is of a layer that the base lacks", m->path, a->tensor.name);
    const ps_weight *w = ps_weight_source_get(m->base, found);
    l->delta = (ps_weight_delta){.r = a->tensor.shape[0],
                                 .n_in = a->tensor.shape[1],
                                 .n_out = b->tensor.shape[0],
                                 .is_in_out = ps_family_of(o)->has_conv1d,
                                 .scale = ps_lora_scale(bare(module), o->lora_rank_pattern, o->lora_alpha_pattern,
                                                        o->lora_lora_alpha, o->lora_use_rslora, &r)};
    PS_TRY(check_layer(m, a, b, w));
    if (r != l->delta.r)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s has rank %lld, but the configuration says %lld", m->path,
                       a->tensor.name, (long long)l->delta.r, (long long)r);
    m->n++; /* what it holds from now on is freed */
    PS_TRY(ps_mem_strdup(w->tensor.name, &l->weight));
    PS_TRY(read_matrix(m, a, false, &l->delta.a));
    return read_matrix(m, b, true, &l->delta.b);
}

/* Of a B: it has an A. */
static ps_status check_has_a(const ps_adapter_merge *m, const char *name)
{
    const int length = ps_lora_module_length(name, PS_LORA_B);
    char a[PS_WEIGHT_NAME_MAX];
    snprintf(a, sizeof a, "%.*s" PS_LORA_A, length, name);
    if (length == 0 || ps_weight_source_find(m->adapter, a) >= 0) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: tensor %.200s is missing", m->path, a);
}

/* Each tensor of the adapter has its use. */
static ps_status add_layers(ps_adapter_merge *m)
{
    for (int i = 0; i < ps_weight_source_count(m->adapter); i++) {
        const ps_weight *w = ps_weight_source_get(m->adapter, i);
        const int length = ps_lora_module_length(w->tensor.name, PS_LORA_A);
        PS_TRY(check_has_a(m, w->tensor.name));
        if (length > 0) PS_TRY(add_layer(m, w, length));
    }
    for (int i = 0; i < ps_weight_source_count(m->adapter); i++) {
        const ps_weight *w = ps_weight_source_get(m->adapter, i);
        if (ps_lora_is_parameter(w->tensor.name)) continue;
        const int found = find_base(m, bare(w->tensor.name));
        bool is_same = found >= 0;
        const ps_weight *base = is_same ? ps_weight_source_get(m->base, found) : NULL;
        is_same = is_same && base->tensor.n_dims == w->tensor.n_dims &&
                  memcmp(base->tensor.shape, w->tensor.shape, (size_t)w->tensor.n_dims * sizeof *w->tensor.shape) == 0;
        if (!is_same)
            return PS_FAIL(
                PS_EFORMAT,
                "%s: tensor %.128s is none of the base's, or has another shape there: merge into a base with the same "
                "head; pstar train with train.steps = 0, model.new_head and without lora.r, and pstar export make one",
                m->path, w->tensor.name);
        if (ps_adapter_merge_delta(m, base->tensor.name) != NULL)
            return PS_FAIL(PS_EFORMAT, "%s: it has both an adapter of %.128s and another matrix for it", m->path,
                           base->tensor.name);
    }
    if (m->n > 0) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: no tensor in it is an adapter's (*" PS_LORA_A ")", m->path);
}

ps_status ps_adapter_merge_open(const ps_config *config, const ps_weight_source *base, const ps_weight_source *adapter,
                                const char *path, ps_adapter_merge **out)
{
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    **out = (ps_adapter_merge){.config = config, .base = base, .adapter = adapter, .path = path};
    const ps_status st = add_layers(*out);
    if (st == PS_OK) return PS_OK;
    ps_adapter_merge_close(*out);
    *out = NULL;
    return st;
}

void ps_adapter_merge_close(ps_adapter_merge *m)
{
    if (m == NULL) return;
    for (int i = 0; i < m->n; i++) {
        ps_mem_free(m->layers[i].weight);
        ps_mem_free(m->layers[i].delta.a);
        ps_mem_free(m->layers[i].delta.b);
    }
    ps_mem_free(m->layers);
    ps_mem_free(m);
}

int ps_adapter_merge_count(const ps_adapter_merge *m)
{
    return m->n;
}

const ps_weight_delta *ps_adapter_merge_delta(const ps_adapter_merge *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->layers[i].weight, name) == 0) return &m->layers[i].delta;
    return NULL;
}

int ps_adapter_merge_find(const ps_adapter_merge *m, const char *name)
{
    for (int i = 0; i < ps_weight_source_count(m->adapter); i++) {
        const char *own = ps_weight_source_get(m->adapter, i)->tensor.name;
        if (ps_lora_is_parameter(own)) continue;
        const int found = find_base(m, bare(own));
        if (found >= 0 && strcmp(ps_weight_source_get(m->base, found)->tensor.name, name) == 0) return i;
    }
    return -1;
}

const ps_weight_source *ps_adapter_merge_source(const ps_adapter_merge *m)
{
    return m->adapter;
}
