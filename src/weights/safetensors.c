/* safetensors.c - the reader, and code shared with the writer. */
#include "weights/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/name_index.h"
#include "weights/safetensors_format.h"

static const struct {
    const char *name;
    int64_t n_bytes;
} dtypes[PS_SAFETENSORS_DTYPE_COUNT] = {
#define XX(name, bytes) [PS_SAFETENSORS_##name] = {#name, bytes},
    PS_SAFETENSORS_DTYPE_MAP(XX)
#undef XX
};

struct ps_safetensors {
    ps_file *file;
    json_t *header;         /* owns the names and the metadata */
    ps_safetensor *tensors; /* [n], by offset */
    int n;
    int64_t data_offset, data_bytes;
    ps_name_index index;
};

const char *ps_safetensors_dtype_name(ps_safetensors_dtype t)
{
    return dtypes[t].name;
}

int64_t ps_safetensors_dtype_bytes(ps_safetensors_dtype t)
{
    return dtypes[t].n_bytes;
}

bool ps_safetensor_bytes(const ps_safetensor *t, int64_t *out)
{
    /* a dimension of 0 makes it empty, but the others must still be valid */
    bool is_empty = false;
    int64_t n = ps_safetensors_dtype_bytes(t->dtype);
    for (int i = 0; i < t->n_dims; i++) {
        if (t->shape[i] < 0) return false;
        if (t->shape[i] == 0)
            is_empty = true;
        else if (__builtin_mul_overflow(n, t->shape[i], &n))
            return false;
    }
    *out = is_empty ? 0 : n;
    return true;
}

/* ---- one header entry ---- */

static ps_status parse_dtype(const ps_safetensors *s, ps_safetensor *t, const json_t *text)
{
    if (!json_is_string(text))
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: \"dtype\" is not a string", ps_file_path(s->file), t->name);
    for (int i = 0; i < PS_SAFETENSORS_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, json_string_value(text)) != 0) continue;
        t->dtype = (ps_safetensors_dtype)i;
        return PS_OK;
    }
    return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: dtype %.32s is not known", ps_file_path(s->file), t->name,
                   json_string_value(text));
}

/* A non-negative integer of an array in a header entry. */
static ps_status parse_number(const ps_safetensors *s, const ps_safetensor *t, const char *what, const json_t *array,
                              size_t i, int64_t *out)
{
    const json_t *number = json_array_get(array, i);
    if (!json_is_integer(number) || json_integer_value(number) < 0)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: \"%s\"[%zu] is not an integer >= 0", ps_file_path(s->file),
                       t->name, what, i);
    *out = json_integer_value(number);
    return PS_OK;
}

static ps_status parse_tensor(const ps_safetensors *s, const char *name, const json_t *entry, ps_safetensor *t)
{
    const char *path = ps_file_path(s->file);
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    int64_t begin = 0, end = 0, n_bytes = 0;
    t->name = name;
    if (!json_is_object(entry) || !json_is_array(shape) || !json_is_array(offsets) || json_array_size(offsets) != 2 ||
        json_object_size(entry) != 3)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: expected \"dtype\", \"shape\": [..], \"data_offsets\": [b, e]",
                       path, name);
    PS_TRY(parse_dtype(s, t, json_object_get(entry, "dtype")));
    if (json_array_size(shape) > PS_SAFETENSORS_DIMS_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s has %zu dimensions, at most %d are supported", path, name,
                       json_array_size(shape), PS_SAFETENSORS_DIMS_MAX);
    t->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < t->n_dims; i++) PS_TRY(parse_number(s, t, "shape", shape, (size_t)i, &t->shape[i]));
    PS_TRY(parse_number(s, t, "data_offsets", offsets, 0, &begin));
    PS_TRY(parse_number(s, t, "data_offsets", offsets, 1, &end));
    if (end < begin || end > s->data_bytes)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: data_offsets [%lld, %lld], but the file has %lld bytes of data",
                       path, name, (long long)begin, (long long)end, (long long)s->data_bytes);
    if (!ps_safetensor_bytes(t, &n_bytes))
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: its shape overflows", path, name);
    if (n_bytes != end - begin)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: its shape and dtype need %lld bytes, its data_offsets have %lld",
                       path, name, (long long)n_bytes, (long long)(end - begin));
    t->n_bytes = n_bytes;
    t->offset = s->data_offset + begin;
    return PS_OK;
}

/* ---- the whole header ---- */

/* By offset; empty tensors come before the tensor at their offset. */
static int compare_offset(const void *a, const void *b)
{
    const ps_safetensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static ps_status check_metadata(const ps_safetensors *s, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return PS_FAIL(PS_EFORMAT, "%s: __metadata__ is not an object", ps_file_path(s->file));
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return PS_FAIL(PS_EFORMAT, "%s: __metadata__: the value of %.128s is not a string", ps_file_path(s->file),
                           key);
    }
    return PS_OK;
}

