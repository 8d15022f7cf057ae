/* tokenizer.h - text to token ids and back: BPE and WordPiece, from the files that Hugging Face has.
 *
 *     text -> added tokens cut out (asked for only) -> normalized -> pieces -> the model's tokens -> ids
 *                                                         \ malformed UTF-8, byte-level BPE: a piece of its own as it
 *                                                           is; WordPiece, BPE of characters (SentencePiece): U+FFFD
 *
 *     folder/tokenizer.json             BPE or WordPiece with all that the file says; doc/tokenizers.md
 *     folder/vocab.json + merges.txt    GPT-2's byte-level BPE
 *     folder/vocab.txt                  BERT's WordPiece
 *     folder/tokenizer_config.json, special_tokens_map.json
 *                                       names of the special tokens, do_lower_case, add_bos_token
 *
 * What a file asks for and is not supported is PS_EFORMAT naming it: never other tokens than its own library gives.
 * `truncation` and `padding` of tokenizer.json are the caller's business here, and not read.
 *
 * Byte-level BPE without normalizer and prefix space: any bytes can be encoded, and decoding gives exactly these bytes.
 *
 * Threads: a tokenizer has a word cache, so one thread at a time. Memory: about 10 MiB for GPT-2's vocabulary. */
#ifndef PS_DATA_TOKENIZER_H
#define PS_DATA_TOKENIZER_H

#include <stdbool.h>

#include "base/status.h"
#include "patrickstar_data.h"

/* ---- open ---- */

/* ps_tokenizer_open: patrickstar_data.h. */

/* Has the folder a tokenizer's files? Some models come without. One that cannot be read (SentencePiece's binary model)
 * counts: opening it says what to do. */
bool ps_tokenizer_is_in(const char *folder);

/* GPT-2's BPE from the content of vocab.json and merges.txt; the names are for messages. Nothing of the arguments is
 * kept. "<|endoftext|>" is its only special token, when the vocabulary has it. */
PS_NODISCARD ps_status ps_tokenizer_create(const char *vocab_name, const char *vocab_json, int64_t vocab_bytes,
                                           const char *merges_name, const char *merges_text, int64_t merges_bytes,
                                           ps_tokenizer **out);

/* From the content of a tokenizer.json. */
PS_NODISCARD ps_status ps_tokenizer_create_json(const char *name, const char *json, int64_t n_bytes,
                                                ps_tokenizer **out);

/* From the content of BERT's vocab.txt, a token a line; [CLS], [SEP] and so on as BERT has them. */
typedef struct ps_wordpiece_options {
    bool keep_case;     /* do_lower_case = false; accents stay then, too */
    bool keep_accents;  /* strip_accents = false; with keep_case no matter */
    bool strip_accents; /* strip_accents = true, also with keep_case */
    bool keep_cjk;      /* tokenize_chinese_chars = false */
} ps_wordpiece_options;
PS_NODISCARD ps_status ps_tokenizer_create_wordpiece(const char *name, const char *vocab_text, int64_t n_bytes,
                                                     const ps_wordpiece_options *options, ps_tokenizer **out);

/* ---- encode ---- */

/* The n_bytes of text (any bytes, no terminator needed) to *out_n_ids ids. The caller frees *out_ids by ps_mem_free,
 * also when there are none. Text is only text here: "<|endoftext|>" in it becomes the tokens of its characters, never
 * the special token, and nothing is put around it (tiktoken's encode_ordinary). */
PS_NODISCARD ps_status ps_tokenizer_encode(ps_tokenizer *t, const void *text, int64_t n_bytes, int32_t **out_ids,
                                           int64_t *out_n_ids);

/* The same, but text that reads like an added token becomes it. */
PS_NODISCARD ps_status ps_tokenizer_encode_added(ps_tokenizer *t, const void *text, int64_t n_bytes, int32_t **out_ids,
                                                 int64_t *out_n_ids);

