#include "cuda/product_table.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define FORMAT "patrickstar products"
#define VERSION 2
/* Products beyond this are damage. */
#define EXTENT_MAX ((int64_t)1 << 48)
#define CHOICES_MAX 4096
#define PLACES_MAX 64
#define ALGORITHM_DIGITS (16 * PS_CUDA_ALGORITHM_WORDS)

static uint8_t align_of(const void *p)
{
    uint8_t n = PS_CUDA_PRODUCT_ALIGN;
    while ((uintptr_t)p % n != 0) n /= 2;
    return n;
}

ps_cuda_shape ps_cuda_shape_of(const ps_cuda_product *p)
{
    return (ps_cuda_shape){.m = p->m,
                           .n = p->n,
                           .k = p->k,
                           .y_stride = p->y_stride,
                           .a_stride = p->a.stride,
                           .b_stride = p->b.stride,
                           .dtype = (int32_t)p->a.dtype,
                           .y_dtype = (int32_t)p->y_dtype,
                           .is_a_transposed = p->a.is_transposed,
                           .is_b_transposed = p->b.is_transposed,
                           .has_bias = p->bias != NULL,
                           .accumulates = p->accumulate,
                           .has_addend = p->addend != NULL,
                           .has_gelu_x = p->gelu_x != NULL,
                           .a_align = align_of(p->a.data)};
}

bool ps_cuda_site_is_same(const ps_cuda_site *a, const ps_cuda_site *b)
{
    return strcmp(a->gpu, b->gpu) == 0 && a->processors == b->processors && a->driver_version == b->driver_version &&
           a->library_version == b->library_version && a->workspace_bytes == b->workspace_bytes;
}

/* ---- entries ---- */

void ps_cuda_product_table_deinit(ps_cuda_product_table *t)
{
    ps_mem_free(t->choices);
    *t = (ps_cuda_product_table){0};
}

const ps_cuda_choice *ps_cuda_product_table_find(const ps_cuda_product_table *t, const ps_cuda_shape *shape)
{
    for (size_t i = 0; i < t->n; i++)
        if (memcmp(&t->choices[i].shape, shape, sizeof *shape) == 0) return &t->choices[i];
    return NULL;
}

ps_status ps_cuda_product_table_put(ps_cuda_product_table *t, const ps_cuda_choice *c)
{
    for (size_t i = 0; i < t->n; i++)
        if (memcmp(&t->choices[i].shape, &c->shape, sizeof c->shape) == 0) {
            t->choices[i] = *c;
            return PS_OK;
        }
    PS_TRY(ps_mem_reserve(&t->choices, t->n + 1, sizeof *t->choices));
    t->choices[t->n++] = *c;
    return PS_OK;
}

/* ---- writing ---- */

static json_t *choice_json(const ps_cuda_choice *c)
{
    const ps_cuda_shape *s = &c->shape;
    char digits[ALGORITHM_DIGITS + 1];
    for (size_t i = 0; i < PS_CUDA_ALGORITHM_WORDS; i++) snprintf(digits + 16 * i, 17, "%016" PRIx64, c->algorithm[i]);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:i, s:i, s:s}", "m",
                     (json_int_t)s->m, "n", (json_int_t)s->n, "k", (json_int_t)s->k, "y_stride",
                     (json_int_t)s->y_stride, "a_stride", (json_int_t)s->a_stride, "b_stride", (json_int_t)s->b_stride,
                     "type", ps_dtype_name((ps_dtype)s->dtype), "y_type", ps_dtype_name((ps_dtype)s->y_dtype),
                     "a_transposed", (int)s->is_a_transposed, "b_transposed", (int)s->is_b_transposed, "bias",
                     (int)s->has_bias, "accumulates", (int)s->accumulates, "addend", (int)s->has_addend,
                     "gelu_derivative", (int)s->has_gelu_x, "a_align", (int)s->a_align, "place", (int)c->place,
                     "algorithm", digits);
}

