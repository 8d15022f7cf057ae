/* word_cache.h - a cache of the tokens of pieces, as text repeats its words, and most have few tokens.
 *
 * A direct-mapped table of fixed size: the hash of a piece selects its slot, and a newer piece replaces an older one.
 * Long pieces are rare, and not cached. */
#ifndef PS_DATA_WORD_CACHE_H
#define PS_DATA_WORD_CACHE_H

#include <xxhash.h>

#include "data/text_buffer.h"

enum { PS_WORD_CACHE_WORDS = 1 << 15, PS_CACHED_WORD_BYTES = 22, PS_CACHED_WORD_IDS = 8 };

typedef struct ps_cached_word { /* a cache line; n_bytes == 0: free */
    uint64_t hash;
    uint8_t n_bytes, n_ids;
    char bytes[PS_CACHED_WORD_BYTES];
    int32_t ids[PS_CACHED_WORD_IDS];
} ps_cached_word;

/* The slot of this piece (n > 0). *is_there: the slot has the piece; otherwise it is assigned to the piece now. */
static inline ps_cached_word *ps_word_cache_find(ps_cached_word *cache, const char *piece, int64_t n, bool *is_there)
{
    const uint64_t hash = XXH3_64bits(piece, (size_t)n);
    ps_cached_word *word = &cache[hash % PS_WORD_CACHE_WORDS];
    *is_there = word->hash == hash && word->n_bytes == n && memcmp(word->bytes, piece, (size_t)n) == 0;
    if (!*is_there && n <= PS_CACHED_WORD_BYTES) { /* claimed: ps_word_cache_keep fills it */
        word->hash = hash;
        word->n_bytes = 0;
    }
    return word;
}

/* Store the tokens of the piece of the last find, if they fit. */
static inline void ps_word_cache_keep(ps_cached_word *word, const char *piece, int64_t n, const int32_t *ids,
                                      int64_t n_ids)
{
    if (n > PS_CACHED_WORD_BYTES || n_ids > PS_CACHED_WORD_IDS) return;
    word->n_bytes = (uint8_t)n;
    word->n_ids = (uint8_t)n_ids;
    memcpy(word->bytes, piece, (size_t)n);
    memcpy(word->ids, ids, (size_t)n_ids * sizeof *ids);
}

#endif