static ps_status parse_header(ps_safetensors *s)
{
    const char *name;
    json_t *entry;
    const size_t n_entries = json_object_size(s->header); /* 4 bytes each at least, in at most 100 MB: fits an int */
    PS_TRY(ps_mem_alloc(n_entries, sizeof *s->tensors, &s->tensors));
    json_object_foreach(s->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            PS_TRY(check_metadata(s, entry));
        else
            PS_TRY(parse_tensor(s, name, entry, &s->tensors[s->n++]));
    }
    if (s->n > 0) qsort(s->tensors, (size_t)s->n, sizeof *s->tensors, compare_offset);
    PS_TRY(ps_name_index_init(&s->index, s->n));
    int64_t end = s->data_offset;
    for (int i = 0; i < s->n; i++) {
        const ps_safetensor *t = &s->tensors[i];
        (void)ps_name_index_add(&s->index, t->name, i); /* the parser has checked that names are unique */
        if (t->offset != end)
            return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s begins at offset %lld of the file, expected %lld: %s",
                           ps_file_path(s->file), t->name, (long long)t->offset, (long long)end,
                           t->offset < end ? "it overlaps the one before" : "a hole");
        end += t->n_bytes;
    }
    if (end != s->data_offset + s->data_bytes)
        return PS_FAIL(PS_EFORMAT, "%s: the last tensor ends at offset %lld, but the file has %lld bytes",
                       ps_file_path(s->file), (long long)end, (long long)(s->data_offset + s->data_bytes));
    return PS_OK;
}

static ps_status load_header(ps_safetensors *s)
{
    const char *path = ps_file_path(s->file);
    const int64_t file_bytes = ps_file_bytes(s->file);
    unsigned char prefix[8];
    ps_status st;
    char *text = NULL;
    uint64_t n = 0;
    if (file_bytes < 8)
        return PS_FAIL(PS_EFORMAT, "%s: %lld bytes, expected a header length of 8 bytes", path, (long long)file_bytes);
    PS_TRY(ps_file_read(s->file, 0, prefix, 8));
    for (int i = 0; i < 8; i++) n |= (uint64_t)prefix[i] << 8 * i;
    if (n > SAFETENSORS_HEADER_BYTES_MAX || (int64_t)n > file_bytes - 8)
        return PS_FAIL(PS_EFORMAT, "%s: offset 0: header of %llu bytes, expected at most %lld", path,
                       (unsigned long long)n, (long long)ps_min_i64(SAFETENSORS_HEADER_BYTES_MAX, file_bytes - 8));
    PS_TRY(ps_mem_alloc(n, 1, &text));
    PS_TRY_GOTO(ps_file_read(s->file, 8, text, (int64_t)n));
    s->data_offset = 8 + (int64_t)n;
    s->data_bytes = file_bytes - s->data_offset;
    json_error_t error;
    if (n > 0 && text[0] == '{') s->header = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (s->header == NULL) {
        st = n > 0 && text[0] == '{' ? PS_FAIL(PS_EFORMAT, "%s: offset %d: %s", path, 8 + error.position, error.text)
                                     : PS_FAIL(PS_EFORMAT, "%s: offset 8: the header does not begin with '{'", path);
        goto out;
    }
    PS_TRY_GOTO(parse_header(s));
out:
    ps_mem_free(text);
    return st;
}

/* ---- the open file ---- */

ps_status ps_safetensors_open(const char *path, ps_safetensors **out)
{
    *out = NULL;
    ps_status st;
    ps_safetensors *s = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    PS_TRY_GOTO(ps_file_open(path, &s->file));
    PS_TRY_GOTO(load_header(s));
    *out = s;
    s = NULL;
out:
    ps_safetensors_close(s);
    return st;
}

void ps_safetensors_close(ps_safetensors *s)
{
    if (s == NULL) return;
    ps_name_index_deinit(&s->index);
    ps_mem_free(s->tensors);
    json_decref(s->header);
    ps_file_close(s->file);
    ps_mem_free(s);
}

int ps_safetensors_count(const ps_safetensors *s)
{
    return s->n;
}

const ps_safetensor *ps_safetensors_get(const ps_safetensors *s, int i)
{
    PS_ASSERT(i >= 0 && i < s->n);
    return &s->tensors[i];
}

const ps_safetensor *ps_safetensors_find(const ps_safetensors *s, const char *name)
{
    const int32_t i = ps_name_index_find(&s->index, name);
    return i >= 0 ? &s->tensors[i] : NULL;
}

const char *ps_safetensors_metadata_value(const ps_safetensors *s, const char *key)
{
    return json_string_value(json_object_get(json_object_get(s->header, "__metadata__"), key));
}

ps_status ps_safetensors_read(const ps_safetensors *s, const ps_safetensor *tensor, int64_t offset, void *dst,
                              int64_t n_bytes)
{
    PS_ASSERT(offset >= 0 && n_bytes >= 0 && offset + n_bytes <= tensor->n_bytes);
    return ps_file_read(s->file, tensor->offset + offset, dst, n_bytes);
}

const ps_file *ps_safetensors_file(const ps_safetensors *s)
{
    return s->file;
}
