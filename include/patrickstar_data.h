/* patrickstar_data.h - data loader and tokenizers: the data that a configuration names, as batches for ps_forward and
 * ps_evaluate, and text to tokens and back.
 *
 *     ps_data_loader *loader = NULL;
 *     ps_rows *rows = NULL;
 *     if (ps_data_loader_from_config(config, NULL, &loader) != PS_OK || ps_rows_create(loader, B, &rows) != PS_OK) ...
 *     for (int64_t step = 0; step < n_steps; step++) {
 *         ps_rows_fill(rows, PS_SPLIT_TRAIN, step * B, B);
 *         ps_forward(engine, ps_rows_batch(rows), NULL);
 *         ...
 *     }
 *     ps_rows_destroy(rows);
 *     ps_data_loader_close(loader);
 *
 * These functions are in libpatrickstar_data: cc program.c $(pkg-config --cflags --libs patrickstar_data).
 *
 * Threads: several threads may use a data loader at once, each with its own rows. One thread at a time may use a
 * tokenizer, which has a cache. Errors: as patrickstar.h. */
#ifndef PATRICKSTAR_DATA_H
#define PATRICKSTAR_DATA_H

#include "patrickstar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- samples (src/data) ---------------------------------------------------------------------------- */

/* Sample number s of a split is a pure function of s, for s = 0, 1, 2, ... without end. It belongs to epoch s / n, n
 * samples each; the order is shuffled anew each epoch (train.seed), or is that of the data. So there is no position to
 * save: a resumed run, another batch size or other ranks get the same samples by asking for the same numbers.
 * doc/data.md describes the formats. */
typedef struct ps_data_loader ps_data_loader;

typedef enum ps_split {
    PS_SPLIT_TRAIN,
    PS_SPLIT_VALIDATION,
    PS_SPLIT_COUNT,
} ps_split;

/* Open the files of section "data" for the task of model.head. cache_folder: NULL, or an existing folder, in which the
 * tokens of text files are cached. The loader keeps no pointer to config. PS_EINVAL, PS_EFORMAT or PS_EIO naming the
 * file, and line or offset where there is one; too little data is PS_EINVAL with both numbers. */
PS_API PS_NODISCARD ps_status ps_data_loader_from_config(const ps_config *config, const char *cache_folder,
                                                         ps_data_loader **out);
PS_API void ps_data_loader_close(ps_data_loader *loader); /* NULL is accepted */

/* Samples in an epoch; 0 for validation without data. */
PS_API int64_t ps_data_loader_sample_count(const ps_data_loader *loader, ps_split split);

/* Name of class `label`; NULL for an invalid label, or when the data have integers. Valid as long as the loader. */
PS_API const char *ps_data_loader_label_name(const ps_data_loader *loader, int32_t label);
/* Store the class names found in the data in data.labels of the configuration. Checkpoints then contain them, and
 * ps_config_take_labels reads them from there. Does nothing where the data have none. */
PS_API PS_NODISCARD ps_status ps_data_loader_keep_labels(const ps_data_loader *loader, ps_config *config);

/* Store the chat format in data.chat_format where that is auto and the data determine it: lines in Alpaca's format use
 * Alpaca's prompt where the tokenizer has no chat template. Checkpoints then contain it, and ps_config_take_chat_format
 * reads it from there. Does nothing for other data. */
PS_API PS_NODISCARD ps_status ps_data_loader_keep_chat_format(const ps_data_loader *loader, ps_config *config);

/* Convert train.epochs to train.steps: epochs times training samples, divided by the samples of a step on all n_ranks
 * ranks, rounded up. train.epochs becomes 0. Does nothing where it is 0. Call it before an engine for training is
 * initialised, which refuses train.epochs above 0. PS_EINVAL when train.steps would exceed its maximum, and for n_ranks
 * below 1. */
PS_API PS_NODISCARD ps_status ps_config_take_epochs(ps_config *config, const ps_data_loader *loader, int32_t n_ranks);

/* Statistics of a split's instruction data (lines used, cut, dropped) as a line of text; "" for other data. Free it by
 * ps_free. */
PS_API PS_NODISCARD ps_status ps_data_loader_describe(const ps_data_loader *loader, ps_split split, char **out);

/* 1 when the targets have information that the tokens lack: for instructions, regression, multi-label, token labels,
 * and answers. */
PS_API int ps_data_loader_chooses_targets(const ps_data_loader *loader);
/* 1 when targets are classes, so that ps_eval_info.n_correct is defined; 0 for model.problem_type = regression. */
PS_API int ps_data_loader_has_choices(const ps_data_loader *loader);
/* Targets, or values, of a row of T tokens: T; 1 for a classifier; 2 for an answer; or the count of numbers or
 * labels. */
PS_API int64_t ps_data_loader_row_targets(const ps_data_loader *loader, int64_t T);

