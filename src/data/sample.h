/* sample.h - encodes a text, or a pair of texts, as token ids for a model; the special tokens of a tokenizer by role.
 *
 *     BERT               [CLS] text [SEP]        [CLS] text [SEP] pair [SEP]
 *     GPT-2              text                    text pair
 *     token_type_ids     0 ... 0                 0 ... 0          1 ... 1
 *
 * and other special tokens that the tokenizer adds. Samples longer than T are cut at the end; of a pair the longer text
 * is cut first. */
#ifndef PS_DATA_SAMPLE_H
#define PS_DATA_SAMPLE_H

#include "base/status.h"
#include "data/tokenizer.h"

/* Ids of special tokens; -1: the tokenizer has none. */
typedef struct ps_specials {
    int32_t cls, sep, mask, pad, eot;
} ps_specials;

#define PS_SPECIALS_NONE ((ps_specials){-1, -1, -1, -1, -1})

/* Special tokens of a tokenizer; NULL: none. */
ps_specials ps_specials_of(const ps_tokenizer *t);

/* Whether id is a special token, which is never masked. */
int ps_specials_contain(const ps_specials *s, int32_t id);

/* Padding token of a row: pad, else eot, else 0. */
int32_t ps_specials_filler(const ps_specials *s);

/* Write at most T ids to out[T]: *n_ids of them, the first *n_first of token type 0 and the others of type 1. Text that
 * spells a special token is ordinary text, unless added_tokens is set. PS_EINVAL when T has no room for the special
 * tokens. */
PS_NODISCARD ps_status ps_sample_encode(ps_tokenizer *t, bool added_tokens, const char *text, int64_t text_bytes,
                                        const char *pair, int64_t pair_bytes, int64_t T, int32_t *out, int64_t *n_ids,
                                        int64_t *n_first);

#endif
