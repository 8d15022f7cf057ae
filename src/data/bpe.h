/* bpe.h - GPT-2's byte-level BPE tokenizer: bytes to token ids and back.
 *
 *     bytes -> valid UTF-8 runs -> pieces (GPT-2's split regex) -> byte tokens -> merged, best rank first -> ids
 *                      \ invalid bytes: a piece of their own, never part of a neighbour's
 *
 * Any bytes can be encoded, and decoding gives exactly these bytes again. Text is only text: "<|endoftext|>" in it
 * becomes the tokens of its characters, never the special token, which only the caller places (ps_tokenizer_eot).
 * The tokens of valid UTF-8 are those of GPT-2's own encoder (and of tiktoken's encode_ordinary).
 *
 * Threads: a tokenizer has a word cache, so one thread at a time. Memory: about 10 MiB for GPT-2's vocabulary. */
#ifndef PS_DATA_BPE_H
#define PS_DATA_BPE_H

#include "base/status.h"

typedef struct ps_tokenizer ps_tokenizer;

/* Read folder/vocab.json and folder/merges.txt. PS_EIO, or PS_EFORMAT naming file and line or token. */
PS_NODISCARD ps_status ps_tokenizer_open(const char *folder, ps_tokenizer **out);

/* The same from the content of both files; the names are for messages. Nothing of the arguments is kept. */
PS_NODISCARD ps_status ps_tokenizer_create(const char *vocab_name, const char *vocab_json, int64_t vocab_bytes,
                                           const char *merges_name, const char *merges_text, int64_t merges_bytes,
                                           ps_tokenizer **out);

void ps_tokenizer_close(ps_tokenizer *t); /* NULL is accepted */

/* The n_bytes of text (any bytes, no terminator needed) to *out_n_ids ids. The caller frees *out_ids by ps_mem_free,
 * also when there are none. */
PS_NODISCARD ps_status ps_tokenizer_encode(ps_tokenizer *t, const void *text, int64_t n_bytes, int32_t **out_ids,
                                           int64_t *out_n_ids);

/* Ids to bytes, with a zero byte behind them; the caller frees *out_text by ps_mem_free. An id outside of the
 * vocabulary is PS_EINVAL with its position. */
PS_NODISCARD ps_status ps_tokenizer_decode(const ps_tokenizer *t, const int32_t *ids, int64_t n_ids, char **out_text,
                                           int64_t *out_n_bytes);

int32_t ps_tokenizer_vocab_size(const ps_tokenizer *t); /* ids are 0 to this - 1 */
int32_t ps_tokenizer_eot(const ps_tokenizer *t);        /* id of <|endoftext|>, -1 when there is none */

/* Hash of both vocabulary files: equal for tokenizers that give equal ids. */
uint64_t ps_tokenizer_fingerprint(const ps_tokenizer *t);

#endif
