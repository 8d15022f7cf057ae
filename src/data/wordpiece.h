/* wordpiece.h - WordPiece: a word to tokens, always the longest that fits (Devlin et al. 2018, BERT's tokenization.py).
 *
 * Tokens inside of a word begin with a prefix, "##". A word with a part that is no token, or of too many characters, is
 * the unknown token as a whole. */
#ifndef PS_DATA_WORDPIECE_H
#define PS_DATA_WORDPIECE_H

#include "data/text_buffer.h"
#include "data/vocab.h"

typedef struct ps_wordpiece {
    const ps_vocab *vocab;
    int32_t unknown;         /* id */
    int64_t characters_max;  /* of a word */
    int64_t token_bytes_max; /* no token is longer */
    ps_text_buffer part;     /* scratch, which begins with the prefix */
    int64_t prefix_bytes;
} ps_wordpiece;

/* The vocabulary stays the caller's. */
PS_NODISCARD ps_status ps_wordpiece_init(ps_wordpiece *w, const ps_vocab *vocab, int32_t unknown, const char *prefix,
                                         int64_t characters_max);
void ps_wordpiece_deinit(ps_wordpiece *w); /* an empty one is accepted */

/* The tokens of one word, n > 0 bytes of well-formed UTF-8, appended to `out`. */
PS_NODISCARD ps_status ps_wordpiece_encode_word(ps_wordpiece *w, const char *word, int64_t n, ps_id_list *out);

/* One token as text, behind what is there: "##ing" joins the text before it, others after a space, and a space before
 * the marks and endings of English goes (Hugging Face's WordPiece decoder, with `cleanup`). is_first: of the text. */
PS_NODISCARD ps_status ps_wordpiece_decode_token(const char *token, int64_t n, bool is_first, const char *prefix,
                                                 bool cleanup, ps_text_buffer *out);

#endif