/* Number of micro-batch m of rank `rank` in step `step` (all from 0), counted over all ranks and steps. With B rows
 * each, the micro-batch begins at sample number * B. Micro-batches are dealt to ranks in turn, so that p ranks use the
 * same samples in a step as one rank with p times the accumulation. */
static inline int64_t ps_data_loader_micro_batch(int64_t step, int64_t accumulation, int64_t m, int32_t n_ranks,
                                                 int32_t rank)
{
    return (step * accumulation + m) * n_ranks + rank;
}

/* Row length that these samples need: that of the longest, rounded up to data.pad_to_multiple_of, at most the sequence
 * length; the sequence length when rows are not padded, or always padded to it. n_samples >= 1. */
PS_API int64_t ps_data_loader_length(const ps_data_loader *loader, ps_split split, int64_t first_sample,
                                     int64_t n_samples);

/* Tokens of these samples that are not padding. n_samples >= 0. */
PS_API int64_t ps_data_loader_token_count(const ps_data_loader *loader, ps_split split, int64_t first_sample,
                                          int64_t n_samples);

/* xxh3 (64 bit) over all data of the loader: every token, label and mark of both splits, in the order of the files, and
 * which lines are for validation. Reads all files: about 2 s per GB from the page cache (two busy cores), else the
 * disk's time. */
PS_API PS_NODISCARD ps_status ps_data_loader_xxh3(const ps_data_loader *loader, uint64_t *hash);

/* Check that all ranks have the same data, by number of samples and ps_data_loader_xxh3; else PS_EINVAL on all ranks,
 * naming rank, machine and the difference. All ranks call it. comm may be NULL: single rank. */
PS_API PS_NODISCARD ps_status ps_comm_check_data_loader(ps_comm *comm, const ps_data_loader *loader);

/* ---- rows (src/data) ------------------------------------------------------------------------------- */

/* Memory for a micro-batch. */
typedef struct ps_rows ps_rows;

/* n_rows rows of the sequence length. loader must outlive the rows. */
PS_API PS_NODISCARD ps_status ps_rows_create(const ps_data_loader *loader, int64_t n_rows, ps_rows **out);
PS_API void ps_rows_destroy(ps_rows *rows); /* NULL is accepted */

/* Set the row length to T tokens: at least the ps_data_loader_length of the samples, at most the sequence length; 0:
 * the sequence length. An invalid T is an error of the next ps_rows_fill. */
PS_API void ps_rows_set_length(ps_rows *rows, int64_t T);

/* Fill the first n rows with samples [first_sample, first_sample + n). PS_EINVAL, and nothing is written, when the
 * split is empty or invalid, n is below 0 or above the number of rows, first_sample is below 0, or the row length is
 * below 0, above the sequence length, or below what these samples need. */
PS_API PS_NODISCARD ps_status ps_rows_fill(ps_rows *rows, ps_split split, int64_t first_sample, int64_t n);
/* The same for a single pass over the split: rows of samples from ps_data_loader_sample_count on have only
 * PS_IGNORE_INDEX as targets, or NaN as values. */
PS_API PS_NODISCARD ps_status ps_rows_fill_once(ps_rows *rows, ps_split split, int64_t first_sample, int64_t n);

/* The batch of the last fill; valid as long as rows. It has targets or values, as the model's loss needs;
 * attention_mask and token_type_ids are NULL where they are not needed. */
PS_API const ps_batch *ps_rows_batch(const ps_rows *rows);

/* ---- metrics (src/data) ---------------------------------------------------------------------------- */

/* Metrics of a fine-tuned model in addition to its loss, over samples of a split, by an inference engine:
 *
 *     regression           mse, pearson (of all numbers together)
 *     one label a text     f1_macro
 *     several labels       f1_micro, f1_macro, exact_match (texts with all labels right)
 *     labels of tokens     precision, recall, f1 of entities, as seqeval counts them, where the classes have names of
 *                          BIO ("O", "B-PER", "I-PER"); else f1_macro over tokens
 *     answers              exact_match and f1 of their words, as SQuAD counts them; of the parts of a long context the
 *                          one that the model is surest of
 *
 * F1 of a class that is neither a target nor predicted is 0, as in scikit-learn. One thread at a time. */
typedef struct ps_metrics ps_metrics;

/* *out = NULL for language models, which have no such metrics; the calls below accept NULL and do nothing. The loader
 * must be opened for this configuration (else PS_EINVAL), and must outlive the metrics; no pointer to config is kept.
 * PS_EIO, PS_EFORMAT as ps_tokenizer_open, for answers; PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_metrics_create(const ps_config *config, const ps_data_loader *loader, ps_split split,
                                                ps_metrics **out);
PS_API void ps_metrics_destroy(ps_metrics *metrics); /* NULL is accepted */

