/* task_set.h - samples of fine-tuning tasks with other targets than one label per text. A line of a JSONL file is one
 * sample, or several for a long context. Tokenised when opened and kept in memory.
 *
 *     numbers   {"text": "...", "label": 3.5}                        "label": [0.5, 2] of several numbers
 *     labels    {"text": "...", "label": ["joy", "relief"]}          or as 0 and 1 of each class: [0, 1, 0, 1]
 *     words     {"tokens": ["EU", "rejects"], "labels": ["B-ORG", "O"]}   or numbers; "ner_tags" as well
 *     answers   {"question": "...", "context": "...",
 *                "answers": {"text": ["1987"], "answer_start": [57]}}     SQuAD's; empty lists: it has none
 *
 * Words: the words of a line, joined by spaces, are its text. The first token of a word has its label; other tokens and
 * special tokens have PS_IGNORE_INDEX (as run_ner of transformers).
 *
 * Answers: question and context are a pair. A context that is too long becomes several samples; each begins doc_stride
 * tokens before the end of the previous one. Targets are the first and the last token of the first answer in the row,
 * or both 0 (the position of [CLS]) when the sample does not contain the whole answer (as run_qa).
 *
 * Memory: 4 bytes a token (words: 8), 4 a number, 48 bytes a sample; for answers also the texts of the file.
 *
 * Threads: can be read from several threads at once. */
#ifndef PS_DATA_TASK_SET_H
#define PS_DATA_TASK_SET_H

#include <stdbool.h>

#include "base/status.h"
#include "data/labels.h"
#include "data/tokenizer.h"

/* Maximum number of special tokens before, between or after texts. */
enum { PS_TASK_BORDER_MAX = 16 };

typedef enum ps_task_kind {
    PS_TASK_NUMBERS,
    PS_TASK_LABELS,
    PS_TASK_WORDS,
    PS_TASK_ANSWERS,
} ps_task_kind;

typedef struct ps_task_options {
    ps_task_kind kind;
    const char *text_key, *text_pair_key, *label_key;
    ps_tokenizer *tokenizer;
    bool added_tokens;
    int64_t T;        /* maximum number of ids of a sample */
    int32_t n_values; /* numbers, or classes, of a text */
    int64_t doc_stride;
} ps_task_options;

typedef struct ps_task_set ps_task_set;

typedef struct ps_task_sample {
    const int32_t *ids;
    int64_t n_ids, n_first; /* n_first < n_ids: the rest has token type 1 */
    const float *values;    /* [n_values] numbers; labels: 0 or 1 of each class */
    const int32_t *targets; /* words [n_ids]; answers [2] */
    int64_t line;           /* of the file, from 1 */
    /* answers: number of the question in the file, from 0; the row's tokens [context, context_end) are tokens of the
     * context from number context_first on */
    int64_t question, context, context_end, context_first;
} ps_task_sample;

/* A question of the file; texts end with a zero byte and are valid as long as the set. */
typedef struct ps_task_question {
    const char *context;
    int64_t context_bytes;
    const char *const *answers; /* [n_answers] */
    int64_t n_answers;
} ps_task_question;

/* Read all lines. labels: as for ps_sample_set_open; ignored for numbers and answers. PS_EFORMAT with file, line and
 * offset for an invalid label, a number of labels that differs from that of words or values, an answer that is not at
 * answer_start in its context, and errors of ps_jsonl_next_object; PS_EINVAL where T has no room for a question. */
PS_NODISCARD ps_status ps_task_set_open(const char *path, const ps_task_options *options, ps_labels *labels,
                                        ps_task_set **out);
void ps_task_set_close(ps_task_set *s); /* NULL is accepted */

int64_t ps_task_set_count(const ps_task_set *s);
bool ps_task_set_has_pairs(const ps_task_set *s); /* some sample has tokens of type 1 */

/* Sample i, 0 <= i < count; its arrays are valid as long as the set. */
ps_task_sample ps_task_set_get(const ps_task_set *s, int64_t i);

int64_t ps_task_set_question_count(const ps_task_set *s); /* 0 where there are none */
ps_task_question ps_task_set_question(const ps_task_set *s, int64_t i);

#endif