ps_status ps_cuda_product_table_render(const ps_cuda_product_table *t, char **out)
{
    const ps_cuda_site *s = &t->site;
    *out = NULL;
    json_t *choices = json_array();
    for (size_t i = 0; i < t->n; i++) json_array_append_new(choices, choice_json(&t->choices[i]));
    const bool is_whole = json_array_size(choices) == t->n;
    json_t *root = json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:o}", "format", FORMAT, "version", VERSION, "gpu",
                             s->gpu, "processors", (json_int_t)s->processors, "driver", (json_int_t)s->driver_version,
                             "cublaslt", (json_int_t)s->library_version, "workspace_bytes",
                             (json_int_t)s->workspace_bytes, "products", choices);
    char *text = is_whole ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    const ps_status st =
        text != NULL ? ps_mem_strdup(text, out) : PS_FAIL(PS_ENOMEM_HOST, "no memory for a table of products");
    free(text);
    return st;
}

/* ---- reading ---- */

/* An object of the text: the whole, or an entry. */
typedef struct reader {
    const char *name;
    const json_t *object;
    size_t entry; /* from 1; 0: the whole */
} reader;

static ps_status wrong(const reader *r, const char *key, const char *expected)
{
    if (r->entry == 0) return PS_FAIL(PS_EFORMAT, "%s: \"%s\" is missing or not %s", r->name, key, expected);
    return PS_FAIL(PS_EFORMAT, "%s: \"products\"[%zu]: \"%s\" is missing or not %s", r->name, r->entry - 1, key,
                   expected);
}

static ps_status read_int(const reader *r, const char *key, int64_t min, int64_t max, int64_t *out)
{
    const json_t *v = json_object_get(r->object, key);
    char expected[80];
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min, (long long)max);
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return wrong(r, key, expected);
    *out = json_integer_value(v);
    return PS_OK;
}

static ps_status read_bool(const reader *r, const char *key, bool *out)
{
    const json_t *v = json_object_get(r->object, key);
    if (!json_is_boolean(v)) return wrong(r, key, "true or false");
    *out = json_is_true(v);
    return PS_OK;
}

/* What version 1 has not. */
static ps_status read_bool_if_any(const reader *r, const char *key, bool *out)
{
    *out = false;
    return json_object_get(r->object, key) == NULL ? PS_OK : read_bool(r, key, out);
}

static ps_status read_type(const reader *r, const char *key, int32_t *out)
{
    const char *text = json_string_value(json_object_get(r->object, key));
    for (int t = 0; text != NULL && t < PS_DTYPE_COUNT; t++)
        if (strcmp(text, ps_dtype_name((ps_dtype)t)) == 0) {
            *out = t;
            return PS_OK;
        }
    return wrong(r, key, "a number format");
}

static ps_status read_algorithm(const reader *r, uint64_t words[PS_CUDA_ALGORITHM_WORDS])
{
    const char *text = json_string_value(json_object_get(r->object, "algorithm"));
    const bool has_all =
        text != NULL && strlen(text) == ALGORITHM_DIGITS && strspn(text, "0123456789abcdef") == ALGORITHM_DIGITS;
    if (!has_all) return wrong(r, "algorithm", "128 hexadecimal digits");
    for (size_t i = 0; i < PS_CUDA_ALGORITHM_WORDS; i++) {
        char word[17] = "";
        memcpy(word, text + 16 * i, 16);
        words[i] = strtoull(word, NULL, 16);
    }
    return PS_OK;
}

