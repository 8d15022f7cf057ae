/* answer_score.h - the answer that a model gives to a question, and how near it is to those that the data have: exact
 * match and F1 of words, as the official scripts of SQuAD (Rajpurkar et al. 2016, 2018) count them. */
#ifndef PS_DATA_ANSWER_SCORE_H
#define PS_DATA_ANSWER_SCORE_H

#include <math.h>

#include "data/task_set.h"

/* The best one so far, in tokens of the context; scores are sums of the two logits. */
typedef struct ps_answer_span {
    double score, none_score; /* none_score: that there is no answer, the lowest of all parts of the context */
    int64_t first, last;
} ps_answer_span;

#define PS_ANSWER_SPAN_NONE ((ps_answer_span){.score = -INFINITY, .none_score = INFINITY, .first = -1, .last = -1})

/* Take a row of the model's output, z [tokens of the row, 2]: the best span of at most 30 tokens of the context. */
void ps_answer_span_take(ps_answer_span *best, const ps_task_sample *sample, const float *z);

typedef struct ps_answer_score {
    double exact_match, f1; /* the highest over the question's answers */
} ps_answer_score;

/* may_have_none: some question of the data has no answer, so the model may say so, by a none_score that is higher. That
 * is right of those alone. */
PS_NODISCARD ps_status ps_answer_score_of(ps_tokenizer *t, bool added_tokens, const ps_task_question *q,
                                          const ps_answer_span *span, bool may_have_none, ps_answer_score *out);

#endif
