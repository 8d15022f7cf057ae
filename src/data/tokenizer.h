/* tokenizer.h - encodes text to token ids and decodes them: BPE and WordPiece, from Hugging Face's files.
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
 * A feature of a file that is not supported is PS_EFORMAT naming it, so that tokens never differ from those of Hugging
 * Face's library. `truncation` and `padding` of tokenizer.json are ignored; the caller does both.
 *
 * Byte-level BPE without normalizer and prefix space encodes any bytes, and decodes to exactly these bytes.
 *
 * Threads: a tokenizer has a word cache, so one thread at a time. Memory: about 10 MiB for GPT-2's vocabulary. */
#ifndef PS_DATA_TOKENIZER_H
#define PS_DATA_TOKENIZER_H

#include <stdbool.h>

#include "base/status.h"
#include "patrickstar_data.h"

/* ---- open ---- */

/* ps_tokenizer_open: patrickstar_data.h. */

/* Whether the folder has a tokenizer's files, which some models lack. Files that cannot be read (SentencePiece's binary
 * model) count, as opening them fails with a remedy. */
bool ps_tokenizer_is_in(const char *folder);

/* GPT-2's BPE from the content of vocab.json and merges.txt; the names are for messages. No argument is kept.
 * "<|endoftext|>" is its only special token, when the vocabulary has it. */
PS_NODISCARD ps_status ps_tokenizer_create(const char *vocab_name, const char *vocab_json, int64_t vocab_bytes,
                                           const char *merges_name, const char *merges_text, int64_t merges_bytes,
                                           ps_tokenizer **out);

/* From the content of a tokenizer.json. */
PS_NODISCARD ps_status ps_tokenizer_create_json(const char *name, const char *json, int64_t n_bytes,
                                                ps_tokenizer **out);

/* From the content of BERT's vocab.txt, a token a line; [CLS], [SEP] and so on as BERT has them. */
typedef struct ps_wordpiece_options {
    bool keep_case;     /* do_lower_case = false; also keeps accents */
    bool keep_accents;  /* strip_accents = false; no effect with keep_case */
    bool strip_accents; /* strip_accents = true, also with keep_case */
    bool keep_cjk;      /* tokenize_chinese_chars = false */
} ps_wordpiece_options;
PS_NODISCARD ps_status ps_tokenizer_create_wordpiece(const char *name, const char *vocab_text, int64_t n_bytes,
                                                     const ps_wordpiece_options *options, ps_tokenizer **out);

/* ---- encode ---- */

/* Encode n_bytes of text (any bytes, no terminator needed) to *out_n_ids ids. The caller frees *out_ids by ps_mem_free,
 * also when there are none. "<|endoftext|>" in the text becomes the tokens of its characters, not the special token,
 * and no special tokens are added (tiktoken's encode_ordinary). */
PS_NODISCARD ps_status ps_tokenizer_encode(ps_tokenizer *t, const void *text, int64_t n_bytes, int32_t **out_ids,
                                           int64_t *out_n_ids);

/* Called with at least one id; ids come in the order of the text. */
typedef ps_status (*ps_ids_sink)(void *context, const int32_t *ids, int64_t n_ids);

/* The same ids, some at a time, so that memory for them does not grow with the text. `added`: text that spells an added
 * token becomes it. Stops at the first failure of the sink, and returns it. */
PS_NODISCARD ps_status ps_tokenizer_encode_into(ps_tokenizer *t, const void *text, int64_t n_bytes, bool added,
                                                ps_ids_sink sink, void *context);

typedef struct ps_encode_options {
    bool added_tokens;  /* text that spells an added token becomes it (Hugging Face); false: it is ordinary text */
    bool after_token;   /* the texts follow a special token of the caller, instead of being at the beginning */
    bool bare;          /* add no special tokens; false: add those that the model was trained with */
    int64_t max_length; /* maximum number of ids, special tokens included; the longer sequence is truncated; 0: no
                           limit */
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

/* Decode ids to bytes with a terminating zero byte; the caller frees *out_text by ps_mem_free. An id outside of the
 * vocabulary is PS_EINVAL with its position. Byte-level BPE: the concatenated bytes of the tokens. WordPiece: words
 * with spaces between, not always the original text. BPE of characters: by the file's decoder. */
PS_NODISCARD ps_status ps_tokenizer_decode(const ps_tokenizer *t, const int32_t *ids, int64_t n_ids, char **out_text,
                                           int64_t *out_n_bytes);

/* State of a text that is decoded in parts; begins zeroed. */
typedef struct ps_decoding {
    bool plain; /* set by the caller: without special tokens */
    /* set by the tokenizer: */
    bool has_begun, has_text; /* a token was decoded; text was written */
    int32_t n_stripped;       /* spaces dropped at the beginning */
} ps_decoding;

/* Decode the next ids of a text. The concatenated parts equal the decoding of all ids at once, for every division. On
 * failure *d is unchanged. */
PS_NODISCARD ps_status ps_tokenizer_decode_next(const ps_tokenizer *t, ps_decoding *d, const int32_t *ids,
                                                int64_t n_ids, char **out_text, int64_t *out_n_bytes);

/* The bytes of one token as in the vocabulary (WordPiece: with its "##", SentencePiece: with its U+2581), or NULL and 0
 * for an id without token. They may be a part of a character. Valid until the tokenizer is closed. */
const char *ps_tokenizer_token(const ps_tokenizer *t, int32_t id, int64_t *out_n_bytes);

/* ---- the vocabulary ---- */

/* The id of a token by its bytes; added tokens have precedence; -1 when there is none. */
int32_t ps_tokenizer_find(const ps_tokenizer *t, const char *text);

/* The id of an added token by its text; -1 when there is none. */
int32_t ps_tokenizer_find_added(const ps_tokenizer *t, const char *text);

/* Whether the added token includes adjacent white space when it is matched in text (lstrip, rstrip); false for other
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

/* The special token of this role, -1 when there is none: by tokenizer_config.json or special_tokens_map.json; without
 * these files the first of the usual names that is a special token of the vocabulary. */
int32_t ps_tokenizer_role(const ps_tokenizer *t, ps_token_role role);

bool ps_tokenizer_is_special(const ps_tokenizer *t, int32_t id);

/* Separator of documents: <|endoftext|>, <|end_of_text|>, else the token of role EOS; -1 when there is none. */
int32_t ps_tokenizer_eot(const ps_tokenizer *t);

/* Hash of the vocabulary files: equal hashes mean equal ids. */
uint64_t ps_tokenizer_fingerprint(const ps_tokenizer *t);

#endif
