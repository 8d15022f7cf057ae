/* normalize.h - normalizes text before it is split: a list of steps, each from text to text.
 *
 *     NFC NFD NFKC NFKD   Unicode's normalization forms (UAX 15)
 *     LOWERCASE           each character separately, by the Unicode data (no final sigma)
 *     STRIP_MARKS         drop general category M
 *     BERT_CLEAN          drop U+0000, U+FFFD, Cc (but \t \n \r), Cf, Co; white space becomes a space
 *     BERT_CJK            a space on both sides of each CJK ideograph
 *     BERT_ACCENTS        NFD, then drop Mn
 *     PREPEND             a text before the text, unless it is empty
 *     REPLACE             another text for each match of an expression
 *     STRIP_LEFT, _RIGHT  drop white space at this end
 *
 * The three of BERT are those of Hugging Face's BertNormalizer. The Unicode data are utf8proc's. */
#ifndef PS_DATA_NORMALIZE_H
#define PS_DATA_NORMALIZE_H

#include "base/status.h"
#include "data/regex.h"
#include "data/text_buffer.h"

typedef enum ps_normalizer_kind {
    PS_NORMALIZE_NFC,
    PS_NORMALIZE_NFD,
    PS_NORMALIZE_NFKC,
    PS_NORMALIZE_NFKD,
    PS_NORMALIZE_LOWERCASE,
    PS_NORMALIZE_STRIP_MARKS,
    PS_NORMALIZE_BERT_CLEAN,
    PS_NORMALIZE_BERT_CJK,
    PS_NORMALIZE_BERT_ACCENTS,
    PS_NORMALIZE_PREPEND,
    PS_NORMALIZE_REPLACE,
    PS_NORMALIZE_STRIP_LEFT,
    PS_NORMALIZE_STRIP_RIGHT,
} ps_normalizer_kind;

typedef struct ps_normalizer_step {
    ps_normalizer_kind kind;
    char *text;      /* PREPEND, REPLACE: the inserted text; owned */
    ps_regex *regex; /* REPLACE: owned; NULL: */
    char *literal;   /* REPLACE: the text that is replaced, not empty; owned */
} ps_normalizer_step;

enum { PS_NORMALIZER_STEPS_MAX = 16 };

typedef struct ps_normalizer { /* zeroed: does nothing */
    ps_normalizer_step steps[PS_NORMALIZER_STEPS_MAX];
    int n_steps;
    ps_text_buffer out[2]; /* scratch: each step writes the buffer that it does not read; */
    int next_out;          /* the next step writes this one */
    int32_t *characters;   /* scratch of the normalization forms */
    int64_t capacity;
} ps_normalizer;

/* Append a step; NULL when there is no room. */
ps_normalizer_step *ps_normalizer_add(ps_normalizer *z, ps_normalizer_kind kind);

void ps_normalizer_deinit(ps_normalizer *z);

/* Apply all steps to `text`, which is well-formed UTF-8. *out is the text itself, or memory of the normalizer that is
 * valid until the next call. */
PS_NODISCARD ps_status ps_normalize(ps_normalizer *z, const char *text, int64_t n, const char **out, int64_t *out_n);

void ps_normalizer_trim(ps_normalizer *z); /* free the working memory of long texts */

#endif
