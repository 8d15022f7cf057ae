#include "weights/bnb_weight.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "weights/weight_names.h"

#define STATE ".quant_state.bitsandbytes__"

enum { STATE_BYTES_MAX = 1 << 16, VALUES_AT_ONCE = 32768 };

/* ---- the state ---- */

/* A whole number of [least, most]; -1: it is not. */
static int64_t whole(const json_t *json, int64_t least, int64_t most)
{
    const int64_t n = json_is_integer(json) ? (int64_t)json_integer_value(json) : -1;
    return n >= least && n <= most ? n : -1;
}

static ps_status read_shape(const char *what, const json_t *shape, ps_bnb_weight *out)
{
    const size_t n = json_array_size(shape);
    out->elements = 1;
    bool is_shape = n >= 1 && n <= PS_SAFETENSORS_DIMS_MAX;
    for (size_t d = 0; is_shape && d < n; d++) {
        const int64_t size = whole(json_array_get(shape, d), 1, INT64_MAX / out->elements);
        is_shape = size > 0;
        out->shape[d] = size;
        out->elements *= is_shape ? size : 1;
    }
    out->n_dims = (int)n;
    if (is_shape) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: \"shape\": expected up to %d whole numbers of at least 1", what,
                   PS_SAFETENSORS_DIMS_MAX);
}

/* Blocks of any size up to that of the largest that bitsandbytes has. */
static ps_status read_block(const char *what, const json_t *root, const char *key, int64_t *out)
{
    *out = whole(json_object_get(root, key), 2, 1 << 20);
    if (*out > 0) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: \"%s\": expected a whole number from 2 to %d", what, key, 1 << 20);
}

static ps_status read_state(const char *what, const json_t *root, ps_bnb_weight *out)
{
    const json_t *offset = json_object_get(root, "nested_offset");
    if (!json_is_object(root)) return PS_FAIL(PS_EFORMAT, "%s: not a JSON object", what);
    PS_TRY(read_shape(what, json_object_get(root, "shape"), out));
    PS_TRY(read_block(what, root, "blocksize", &out->block));
    if (json_object_get(root, "nested_blocksize") == NULL) return PS_OK;
    PS_TRY(read_block(what, root, "nested_blocksize", &out->nested_block));
    out->nested_offset = (float)json_number_value(offset);
    if (json_is_number(offset) && isfinite(out->nested_offset)) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: \"nested_offset\": expected a number", what);
}

ps_status ps_bnb_state_parse(const char *what, const char *text, int64_t n, ps_bnb_weight *out)
{
    json_error_t error;
    *out = (ps_bnb_weight){0};
    json_t *root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) return PS_FAIL(PS_EFORMAT, "%s: %.120s, at byte %d", what, error.text, error.position);
    const ps_status st = read_state(what, root, out);
    json_decref(root);
    return st;
}

/* ---- the parts ---- */

/* Number of the tensor NAME + end; -1: there is none. */
static int find_part(const ps_weight_source *s, const char *name, const char *end)
{
    char part[PS_WEIGHT_NAME_MAX];
    const int n = snprintf(part, sizeof part, "%s%s", name, end);
    return n < (int)sizeof part ? ps_weight_source_find(s, part) : -1;
}

static int find_state(const ps_weight_source *s, const char *name)
{
    const int nf4 = find_part(s, name, STATE "nf4");
    return nf4 >= 0 ? nf4 : find_part(s, name, STATE "fp4");
}

bool ps_bnb_is_part(const ps_weight_source *s, int i)
{
    static const char *const ends[] = {".absmax",           ".quant_map", ".nested_absmax",
                                       ".nested_quant_map", STATE "nf4",  STATE "fp4"};
    const char *const name = ps_weight_source_get(s, i)->tensor.name;
    const size_t n = strlen(name);
    char whole_name[PS_WEIGHT_NAME_MAX];
    for (size_t k = 0; k < PS_ARRAY_LEN(ends); k++) {
        const size_t n_end = strlen(ends[k]);
        if (n <= n_end || n - n_end >= sizeof whole_name || strcmp(name + n - n_end, ends[k]) != 0) continue;
        snprintf(whole_name, sizeof whole_name, "%.*s", (int)(n - n_end), name);
        if (ps_weight_source_find(s, whole_name) >= 0) return true;
    }
    return false;
}

/* The part of n elements of this type; *out: its number. */
static ps_status expect_part(const ps_weight_source *s, const ps_weight *codes, const char *end,
                             ps_safetensors_dtype dtype, int64_t n, int *out)
{
    const char *const path = ps_weight_source_path(s, codes->file), *const name = codes->tensor.name;
    *out = find_part(s, name, end);
    if (*out < 0)
        return PS_FAIL(PS_EFORMAT, "%s: %.200s is quantized by bitsandbytes, but %.200s%s is missing", path, name, name,
                       end);
    const ps_safetensor *t = &ps_weight_source_get(s, *out)->tensor;
    const int64_t item = ps_safetensors_dtype_bytes(dtype);
    if (t->dtype == dtype && t->n_bytes % item == 0 && t->n_bytes / item == n) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: %.200s is %s of %lld bytes, expected %s of %lld elements", path, t->name,
                   ps_safetensors_dtype_name(t->dtype), (long long)t->n_bytes, ps_safetensors_dtype_name(dtype),
                   (long long)n);
}

