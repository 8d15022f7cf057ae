/* metrics.c - metrics of a fine-tuned model in addition to its loss, from its output for each sample. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "data/answer_score.h"
#include "data/data_loader.h"
#include "data/entities.h"

typedef enum metrics_kind {
    KIND_NUMBERS,
    KIND_CLASS,
    KIND_LABELS,
    KIND_TOKENS,
    KIND_ENTITIES,
    KIND_ANSWERS,
} metrics_kind;

/* Sums over the samples of a rank, in doubles that ranks add up. */
enum { TRUE_POSITIVE, FALSE_POSITIVE, FALSE_NEGATIVE, PER_CLASS };                     /* [n_classes] */
enum { COUNT, SUM_X, SUM_Y, SUM_XX, SUM_YY, SUM_XY, SUM_ERROR, EXACT, TEXTS, OTHERS }; /* after them */

enum { METRICS_MAX = 3 };

typedef struct metric {
    const char *name;
    double value;
} metric;

struct ps_metrics {
    metrics_kind kind;
    const ps_data_loader *loader;
    ps_split split;
    int64_t T;         /* of rows at most */
    int64_t n_outputs; /* of the engine */
    int64_t n_classes; /* of sums */
    double *sums;      /* [n_classes * PER_CLASS + OTHERS] */
    float *output;
    ps_entity_names names;   /* KIND_ENTITIES */
    int32_t *row[2];         /* of tokens with labels: those that are right, and predicted */
    ps_answer_span *best;    /* [questions]; KIND_ANSWERS */
    ps_tokenizer *tokenizer; /* KIND_ANSWERS */
    bool added_tokens;
    bool is_finished;
    metric all[METRICS_MAX]; /* from then on */
    int n;
};

static double *other(ps_metrics *m)
{
    return m->sums + m->n_classes * PER_CLASS;
}

/* False: there are none. */
static bool find_kind(ps_data_loader_task task, metrics_kind *out)
{
    switch (task) {
    case PS_DATA_LOADER_CAUSAL_LM:
    case PS_DATA_LOADER_MASKED_LM: return false;
    case PS_DATA_LOADER_CLASSIFICATION: *out = KIND_CLASS; return true;
    case PS_DATA_LOADER_NUMBERS: *out = KIND_NUMBERS; return true;
    case PS_DATA_LOADER_LABELS: *out = KIND_LABELS; return true;
    case PS_DATA_LOADER_WORDS: *out = KIND_TOKENS; return true; /* or KIND_ENTITIES */
    case PS_DATA_LOADER_ANSWERS: *out = KIND_ANSWERS; return true;
    }
    return false;
}

/* ---- creation and destruction ---- */

static ps_status begin_answers(ps_metrics *m, const ps_config *config)
{
    const ps_task_set *set = ps_data_loader_task_set(m->loader, m->split);
    const int64_t n = ps_task_set_question_count(set);
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *m->best, &m->best));
    for (int64_t i = 0; i < n; i++) m->best[i] = PS_ANSWER_SPAN_NONE;
    return ps_tokenizer_open(ps_config_get_tokenizer_path(config), &m->tokenizer);
}

static ps_status begin(ps_metrics *m, const ps_config *config)
{
    const ps_options *o = ps_config_options(config);
    m->added_tokens = o->data_added_tokens;
    m->n_outputs = m->kind == KIND_ANSWERS ? 2 : o->model_num_labels;
    m->n_classes = m->kind == KIND_ANSWERS || m->kind == KIND_NUMBERS ? 1 : m->n_outputs;
    m->T = ps_config_sequence_length(o);
    PS_TRY(ps_mem_alloc((size_t)(m->n_classes * PER_CLASS + OTHERS), sizeof *m->sums, &m->sums));
    if (m->kind == KIND_ANSWERS) return begin_answers(m, config);
    if (m->kind != KIND_TOKENS) return PS_OK;
    for (int i = 0; i < 2; i++) PS_TRY(ps_mem_alloc((size_t)m->T, sizeof *m->row[i], &m->row[i]));
    bool are_entities = false;
    PS_TRY(ps_entity_names_init(&m->names, m->loader, m->n_classes, &are_entities));
    if (are_entities) m->kind = KIND_ENTITIES;
    return PS_OK;
}

