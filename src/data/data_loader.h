/* data_loader.h - training and validation samples: sample number s of a split is a pure function of s.
 *
 *                       sample                                     targets                     rows are
 *     causal LM         window w: tokens w T to w T + T - 1        the next tokens [B T]       full
 *       of instructions one line of a JSONL file (instruct_set.h)  the next tokens that are
 *                                                                  to be predicted, else -100  padded
 *     masked LM         [CLS] T - 2 tokens of the stream [SEP]     hidden tokens, else -100    full
 *     classification    one line of a JSONL file (sample.h)        the label [B]               padded
 *     numbers, labels   one line of a JSONL file (task_set.h)      values [B, labels]          padded
 *     words             one line of a JSONL file (task_set.h)      labels of tokens [B T]      padded
 *     answers           a part of such a line (task_set.h)         first and last token [B 2]  padded
 *
 *     training          items 0 .. n - 1 in an order shuffled anew each epoch, or as they lie in the file
 *     validation        another file, or a share of the training data, always as it lies in the file:
 *                       of a token stream its last windows; of lines a choice drawn from the seed, so that files which
 *                       are sorted by label do no harm
 *     sample s          epoch s / n, position s % n in it, for s = 0, 1, 2, ... without end or gap
 *
 * There is no position to save: a resumed run, another batch size or other ranks get the same samples in the same order
 * by asking for the same numbers (ps_data_loader_micro_batch). Masks of masked LM are drawn from (seed, s) in training,
 * so each epoch masks other tokens; in validation from s % n, so that all evaluations use the same masks.
 *
 * Memory: token streams stay on disk or need 4 bytes a token (dataset.h); lines need that of sample_set.h and 8 bytes
 * each.
 *
 * Threads: several threads can read a data loader at once. */
#ifndef PS_DATA_LOADER_H
#define PS_DATA_LOADER_H

#include <stdbool.h>

#include "base/status.h"
#include "config/config.h"
#include "data/instruct_set.h"
#include "data/sample.h"
#include "data/task_set.h"
#include "patrickstar_data.h"

typedef enum ps_data_loader_task {
    PS_DATA_LOADER_CAUSAL_LM,
    PS_DATA_LOADER_MASKED_LM,
    PS_DATA_LOADER_CLASSIFICATION,
    PS_DATA_LOADER_NUMBERS, /* from here on task_set.h */
    PS_DATA_LOADER_LABELS,
    PS_DATA_LOADER_WORDS,
    PS_DATA_LOADER_ANSWERS,
} ps_data_loader_task;

/* Default keys of lines, as in options.def. */
#define PS_DATA_LOADER_TEXT_KEY "text"
#define PS_DATA_LOADER_TEXT_PAIR_KEY "text_pair"
#define PS_DATA_LOADER_LABEL_KEY "label"
#define PS_DATA_LOADER_MESSAGES_KEY "messages"
#define PS_DATA_LOADER_PROMPT_KEY "prompt"
#define PS_DATA_LOADER_COMPLETION_KEY "completion"

/* Strings and tokenizer are only used during open. */
typedef struct ps_data_loader_options {
    ps_data_loader_task task;
    const char *train, *validation; /* paths; validation NULL or "": see validation_fraction */
    ps_config_data_format format;   /* of both */
    ps_tokenizer *tokenizer;        /* NULL: token files only */
    bool added_tokens;              /* text that spells an added token becomes it */
    ps_specials specials;
    int64_t sequence;   /* T >= 1 */
    int32_t vocab_size; /* of the model */
    int32_t n_labels;   /* classification, labels, words: classes of the model; numbers: their count */
    int64_t doc_stride; /* answers */
    const char *labels; /* their names, separated by commas; NULL or "": see labels.h */
    const char *text_key, *text_pair_key, *label_key;       /* NULL: as above */
    const char *messages_key, *prompt_key, *completion_key; /* causal LM; NULL: as above */
    ps_config_jsonl_form jsonl_form;                        /* causal LM: see instruct_set.h */
    ps_config_chat_format chat_format;                      /* of messages */
    const char *tokenizer_path; /* NULL, or the path of the tokenizer, whose chat template resolves a format of AUTO */
    double mlm_probability;     /* in (0, 1] */
    double validation_fraction; /* of the items, in [0, 1); when > 0, at least one; 0 with a validation path */
    uint64_t seed;              /* of order, choice of lines and masks */
    bool in_file_order;         /* do not shuffle */
    int64_t pad_to_multiple_of; /* lines: see ps_data_loader_length; 0: rows are always T long */
    const char *cache_folder;   /* NULL, or an existing folder, in which tokens of text are cached */
    int64_t memory_bytes;       /* memory.total, which text may not exceed while its tokens are made; 0: no limit */
} ps_data_loader_options;