static ps_status read_map(const ps_weight_source *s, const ps_weight *codes, const char *end, float *map, int64_t n)
{
    int part;
    PS_TRY(expect_part(s, codes, end, PS_SAFETENSORS_F32, n, &part));
    PS_TRY(ps_weight_source_read(s, ps_weight_source_get(s, part), 0, map, n * (int64_t)sizeof *map));
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(map[i]))
            return PS_FAIL(PS_EFORMAT, "%s: %.200s%s: value %lld is %g", ps_weight_source_path(s, codes->file),
                           codes->tensor.name, end, (long long)i, (double)map[i]);
    return PS_OK;
}

static ps_status read_state_of(const ps_weight_source *s, int state, ps_bnb_weight *out)
{
    const ps_weight *w = ps_weight_source_get(s, state);
    const char *const path = ps_weight_source_path(s, w->file);
    char *text = NULL, what[1024];
    const int64_t n = w->tensor.n_bytes;
    if (w->tensor.dtype != PS_SAFETENSORS_U8 || n > STATE_BYTES_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: %.200s is %s of %lld bytes, expected U8 of at most %d", path, w->tensor.name,
                       ps_safetensors_dtype_name(w->tensor.dtype), (long long)n, STATE_BYTES_MAX);
    PS_TRY(ps_mem_alloc((size_t)n + 1, 1, &text));
    snprintf(what, sizeof what, "%.600s: %.300s", path, w->tensor.name);
    ps_status st = ps_weight_source_read(s, w, 0, text, n);
    if (st == PS_OK) st = ps_bnb_state_parse(what, text, n, out);
    ps_mem_free(text);
    return st;
}

static ps_status read_parts(const ps_weight_source *s, int i, int state, ps_bnb_weight *out)
{
    const ps_weight *codes = ps_weight_source_get(s, i);
    PS_TRY(read_state_of(s, state, out));
    out->codes = i;
    out->nested_absmax = -1;
    if (codes->tensor.n_bytes != ps_bnb_code_bytes(out->elements))
        return PS_FAIL(PS_EFORMAT, "%s: %.200s has %lld bytes of codes, but its quant_state says %lld elements",
                       ps_weight_source_path(s, codes->file), codes->tensor.name, (long long)codes->tensor.n_bytes,
                       (long long)out->elements);
    const int64_t n = ps_ceil_div(out->elements, out->block);
    PS_TRY(read_map(s, codes, ".quant_map", out->map, 16));
    if (out->nested_block == 0) return expect_part(s, codes, ".absmax", PS_SAFETENSORS_F32, n, &out->absmax);
    PS_TRY(expect_part(s, codes, ".absmax", PS_SAFETENSORS_U8, n, &out->absmax));
    PS_TRY(read_map(s, codes, ".nested_quant_map", out->nested_map, 256));
    return expect_part(s, codes, ".nested_absmax", PS_SAFETENSORS_F32, ps_ceil_div(n, out->nested_block),
                       &out->nested_absmax);
}

ps_status ps_bnb_weight_read(const ps_weight_source *s, int i, ps_bnb_weight **out)
{
    *out = NULL;
    const int state = find_state(s, ps_weight_source_get(s, i)->tensor.name);
    if (state < 0) return PS_OK;
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    const ps_status st = read_parts(s, i, state, *out);
    if (st == PS_OK) return PS_OK;
    ps_mem_free(*out);
    *out = NULL;
    return st;
}

/* ---- values ---- */

/* out[n]: the scales of blocks from `first` on; room [n], and where they are quantized [n] for their own. */
static ps_status read_scales(const ps_weight_source *s, const ps_bnb_weight *w, int64_t first, int64_t n, float *out,
                             uint8_t *codes, float *nested)
{
    const int64_t item = (int64_t)sizeof *out;
    const ps_weight *absmax = ps_weight_source_get(s, w->absmax);
    if (w->nested_absmax < 0) return ps_weight_source_read(s, absmax, first * item, out, n * item);
    const int64_t first_nested = first / w->nested_block,
                  n_nested = (first + n - 1) / w->nested_block - first_nested + 1;
    PS_TRY(ps_weight_source_read(s, absmax, first, codes, n));
    PS_TRY(ps_weight_source_read(s, ps_weight_source_get(s, w->nested_absmax), first_nested * item, nested,
                                 n_nested * item));
    for (int64_t i = 0; i < n; i++)
        out[i] = w->nested_map[codes[i]] * nested[(first + i) / w->nested_block - first_nested] + w->nested_offset;
    return PS_OK;
}

static ps_status decode(const ps_weight_source *s, const ps_bnb_weight *w, int64_t first, const uint8_t *codes,
                        float *to, int64_t n)
{
    enum { BLOCKS_MAX = VALUES_AT_ONCE / 2 + 2 };
    float *room = NULL;
    const int64_t first_block = first / w->block, n_blocks = (first + n - 1) / w->block - first_block + 1;
    PS_ASSERT(first % 2 == 0 && n_blocks <= BLOCKS_MAX);
    PS_TRY(ps_mem_alloc((size_t)n_blocks * 3, sizeof *room, &room));
    const ps_status st =
        read_scales(s, w, first_block, n_blocks, room, (uint8_t *)(void *)(room + 2 * n_blocks), room + n_blocks);
    for (int64_t i = 0; i < n && st == PS_OK; i++)
        to[i] = w->map[codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15] * room[(first + i) / w->block - first_block];
    ps_mem_free(room);
    return st;
}

ps_status ps_bnb_weight_values(const ps_weight_source *s, const ps_bnb_weight *w, int64_t first, const uint8_t *codes,
                               float *to, int64_t n)
{
    for (int64_t done = 0; done < n; done += VALUES_AT_ONCE)
        PS_TRY(decode(s, w, first + done, codes + done / 2, to + done, ps_min_i64(VALUES_AT_ONCE, n - done)));
    return PS_OK;
}