ps_status ps_metrics_create(const ps_config *config, const ps_data_loader *loader, ps_split split, ps_metrics **out)
{
    PS_TRY(PS_NEED_FOR(out, "config loader out", config, loader, out));
    const ps_options *o = ps_config_options(config);
    ps_data_loader_task task = PS_DATA_LOADER_CAUSAL_LM;
    metrics_kind kind;
    ps_metrics *m = NULL;
    *out = NULL;
    PS_TRY(ps_data_loader_task_of(o, &task));
    if (task != ps_data_loader_get_task(loader))
        return PS_FAIL(PS_EINVAL,
                       "ps_metrics_create: the data loader was opened for another configuration: model.head and "
                       "model.problem_type ask for other targets than it has");
    if (split != PS_SPLIT_TRAIN && split != PS_SPLIT_VALIDATION)
        return PS_FAIL(PS_EINVAL, "ps_metrics_create: split %d of %d", (int)split, PS_SPLIT_COUNT);
    if (!find_kind(task, &kind)) return PS_OK;
    PS_TRY(ps_mem_alloc(1, sizeof *m, &m));
    *m = (ps_metrics){.kind = kind, .loader = loader, .split = split};
    const ps_status st = begin(m, config);
    if (st == PS_OK)
        *out = m;
    else
        ps_metrics_destroy(m);
    return st;
}

void ps_metrics_destroy(ps_metrics *m)
{
    if (m == NULL) return;
    ps_mem_free(m->sums);
    ps_mem_free(m->output);
    ps_mem_free(m->row[0]);
    ps_mem_free(m->row[1]);
    ps_mem_free(m->best);
    ps_entity_names_deinit(&m->names);
    ps_tokenizer_close(m->tokenizer);
    ps_mem_free(m);
}

/* ---- samples ---- */

static void count(ps_metrics *m, int64_t class, bool is_true, bool is_predicted)
{
    double *const sums = m->sums + class * PER_CLASS;
    sums[TRUE_POSITIVE] += is_true && is_predicted;
    sums[FALSE_POSITIVE] += !is_true && is_predicted;
    sums[FALSE_NEGATIVE] += is_true && !is_predicted;
}

static int32_t largest(const float *z, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (z[i] > z[best]) best = i;
    return (int32_t)best;
}

static void count_choice(ps_metrics *m, int32_t target, int32_t predicted)
{
    if (target == PS_IGNORE_INDEX) return;
    count(m, target, true, predicted == target);
    if (predicted != target) count(m, predicted, false, true);
}

static void take_numbers(ps_metrics *m, const float *z, const float *values, int64_t n)
{
    double *const s = other(m);
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)z[i], y = (double)values[i];
        if (isnan(y)) continue; /* ignored in the loss as well */
        s[COUNT]++;
        s[SUM_X] += x, s[SUM_Y] += y, s[SUM_XX] += x * x, s[SUM_YY] += y * y, s[SUM_XY] += x * y;
        s[SUM_ERROR] += (x - y) * (x - y);
    }
}

static void take_labels(ps_metrics *m, const float *z, const float *values)
{
    bool is_exact = true;
    for (int64_t i = 0; i < m->n_classes; i++) {
        const bool is_true = values[i] > 0.5f, is_predicted = z[i] > 0;
        if (isnan(values[i])) continue;
        count(m, i, is_true, is_predicted);
        is_exact = is_exact && is_true == is_predicted;
    }
    other(m)[TEXTS]++;
    other(m)[EXACT] += is_exact;
}

