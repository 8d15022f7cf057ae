/* test_loss_average.c - train.loss_average: a step over micro-batches with different numbers of targets is that of one
 * large batch, on any number of ranks, whenever updates run; and its old rule, a mean of means. */
int main_of_example(int argc, char **argv);
#define main main_of_example
#define B EXAMPLE_B
#define T EXAMPLE_T
#define model model_of_example
#define options options_of_example
#define set set_of_example
#include "../../examples/own_loss.c"
#undef main
#undef B
#undef T
#undef model
#undef options
#undef set

#include "engine/ranks_fixture.h"

/* The fake GPU has one operator of the user's a program, and it is another's there (test_own.c). */
#define HAS_OWN_LOSS (!OVER_DISCRETE)

enum { N_STEPS = 3, ROWS_MAX = 9, LENGTH = 16, PER_ROW_MAX = LENGTH, WEIGHTS_MAX = 1 << 18 };

/* ---- data: rows, of which each has its own number of targets ----------------------------------------------------- */

typedef struct row {
    int32_t tokens[LENGTH], targets[PER_ROW_MAX];
    float values[PER_ROW_MAX];
} row;

/* 1 to `most` of them, some at the end, some at the beginning. */
static bool takes_part(int64_t number, int64_t i, int64_t most)
{
    const int64_t n = 1 + number * 7 % most;
    return number % 2 == 0 ? i < n : i >= most - n;
}

/* Which rows have no target at all. */
typedef bool is_empty_row(int64_t number);

static bool no_row(int64_t number)
{
    (void)number;
    return false;
}

static bool some_rows(int64_t number)
{
    return number % 5 == 2;
}

static bool all_rows(int64_t number)
{
    (void)number;
    return true;
}

/* What a run is. */
static struct {
    int64_t n_rows; /* of a step, all micro-batches and ranks */
    is_empty_row *is_empty;
    bool is_one_class;                                            /* the first, of all rows */
    ps_status (*each_step)(ps_engine *e, int32_t rank, int step); /* between the last ps_backward and ps_step; NULL */
} now;

static void fill_row(const ps_program *p, int64_t number, row *r)
{
    const int64_t n = p->n_targets / p->B;
    const bool is_span = n == 2 && p->n_target_classes == LENGTH;
    fill_batch(r->tokens, r->targets, 1, LENGTH, TINY_VOCABULARY, number);
    for (int64_t i = 0; i < n; i++) {
        const int64_t any = (r->tokens[i] + number * (i + 1)) % p->n_target_classes;
        const int32_t class = now.is_one_class ? 0 : (int32_t)any;
        /* of a span both or none; of one target a row, each */
        const bool is_in = !now.is_empty(number) && (is_span || n == 1 || takes_part(number, i, n));
        r->targets[i] = is_in ? (p->n_target_classes == TINY_VOCABULARY ? r->targets[i] : class) : PS_IGNORE_INDEX;
        r->values[i] = is_in ? (float)(number % 7) / 7 + (float)i : NAN;
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    double losses[N_STEPS], norms[N_STEPS], scales[N_STEPS];
    int64_t n_targets[N_STEPS], n_skipped;
    uint64_t hash;
    int64_t n;
    float *before, *after;
} outcome;

static float weights[RANKS_MAX][2][WEIGHTS_MAX];
static int64_t n_weights;
static ps_step_info infos[RANKS_MAX][N_STEPS];

static ps_status read_weights(ps_engine *e, int32_t rank, float *out)
{
    int64_t n = 0;
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        ps_tensor_info info = {.struct_size = sizeof info};
        PS_TRY(ps_engine_get_tensor_info(e, t, &info));
        PS_ASSERT(n + info.elements <= WEIGHTS_MAX);
        PS_TRY(ps_engine_read_tensor(e, t, 0, info.elements, out + n));
        n += info.elements;
    }
    if (rank == 0) n_weights = n;
    return PS_OK;
}