static ps_status read_choice(const reader *r, ps_cuda_choice *c)
{
    ps_cuda_shape *s = &c->shape;
    int64_t align, place;
    *c = (ps_cuda_choice){0};
    PS_TRY(read_int(r, "m", 1, EXTENT_MAX, &s->m));
    PS_TRY(read_int(r, "n", 1, EXTENT_MAX, &s->n));
    PS_TRY(read_int(r, "k", 1, EXTENT_MAX, &s->k));
    PS_TRY(read_type(r, "type", &s->dtype));
    PS_TRY(read_type(r, "y_type", &s->y_dtype));
    PS_TRY(read_bool(r, "a_transposed", &s->is_a_transposed));
    PS_TRY(read_bool(r, "b_transposed", &s->is_b_transposed));
    PS_TRY(read_bool(r, "bias", &s->has_bias));
    PS_TRY(read_bool(r, "accumulates", &s->accumulates));
    PS_TRY(read_bool_if_any(r, "addend", &s->has_addend));
    PS_TRY(read_bool_if_any(r, "gelu_derivative", &s->has_gelu_x));
    if (s->has_gelu_x && (s->has_addend || s->has_bias || s->accumulates || s->y_dtype == PS_DTYPE_F32))
        return wrong(r, "gelu_derivative", "false, as a bias or an addition, and f32, exclude it");
    if (s->has_addend && s->accumulates) return wrong(r, "addend", "false, as \"accumulates\" excludes it");
    PS_TRY(read_int(r, "y_stride", s->n, EXTENT_MAX, &s->y_stride));
    PS_TRY(read_int(r, "a_stride", s->is_a_transposed ? s->m : s->k, EXTENT_MAX, &s->a_stride));
    PS_TRY(read_int(r, "b_stride", s->is_b_transposed ? s->k : s->n, EXTENT_MAX, &s->b_stride));
    PS_TRY(read_int(r, "a_align", 1, PS_CUDA_PRODUCT_ALIGN, &align));
    if ((align & (align - 1)) != 0) return wrong(r, "a_align", "a power of 2");
    PS_TRY(read_int(r, "place", 0, PLACES_MAX, &place));
    s->a_align = (uint8_t)align;
    c->place = (int32_t)place;
    return read_algorithm(r, c->algorithm);
}

static ps_status read_site(const reader *r, ps_cuda_site *s)
{
    const char *gpu = json_string_value(json_object_get(r->object, "gpu"));
    if (gpu == NULL || strlen(gpu) >= sizeof s->gpu) return wrong(r, "gpu", "the name of a GPU");
    strcpy(s->gpu, gpu);
    PS_TRY(read_int(r, "processors", 0, INT32_MAX, &s->processors));
    PS_TRY(read_int(r, "driver", 0, INT32_MAX, &s->driver_version));
    PS_TRY(read_int(r, "cublaslt", 0, INT32_MAX, &s->library_version));
    return read_int(r, "workspace_bytes", 0, EXTENT_MAX, &s->workspace_bytes);
}

static ps_status read_all(const reader *r, ps_cuda_product_table *t)
{
    const char *format = json_string_value(json_object_get(r->object, "format"));
    const json_t *choices = json_object_get(r->object, "products");
    int64_t version;
    if (format == NULL || strcmp(format, FORMAT) != 0) return wrong(r, "format", "\"" FORMAT "\"");
    PS_TRY(read_int(r, "version", 1, VERSION, &version));
    PS_TRY(read_site(r, &t->site));
    if (!json_is_array(choices) || json_array_size(choices) > CHOICES_MAX)
        return wrong(r, "products", "an array of at most 4096 entries");
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const reader entry = {r->name, json_array_get(choices, i), i + 1};
        ps_cuda_choice c;
        PS_TRY(read_choice(&entry, &c));
        if (ps_cuda_product_table_find(t, &c.shape) != NULL)
            return PS_FAIL(PS_EFORMAT, "%s: \"products\"[%zu] is of a shape that was there before", r->name, i);
        PS_TRY(ps_cuda_product_table_put(t, &c));
    }
    return PS_OK;
}

ps_status ps_cuda_product_table_parse(const char *text, int64_t n_bytes, const char *name, ps_cuda_product_table *out)
{
    json_error_t error;
    *out = (ps_cuda_product_table){0};
    if (n_bytes > PS_CUDA_PRODUCT_TABLE_BYTES_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: %lld bytes, more than a table of products has", name, (long long)n_bytes);
    json_t *root = json_loadb(text, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) return PS_FAIL(PS_EFORMAT, "%s: line %d: %s", name, error.line, error.text);
    const ps_status st = read_all(&(reader){.name = name, .object = root}, out);
    if (st != PS_OK) ps_cuda_product_table_deinit(out);
    json_decref(root);
    return st;
}
