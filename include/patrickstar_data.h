/* patrickstar_data.h - what models are trained on: the data that a configuration names, as batches for ps_forward and
 * ps_evaluate, and text as tokens and back.
 *
 *     ps_feed *feed = NULL;
 *     ps_rows *rows = NULL;
 *     if (ps_feed_from_config(config, NULL, &feed) != PS_OK || ps_rows_create(feed, B, &rows) != PS_OK) ...
 *     for (int64_t step = 0; step < n_steps; step++) {
 *         ps_rows_fill(rows, PS_SPLIT_TRAIN, step * B, B);
 *         ps_forward(engine, ps_rows_batch(rows), NULL);
 *         ...
 *     }
 *     ps_rows_destroy(rows);
 *     ps_feed_close(feed);
 *
 * Threads: several threads may use a feed at once, with rows of their own; one at a time a tokenizer: it has a cache.
 * Errors: as patrickstar.h. */
#ifndef PATRICKSTAR_DATA_H
#define PATRICKSTAR_DATA_H

#include "patrickstar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- samples --------------------------------------------------------------------------------------- */

/* Sample number s of a split is a pure function of s, for s = 0, 1, 2, ... without end: of the epoch s / n, in an order
 * that is shuffled anew each epoch (train.seed), or as the data lie. So there is no position to keep: resuming, other
 * batch sizes or other ranks go on with the same samples by asking for the same numbers. doc/data.md: the formats. */
typedef struct ps_feed ps_feed;

typedef enum ps_split {
    PS_SPLIT_TRAIN,
    PS_SPLIT_VALIDATION,
    PS_SPLIT_COUNT,
} ps_split;

/* The files of the section data, for the task of model.head. cache_folder: NULL, or a folder that exists, for tokens
 * of text, so that they are made once. Nothing of config is kept. PS_EINVAL, PS_EFORMAT or PS_EIO naming file, and line
 * or offset where there is one; too little data is PS_EINVAL with both numbers. */
PS_API PS_NODISCARD ps_status ps_feed_from_config(const ps_config *config, const char *cache_folder, ps_feed **out);
PS_API void ps_feed_close(ps_feed *feed); /* NULL is accepted */

/* Samples an epoch; 0 for validation when there is none. */
PS_API int64_t ps_feed_sample_count(const ps_feed *feed, ps_split split);

/* Name of class `label`, or NULL when there is none, or the data have integers; lives as long as the feed. */
PS_API const char *ps_feed_label_name(const ps_feed *feed, int32_t label);
/* Names of classes that were found in the data, into data.labels of the configuration: checkpoints then know them. Does
 * nothing where there are none. */
PS_API PS_NODISCARD ps_status ps_feed_keep_labels(const ps_feed *feed, ps_config *config);
/* The other half, before a feed is opened for weights that were trained already: data.labels becomes that of the
 * configuration that lies with them (ps_config_load_of_weights). Else names of data that lack a class, or have them in
 * another order, would be numbered anew, and be compared with other classes of the model. Does nothing for models
 * without labels, and where nothing with the weights names any. PS_EINVAL when data.labels is given and has a name
 * under another number; else as ps_config_load_of_weights, for a folder. */
PS_API PS_NODISCARD ps_status ps_config_take_labels(ps_config *config, const char *weights);

/* The form of conversations, into data.chat_format where that is auto, and the lines decided it: lines of Alpaca's have
 * its form where the tokenizer has no chat template. Checkpoints then know it. Does nothing for other data. */
PS_API PS_NODISCARD ps_status ps_feed_keep_chat_format(const ps_feed *feed, ps_config *config);
/* The other half, before a conversation with weights that were trained already: data.chat_format, where it is auto,
 * becomes that of the configuration that lies with them. Errors as of ps_config_load_of_weights. */
PS_API PS_NODISCARD ps_status ps_config_take_chat_format(ps_config *config, const char *weights);

/* train.steps becomes what train.epochs takes: epochs times the samples for training, by as many as the micro-batches
 * of a step have on all n_ranks ranks, rounded up to whole steps; train.epochs is 0 then. Does nothing where that is 0.
 * To be called before an engine for training is initialised, which refuses epochs that are not yet steps. PS_EINVAL for
 * a number of steps above what train.steps may be, and for n_ranks below 1. */
PS_API PS_NODISCARD ps_status ps_config_take_epochs(ps_config *config, const ps_feed *feed, int32_t n_ranks);

/* What became of a split's lines of instructions, a line of text for people; "" for other data. Free it by ps_free. */
PS_API PS_NODISCARD ps_status ps_feed_describe(const ps_feed *feed, ps_split split, char **out);

/* 1 when the targets say more than the tokens: of instructions they do, and of what has numbers, several labels, labels
 * of words, or answers. */
PS_API int ps_feed_chooses_targets(const ps_feed *feed);
/* 1 when each target is a choice, so that ps_eval_info.n_correct counts something; 0 of numbers (model.problem_type =
 * regression). */