static ps_status train_micro_batch(ps_engine *e, int32_t rank, int step, int64_t number, bool is_last)
{
    const ps_program *p = e->shape->program;
    int32_t tokens[ROWS_MAX * LENGTH], targets[ROWS_MAX * PER_ROW_MAX];
    float values[ROWS_MAX * PER_ROW_MAX];
    const int64_t n = p->n_targets / p->B;
    for (int64_t b = 0; b < p->B; b++) {
        row r;
        fill_row(p, step * now.n_rows + number * p->B + b, &r);
        memcpy(tokens + b * LENGTH, r.tokens, sizeof r.tokens);
        memcpy(targets + b * n, r.targets, (size_t)n * sizeof *targets);
        memcpy(values + b * n, r.values, (size_t)n * sizeof *values);
    }
    const bool are_values = p->target_array == PS_BATCH_VALUES;
    const ps_batch batch = {.struct_size = sizeof batch,
                            .tokens = tokens,
                            .targets = are_values ? NULL : targets,
                            .values = are_values ? values : NULL};
    PS_TRY(ps_forward(e, &batch, NULL));
    PS_TRY(ps_backward(e));
    if (is_last && now.each_step != NULL) PS_TRY(now.each_step(e, rank, step));
    return ps_step(e);
}

static ps_status train_rows(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    const int32_t rank = ps_comm_rank(t->comm), n_ranks = ps_comm_size(t->comm);
    int64_t rows, accumulation;
    ps_engine_get_shape(e, &rows, NULL, &accumulation, NULL);
    PS_ASSERT(rows * accumulation * n_ranks == now.n_rows);
    PS_TRY(read_weights(e, rank, weights[rank][0]));
    for (int step = 0; step < t->n_steps; step++) {
        for (int64_t k = 0; k < accumulation; k++)
            PS_TRY(train_micro_batch(e, rank, step, k * n_ranks + rank, k == accumulation - 1));
        rank_take(e, &t->result, step);
        infos[rank][step] = t->result.last_step;
    }
    return read_weights(e, rank, weights[rank][1]);
}

static float *copy_of(const float *values)
{
    float *copy = malloc((size_t)n_weights * sizeof *copy);
    memcpy(copy, values, (size_t)n_weights * sizeof *copy);
    return copy;
}

static void free_outcome(outcome *o)
{
    free(o->before);
    free(o->after);
}

/* n_rows rows a step in micro-batches of so many. */
static outcome run_rows(ps_model_func model, int64_t n_rows, int64_t rows, int32_t n_ranks, const char *const *changes)
{
    char b[64], k[64];
    const char *all[32] = {b,
                           k,
                           "optimizer.type=SGD",
                           "optimizer.params.betas=[0.9, 0.999]",
                           "optimizer.params.lr=0.2",
                           "optimizer.params.weight_decay=0"};
    int n = 6;
    snprintf(b, sizeof b, "train_micro_batch_size_per_gpu=%d", (int)rows);
    snprintf(k, sizeof k, "gradient_accumulation_steps=%d", (int)(n_rows / rows / n_ranks));
    for (; *changes != NULL; changes++) all[n++] = *changes;
    now.n_rows = n_rows;
    const rank_task *t = run_ranks_of(model, n_ranks, N_STEPS, train_rows, all);
    outcome o = {.hash = t[0].result.hash, .n = n_weights};
    for (int s = 0; s < N_STEPS; s++) {
        const ps_step_info *i = &infos[0][s];
        o.losses[s] = i->loss, o.norms[s] = i->grad_norm, o.scales[s] = i->loss_scale, o.n_targets[s] = i->n_targets;
        o.n_skipped += i->is_skipped;
        for (int32_t r = 1; r < n_ranks; r++) assert_int_equal(infos[r][s].n_targets, i->n_targets);
    }
    o.before = copy_of(weights[0][0]);
    o.after = copy_of(weights[0][1]);
    return o;
}

/* How far the weights are apart, as a share of the way that they went. */
static double distance(const outcome *a, const outcome *b)
{
    double difference = 0, way = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const double d = (double)a->after[i] - (double)b->after[i], w = (double)a->after[i] - (double)a->before[i];
        difference += d * d;
        way += w * w;
    }
    assert_true(way > 0);
    return sqrt(difference / way);
}

static void assert_alike(const char *what, const outcome *a, const outcome *b, double tolerance)
{
    for (int s = 0; s < N_STEPS; s++) {
        assert_int_equal(a->n_targets[s], b->n_targets[s]);
        if (!(fabs(a->losses[s] - b->losses[s]) <= tolerance * a->losses[s]))
            fail_msg("%s: loss of step %d is %.9g, not %.9g", what, s, b->losses[s], a->losses[s]);
        const bool is_same = a->norms[s] == b->norms[s]; /* infinite ones too */
        if (!is_same && !(fabs(a->norms[s] - b->norms[s]) <= tolerance * a->norms[s]))
            fail_msg("%s: norm of step %d is %.9g, not %.9g", what, s, b->norms[s], a->norms[s]);
    }
    const double difference = distance(a, b);
    if (!(difference <= tolerance)) fail_msg("%s: weights are %.3g of their way apart", what, difference);
}

