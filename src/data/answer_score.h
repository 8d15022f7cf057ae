/* answer_score.h - a model's answer to a question, and its score against the answers in the data: exact match and F1 of
 * words, as in the official scripts of SQuAD (Rajpurkar et al. 2016, 2018). */
#ifndef PS_DATA_ANSWER_SCORE_H
#define PS_DATA_ANSWER_SCORE_H

#include <math.h>

#include "data/task_set.h"

/* The best answer so far, in tokens of the context. Scores are sums of the start and the end logit. */
typedef struct ps_answer_span {
    double score, none_score; /* none_score: score of "no answer", the lowest over all parts of the context */
    int64_t first, last;
} ps_answer_span;

#define PS_ANSWER_SPAN_NONE ((ps_answer_span){.score = -INFINITY, .none_score = INFINITY, .first = -1, .last = -1})

/* Update the best answer from a row of the model's output, z [tokens of the row, 2]: a range of at most 30 tokens of
 * the context. */
void ps_answer_span_take(ps_answer_span *best, const ps_task_sample *sample, const float *z);

typedef struct ps_answer_score {
    double exact_match, f1; /* maximum over the question's answers */
} ps_answer_score;

/* may_have_none: some questions of the data have no answer. A model then answers "none" by a higher none_score, which
 * is correct for these questions only. */
PS_NODISCARD ps_status ps_answer_score_of(ps_tokenizer *t, bool added_tokens, const ps_task_question *q,
                                          const ps_answer_span *span, bool may_have_none, ps_answer_score *out);

#endif
