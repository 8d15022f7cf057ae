/* normalize.h - what is done to text before it is split: a list of steps, each from text to text.
 *
 *     NFC NFD NFKC NFKD   Unicode's normalization forms (UAX 15)
 *     LOWERCASE           each character alone, as the Unicode data say (no final sigma)
 *     STRIP_MARKS         drop general category M
 *     BERT_CLEAN          drop U+0000, U+FFFD, Cc (but \t \n \r), Cf, Co; white space becomes a space
 *     BERT_CJK            a space on both sides of each CJK ideograph
 *     BERT_ACCENTS        NFD, then drop Mn
 *
 * The three of BERT are those of Hugging Face's BertNormalizer. The Unicode data are utf8proc's. */
#ifndef PS_DATA_NORMALIZE_H
#define PS_DATA_NORMALIZE_H

#include "base/status.h"
#include "data/text_buffer.h"

typedef enum ps_normalizer_step {
    PS_NORMALIZE_NFC,
    PS_NORMALIZE_NFD,
    PS_NORMALIZE_NFKC,
    PS_NORMALIZE_NFKD,
    PS_NORMALIZE_LOWERCASE,
    PS_NORMALIZE_STRIP_MARKS,
    PS_NORMALIZE_BERT_CLEAN,
    PS_NORMALIZE_BERT_CJK,
    PS_NORMALIZE_BERT_ACCENTS,
} ps_normalizer_step;

enum { PS_NORMALIZER_STEPS_MAX = 16 };

typedef struct ps_normalizer { /* zeroed: does nothing */
    ps_normalizer_step steps[PS_NORMALIZER_STEPS_MAX];
    int n_steps;
    ps_text_buffer out[2]; /* scratch: each step writes the one that it does not read */
    int32_t *characters;   /* scratch of the normalization forms */
    int64_t capacity;
} ps_normalizer;

void ps_normalizer_deinit(ps_normalizer *z);

/* All steps over `text`, which is well-formed UTF-8. *out is the text itself or the normalizer's memory, good until
 * the next call. */
PS_NODISCARD ps_status ps_normalize(ps_normalizer *z, const char *text, int64_t n, const char **out, int64_t *out_n);

void ps_normalizer_trim(ps_normalizer *z); /* give back what a long text needed */

#endif