/* PS_EINVAL, PS_EFORMAT or PS_EIO, naming file and offset where there is one; too little data is PS_EINVAL with both
 * numbers. */
PS_NODISCARD ps_status ps_data_loader_open(const ps_data_loader_options *options, ps_data_loader **out);
/* Statistics of a split's file of instructions; all 0 for other data, and for a share of the training data. */
ps_instruct_info ps_data_loader_instruct_info(const ps_data_loader *f, ps_split split);

/* Line, from 1, of a sample of instructions in its file; 0 for other data. */
int64_t ps_data_loader_line_of(const ps_data_loader *f, ps_split split, int64_t sample);

/* Item of a sample, from 0: a window of the stream, or a used line of the file. */
int64_t ps_data_loader_item_of(const ps_data_loader *f, ps_split split, int64_t sample);

/* Task of model.head and model.problem_type. PS_EINVAL for a head without a loss. */
PS_NODISCARD ps_status ps_data_loader_task_of(const ps_options *o, ps_data_loader_task *out);
ps_data_loader_task ps_data_loader_get_task(const ps_data_loader *f);
/* The sequence length. */
int64_t ps_data_loader_sequence(const ps_data_loader *f);

/* Samples of a split by item (ps_data_loader_item_of), for tasks of task_set.h; NULL for other tasks. */
const ps_task_set *ps_data_loader_task_set(const ps_data_loader *f, ps_split split);

/* ---- batches ---- */

/* As ps_batch; the caller owns the arrays. */
typedef struct ps_data_loader_batch {
    int64_t T;               /* length of the rows to fill; 0: the sequence length. Only rows of lines may be shorter */
    int32_t *tokens;         /* [n, T] */
    int32_t *targets;        /* [n, T], classification [n], answers [n, 2]; NULL for numbers and labels, which have: */
    float *values;           /* [n, n_labels] */
    int32_t *attention_mask; /* [n, T]; NULL: not wanted */
    int32_t *token_type_ids; /* [n, T]; NULL: not wanted */
} ps_data_loader_batch;

/* Allocate arrays for n_rows rows of the sequence length: attention_mask only where rows are padded, token_type_ids
 * only where some line has two texts. */
PS_NODISCARD ps_status ps_data_loader_batch_init(ps_data_loader_batch *b, const ps_data_loader *f, int64_t n_rows);
void ps_data_loader_batch_deinit(ps_data_loader_batch *b); /* an empty one is accepted */

/* Samples [first_sample, first_sample + n_samples) of a split, in rows of out->T, which is at least their
 * ps_data_loader_length. out must have room; ps_rows_fill checks arguments of programs. PS_EINVAL when the split is
 * empty. */
PS_NODISCARD ps_status ps_data_loader_get(const ps_data_loader *f, ps_split split, int64_t first_sample,
                                          int64_t n_samples, ps_data_loader_batch *out);

/* The same for a single pass over the split: rows of samples from ps_data_loader_sample_count on have only -100 as
 * targets, or NaN as values. Their inputs are those of earlier samples. */
PS_NODISCARD ps_status ps_data_loader_get_once(const ps_data_loader *f, ps_split split, int64_t first_sample,
                                               int64_t n_samples, ps_data_loader_batch *out);

#endif
