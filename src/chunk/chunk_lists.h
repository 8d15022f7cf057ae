/* chunk_lists.h - the chunk lists of a store. They mirror each other: chunk i of each holds the same tensors at the
 * same offsets. They are known by number only; the code that creates them knows their meaning (train/state/lists.h).
 *
 * In addition there can be standalone chunks (n_standalone) with a separate size and without tensors. They count as one
 * more list, of number n and with the name of list[n]; their ids follow those of the others. */
#ifndef PS_CHUNK_CHUNK_LISTS_H
#define PS_CHUNK_CHUNK_LISTS_H

#include "base/item.h"
#include "chunk/layout.h"
#include "chunk/trace.h"

typedef int32_t ps_list;

#define PS_LISTS_MAX 10 /* with the list of standalone chunks */

typedef struct ps_lists {
    int32_t n;
    struct {
        const char *name; /* "PARAM16": for messages and figures; must outlive the store */
        ps_item item;     /* its groups divide PS_TENSOR_ALIGN_ELEMENTS: a tensor, a chunk and what of a tensor is in a
                           * chunk begin with one. 0 bytes: the list does not exist */
    } list[PS_LISTS_MAX];
    int32_t n_standalone;     /* standalone chunks; their content does not continue in another one */
    int64_t standalone_bytes; /* of each; a multiple of PS_PAGE_BYTES */
} ps_lists;

/* The bytes of a tier by kind. */
typedef struct ps_tier_use {
    int64_t list_bytes[PS_LISTS_MAX]; /* chunks by list: payloads; on disk, slots */
    int64_t non_model_bytes;          /* activations and workspace; device only */
    int64_t other_bytes;              /* in use when the store was created: staging */
} ps_tier_use;

static inline ps_chunk_id ps_store_chunk(const ps_layout *l, ps_list list, int32_t index)
{
    return list * l->n_chunks + index;
}

static inline int32_t ps_lists_n_ids(const ps_lists *l, const ps_layout *layout)
{
    return l->n * layout->n_chunks + l->n_standalone;
}

static inline ps_list ps_lists_list_of(const ps_lists *l, const ps_layout *layout, ps_chunk_id id)
{
    return id < l->n * layout->n_chunks ? id / layout->n_chunks : l->n;
}

/* The chunk's number in its list. */
static inline int32_t ps_lists_index_of(const ps_lists *l, const ps_layout *layout, ps_chunk_id id)
{
    return id - ps_lists_list_of(l, layout, id) * layout->n_chunks;
}

/* Is it the list of standalone chunks? */
static inline bool ps_lists_is_standalone(const ps_lists *l, ps_list list)
{
    return list == l->n;
}

/* Number of chunks of the list, if it exists; bytes of each, before rounding to pages. */
static inline int32_t ps_lists_length(const ps_lists *l, const ps_layout *layout, ps_list list)
{
    if (ps_lists_is_standalone(l, list)) return l->n_standalone;
    return list == 0 ? layout->n_chunks : layout->n_mirrored;
}

static inline int64_t ps_lists_chunk_bytes(const ps_lists *l, const ps_layout *layout, ps_list list)
{
    return ps_lists_is_standalone(l, list) ? l->standalone_bytes
                                           : ps_item_bytes(l->list[list].item, layout->chunk_elements);
}

/* Number of lists, with that of standalone chunks, if there are any. */
static inline int32_t ps_lists_n_all(const ps_lists *l)
{
    return l->n + (l->n_standalone > 0);
}

/* Do the chunks of a run lie side by side? Of elements in groups their bytes are no whole pages. */
static inline bool ps_lists_is_adjacent(const ps_lists *l, ps_list list)
{
    return !ps_lists_is_standalone(l, list) && l->list[list].item.elements == 1;
}

static inline bool ps_lists_exists(const ps_lists *l, ps_list list)
{
    return list < l->n ? l->list[list].item.bytes > 0 : list == l->n && l->n_standalone > 0;
}

#endif