PS_API int ps_feed_has_choices(const ps_feed *feed);
/* Targets, or values, of a row of T tokens: T, a classifier's 1, 2 of an answer, or as many as there are numbers or
 * labels. */
PS_API int64_t ps_feed_row_targets(const ps_feed *feed, int64_t T);

/* The number of rank `rank`'s micro-batch m in step `step` (all from 0), counted over all ranks and steps: with B rows
 * each it begins at sample number * B. Ranks take turns, so that p ranks see in a step the micro-batches that one has
 * with p times the accumulation. */
static inline int64_t ps_feed_micro_batch(int64_t step, int64_t accumulation, int64_t m, int32_t n_ranks, int32_t rank)
{
    return (step * accumulation + m) * n_ranks + rank;
}

/* Length that rows of these samples need: of the longest, rounded up to data.pad_to_multiple_of, at most the sequence
 * length; that when rows are not padded, or always to the full length. n_samples >= 1. */
PS_API int64_t ps_feed_length(const ps_feed *feed, ps_split split, int64_t first_sample, int64_t n_samples);

/* Tokens of these samples that are not padding: all inputs of a row, or those that its line has. n_samples >= 0. */
PS_API int64_t ps_feed_token_count(const ps_feed *feed, ps_split split, int64_t first_sample, int64_t n_samples);

/* xxh3 (64 bit) over all that the feed has: every token, label and mark of both splits, in the order of the files, and
 * which lines are for validation. Reads all of it, as opening token files does, and takes as long as that: some 2 s for
 * each GB in the page cache (two busy cores), with a disk its time. */
PS_API PS_NODISCARD ps_status ps_feed_xxh3(const ps_feed *feed, uint64_t *hash);

/* PS_EINVAL on all ranks, naming rank, machine and what differs, unless all have the same data: numbers of samples and
 * ps_feed_xxh3. All call. comm may be NULL: alone. */
PS_API PS_NODISCARD ps_status ps_comm_check_feed(ps_comm *comm, const ps_feed *feed);

/* ---- rows ------------------------------------------------------------------------------------------ */

/* Memory for a micro-batch. */
typedef struct ps_rows ps_rows;

/* n_rows rows of the sequence length; feed must outlive it. */
PS_API PS_NODISCARD ps_status ps_rows_create(const ps_feed *feed, int64_t n_rows, ps_rows **out);
PS_API void ps_rows_destroy(ps_rows *rows); /* NULL is accepted */

/* From now on rows of T tokens, at least ps_feed_length of what is filled in, at most the sequence length; 0: that. A T
 * that is none of these is an error of the next ps_rows_fill. */
PS_API void ps_rows_set_length(ps_rows *rows, int64_t T);

/* Samples [first_sample, first_sample + n) in the first n rows. PS_EINVAL, and nothing is written, when the split is
 * empty or none, n is below 0 or more than the rows, first_sample is below 0, or the length that was set is below 0,
 * more than the sequence length or less than these samples need. */
PS_API PS_NODISCARD ps_status ps_rows_fill(ps_rows *rows, ps_split split, int64_t first_sample, int64_t n);
/* The same for one pass over the split: rows for samples from ps_feed_sample_count on have targets of PS_IGNORE_INDEX
 * only, or values that are NaN. */
PS_API PS_NODISCARD ps_status ps_rows_fill_once(ps_rows *rows, ps_split split, int64_t first_sample, int64_t n);

/* What was filled in last; valid as long as rows. targets or values, as the model's loss has it; attention_mask and
 * token_type_ids only where they say something. */
PS_API const ps_batch *ps_rows_batch(const ps_rows *rows);

/* ---- metrics --------------------------------------------------------------------------------------- */

/* What is usual to say of a fine-tuned model beside its loss, over samples of a split that an inference engine sees:
 *
 *     regression           mse, pearson (of all numbers together)
 *     one label a text     f1_macro
 *     several labels       f1_micro, f1_macro, exact_match (texts with all labels right)
 *     labels of tokens     precision, recall, f1 of entities, as seqeval counts them, where the classes have names of
 *                          BIO ("O", "B-PER", "I-PER"); else f1_macro over tokens
 *     answers              exact_match and f1 of their words, as SQuAD counts them; of the parts of a long context the
 *                          one that the model is surest of
 *
 * F1 of a class that nobody has and nobody predicts is 0, as in scikit-learn. One thread at a time. */
typedef struct ps_metrics ps_metrics;

/* *out = NULL for language models, which have no others; the calls below accept it and do nothing. The feed, opened for
 * this configuration (else PS_EINVAL), must outlive it; nothing of config is kept. PS_EIO, PS_EFORMAT as
 * ps_tokenizer_open, for answers; PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_metrics_create(const ps_config *config, const ps_feed *feed, ps_split split,
                                                ps_metrics **out);
PS_API void ps_metrics_destroy(ps_metrics *metrics); /* NULL is accepted */

