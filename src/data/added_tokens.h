/* added_tokens.h - tokens that are matched in the text before it is split: "<|im_end|>", "[MASK]".
 *
 * There are two sets, as in Hugging Face's tokenizers: tokens matched in the raw text, and tokens matched in the
 * normalized text (their own text is normalized, too). The leftmost match counts, and of these the longest. */
#ifndef PS_DATA_ADDED_TOKENS_H
#define PS_DATA_ADDED_TOKENS_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ps_added_token {
    char *text; /* owned */
    int64_t n_bytes;
    int32_t id;
    bool single_word;    /* matches only where no word character is adjacent */
    bool lstrip, rstrip; /* includes the white space before, after it */
    bool normalized;     /* of the second set */
} ps_added_token;

typedef struct ps_added_set {
    ps_added_token *tokens; /* by first byte, longest first */
    int64_t n;
    int32_t first[257]; /* tokens that begin with byte b: first[b] to first[b + 1] */
} ps_added_set;

/* Append a copy of the token. Call ps_added_sort once after the last token. */
PS_NODISCARD ps_status ps_added_append(ps_added_set *s, const ps_added_token *token);
void ps_added_sort(ps_added_set *s);
void ps_added_deinit(ps_added_set *s); /* an empty one is accepted */

/* The first token in text [from, n): *begin to *end includes its white space, but nothing before `from`; NULL when
 * there is none. The text need not be well-formed. */
const ps_added_token *ps_added_find(const ps_added_set *s, const char *text, int64_t n, int64_t from, int64_t *begin,
                                    int64_t *end);

#endif
