/* text_buffer.h - growing arrays of bytes and token ids. Both begin zeroed; the caller frees the array. */
#ifndef PS_DATA_TEXT_BUFFER_H
#define PS_DATA_TEXT_BUFFER_H

#include <string.h>

#include "base/base.h"
#include "base/mem.h"

typedef struct ps_text_buffer {
    char *bytes;
    int64_t n, capacity;
} ps_text_buffer;

typedef struct ps_id_list {
    int32_t *ids;
    int64_t n, capacity;
} ps_id_list;

PS_NODISCARD static inline ps_status ps_text_reserve(ps_text_buffer *b, int64_t n_more)
{
    if (b->n + n_more <= b->capacity) return PS_OK;
    PS_TRY(ps_mem_reserve(&b->bytes, (size_t)(b->n + n_more), 1));
    b->capacity = (int64_t)ps_mem_bytes(b->bytes);
    return PS_OK;
}

PS_NODISCARD static inline ps_status ps_text_append(ps_text_buffer *b, const char *bytes, int64_t n)
{
    PS_TRY(ps_text_reserve(b, n));
    if (n > 0) memcpy(b->bytes + b->n, bytes, (size_t)n);
    b->n += n;
    return PS_OK;
}

PS_NODISCARD static inline ps_status ps_ids_reserve(ps_id_list *l, int64_t n_more)
{
    if (l->n + n_more <= l->capacity) return PS_OK;
    PS_TRY(ps_mem_reserve(&l->ids, (size_t)(l->n + n_more), sizeof *l->ids));
    l->capacity = (int64_t)(ps_mem_bytes(l->ids) / sizeof *l->ids);
    return PS_OK;
}

PS_NODISCARD static inline ps_status ps_ids_append(ps_id_list *l, int32_t id)
{
    PS_TRY(ps_ids_reserve(l, 1));
    l->ids[l->n++] = id;
    return PS_OK;
}

PS_NODISCARD static inline ps_status ps_ids_append_all(ps_id_list *l, const int32_t *ids, int64_t n)
{
    PS_TRY(ps_ids_reserve(l, n));
    if (n > 0) memcpy(l->ids + l->n, ids, (size_t)n * sizeof *ids);
    l->n += n;
    return PS_OK;
}

#endif
