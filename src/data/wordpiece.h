/* wordpiece.h - WordPiece: encodes a word by greedy longest match (Devlin et al. 2018, BERT's tokenization.py).
 *
 * Tokens inside a word begin with a prefix, "##". A word with a part that is not a token, or with too many characters,
 * becomes the unknown token. */
#ifndef PS_DATA_WORDPIECE_H
#define PS_DATA_WORDPIECE_H

#include "data/text_buffer.h"
#include "data/vocab.h"

typedef struct ps_wordpiece {
    const ps_vocab *vocab;
    int32_t unknown;         /* id */
    int64_t characters_max;  /* of a word */
    int64_t token_bytes_max; /* length of the longest token */
    ps_text_buffer part;     /* scratch, which begins with the prefix */
    int64_t prefix_bytes;
} ps_wordpiece;

/* The caller owns the vocabulary. */
PS_NODISCARD ps_status ps_wordpiece_init(ps_wordpiece *w, const ps_vocab *vocab, int32_t unknown, const char *prefix,
                                         int64_t characters_max);
void ps_wordpiece_deinit(ps_wordpiece *w); /* an empty one is accepted */

/* Append the tokens of one word, n > 0 bytes of well-formed UTF-8, to `out`. */
PS_NODISCARD ps_status ps_wordpiece_encode_word(ps_wordpiece *w, const char *word, int64_t n, ps_id_list *out);

/* Append one token as text. "##ing" joins the previous text; other tokens follow a space. With `cleanup` spaces before
 * English punctuation and contractions are removed (Hugging Face's WordPiece decoder). is_first: first token of the
 * text. */
PS_NODISCARD ps_status ps_wordpiece_decode_token(const char *token, int64_t n, bool is_first, const char *prefix,
                                                 bool cleanup, ps_text_buffer *out);

#endif
