/* token_offsets.h - byte offsets of tokens in a text, for targets that are given as positions in the text.
 *
 *     text     "unbelievable story"            bytes  0  2   12 13  18
 *     tokens   un ##believable story           begin  0  2      13
 *                                              end    2  12     18
 *
 * Offsets are found with the tokenizer itself, for every normalizer: a token ends at the shortest prefix of the text
 * whose encoding ends with this token. Words are encoded one by one where that gives the tokens of the whole text. In a
 * long word, such as a whole Chinese text, about a hundred bytes before the position are encoded, and the end of a
 * token is searched after that of the previous one, so the work is linear in the length of the text.
 *
 * Threads: as the tokenizer. */
#ifndef PS_DATA_TOKEN_OFFSETS_H
#define PS_DATA_TOKEN_OFFSETS_H

#include "base/status.h"
#include "data/tokenizer.h"

typedef struct ps_token_offsets {
    int32_t *ids;
    int64_t *begin, *end; /* bytes, without surrounding white space; tokens that share a character all include it */
    int64_t n;
    int64_t encoded_bytes; /* total bytes that were encoded: the work */
} ps_token_offsets;

/* For the text without special tokens. PS_ENOMEM_HOST. On failure *out is empty. */
PS_NODISCARD ps_status ps_token_offsets_init(ps_token_offsets *out, ps_tokenizer *t, bool added_tokens,
                                             const char *text, int64_t n_bytes);
void ps_token_offsets_deinit(ps_token_offsets *o); /* an empty one is accepted */

#endif
