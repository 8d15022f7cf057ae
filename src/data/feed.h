/* feed.h - what a model is trained and evaluated on: sample number s of a split is a pure function of s.
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
 * There is no position to keep: resuming, another batch size, or other ranks go on with the same samples in the same
 * order by asking for the same numbers (ps_feed_micro_batch). Masks of masked LM are drawn from (seed, s) in training,
 * so each epoch hides other tokens; in validation from s % n, so that each evaluation sees the same.
 *
 * Memory: token streams stay on disk or take 4 bytes a token (dataset.h), lines see sample_set.h and 8 bytes more each.
 *
 * Threads: a feed can be read from several threads at once. */
#ifndef PS_DATA_FEED_H
#define PS_DATA_FEED_H

#include <stdbool.h>

#include "base/status.h"
#include "config/config.h"
#include "data/instruct_set.h"
#include "data/sample.h"
#include "data/task_set.h"
#include "patrickstar_data.h"

typedef enum ps_feed_task {
    PS_FEED_CAUSAL_LM,
    PS_FEED_MASKED_LM,
    PS_FEED_CLASSIFICATION,
    PS_FEED_NUMBERS, /* from here on task_set.h */
    PS_FEED_LABELS,
    PS_FEED_WORDS,
    PS_FEED_ANSWERS,
} ps_feed_task;

/* Keys of lines where none is given: the defaults of options.def. */
#define PS_FEED_TEXT_KEY "text"
#define PS_FEED_TEXT_PAIR_KEY "text_pair"
#define PS_FEED_LABEL_KEY "label"
#define PS_FEED_MESSAGES_KEY "messages"
#define PS_FEED_PROMPT_KEY "prompt"
#define PS_FEED_COMPLETION_KEY "completion"

/* Strings and tokenizer are only used during open. */
typedef struct ps_feed_options {
    ps_feed_task task;
    const char *train, *validation; /* paths; validation NULL or "": see validation_fraction */
    ps_config_data_format format;   /* of both */
    ps_tokenizer *tokenizer;        /* NULL: token files only */
    bool added_tokens;              /* what reads like an added token in a text becomes it */
    ps_specials specials;
    int64_t sequence;   /* T >= 1 */
    int32_t vocab_size; /* of the model */
    int32_t n_labels;   /* classification, labels, words: classes of the model; numbers: how many */
    int64_t doc_stride; /* answers */
    const char *labels; /* their names with commas between them; NULL or "": see labels.h */
    const char *text_key, *text_pair_key, *label_key;       /* NULL: as above */
    const char *messages_key, *prompt_key, *completion_key; /* causal LM; NULL: as above */
    ps_config_jsonl_form jsonl_form;                        /* causal LM: see instruct_set.h */
    ps_config_chat_format chat_format;                      /* of messages */
    const char *tokenizer_path; /* NULL, or where the tokenizer was opened: its chat template tells a format of AUTO */
    double mlm_probability;     /* in (0, 1] */
    double validation_fraction; /* of the items, in [0, 1); when > 0, at least one; 0 with a validation path */
    uint64_t seed;              /* of order, choice of lines and masks */
    bool in_file_order;         /* do not shuffle */
    int64_t pad_to_multiple_of; /* lines: see ps_feed_length; 0: rows are always T long */
    const char *cache_folder;   /* NULL, or a folder that exists, for the tokens of text */
} ps_feed_options;

/* PS_EINVAL, PS_EFORMAT or PS_EIO, naming file and offset where there is one; too little data is PS_EINVAL with both
 * numbers. */
PS_NODISCARD ps_status ps_feed_open(const ps_feed_options *options, ps_feed **out);
/* What became of the lines of a split's file of instructions; all 0 for other data, and for a share of the training
 * data. */
ps_instruct_info ps_feed_instruct_info(const ps_feed *f, ps_split split);

/* The line of its file, from 1, that a sample of instructions was made of; 0 for other data. */
int64_t ps_feed_line_of(const ps_feed *f, ps_split split, int64_t sample);

/* The item (window of the stream, line that was taken of the file, from 0) that a sample is made of. */
int64_t ps_feed_item_of(const ps_feed *f, ps_split split, int64_t sample);

/* What model.head and model.problem_type ask of the data. PS_EINVAL for a head without a loss. */
PS_NODISCARD ps_status ps_feed_task_of(const ps_options *o, ps_feed_task *out);
ps_feed_task ps_feed_get_task(const ps_feed *f);
/* The sequence length. */
int64_t ps_feed_sequence(const ps_feed *f);

/* The samples of a split by the item that they are made of (ps_feed_item_of), from task_set.h; NULL for other tasks. */
const ps_task_set *ps_feed_task_set(const ps_feed *f, ps_split split);

/* ---- batches ---- */

/* As in ps_batch; the arrays belong to the caller. */
typedef struct ps_feed_batch {
    int64_t T;        /* length of the rows to be filled; 0: the sequence length. Only of lines they may be shorter */
    int32_t *tokens;  /* [n, T] */
    int32_t *targets; /* [n, T], classification [n], answers [n, 2]; NULL for numbers and labels, which have: */
    float *values;    /* [n, n_labels] */
    int32_t *attention_mask; /* [n, T]; NULL: not wanted */
    int32_t *token_type_ids; /* [n, T]; NULL: not wanted */
} ps_feed_batch;

/* Arrays for n_rows rows of the sequence length: attention_mask only for a classifier and alike, token_type_ids only
 * where some line has two texts. */
PS_NODISCARD ps_status ps_feed_batch_init(ps_feed_batch *b, const ps_feed *f, int64_t n_rows);
void ps_feed_batch_deinit(ps_feed_batch *b); /* an empty one is accepted */

/* Samples [first_sample, first_sample + n_samples) of a split, in rows of out->T, at least ps_feed_length of them.
 * out has room for them: ps_rows_fill checks what a program asks for. PS_EINVAL when the split is empty. */
PS_NODISCARD ps_status ps_feed_get(const ps_feed *f, ps_split split, int64_t first_sample, int64_t n_samples,
                                   ps_feed_batch *out);

/* The same for one pass over the split: rows for samples from ps_feed_sample_count on have targets of -100 only, or
 * values that are NaN. Their inputs are those of earlier samples. */
PS_NODISCARD ps_status ps_feed_get_once(const ps_feed *f, ps_split split, int64_t first_sample, int64_t n_samples,
                                        ps_feed_batch *out);

#endif
