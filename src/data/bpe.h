/* bpe.h - byte-level BPE: a piece of text to tokens by merging neighbours, best rank first.
 *
 * Merges come in order, best first; the first has rank 0. With ignore_merges a piece that is a token as a whole is that
 * token, whatever merging would give (Llama-3). */
#ifndef PS_DATA_BPE_H
#define PS_DATA_BPE_H

#include "data/text_buffer.h"
#include "data/vocab.h"

/* Tokens `left` and `right` side by side become `merged`; lower rank goes first. */
typedef struct ps_merge {
    int32_t left, right, merged; /* token ids; left < 0: free slot */
    int32_t rank;
} ps_merge;

typedef struct ps_merge_node ps_merge_node;
typedef struct ps_merge_candidate ps_merge_candidate;

typedef struct ps_bpe {
    const ps_vocab *vocab;
    bool ignore_merges;
    int32_t id_of_byte[256]; /* -1: no token has this byte alone */
    int32_t n_merges;
    uint32_t merge_mask; /* slots of `merges` - 1; a power of two of them */
    ps_merge *merges;    /* open addressing, linear probing */
    /* working memory */
    int64_t capacity;         /* bytes of a piece there is room for */
    ps_merge_node *nodes;     /* [capacity] */
    ps_merge_candidate *heap; /* [3 capacity]: each pair once, and two new ones for each merge */
    int64_t n_heap;
    ps_text_buffer joined; /* while loading: both sides of a merge */
} ps_bpe;

/* Room for n_merges, none there yet. The vocabulary is byte-level, and stays the caller's. */
PS_NODISCARD ps_status ps_bpe_init(ps_bpe *b, const ps_vocab *vocab, int64_t n_merges);
void ps_bpe_deinit(ps_bpe *b); /* an empty one is accepted */

/* The next merge, its sides in the byte alphabet. PS_EFORMAT when a side or the result is no token, or the merge is
 * there; `where` opens the message. */
PS_NODISCARD ps_status ps_bpe_add_merge(ps_bpe *b, const char *left, int64_t n_left, const char *right, int64_t n_right,
                                        const char *where);

/* The tokens of one piece, n > 0 bytes, appended to `out`. */
PS_NODISCARD ps_status ps_bpe_encode_piece(ps_bpe *b, const char *piece, int64_t n, ps_id_list *out);

void ps_bpe_trim(ps_bpe *b); /* give back what a long piece needed */

#endif
