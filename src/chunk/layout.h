/* layout.h - the place of each tensor: a pure function of (tensor sizes, chunk size).
 *
 * Tensors are placed in the order given, so that neighbours in the model are neighbours in memory. A tensor goes into
 * the first of the last few chunks with room for it, else it opens a new chunk; it never straddles two chunks, except a
 * tensor larger than a chunk: it takes a *run* of fresh chunks, and the tail of the run's last chunk stays open for
 * others. So an embedding does not dictate the chunk size.
 *
 *   chunk 0            chunk 1            chunk 2            chunk 3
 *   |wte . . . . . . . . . . . . . . . . . . . . . .|wpe|ln|  |c_attn . . . . . .|b|
 *   '---------------- run of 3 -------------------------'
 *
 * One layout serves every chunk list: lists mirror each other, same index and same offsets. Tensors that have content
 * in the first list only (parameters that are not trained) can be placed in separate chunks, after all others; the
 * other lists end before these:
 *
 *     list 0        |  0 |  1 |  2 |  3 ||  4 |  5 |
 *     other lists   |  0 |  1 |  2 |  3 |            n_mirrored = 4 */
#ifndef PS_CHUNK_LAYOUT_H
#define PS_CHUNK_LAYOUT_H

#include <stdbool.h>

#include "base/status.h"

/* Chunks are a multiple of this many elements, so that a 16-bit chunk fills whole pages and runs are contiguous. */
#define PS_CHUNK_UNIT_ELEMENTS ((int64_t)2048)
/* Tensors start at multiples of this: 64 bytes of 16-bit elements. */
#define PS_TENSOR_ALIGN_ELEMENTS ((int64_t)32)

typedef struct ps_place {
    int32_t chunk;    /* index of the first chunk */
    int32_t n_chunks; /* 1, or the length of the run */
    int64_t offset;   /* elements from the start of the first chunk; 0 for a run */
    int64_t elements;
} ps_place;

typedef struct ps_run {
    int32_t first, n_chunks;
} ps_run;

typedef struct ps_layout {
    int64_t chunk_elements;
    int32_t n_tensors, n_chunks, n_runs;
    int32_t n_mirrored;      /* so many first chunks are in all lists, the others in the first one only */
    ps_place *places;        /* [n_tensors] */
    ps_run *runs;            /* [n_runs], ascending, each longer than one chunk */
    int32_t *run_of_chunk;   /* [n_chunks] index into runs, or -1 */
    int64_t *used_elements;  /* [n_chunks] elements from the chunk's start to the end of its last tensor, aligned */
    int64_t tensor_elements; /* sum of tensor sizes */
} ps_layout;

/* Tensors with in_first_list_only (NULL: none) are in the first list only. chunk_elements is rounded up to
 * PS_CHUNK_UNIT_ELEMENTS. PS_EINVAL for an empty model or sizes < 1. */
PS_NODISCARD ps_status ps_layout_create(const int64_t *tensor_elements, const bool *in_first_list_only,
                                        int32_t n_tensors, int64_t chunk_elements, ps_layout **out);
void ps_layout_destroy(ps_layout *l); /* NULL is accepted */

/* Share of chunk memory that holds no tensor: 1 - tensor_elements / (n_chunks chunk_elements). */
double ps_layout_waste(const ps_layout *l);

/* The chunk size to use when none is given: the largest in [min, max] with waste of at most 1 % (2 % as far as large
 * unit_elements cause it), else the one that wastes least. Tries the sizes at which groups of whole tensors end and
 * equal divisions of the total; takes milliseconds. Instead of a small chunk (below 16 MiB of 16-bit elements) it
 * returns one of whole huge pages that wastes at most 1.5 %, if that is at least half as large. All are multiples of
 * unit_elements, itself a multiple of PS_CHUNK_UNIT_ELEMENTS; max is raised to the smallest multiple that is at least
 * min. PS_EINVAL as ps_layout_create. */
PS_NODISCARD ps_status ps_layout_search(const int64_t *tensor_elements, const bool *in_first_list_only,
                                        int32_t n_tensors, int64_t unit_elements, int64_t min_elements,
                                        int64_t max_elements, int64_t *chunk_elements);

#endif
