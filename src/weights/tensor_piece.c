#include "weights/tensor_piece.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/compact.h"

#define SHAPE_PREFIX "shape:"

ps_status ps_tensor_piece_name(const char *tensor, int64_t first, int64_t n, char name[PS_TENSOR_PIECE_NAME_MAX])
{
    const int len =
        snprintf(name, PS_TENSOR_PIECE_NAME_MAX, "%s[%lld:%lld]", tensor, (long long)first, (long long)(first + n));
    if (len > 0 && len < PS_TENSOR_PIECE_NAME_MAX) return PS_OK;
    return PS_FAIL(PS_EINVAL, "the name of parameter %.64s... is too long for a checkpoint", tensor);
}

ps_status ps_tensor_piece_key(const char *tensor, char key[PS_TENSOR_PIECE_NAME_MAX])
{
    const int len = snprintf(key, PS_TENSOR_PIECE_NAME_MAX, SHAPE_PREFIX "%s", tensor);
    if (len > 0 && len < PS_TENSOR_PIECE_NAME_MAX) return PS_OK;
    return PS_FAIL(PS_EINVAL, "the name of parameter %.64s... is too long for a checkpoint", tensor);
}

void ps_tensor_piece_shape(int n_dims, const int64_t *shape, char value[PS_TENSOR_PIECE_NAME_MAX])
{
    int len = 0;
    value[0] = '\0';
    for (int d = 0; d < n_dims; d++)
        len += snprintf(value + len, (size_t)(PS_TENSOR_PIECE_NAME_MAX - len), "%s%lld", d > 0 ? "," : "",
                        (long long)shape[d]);
}

/* A number that begins with a digit and ends at `end`; -1 when there is none. */
static int64_t parse_number(const char *text, char end, const char **rest)
{
    char *stop;
    if (*text < '0' || *text > '9') return -1;
    errno = 0;
    const long long v = strtoll(text, &stop, 10);
    if (errno != 0 || *stop != end) return -1;
    *rest = stop + (end != '\0');
    return v;
}

/* Parse "NAME[first:end]"; false for other names. */
static bool split_name(const char *text, ps_tensor_piece *out)
{
    const char *open = strrchr(text, '['), *at;
    if (open == NULL || open == text || (size_t)(open - text) >= sizeof out->name) return false;
    out->first = parse_number(open + 1, ':', &at);
    const int64_t end = out->first < 0 ? -1 : parse_number(at, ']', &at);
    if (end < 0 || *at != '\0') return false;
    out->n = end - out->first;
    memcpy(out->name, text, (size_t)(open - text));
    out->name[open - text] = '\0';
    return true;
}

static bool parse_shape(const char *text, ps_tensor_piece *out)
{
    out->n_dims = 0;
    out->elements = 1;
    if (text[0] == '\0') return true; /* a scalar */
    for (const char *at = text; out->n_dims < PS_SAFETENSORS_DIMS_MAX;) {
        const bool is_last = strchr(at, ',') == NULL;
        const int64_t size = parse_number(at, is_last ? '\0' : ',', &at);
        if (size < 0 || __builtin_mul_overflow(out->elements, size, &out->elements)) return false;
        out->shape[out->n_dims++] = size;
        if (is_last) return true;
    }
    return false;
}

ps_status ps_tensor_piece_read(const char *path, const ps_safetensors *file, int i, ps_tensor_piece *out,
                               bool *is_piece)
{
    char key[PS_TENSOR_PIECE_NAME_MAX];
    const ps_safetensor *t = ps_safetensors_get(file, i);
    *out = (ps_tensor_piece){0};
    *is_piece = false;
    if (!split_name(t->name, out) || ps_tensor_piece_key(out->name, key) != PS_OK) return PS_OK;
    const char *shape = ps_safetensors_metadata_value(file, key);
    if (shape == NULL) return PS_OK;
    *is_piece = true;
    if (!parse_shape(shape, out))
        return PS_FAIL(PS_EFORMAT, "%s: metadata %s: \"%.64s\" is not a shape such as \"50257,768\"", path, key, shape);
    if (out->n < (out->elements > 0) || out->n > out->elements || out->first > out->elements - out->n)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: the whole has %lld elements", path, t->name,
                       (long long)out->elements);
    if (t->dtype == PS_SAFETENSORS_U8) {
        const bool is_end = out->first + out->n == out->elements;
        if (out->first % PS_FORMAT_GROUP != 0 || (out->n % PS_FORMAT_GROUP != 0 && !is_end))
            return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: elements [%lld, %lld) of %lld are not whole groups of %d",
                           path, t->name, (long long)out->first, (long long)(out->first + out->n),
                           (long long)out->elements, PS_FORMAT_GROUP);
        const int64_t n_groups = ps_ceil_div(out->n, PS_FORMAT_GROUP), bytes = (int64_t)sizeof(ps_compact_group);
        if (t->n_dims == 2 && t->shape[0] == n_groups && t->shape[1] == bytes) return PS_OK;
        return PS_FAIL(PS_EFORMAT,
                       "%s: tensor %.128s: %lld bytes in %d dimensions, expected %lld groups of %d elements of %lld "
                       "bytes each",
                       path, t->name, (long long)t->n_bytes, t->n_dims, (long long)n_groups, PS_FORMAT_GROUP,
                       (long long)bytes);
    }
    if (t->n_dims != 1 || t->shape[0] != out->n)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: %lld bytes in %d dimensions, expected %lld elements in one",
                       path, t->name, (long long)t->n_bytes, t->n_dims, (long long)out->n);
    return PS_OK;
}

bool ps_tensor_piece_follows(int64_t *reached, int64_t first, int64_t n)
{
    if (first != *reached) return false;
    *reached += n;
    return true;
}