/* ps_infer over the batch, of samples first to first + n - 1 of the split, each taken once, and then others, which are
 * not counted. All ranks of the engine call it together. PS_EINVAL when engine, batch or samples are not those of the
 * feed and the configuration; errors of ps_infer. */
PS_API PS_NODISCARD ps_status ps_metrics_take(ps_metrics *metrics, ps_engine *engine, const ps_batch *batch,
                                              int64_t first, int64_t n);

/* Add up what the ranks of comm (NULL: this one alone) have taken; all call it together, once, behind the last sample.
 * PS_ECOMM. After it this and ps_metrics_take are PS_ESTATE: each evaluation has metrics of its own. */
PS_API PS_NODISCARD ps_status ps_metrics_finish(ps_metrics *metrics, ps_comm *comm);

/* How many there are, 0 before ps_metrics_finish; the name of metric i, which lives for ever, and its value. NULL for
 * an i outside of them. */
PS_API int ps_metrics_count(const ps_metrics *metrics);
PS_API const char *ps_metrics_get(const ps_metrics *metrics, int i, double *value);

/* ---- text ------------------------------------------------------------------------------------------ */

typedef struct ps_tokenizer ps_tokenizer;

/* A folder, where tokenizer.json goes before vocab.json, and that before vocab.txt; or one of these files, with its
 * folder's other files read in the same way; doc/tokenizers.md. PS_EIO, or PS_EFORMAT naming the file and what is wrong
 * or not supported. */
PS_API PS_NODISCARD ps_status ps_tokenizer_open(const char *path, ps_tokenizer **out);
PS_API void ps_tokenizer_close(ps_tokenizer *tokenizer); /* NULL is accepted */

/* The path of the tokenizer that a configuration names: data.tokenizer, or that of model.from_pretrained; "" for none.
 * Valid as long as the options. */
PS_API const char *ps_config_get_tokenizer_path(const ps_config *config);

/* What model.resize_token_embeddings asks for, once behind ps_config_load, before the feed is opened and the engine
 * initialised: where model.vocab_size is not given it becomes what that tokenizer needs, rounded up to
 * model.pad_to_multiple_of, and never less than it was. Does nothing without the option, and where the size is given.
 * PS_EINVAL when no tokenizer is named; else as ps_tokenizer_open. */
PS_API PS_NODISCARD ps_status ps_config_resize_vocabulary(ps_config *config);

/* One above the largest id. */
PS_API int32_t ps_tokenizer_vocab_size(const ps_tokenizer *tokenizer);
/* 1 when the token ends a text. */
PS_API int ps_tokenizer_is_end(const ps_tokenizer *tokenizer, int32_t id);

/* n_bytes of text (any bytes) to ids, as the beginning of a text that a model goes on with: behind what its tokenizer
 * puts before a text, and with special tokens where the text spells them. The caller frees *ids by ps_free. */
PS_API PS_NODISCARD ps_status ps_tokenizer_encode_prompt(ps_tokenizer *tokenizer, const void *text, int64_t n_bytes,
                                                         int32_t **ids, int64_t *n_ids);
/* What a user says, and what stands before the answer, in the form of data.chat_format; *end is the token that ends the
 * answer. PS_EINVAL when the text is no UTF-8, or the form is not known. */
PS_API PS_NODISCARD ps_status ps_tokenizer_encode_chat(ps_tokenizer *tokenizer, const ps_config *config,
                                                       const void *text, int64_t n_bytes, int32_t **ids, int64_t *n_ids,
                                                       int32_t *end);
/* Ids to bytes without special tokens, with a zero byte behind them; freed by ps_free. An id outside of the vocabulary
 * is PS_EINVAL with its position. */
PS_API PS_NODISCARD ps_status ps_tokenizer_decode_plain(const ps_tokenizer *tokenizer, const int32_t *ids, int64_t n,
                                                        char **out_text, int64_t *out_n_bytes);

typedef struct ps_sample_options {
    size_t struct_size;
    double temperature; /* 0: the likeliest token, of equal ones the first; higher is bolder */
    int64_t top_k;      /* only the likeliest so many; 0: all */
    uint64_t seed;
} ps_sample_options;

/* The next token after logits [n], as ps_decode or ps_infer gives them: drawn from softmax(logits / temperature) by
 * random word number `index` of the seed, so that the same index gives the same token; a text counts on from 0. n may
 * be less than the model's vocabulary, to leave out rows behind the tokenizer's last. PS_ENUMERIC naming the first
 * logit that is not finite; PS_EINVAL for n < 1, a temperature that is not from 0, a top_k below 0; PS_ENOMEM_HOST. Any
 * thread. */
PS_API PS_NODISCARD ps_status ps_sample_token(const float *logits, int64_t n, const ps_sample_options *options,
                                              int64_t index, int32_t *token);

#ifdef __cplusplus
}
#endif
#endif
