#include "train/state/pieces.h"

#include <stdlib.h>

#include "base/base.h"
#include "base/mem.h"

ps_piece ps_piece_from(const ps_layout *l, int32_t tensor, int64_t at, int64_t n)
{
    const ps_place *p = &l->places[tensor];
    const int64_t k = (p->offset + at) / l->chunk_elements, offset = (p->offset + at) % l->chunk_elements;
    return (ps_piece){.tensor = tensor,
                      .chunk = p->chunk + (int32_t)k,
                      .chunk_offset = offset,
                      .tensor_offset = at,
                      .n = ps_min_i64(n, l->chunk_elements - offset)};
}

static ps_status allocate(const ps_layout *l, ps_pieces *p)
{
    for (int32_t i = 0; i < l->n_tensors; i++) p->n += l->places[i].n_chunks;
    PS_TRY(ps_mem_alloc((size_t)p->n, sizeof *p->all, &p->all));
    PS_TRY(ps_mem_alloc((size_t)p->n, sizeof *p->by_tensor, &p->by_tensor));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks + 1, sizeof *p->first, &p->first));
    return ps_mem_alloc((size_t)l->n_tensors + 1, sizeof *p->first_of_tensor, &p->first_of_tensor);
}

static int compare_offsets(const void *a, const void *b)
{
    const int64_t x = ((const ps_piece *)a)->chunk_offset, y = ((const ps_piece *)b)->chunk_offset;
    return x < y ? -1 : x > y;
}

/* Tensors may be numbered in another order than that in which they lie. */
static void sort_chunks(const ps_layout *l, ps_pieces *p)
{
    for (int32_t c = 0; c < l->n_chunks; c++)
        qsort(p->all + p->first[c], (size_t)(p->first[c + 1] - p->first[c]), sizeof *p->all, compare_offsets);
}

/* Counting sort by chunk: counts the pieces of each chunk, makes `first` their beginnings, which advance as pieces are
 * placed, and finally shifts it back by one chunk. */
static void cut(const ps_layout *l, const int32_t *tensors, ps_pieces *p)
{
    for (int32_t i = 0; i < l->n_tensors; i++) {
        p->first_of_tensor[i + 1] = p->first_of_tensor[i] + l->places[i].n_chunks;
        for (int32_t k = 0; k < l->places[i].n_chunks; k++) p->first[l->places[i].chunk + k + 1]++;
    }
    for (int32_t c = 0; c < l->n_chunks; c++) p->first[c + 1] += p->first[c];
    for (int32_t i = 0; i < l->n_tensors; i++) {
        for (int64_t at = 0; at < l->places[i].elements;) {
            ps_piece piece = ps_piece_from(l, i, at, l->places[i].elements - at);
            p->all[p->first[piece.chunk]++] = piece;
            at += piece.n;
        }
    }
    for (int32_t c = l->n_chunks; c > 0; c--) p->first[c] = p->first[c - 1];
    p->first[0] = 0;
    sort_chunks(l, p);
    for (int32_t k = 0; k < p->n; k++) {
        ps_piece *piece = &p->all[k];
        const int32_t i = piece->tensor;
        p->by_tensor[p->first_of_tensor[i] + piece->chunk - l->places[i].chunk] = k;
        if (tensors != NULL) piece->tensor = tensors[i];
    }
}

ps_status ps_pieces_cut(const ps_layout *l, const int32_t *tensors, ps_pieces *p)
{
    *p = (ps_pieces){0};
    const ps_status st = allocate(l, p);
    if (st == PS_OK)
        cut(l, tensors, p);
    else
        ps_pieces_deinit(p);
    return st;
}

void ps_pieces_deinit(ps_pieces *p)
{
    ps_mem_free(p->all);
    ps_mem_free(p->by_tensor);
    ps_mem_free(p->first);
    ps_mem_free(p->first_of_tensor);
    *p = (ps_pieces){0};
}
