/* token_offsets.h - where in a text its tokens lie, for targets that are given as places in it.
 *
 *     text     "unbelievable story"            bytes  0  2   12 13  18
 *     tokens   un ##believable story           begin  0  2      13
 *                                              end    2  12     18
 *
 * The tokenizer itself says it, whatever its normalizer does: a token ends where the beginning of the text, encoded
 * alone, has it for its last one. Words are looked at one by one where their tokens are those of the whole text. Of a
 * long one, as all of a Chinese text is, some hundred bytes before the place are encoded, and the end of a token is
 * looked for in what follows the last one: so the work is linear in the length of the text.
 *
 * Threads: as the tokenizer. */
#ifndef PS_DATA_TOKEN_OFFSETS_H
#define PS_DATA_TOKEN_OFFSETS_H

#include "base/status.h"
#include "data/tokenizer.h"

typedef struct ps_token_offsets {
    int32_t *ids;
    int64_t *begin, *end; /* bytes, without white space around; tokens that share a character have all of it */
    int64_t n;
    int64_t encoded_bytes; /* of text that the tokenizer was given, all times together: the work */
} ps_token_offsets;

/* Of the text with nothing around it. PS_ENOMEM_HOST. On failure *out is empty. */
PS_NODISCARD ps_status ps_token_offsets_init(ps_token_offsets *out, ps_tokenizer *t, bool added_tokens,
                                             const char *text, int64_t n_bytes);
void ps_token_offsets_deinit(ps_token_offsets *o); /* an empty one is accepted */

#endif