/* Labels of the tokens that have one. */
static void take_tokens(ps_metrics *m, const float *z, const int32_t *targets, int64_t T)
{
    int64_t n = 0;
    for (int64_t t = 0; t < T; t++) {
        if (targets[t] == PS_IGNORE_INDEX) continue;
        m->row[0][n] = targets[t];
        m->row[1][n++] = largest(z + t * m->n_classes, m->n_classes);
    }
    if (m->kind == KIND_ENTITIES) {
        const ps_entity_counts c = ps_entities_count(&m->names, m->row[0], m->row[1], n);
        m->sums[TRUE_POSITIVE] += (double)c.n_both;
        m->sums[FALSE_POSITIVE] += (double)(c.n_predicted - c.n_both);
        m->sums[FALSE_NEGATIVE] += (double)(c.n_true - c.n_both);
        return;
    }
    for (int64_t i = 0; i < n; i++) count_choice(m, m->row[0][i], m->row[1][i]);
}

static void take_answer(ps_metrics *m, const float *z, int64_t sample)
{
    const ps_task_set *set = ps_data_loader_task_set(m->loader, m->split);
    const ps_task_sample s = ps_task_set_get(set, ps_data_loader_item_of(m->loader, m->split, sample));
    ps_answer_span_take(&m->best[s.question], &s, z);
}

static ps_status expect_unfinished(const ps_metrics *m, const char *call)
{
    if (!m->is_finished) return PS_OK;
    return PS_FAIL(PS_ESTATE, "%s: these metrics are finished; ps_metrics_create makes others", call);
}

/* The targets of the samples. */
static ps_status check_batch(const ps_metrics *m, const ps_batch *batch, int64_t B, int64_t T)
{
    static const char call[] = "ps_metrics_take";
    const bool has_values = m->kind == KIND_NUMBERS || m->kind == KIND_LABELS;
    if (has_values ? batch->values == NULL : batch->targets == NULL && m->kind != KIND_ANSWERS)
        return PS_FAIL(PS_EINVAL, "%s: the batch has no %s", call, has_values ? "values" : "targets");
    if (has_values || m->kind == KIND_ANSWERS) return PS_OK;
    const int64_t n_targets = m->kind == KIND_CLASS ? B : B * T;
    for (int64_t i = 0; i < n_targets; i++)
        if (batch->targets[i] != PS_IGNORE_INDEX && (batch->targets[i] < 0 || batch->targets[i] >= m->n_classes))
            return PS_FAIL(PS_EINVAL, "%s: target %lld of the batch is %d, of %lld classes", call, (long long)i,
                           (int)batch->targets[i], (long long)m->n_classes);
    return PS_OK;
}

static ps_status check_samples(const ps_metrics *m, int64_t B, int64_t T, int64_t n_outputs, int64_t first, int64_t n)
{
    static const char call[] = "ps_metrics_take";
    const int64_t n_samples = ps_data_loader_sample_count(m->loader, m->split);
    if (n_outputs != m->n_outputs)
        return PS_FAIL(PS_EINVAL,
                       "%s: the engine gives %lld numbers a row, and the configuration of these metrics %lld", call,
                       (long long)n_outputs, (long long)m->n_outputs);
    if (T > m->T)
        return PS_FAIL(PS_EINVAL, "%s: rows of %lld tokens, and the sequence length of these metrics is %lld", call,
                       (long long)T, (long long)m->T);
    if (n == 0 || (n > 0 && n <= B && first >= 0 && first <= n_samples - n)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: samples %lld to %lld, of %lld, in a batch of %lld rows", call, (long long)first,
                   (long long)(first + n - 1), (long long)n_samples, (long long)B);
}

