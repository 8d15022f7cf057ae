/* tokenizer_impl.h - the parts of a tokenizer, for the files that set them (tokenizer_json.c, tokenizer_files.c) and
 * the file that runs them (tokenizer.c). */
#ifndef PS_DATA_TOKENIZER_IMPL_H
#define PS_DATA_TOKENIZER_IMPL_H

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/decoder.h"
#include "data/normalize.h"
#include "data/post_process.h"
#include "data/pretokenize.h"
#include "data/tokenizer.h"
#include "data/vocab.h"
#include "data/word_cache.h"
#include "data/wordpiece.h"

struct ps_tokenizer {
    bool is_wordpiece;  /* else BPE, */
    bool is_byte_level; /* byte-level BPE; else BPE of characters */
    ps_vocab vocab;
    ps_bpe bpe;
    ps_wordpiece wordpiece;
    ps_added_set added, added_normalized;
    ps_normalizer normalizer;
    ps_pretokenizer pretokenizer;
    ps_post_processor post;
    ps_decoder decoder;
    int32_t role[PS_ROLE_COUNT];
    uint64_t fingerprint;
    ps_cached_word *cache;   /* [PS_WORD_CACHE_WORDS] */
    ps_text_buffer repaired; /* scratch of models of characters: the text with U+FFFD for malformed bytes */
};

/* An empty tokenizer; ps_tokenizer_close frees it in any state. */
PS_NODISCARD ps_status ps_tokenizer_new(ps_tokenizer **out);

/* Add an added token to its set; the vocabulary must have it already. */
PS_NODISCARD ps_status ps_tokenizer_add_token(ps_tokenizer *t, const ps_added_token *token);

/* Last step of opening: sort the added tokens, and find roles by their usual names. */
void ps_tokenizer_finish(ps_tokenizer *t);

/* Append GPT-2's split, or a step without an expression. */
PS_NODISCARD ps_status ps_tokenizer_add_gpt2_split(ps_tokenizer *t, bool add_prefix_space);

#endif
