/* sample.h - one text, or a pair of them, as the token ids that a model gets; the special tokens of a tokenizer by
 * role.
 *
 *     BERT               [CLS] text [SEP]        [CLS] text [SEP] pair [SEP]
 *     GPT-2              text                    text pair
 *     token_type_ids     0 ... 0                 0 ... 0          1 ... 1
 *
 * and what else the tokenizer puts around texts. What is too long for T is cut at the end, of a pair the longer text
 * first. */
#ifndef PS_DATA_SAMPLE_H
#define PS_DATA_SAMPLE_H

#include "base/status.h"
#include "data/tokenizer.h"

/* Ids of special tokens; -1: the tokenizer has none. */
typedef struct ps_specials {
    int32_t cls, sep, mask, pad, eot;
} ps_specials;

#define PS_SPECIALS_NONE ((ps_specials){-1, -1, -1, -1, -1})

/* Those of a tokenizer; NULL: none. */
ps_specials ps_specials_of(const ps_tokenizer *t);

/* Whether id has a role other than that of text: such tokens are never masked. */
int ps_specials_contain(const ps_specials *s, int32_t id);

/* What fills the rest of a row: pad, else eot, else 0. */
int32_t ps_specials_filler(const ps_specials *s);

/* At most T ids into out[T]: *n_ids of them, the first *n_first of token type 0 and the others of type 1. Text is only
 * text: what reads like a special token is none, unless added_tokens is set. PS_EINVAL when T has no room for the
 * special tokens. */
PS_NODISCARD ps_status ps_sample_encode(ps_tokenizer *t, bool added_tokens, const char *text, int64_t text_bytes,
                                        const char *pair, int64_t pair_bytes, int64_t T, int32_t *out, int64_t *n_ids,
                                        int64_t *n_first);

#endif
