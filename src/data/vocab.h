/* vocab.h - a vocabulary: id to bytes, and bytes to id.
 *
 * Byte-level vocabularies write bytes as printable characters: GPT-2's bytes_to_unicode maps ! to ~, U+A1 to U+AC and
 * U+AE to U+FF to the byte of the same number, the remaining 68 bytes in order to U+100, U+101, ... (openai/gpt-2,
 * src/encoder.py). This table has the original bytes. A token with any other character, and an added token, is its own
 * text; no text becomes such a token by merging. */
#ifndef PS_DATA_VOCAB_H
#define PS_DATA_VOCAB_H

#include <stdbool.h>

#include "base/status.h"

enum {
    PS_TOKEN_IS_THERE = 1, /* false for holes between ids */
    PS_TOKEN_IS_RAW = 2,   /* in a byte-level vocabulary, but not written in its characters */
    PS_TOKEN_IS_ADDED = 4, /* not in the model's own vocabulary: not found by its bytes */
    PS_TOKEN_IS_SPECIAL = 8,
};

/* A token of a file, to build a vocabulary. text == NULL: a hole. */
typedef struct ps_vocab_entry {
    const char *text;
    int64_t n_bytes;
    uint8_t flags; /* PS_TOKEN_IS_ADDED, PS_TOKEN_IS_SPECIAL */
} ps_vocab_entry;

typedef struct ps_vocab {
    int32_t n_ids;   /* ids are 0 to this - 1 */
    int64_t *offset; /* [n_ids + 1]: token i is bytes[offset[i]] to bytes[offset[i + 1]] */
    char *bytes;
    uint8_t *flags; /* [n_ids] */
    int32_t *slots; /* ids by the hash of their bytes; open addressing, -1: free */
    uint64_t slot_mask;
} ps_vocab;

/* Build from entries [n_ids] by id; `name` is for messages. strict: every token must be written in the byte alphabet.
 * Empty and duplicate tokens are PS_EFORMAT. On failure *v is empty. */
PS_NODISCARD ps_status ps_vocab_init(ps_vocab *v, const ps_vocab_entry *entries, int32_t n_ids, bool byte_level,
                                     bool strict, const char *name);
void ps_vocab_deinit(ps_vocab *v); /* an empty one is accepted */

/* The model's token with these bytes (a byte-level one: its bytes, not its characters), -1 when there is none. */
int32_t ps_vocab_find(const ps_vocab *v, const char *bytes, int64_t n);

/* Convert characters of the byte alphabet to bytes; returns their number, or -1 for a character outside of the
 * alphabet. dst has room for n. */
int64_t ps_vocab_text_to_bytes(const char *text, int64_t n, char *dst);

#endif