/* ---- what losses are of ------------------------------------------------------------------------------------------ */

static focal_options gamma_of_own = {2};

static ps_status own_model(ps_builder *b, void *user)
{
    (void)user;
    return model_of_example(b, &gamma_of_own);
}

typedef struct loss_case {
    const char *name;
    ps_model_func model;
    const char *changes[6];
} loss_case;

#define BERT "model.type=bert", "model.type_vocab_size=2"

static const loss_case cases[] = {
    {"conversations", ps_model_from_config, {"train.seed=7"}},
    {"masked tokens", ps_model_from_config, {BERT, "model.head=masked_lm"}},
    {"classes with weights",
     ps_model_from_config,
     {"model.head=sequence_classification", "model.num_labels=3", "train.class_weights=1,0.25,3"}},
    {"tokens with weights and smoothing",
     ps_model_from_config,
     {"model.head=token_classification", "model.num_labels=3", "train.class_weights=1,0.25,3",
      "train.label_smoothing=0.1", "model.classifier_dropout=0"}},
    {"regression",
     ps_model_from_config,
     {"model.head=sequence_classification", "model.num_labels=3", "model.problem_type=regression"}},
    {"spans", ps_model_from_config, {"model.head=question_answering"}},
    {"an own loss", own_model, {"train.seed=7"}},
};

#define LEGAL "gradient_clipping=0", "train.max_nonfinite_steps=1"
#define EARLY LEGAL, "memory.update_in_backward=always"
#define LATE LEGAL, "memory.update_in_backward=never"

typedef struct time_of_updates {
    const char *name, *changes[4];
} time_of_updates;

/* The first clips, by the norm. */
static const time_of_updates times[] = {{"clipped", {NOTHING}}, {"late", {LATE}}, {"early", {EARLY}}};

enum { N_CHANGES_MAX = 16 };

static const char *const *changes_of(const loss_case *c, const time_of_updates *t, const char *more)
{
    static const char *all[N_CHANGES_MAX];
    int n = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(c->changes) && c->changes[i] != NULL; i++) all[n++] = c->changes[i];
    for (size_t i = 0; i < PS_ARRAY_LEN(t->changes) && t->changes[i] != NULL; i++) all[n++] = t->changes[i];
    if (more != NULL) all[n++] = more;
    all[n] = NULL;
    return all;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Sums in another order: a few roundings of a float, in three steps that learn from each other. */
#define F32 3e-5

/* One batch of n rows against n of one, and against those of ranks; the mean of means is another one. */
static void check_case(const loss_case *c, const time_of_updates *t, is_empty_row *is_empty)
{
    char what[160];
    now.is_empty = is_empty;
    const char *const *changes = changes_of(c, t, NULL);
    for (int32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
        const int64_t n_rows = n_ranks == 3 ? 9 : 8;
        outcome whole = run_rows(c->model, n_rows, n_rows, 1, changes);
        outcome ones = run_rows(c->model, n_rows, 1, n_ranks, changes);
        snprintf(what, sizeof what, "%s, %s, %d ranks", c->name, t->name, n_ranks);
        assert_alike(what, &whole, &ones, F32);
        assert_true(whole.n_targets[0] > 0 && whole.norms[0] > 0);
        if (n_ranks > 1) {
            outcome shares = run_rows(c->model, n_rows, n_rows / n_ranks, n_ranks, changes);
            assert_alike(what, &whole, &shares, F32);
            free_outcome(&shares);
        }
        free_outcome(&whole), free_outcome(&ones);
    }
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        for (size_t k = 0; k < PS_ARRAY_LEN(times); k++) {
            if (!is_my_share() || (cases[i].model == own_model && !HAS_OWN_LOSS)) continue;
            check_case(&cases[i], &times[k], i % 2 == k % 2 ? some_rows : no_row);
        }
}