ps_status ps_metrics_take(ps_metrics *m, ps_engine *engine, const ps_batch *batch, int64_t first, int64_t n)
{
    int64_t B, T, n_outputs;
    ps_batch own;
    if (m == NULL) return PS_OK;
    PS_TRY(PS_NEED("engine batch", engine, batch));
    PS_TRY(expect_unfinished(m, "ps_metrics_take"));
    PS_TRY(PS_SIZED_TAKE(ps_batch, batch, &own));
    ps_engine_get_shape(engine, &B, &T, NULL, &n_outputs);
    PS_TRY(check_samples(m, B, T, n_outputs, first, n));
    PS_TRY(check_batch(m, &own, B, T));
    const bool has_rows_of_tokens = m->kind >= KIND_TOKENS;
    const int64_t row = n_outputs * (has_rows_of_tokens ? T : 1);
    PS_TRY(ps_mem_reserve(&m->output, (size_t)(B * row), sizeof *m->output));
    PS_TRY(ps_infer(engine, batch, PS_ALL_ROWS, m->output));
    for (int64_t b = 0; b < n; b++) {
        const float *const z = m->output + b * row;
        switch (m->kind) {
        case KIND_NUMBERS: take_numbers(m, z, own.values + b * n_outputs, n_outputs); break;
        case KIND_CLASS: count_choice(m, own.targets[b], largest(z, n_outputs)); break;
        case KIND_LABELS: take_labels(m, z, own.values + b * n_outputs); break;
        case KIND_TOKENS:
        case KIND_ENTITIES: take_tokens(m, z, own.targets + b * T, T); break;
        case KIND_ANSWERS: take_answer(m, z, first + b); break;
        }
    }
    return PS_OK;
}

/* ---- over all ranks ---- */

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double f1_of(const double *s)
{
    return ratio(2 * s[TRUE_POSITIVE], 2 * s[TRUE_POSITIVE] + s[FALSE_POSITIVE] + s[FALSE_NEGATIVE]);
}

static double f1_macro(const ps_metrics *m)
{
    double sum = 0;
    for (int64_t i = 0; i < m->n_classes; i++) sum += f1_of(m->sums + i * PER_CLASS);
    return sum / (double)m->n_classes;
}

static double f1_micro(const ps_metrics *m)
{
    double all[PER_CLASS] = {0};
    for (int64_t i = 0; i < m->n_classes * PER_CLASS; i++) all[i % PER_CLASS] += m->sums[i];
    return f1_of(all);
}

static double pearson(const double *s)
{
    const double n = s[COUNT], covariance = s[SUM_XY] - s[SUM_X] * s[SUM_Y] / n;
    const double x = s[SUM_XX] - s[SUM_X] * s[SUM_X] / n, y = s[SUM_YY] - s[SUM_Y] * s[SUM_Y] / n;
    return x > 0 && y > 0 ? covariance / sqrt(x * y) : 0;
}

/* Whether this rank's best answer to each question is the best of all ranks; ties go to the lowest rank. best: [3 n],
 * scratch; also the highest score of no answer. */
static ps_status find_best_of_ranks(const ps_metrics *m, int64_t n, ps_comm *comm, double *best, bool *is_best)
{
    double *const none = best + n, *const owner = best + 2 * n;
    const double rank = comm != NULL ? ps_comm_rank(comm) : 0;
    for (int64_t i = 0; i < n; i++) best[i] = m->best[i].score, none[i] = -m->best[i].none_score;
    if (comm != NULL) PS_TRY(ps_comm_all_reduce(comm, best, 2 * n, PS_COMM_MAX));
    for (int64_t i = 0; i < n; i++) {
        is_best[i] = m->best[i].score == best[i];
        owner[i] = is_best[i] ? -rank : -(double)INFINITY;
    }
    if (comm == NULL) return PS_OK;
    PS_TRY(ps_comm_all_reduce(comm, owner, n, PS_COMM_MAX));
    for (int64_t i = 0; i < n; i++) is_best[i] = is_best[i] && owner[i] == -rank;
    return PS_OK;
}

