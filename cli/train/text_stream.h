/* text_stream.h - prints tokens as text as soon as characters are complete.
 *
 * Output is well-formed UTF-8: bytes of an incomplete character are held back until it is complete, and invalid bytes
 * become U+FFFD. */
#ifndef PSTAR_TEXT_STREAM_H
#define PSTAR_TEXT_STREAM_H

#include <stdbool.h>
#include <stdio.h>

#include "patrickstar_data.h"

typedef struct text_stream {
    const ps_tokenizer *tokenizer;
    FILE *out;
    int64_t n_shown; /* bytes of the decoded text that were written */
} text_stream;

/* Print the new text of all tokens so far, without special tokens. is_last: print incomplete characters as well. PS_EIO
 * when it cannot be written. */
PS_NODISCARD ps_status text_stream_show(text_stream *s, const int32_t *ids, int64_t n, bool is_last);

#endif
