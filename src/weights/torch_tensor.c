#include "weights/torch_tensor.h"

#include <string.h>

#include "base/base.h"
#include "weights/safetensors_format.h"

bool torch_text_is(const torch_value *v, const char *text)
{
    return v->kind == TORCH_TEXT && v->text.n == strlen(text) && memcmp(v->text.at, text, v->text.n) == 0;
}

const char *torch_text_keep(char **texts, const torch_value *v)
{
    char *const copy = *texts;
    if (memchr(v->text.at, 0, v->text.n) != NULL) return NULL;
    memcpy(copy, v->text.at, v->text.n);
    copy[v->text.n] = '\0';
    *texts += v->text.n + 1;
    return copy;
}

/* Sizes and strides, which must be those of a contiguous tensor. */
static ps_status take_shape(const torch_machine *m, const torch_value *v, ps_safetensor *t)
{
    const torch_value *size = &m->values[v->tensor.size], *stride = &m->values[v->tensor.stride];
    if (size->kind != TORCH_TUPLE || stride->kind != TORCH_TUPLE || size->items.n != stride->items.n)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: its size and stride are no tuples of one length", m->path,
                       t->name);
    if (size->items.n > PS_SAFETENSORS_DIMS_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s has %d dimensions, at most %d are supported", m->path, t->name,
                       size->items.n, PS_SAFETENSORS_DIMS_MAX);
    t->n_dims = size->items.n;
    int64_t strides[PS_SAFETENSORS_DIMS_MAX];
    int32_t a = size->items.first, b = stride->items.first;
    for (int d = 0; d < t->n_dims; d++, a = m->cells[a].next, b = m->cells[b].next) {
        const torch_value *n = &m->values[m->cells[a].value], *step = &m->values[m->cells[b].value];
        if (n->kind != TORCH_INTEGER || step->kind != TORCH_INTEGER || n->integer < 0)
            return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: dimension %d is not an integer >= 0", m->path, t->name, d);
        t->shape[d] = n->integer;
        strides[d] = step->integer;
    }
    if (!ps_safetensor_bytes(t, &t->n_bytes))
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: its shape overflows", m->path, t->name);
    int64_t step = 1;
    for (int d = t->n_dims - 1; d >= 0 && t->n_bytes > 0; d--) {
        if (t->shape[d] != 1 && strides[d] != step)
            return PS_FAIL(
                PS_EFORMAT,
                "%s: tensor %.128s: dimension %d has stride %lld, expected %lld: it is a view (transposed or "
                "expanded); save it after .contiguous()",
                m->path, t->name, d, (long long)strides[d], (long long)step);
        step *= t->shape[d];
    }
    return PS_OK;
}

ps_status torch_tensor_take(const torch_machine *m, const torch_value *v, char **texts, ps_torch_tensor *out)
{
    ps_safetensor *t = &out->tensor;
    const torch_value *storage = &m->values[v->tensor.storage];
    const int64_t item_bytes = ps_safetensors_dtype_bytes(storage->storage.dtype);
    t->dtype = storage->storage.dtype;
    out->storage = torch_text_keep(texts, &m->values[storage->storage.key]);
    if (out->storage == NULL)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: a zero byte in the key of its storage", m->path, t->name);
    PS_TRY(take_shape(m, v, t));
    if (__builtin_mul_overflow(storage->storage.n_elements, item_bytes, &out->storage_bytes) ||
        __builtin_mul_overflow(v->tensor.offset, item_bytes, &t->offset) || t->offset > out->storage_bytes ||
        t->n_bytes > out->storage_bytes - t->offset)
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s: %lld bytes from element %lld of a storage of %lld elements",
                       m->path, t->name, (long long)t->n_bytes, (long long)v->tensor.offset,
                       (long long)storage->storage.n_elements);
    return PS_OK;
}
