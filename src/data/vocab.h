/* vocab.h - the tables of a byte-level BPE vocabulary, read from GPT-2's two files.
 *
 * vocab.json is one object, token text -> id, ids dense from 0; merges.txt has a "#version" line, then one merge a line,
 * "left right", best first. Both write bytes as printable characters: GPT-2's bytes_to_unicode maps ! to ~, U+A1 to U+AC
 * and U+AE to U+FF to the byte of the same number, the remaining 68 bytes in order to U+100, U+101, ...
 * (openai/gpt-2, src/encoder.py). Here tokens are bytes again. */
#ifndef PS_DATA_VOCAB_H
#define PS_DATA_VOCAB_H

#include "base/status.h"

/* A merge: tokens `left` and `right` side by side become `merged`; lower rank goes first. */
typedef struct ps_merge {
    int32_t left, right, merged; /* token ids; left < 0: free slot */
    int32_t rank;                /* line order in merges.txt, from 0 */
} ps_merge;

typedef struct ps_vocab {
    int32_t n_tokens;
    int32_t eot; /* id of <|endoftext|>, or -1 when the vocabulary has none */
    int32_t n_merges;
    uint32_t merge_mask;  /* slots of `merges` - 1; a power of two of them */
    uint64_t fingerprint; /* hash of both files */
    int32_t id_of_byte[256];
    int64_t *offset; /* [n_tokens + 1]: token i is bytes[offset[i]] to bytes[offset[i + 1]] */
    char *bytes;
    ps_merge *merges; /* open addressing, linear probing */
} ps_vocab;

/* Build the tables from the content of both files; the names are for messages only. PS_EFORMAT with file, line or token,
 * expected and found. On success the caller owns *v (ps_vocab_deinit); on failure *v is empty. */
PS_NODISCARD ps_status ps_vocab_init(ps_vocab *v, const char *vocab_name, const char *vocab_json, int64_t vocab_bytes,
                                     const char *merges_name, const char *merges_text, int64_t merges_bytes);
void ps_vocab_deinit(ps_vocab *v); /* an empty one is accepted */

static inline uint32_t ps_merge_slot(const ps_vocab *v, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & v->merge_mask; /* Fibonacci hashing: Knuth, TAOCP 3, 6.4 */
}

/* The merge of this pair, or NULL when the pair stays apart. */
static inline const ps_merge *ps_vocab_find_merge(const ps_vocab *v, int32_t left, int32_t right)
{
    for (uint32_t slot = ps_merge_slot(v, left, right);; slot = (slot + 1) & v->merge_mask) {
        const ps_merge *m = &v->merges[slot];
        if (m->left < 0) return NULL;
        if (m->left == left && m->right == right) return m;
    }
}

#endif
