/* added_tokens.h - tokens that are looked for in the text itself, before it is split: "<|im_end|>", "[MASK]".
 *
 * Two sets, as Hugging Face's tokenizers have them: those found in the text as it comes, and those found after it is
 * normalized (their own text is normalized too). The leftmost match counts, and of these the longest. */
#ifndef PS_DATA_ADDED_TOKENS_H
#define PS_DATA_ADDED_TOKENS_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ps_added_token {
    char *text; /* owned */
    int64_t n_bytes;
    int32_t id;
    bool single_word;    /* counts only where no character of a word is beside it */
    bool lstrip, rstrip; /* takes the white space before, behind it */
    bool normalized;     /* of the second set */
} ps_added_token;

typedef struct ps_added_set {
    ps_added_token *tokens; /* by first byte, longest first */
    int64_t n;
    int32_t first[257]; /* tokens that begin with byte b: first[b] to first[b + 1] */
} ps_added_set;

/* A copy of the token, at the end; then ps_added_sort once. */
PS_NODISCARD ps_status ps_added_append(ps_added_set *s, const ps_added_token *token);
void ps_added_sort(ps_added_set *s);
void ps_added_deinit(ps_added_set *s); /* an empty one is accepted */

/* The first token in text [from, n): *begin to *end with the white space that it takes, but not before `from`; NULL
 * when there is none. The text need not be well-formed. */
const ps_added_token *ps_added_find(const ps_added_set *s, const char *text, int64_t n, int64_t from, int64_t *begin,
                                    int64_t *end);

#endif
