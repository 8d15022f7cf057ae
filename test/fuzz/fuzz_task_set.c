/* Lines of numbers, several labels, words with labels, and questions with answers: samples have tokens of the
 * vocabulary and targets within them, or the error has a place. The first byte chooses which. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/bert_vocab.h"
#include "data/task_set.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                                \
    if (!(condition)) abort()

enum { T = 24, N_LABELS = 3 };

static void check_sample(ps_task_kind kind, const ps_task_sample *s, int64_t n_questions)
{
    MUST(s->n_ids >= 1 && s->n_ids <= T && s->n_first <= s->n_ids && s->line >= 1);
    for (int64_t i = 0; i < s->n_ids; i++) {
        MUST(s->ids[i] >= 0 && s->ids[i] < BERT_TOKENS);
        if (kind != PS_TASK_WORDS) continue;
        MUST(s->targets[i] == PS_IGNORE_INDEX || (s->targets[i] >= 0 && s->targets[i] < N_LABELS));
    }
    for (int i = 0; kind <= PS_TASK_LABELS && i < N_LABELS; i++) {
        MUST(isfinite(s->values[i]));
        if (kind == PS_TASK_LABELS) MUST(s->values[i] >= 0 && s->values[i] <= 1);
    }
    if (kind != PS_TASK_ANSWERS) return;
    MUST(s->question >= 0 && s->question < n_questions);
    MUST(s->context >= 0 && s->context < s->context_end && s->context_end <= s->n_ids && s->context_first >= 0);
    MUST(s->targets[0] <= s->targets[1]);
    MUST(s->targets[1] == 0 || (s->targets[0] >= s->context && s->targets[1] < s->context_end));
}

static void check_set(ps_task_kind kind, const ps_task_set *s)
{
    const int64_t n_questions = ps_task_set_question_count(s);
    MUST(ps_task_set_count(s) > 0 && (kind == PS_TASK_ANSWERS) == (n_questions > 0));
    for (int64_t i = 0; i < ps_task_set_count(s); i++) {
        const ps_task_sample sample = ps_task_set_get(s, i);
        check_sample(kind, &sample, n_questions);
    }
    for (int64_t i = 0; i < n_questions; i++) {
        const ps_task_question q = ps_task_set_question(s, i);
        MUST(q.context[q.context_bytes] == '\0');
        for (int64_t k = 0; k < q.n_answers; k++) MUST(q.answers[k] != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    ps_tokenizer *tokenizer = bert_tokenizer();
    MUST(tokenizer != NULL);
    const fuzz_file file = fuzz_file_make(data + 1, n - 1);
    const ps_task_options o = {.kind = (ps_task_kind)(data[0] % 4),
                               .text_key = "text",
                               .text_pair_key = "text_pair",
                               .label_key = "label",
                               .tokenizer = tokenizer,
                               .T = T,
                               .n_values = N_LABELS,
                               .doc_stride = data[0] / 4 % 16};
    ps_labels labels;
    ps_task_set *s;
    MUST(ps_labels_init(&labels, data[0] & 128 ? "a,b,c" : "", N_LABELS) == PS_OK);
    const ps_status st = ps_task_set_open(file.path, &o, &labels, &s);
    MUST(st == PS_OK || st == PS_EFORMAT || st == PS_EINVAL);
    if (st == PS_OK) check_set(o.kind, s);
    ps_task_set_close(s);
    ps_labels_deinit(&labels);
    ps_tokenizer_close(tokenizer);
    close(file.fd);
    MUST(ps_mem_live_bytes() == 0);
    return 0;
}