/* Run ps_infer on the batch and count its first n rows, which are samples first to first + n - 1 of the split; further
 * rows are ignored. Count each sample once. All ranks of the engine call it together. PS_EINVAL when engine, batch or
 * samples do not match loader and configuration; errors of ps_infer. */
PS_API PS_NODISCARD ps_status ps_metrics_take(ps_metrics *metrics, ps_engine *engine, const ps_batch *batch,
                                              int64_t first, int64_t n);

/* Combine the counts of the ranks of comm (NULL: single rank). All ranks call it together, once, after the last sample.
 * PS_ECOMM. Later calls of this and of ps_metrics_take are PS_ESTATE: create new metrics for each evaluation. */
PS_API PS_NODISCARD ps_status ps_metrics_finish(ps_metrics *metrics, ps_comm *comm);

/* Number of metrics, 0 before ps_metrics_finish; static name and value of metric i, NULL for an invalid i. */
PS_API int ps_metrics_count(const ps_metrics *metrics);
PS_API const char *ps_metrics_get(const ps_metrics *metrics, int i, double *value);

/* ---- text (src/data) ------------------------------------------------------------------------------- */

typedef struct ps_tokenizer ps_tokenizer;

/* path: a folder, in which tokenizer.json has precedence over vocab.json, and that over vocab.txt; or one of these
 * files, whose folder's other files are read as well (doc/tokenizers.md). PS_EIO, or PS_EFORMAT naming the file and
 * what is wrong or not supported. */
PS_API PS_NODISCARD ps_status ps_tokenizer_open(const char *path, ps_tokenizer **out);
PS_API void ps_tokenizer_close(ps_tokenizer *tokenizer); /* NULL is accepted */

/* The path of the tokenizer that a configuration names: data.tokenizer, or that of model.from_pretrained; "" for none.
 * Valid as long as the options. */
PS_API const char *ps_config_get_tokenizer_path(const ps_config *config);

/* Apply model.resize_token_embeddings: a model.vocab_size that is not given is raised to the size that the tokenizer
 * needs, rounded up to model.pad_to_multiple_of; it never decreases. Call it once after ps_config_load, before the data
 * are opened and the engine is initialised. Does nothing without the option, and where the size is given. PS_EINVAL
 * when no tokenizer is named; else as ps_tokenizer_open. */
PS_API PS_NODISCARD ps_status ps_config_resize_vocabulary(ps_config *config);

/* The largest id plus one. */
PS_API int32_t ps_tokenizer_vocab_size(const ps_tokenizer *tokenizer);
/* 1 for an end-of-text token. */
PS_API int ps_tokenizer_is_end(const ps_tokenizer *tokenizer, int32_t id);

/* Encode n_bytes of text (any bytes) as a prompt that a model continues: after the tokens that the tokenizer puts
 * before a text, and with special tokens where the text spells them. The caller frees *ids by ps_free. */
PS_API PS_NODISCARD ps_status ps_tokenizer_encode_prompt(ps_tokenizer *tokenizer, const void *text, int64_t n_bytes,
                                                         int32_t **ids, int64_t *n_ids);
/* Encode a user's message and the beginning of the answer in the format of data.chat_format. *end is the token that
 * ends the answer. PS_EINVAL when the text is not UTF-8, or the format is unknown. */
PS_API PS_NODISCARD ps_status ps_tokenizer_encode_chat(ps_tokenizer *tokenizer, const ps_config *config,
                                                       const void *text, int64_t n_bytes, int32_t **ids, int64_t *n_ids,
                                                       int32_t *end);
/* Decode ids to bytes, without special tokens, with a terminating zero byte; freed by ps_free. An id outside of the
 * vocabulary is PS_EINVAL with its position. */
PS_API PS_NODISCARD ps_status ps_tokenizer_decode_plain(const ps_tokenizer *tokenizer, const int32_t *ids, int64_t n,
                                                        char **out_text, int64_t *out_n_bytes);

typedef struct ps_sample_options {
    size_t struct_size;
    double temperature; /* 0: the most likely token, the first of equal ones; higher values flatten the distribution */
    int64_t top_k;      /* sample from the k most likely tokens; 0: all */
    uint64_t seed;
} ps_sample_options;

/* Sample the next token from logits [n] of ps_decode or ps_infer: from softmax(logits / temperature), with random word
 * number `index` of the seed, so that the same index gives the same token. Count index from 0 in each text. n may be
 * less than the model's vocabulary, to exclude rows past the tokenizer's last id. PS_ENUMERIC naming the first logit
 * that is not finite; PS_EINVAL for n < 1, a temperature below 0 or NaN, a top_k below 0; PS_ENOMEM_HOST. Any
 * thread. */
PS_API PS_NODISCARD ps_status ps_sample_token(const float *logits, int64_t n, const ps_sample_options *options,
                                              int64_t index, int32_t *token);

#ifdef __cplusplus
}
#endif
#endif