/* The answer to a question is that of the rank with the highest score. */
static ps_status score_answers(ps_metrics *m, ps_comm *comm)
{
    const ps_task_set *set = ps_data_loader_task_set(m->loader, m->split);
    const int64_t n = ps_task_set_question_count(set);
    double *best = NULL;
    bool *is_best = NULL, may_have_none = false;
    ps_status st;
    for (int64_t i = 0; i < n; i++) may_have_none = may_have_none || ps_task_set_question(set, i).n_answers == 0;
    st = ps_mem_alloc((size_t)n * 3, sizeof *best, &best);
    if (st == PS_OK) st = ps_mem_alloc((size_t)n, sizeof *is_best, &is_best);
    PS_TRY_GOTO(ps_comm_agree(comm, st)); /* before the others wait for this rank's numbers */
    PS_TRY_GOTO(find_best_of_ranks(m, n, comm, best, is_best));
    for (int64_t i = 0; i < n; i++) {
        const ps_task_question q = ps_task_set_question(set, i);
        ps_answer_score score;
        if (m->best[i].score == PS_ANSWER_SPAN_NONE.score || !is_best[i]) continue;
        m->best[i].none_score = -best[n + i];
        PS_TRY_GOTO(ps_answer_score_of(m->tokenizer, m->added_tokens, &q, &m->best[i], may_have_none, &score));
        other(m)[TEXTS]++;
        other(m)[EXACT] += score.exact_match;
        other(m)[SUM_X] += score.f1;
    }
out:
    ps_mem_free(best);
    ps_mem_free(is_best);
    return st;
}

static void add(ps_metrics *m, const char *name, double value)
{
    PS_ASSERT(m->n < METRICS_MAX);
    m->all[m->n++] = (metric){name, value};
}

ps_status ps_metrics_finish(ps_metrics *m, ps_comm *comm)
{
    if (m == NULL) return PS_OK;
    PS_TRY(expect_unfinished(m, "ps_metrics_finish"));
    m->is_finished = true;
    if (m->kind == KIND_ANSWERS) PS_TRY(ps_comm_agree(comm, score_answers(m, comm)));
    const int64_t n_sums = m->n_classes * PER_CLASS + OTHERS;
    if (comm != NULL) PS_TRY(ps_comm_all_reduce(comm, m->sums, n_sums, PS_COMM_SUM));
    const double *s = other(m), *e = m->sums;
    switch (m->kind) {
    case KIND_NUMBERS:
        add(m, "mse", ratio(s[SUM_ERROR], s[COUNT]));
        add(m, "pearson", pearson(s));
        break;
    case KIND_LABELS:
        add(m, "f1_micro", f1_micro(m));
        add(m, "f1_macro", f1_macro(m));
        add(m, "exact_match", ratio(s[EXACT], s[TEXTS]));
        break;
    case KIND_CLASS:
    case KIND_TOKENS: add(m, "f1_macro", f1_macro(m)); break;
    case KIND_ENTITIES:
        add(m, "precision", ratio(e[TRUE_POSITIVE], e[TRUE_POSITIVE] + e[FALSE_POSITIVE]));
        add(m, "recall", ratio(e[TRUE_POSITIVE], e[TRUE_POSITIVE] + e[FALSE_NEGATIVE]));
        add(m, "f1", f1_of(e));
        break;
    case KIND_ANSWERS:
        add(m, "exact_match", ratio(s[EXACT], s[TEXTS]));
        add(m, "f1", ratio(s[SUM_X], s[TEXTS]));
        break;
    }
    return PS_OK;
}

int ps_metrics_count(const ps_metrics *m)
{
    return m != NULL ? m->n : 0;
}

const char *ps_metrics_get(const ps_metrics *m, int i, double *value)
{
    if (m == NULL || i < 0 || i >= m->n) return NULL;
    *value = m->all[i].value;
    return m->all[i].name;
}
