/* text_stream.h - tokens that come one after the other, shown as text as soon as it is whole.
 *
 * What is written is well-formed UTF-8: the bytes of an unfinished character wait for the tokens that finish it, and
 * what can be no character becomes U+FFFD. */
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

/* All tokens so far, of which earlier calls have shown a part; special ones are left out. is_last: nothing follows, so
 * nothing waits. PS_EIO when it cannot be written. */
PS_NODISCARD ps_status text_stream_show(text_stream *s, const int32_t *ids, int64_t n, bool is_last);

#endif
