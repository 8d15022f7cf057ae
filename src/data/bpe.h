/* bpe.h - BPE: encodes a piece of text by merging neighbouring tokens, lowest rank first.
 *
 *     byte-level      begins with the bytes of the piece (GPT-2, Llama-3, Qwen)
 *     of characters   begins with its characters; one that is no token becomes its bytes, tokens "<0x00>" to "<0xFF>"
 *                     (byte_fallback), else the unknown token (SentencePiece: Llama-2, Mistral)
 *
 * Merges are ordered by rank; the first has rank 0. With ignore_merges a piece that is a token as a whole becomes that
 * token without merging (Llama-3).
 *
 * SentencePiece does not split texts: a novel is one piece. But no merge crosses a border between two characters that
 * no merge joins, so the parts on both sides of a border are encoded separately. */
#ifndef PS_DATA_BPE_H
#define PS_DATA_BPE_H

#include "data/character_pairs.h"
#include "data/text_buffer.h"
#include "data/vocab.h"

/* Adjacent tokens `left` and `right` become `merged`; lower ranks have precedence. */
typedef struct ps_merge {
    int32_t left, right, merged; /* token ids; left < 0: free slot */
    int32_t rank;
} ps_merge;

typedef struct ps_merge_node ps_merge_node;
typedef struct ps_merge_candidate ps_merge_candidate;

typedef struct ps_bpe {
    const ps_vocab *vocab;
    bool is_byte_level, ignore_merges;
    bool fuses_unknown;              /* of characters: unknown ones in a row are one token */
    int32_t unknown;                 /* of characters: id, -1: none */
    int32_t id_of_byte[256];         /* byte-level: -1: no token has this byte alone. Of characters: -1: no fallback */
    ps_character_pairs joined_pairs; /* of characters: the adjacent characters of all merges */
    int32_t n_merges;
    uint32_t merge_mask; /* slots of `merges` - 1; a power of two of them */
    ps_merge *merges;    /* open addressing, linear probing */
    /* working memory */
    int64_t capacity;         /* bytes of the longest piece with room */
    ps_merge_node *nodes;     /* [capacity] */
    ps_merge_candidate *heap; /* [3 capacity]: each pair once, and two new ones for each merge */
    int64_t n_heap;
    ps_text_buffer joined; /* while loading: both sides of a merge */
} ps_bpe;

/* Byte-level, with room for n_merges, without merges yet. The vocabulary must be byte-level, too; the caller owns
 * it. */
PS_NODISCARD ps_status ps_bpe_init(ps_bpe *b, const ps_vocab *vocab, int64_t n_merges);

/* The same for characters, without byte fallback. */
PS_NODISCARD ps_status ps_bpe_init_characters(ps_bpe *b, const ps_vocab *vocab, int64_t n_merges);

/* Of characters: enable byte fallback with those of the tokens "<0x00>" to "<0xFF>" that exist. */
void ps_bpe_use_byte_fallback(ps_bpe *b);
void ps_bpe_deinit(ps_bpe *b); /* an empty one is accepted */

/* Add the next merge, its sides as in the vocabulary's file. PS_EFORMAT when a side or the result is not a token, or
 * the merge exists already; `where` begins the message. */
PS_NODISCARD ps_status ps_bpe_add_merge(ps_bpe *b, const char *left, int64_t n_left, const char *right, int64_t n_right,
                                        const char *where);

/* Append the tokens of one piece of n > 0 bytes (of characters: well-formed UTF-8) to `out`. PS_EINVAL when there is no
 * token for a byte or character. */
PS_NODISCARD ps_status ps_bpe_encode_piece(ps_bpe *b, const char *piece, int64_t n, ps_id_list *out);

/* End of the part of a piece that begins at `from`. Encoding part by part gives the same tokens. With ignore_merges,
 * and byte-level, the part is the rest of the piece. */
int64_t ps_bpe_part_end(const ps_bpe *b, const char *piece, int64_t n, int64_t from);

void ps_bpe_trim(ps_bpe *b); /* free the working memory of long pieces */

#endif
