/* decoder.h - decodes tokens to text, one after the other.
 *
 *     BYTES       the token's bytes as they are
 *     WORDPIECE   words with spaces between (wordpiece.h)
 *     PARTS       SentencePiece: in each token texts are replaced (a mark by a space), "<0x0A>" is the byte 10; some
 *                 spaces at the beginning of the whole text go
 *
 * PARTS: bytes that are not UTF-8 are unchanged; Hugging Face replaces each by U+FFFD. */
#ifndef PS_DATA_DECODER_H
#define PS_DATA_DECODER_H

#include "data/text_buffer.h"
#include "data/tokenizer.h"

typedef enum ps_decoder_kind { PS_DECODE_BYTES, PS_DECODE_WORDPIECE, PS_DECODE_PARTS } ps_decoder_kind;

enum { PS_DECODER_REPLACEMENTS_MAX = 4 };

typedef struct ps_replacement {
    char from[16], to[16]; /* zero-terminated; `from` is not empty */
    bool drops_first;      /* in the first token it is dropped, not replaced */
} ps_replacement;

typedef struct ps_decoder { /* zeroed: BYTES */
    ps_decoder_kind kind;
    char prefix[16];                                          /* WORDPIECE: of tokens that join the previous one */
    bool cleanup;                                             /* WORDPIECE */
    ps_replacement replacements[PS_DECODER_REPLACEMENTS_MAX]; /* PARTS: one after the other */
    int n_replacements;
    bool has_bytes; /* PARTS: "<0x0A>" is a byte */
    char strip[8];  /* PARTS: one character, of which at most n_strip are dropped at the beginning */
    int n_strip;
} ps_decoder;

/* Append one token, n > 0 bytes, to `out`. *where is the state of the text. */
PS_NODISCARD ps_status ps_decoder_add(const ps_decoder *d, ps_decoding *where, const char *token, int64_t n,
                                      ps_text_buffer *out);

#endif