typedef struct ps_encode_options {
    bool added_tokens;  /* text that reads like an added token becomes it (Hugging Face); false: it is only text */
    bool behind_token;  /* the texts stand behind a special token that the caller has put there, not at the beginning */
    bool bare;          /* nothing is put around the text; false: the special tokens that the model was trained with */
    int64_t max_length; /* ids at most, the special tokens included: the longer sequence loses its end; 0: no limit */
} ps_encode_options;

typedef struct ps_encoding {
    int32_t *ids, *type_ids; /* [n] */
    int64_t n;
} ps_encoding;

/* One sequence `a`, or a pair when b is not NULL. PS_EINVAL when max_length has no room for the special tokens. The
 * caller frees by ps_encoding_deinit; on failure *out is empty. */
PS_NODISCARD ps_status ps_tokenizer_encode_sequence(ps_tokenizer *t, const ps_encode_options *options, const void *a,
                                                    int64_t a_bytes, const void *b, int64_t b_bytes, ps_encoding *out);
void ps_encoding_deinit(ps_encoding *e);

/* ---- decode ---- */

/* Ids to bytes, with a zero byte behind them; the caller frees *out_text by ps_mem_free. An id outside of the
 * vocabulary is PS_EINVAL with its position. Byte-level BPE: the tokens' bytes one after the other. WordPiece: words
 * with spaces between, not always the text that was encoded. BPE of characters: as the file's decoder says. */
PS_NODISCARD ps_status ps_tokenizer_decode(const ps_tokenizer *t, const int32_t *ids, int64_t n_ids, char **out_text,
                                           int64_t *out_n_bytes);

/* Where a text is that is decoded part by part; begins zeroed. */
typedef struct ps_decoding {
    bool plain; /* the caller's choice: without the special tokens */
    /* the tokenizer's own: */
    bool has_begun, has_text; /* a token was there; text that stays */
    int32_t n_stripped;       /* spaces that went at the beginning */
} ps_decoding;

/* The next ids of a text: the parts one after the other are what decoding all ids at once gives, wherever it is cut. On
 * failure *d is as before. */
PS_NODISCARD ps_status ps_tokenizer_decode_next(const ps_tokenizer *t, ps_decoding *d, const int32_t *ids,
                                                int64_t n_ids, char **out_text, int64_t *out_n_bytes);

/* The bytes of one token, as they lie in the vocabulary (of WordPiece with its "##", of SentencePiece with its U+2581),
 * or NULL and 0 for an id that has none. They may be part of a character. Valid until the tokenizer is closed. */
const char *ps_tokenizer_token(const ps_tokenizer *t, int32_t id, int64_t *out_n_bytes);

/* ---- the vocabulary ---- */

/* The id of a token by its bytes, an added token first; -1 when there is none. */
int32_t ps_tokenizer_find(const ps_tokenizer *t, const char *text);

/* The id of an added token by its text; -1 when there is none. */
int32_t ps_tokenizer_find_added(const ps_tokenizer *t, const char *text);

/* Does the added token take the white space beside it, where it is looked for in text (lstrip, rstrip)? false for other
 * ids. */
bool ps_tokenizer_strips_space(const ps_tokenizer *t, int32_t id);

typedef enum ps_token_role {
    PS_ROLE_BOS,
    PS_ROLE_EOS,
    PS_ROLE_PAD,
    PS_ROLE_UNK,
    PS_ROLE_CLS,
    PS_ROLE_SEP,
    PS_ROLE_MASK,
    PS_ROLE_COUNT,
} ps_token_role;

/* The special token of this role, -1 when there is none: as tokenizer_config.json or special_tokens_map.json say;
 * without these files the first of the customary names that the vocabulary has as special token. */
int32_t ps_tokenizer_role(const ps_tokenizer *t, ps_token_role role);

bool ps_tokenizer_is_special(const ps_tokenizer *t, int32_t id);

/* What stands between documents: <|endoftext|>, <|end_of_text|>, else the token of role EOS; -1 when there is none. */
int32_t ps_tokenizer_eot(const ps_tokenizer *t);

/* Hash of the vocabulary files: equal for tokenizers that give equal ids. */
uint64_t ps_tokenizer_fingerprint(const ps_tokenizer *t);

#endif