/* By the old rule that is not so, but where all micro-batches weigh alike. */
static void test_micro_batches(void **state)
{
    (void)state;
    static const char rule[] = "train.loss_average=micro_batches";
    now.is_empty = no_row;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        if (cases[i].model == own_model || strcmp(cases[i].name, "spans") == 0) continue;
        const char *const *changes = changes_of(&cases[i], &times[1], rule);
        outcome whole = run_rows(cases[i].model, 8, 8, 1, changes), ones = run_rows(cases[i].model, 8, 1, 1, changes);
        if (!(fabs(ones.norms[0] / whole.norms[0] - 1) > 0.01 && distance(&whole, &ones) > 0.01))
            fail_msg("%s: the rules do not differ", cases[i].name);
        free_outcome(&whole), free_outcome(&ones);
    }
    const loss_case *spans = &cases[5];
    const char *const *changes = changes_of(spans, &times[1], rule);
    outcome whole = run_rows(spans->model, 8, 8, 1, changes), ones = run_rows(spans->model, 8, 1, 1, changes);
    assert_alike("spans", &whole, &ones, F32);
    free_outcome(&whole), free_outcome(&ones);
}

/* Early and late, in much memory and little: the same bits. */
static void test_same_bits(void **state)
{
    (void)state;
    static const char *const memory[][4] = {
        {"memory.device=64MB"},
        {"memory.device=900KB", "memory.disk=20MB", "default_chunk_size=2048"},
        {"memory.device=1200KB", "memory.host=400KB", "memory.disk=20MB"},
        {"activation_checkpointing.enabled=true", "memory.device=1200KB", "memory.host=4MB"}};
    now.is_empty = some_rows;
    for (int32_t n_ranks = 1; n_ranks <= 2; n_ranks++) {
        uint64_t hash = 0;
        double norm = 0;
        for (size_t i = 0; i < PS_ARRAY_LEN(memory); i++)
            for (int early = 0; early < 2; early++) {
                const char *const *m = memory[i];
                const char *all[] = {LEGAL,
                                     early ? "memory.update_in_backward=always" : "memory.update_in_backward=never",
                                     "bf16.enabled=true",
                                     m[0],
                                     m[1],
                                     m[2],
                                     NULL};
                outcome o = run_rows(ps_model_from_config, 8, 2, n_ranks, all);
                if (i == 0 && !early) hash = o.hash, norm = o.norms[N_STEPS - 1];
                if (o.hash != hash || o.norms[N_STEPS - 1] != norm)
                    fail_msg("%d ranks, memory %zu, early %d: other bits", n_ranks, i, early);
                free_outcome(&o);
            }
    }
}

/* Ranks that plan differently, one of them with early updates: the same bits. */
static void test_ranks_with_different_plans(void **state)
{
    (void)state;
#define MIXED LEGAL, "optimizer.type=SGD", "optimizer.params.betas=[0.9, 0.999]", "gradient_accumulation_steps=2"
    const char *const *const of_rank[] = {CHANGES(MIXED), CHANGES(MIXED, "memory.update_in_backward=always")};
    rank_task tasks[2];
    ps_comm *comms[2];
    pthread_t threads[2];
    now.is_empty = some_rows;
    now.n_rows = 8;
    const uint64_t want = run_ranks(2, N_STEPS, train_rows, of_rank[0])[0].result.hash;
    assert_ok(ps_comm_open_threads(
        &(ps_comm_options){.timeout_s = rank_timeout_s, .staging_bytes = RANKS_STAGING_BYTES}, 2, comms));
    for (int k = 0; k < 2; k++) {
        tasks[k] = (rank_task){.comm = comms[k],
                               .model = ps_model_from_config,
                               .run = train_rows,
                               .changes = of_rank[k],
                               .n_steps = N_STEPS};
        assert_int_equal(pthread_create(&threads[k], NULL, rank_main, &tasks[k]), 0);
    }
    for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
    for (int k = 0; k < 2; k++) {
        if (tasks[k].result.st != PS_OK) fail_msg("rank %d: %s", k, tasks[k].result.error);
        assert_true(tasks[k].result.hash == want);
    }
}

/* Scales of fp16 go the same way, past an overflow too: gradients keep their range, whatever targets are ignored. */
static void test_fp16(void **state)
{
    (void)state;
    static const char *const changes[] = {"fp16.enabled=true",
                                          "fp16.initial_scale_power=30",
                                          "fp16.max_loss_scale=2e9",
                                          "fp16.backoff_factor=0.0001",
                                          "fp16.loss_scale_window=1",
                                          "fp16.hysteresis=1",
                                          NULL};
    now.is_empty = some_rows;
    outcome whole = run_rows(ps_model_from_config, 8, 8, 1, changes);
    assert_true(whole.n_skipped == 1 && whole.scales[0] == 0x1p30 && whole.scales[2] == 2 * whole.scales[1]);
    for (int32_t n_ranks = 1; n_ranks <= 2; n_ranks++) {
        outcome ones = run_rows(ps_model_from_config, 8, 1, n_ranks, changes);
        assert_int_equal(ones.n_skipped, whole.n_skipped);
        for (int s = 0; s < N_STEPS; s++) assert_true(ones.scales[s] == whole.scales[s]);
        assert_alike("fp16", &whole, &ones, 2e-2);
        free_outcome(&ones);
    }
    free_outcome(&whole);
}

/* No target in the whole step: nothing is learned, and nothing is infinite. */
static void test_no_targets(void **state)
{
    (void)state;
    now.is_empty = all_rows;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        for (size_t k = 0; k < PS_ARRAY_LEN(times); k++)
            for (int32_t n_ranks = 1; n_ranks <= 2; n_ranks++) {
                if (!is_my_share() || (cases[i].model == own_model && !HAS_OWN_LOSS)) continue;
                outcome o = run_rows(cases[i].model, 8, 2, n_ranks, changes_of(&cases[i], &times[k], NULL));
                for (int s = 0; s < N_STEPS; s++)
                    if (o.losses[s] != 0 || o.norms[s] != 0 || o.n_targets[s] != 0)
                        fail_msg("%s: loss %g, norm %g", cases[i].name, o.losses[s], o.norms[s]);
                assert_int_equal(o.n_skipped, 0);
                assert_memory_equal(o.before, o.after, (size_t)o.n * sizeof *o.after);
                free_outcome(&o);
            }
}

/* A class that weighs nothing, but whose labels are smoothed, has a derivative; alone in a step, nothing to divide it
 * by: torch has a NaN there. */
static void test_no_weight(void **state)
{
    (void)state;
    static const char *const changes[] = {"model.head=sequence_classification", "model.num_labels=2",
                                          "train.class_weights=0,1", "train.label_smoothing=0.1", NULL};
    now.is_empty = no_row;
    outcome whole = run_rows(ps_model_from_config, 8, 8, 1, changes);
    outcome ones = run_rows(ps_model_from_config, 8, 1, 1, changes);
    assert_alike("a class of no weight", &whole, &ones, F32);
    free_outcome(&whole), free_outcome(&ones);
    now.is_one_class = true;
    outcome nothing = run_rows(ps_model_from_config, 8, 2, 2, changes);
    now.is_one_class = false;
    assert_true(nothing.losses[0] == 0 && nothing.norms[0] == 0 && nothing.n_targets[0] == 8);
    assert_memory_equal(nothing.before, nothing.after, (size_t)nothing.n * sizeof *nothing.after);
    free_outcome(&nothing);
}

/* What a gradient is multiplied by is as patrickstar.h says: the numbers of ps_eval_info are enough. */
static double squares[N_STEPS][2];
static int64_t way;

static ps_status take_gradient(ps_engine *e, int32_t rank, int step)
{
    enum { PIECE = 4096 };
    float g[PIECE];
    double sum = 0;
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        ps_tensor_info info = {.struct_size = sizeof info};
        PS_TRY(ps_engine_get_tensor_info(e, t, &info));
        for (int64_t first = 0; first < info.elements; first += PIECE) {
            const int64_t n = ps_min_i64(PIECE, info.elements - first);
            PS_TRY(ps_engine_read_gradient(e, t, first, n, g));
            for (int64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
        }
    }
    if (rank == 0) squares[step][way] = sum;
    return PS_OK;
}

static void test_read_gradient(void **state)
{
    (void)state;
    static const char *const changes[] = {"fp16.enabled=false", NULL};
    now.is_empty = some_rows;
    now.each_step = take_gradient;
    for (way = 0; way < 2; way++) {
        outcome o = run_rows(ps_model_from_config, 8, way == 0 ? 8 : 2, way == 0 ? 1 : 2, changes);
        for (int s = 0; s < N_STEPS; s++) {
            /* of two ranks with two micro-batches each */
            const double n = way == 0 ? 8 * LENGTH : 2 * LENGTH * 2;
            const double norm = sqrt(squares[s][way]) / ((double)o.n_targets[s] / n);
            assert_true(fabs(norm - o.norms[s]) <= 1e-6 * norm);
        }
        free_outcome(&o);
    }
    now.each_step = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),     cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_ranks_with_different_plans),
        cmocka_unit_test(test_fp16),      cmocka_unit_test(test_no_targets),
        cmocka_unit_test(test_no_weight), cmocka_unit_test(test_read_gradient),
    };
    return RUN_ON_BACKENDS(tests);
}
