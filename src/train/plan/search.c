#include "train/plan/search.h"

#include <math.h>

#include "base/mem.h"
#include "chunk/comm/agree.h"
#include "train/plan/model_data_min.h"

/* A step that waits for no more than this share of its time cannot be made much faster by another schedule of
 * transfers. */
#define WORTH_SEARCHING 0.01
/* vary_streamed starts with 1/4, 2/4, 3/4 and 4/4 of the chunks kept on the host. */
#define N_QUARTERS 4
#define LEAD_MAX 4
/* vary_early_share distinguishes shares that differ by one in so many. */
#define FINEST_SHARE 12
/* Candidates tried after the first one that fits. */
#define TRIALS_MAX 16
/* vary_moments_ahead tries 1/16 to 1/64 of a step. */
#define AHEAD_FARTHEST 4
#define AHEAD_NEAREST 6
/* Look-ahead of half to eight times the usual depth. */
#define DEPTH_LEAST (-1)
#define DEPTH_MOST 3
/* Writing wears disks out: a step that writes less may take so much longer. */
#define SPARING_COST 1.02
/* Of so many steps with speculative updates one is expected to be taken back. */
#define STEPS_PER_WRONG_ONE 32
/* With so many chunks, times the ranks, planning is fast enough to compute each rank's plan. */
#define ASKED_CHUNKS_MAX 4096

typedef struct search {
    const ps_settings *s;
    const ps_program *program;
    const ps_code *code;
    const ps_budgets *budgets;
    int64_t most_elements, chunk_elements; /* the largest chunk size allowed; the current one */
    int32_t most_ahead;
    bool may_keep_logits;
    bool may_recompute; /* in wrong steps; otherwise gradients are kept */
    int32_t trials_left;
    ps_deadline *deadline;
    ps_exec_plan *best;
    ps_forecast forecast; /* of best */
} search;

ps_status ps_search_try(const ps_settings *s, const ps_program *program, const ps_code *code, const ps_budgets *budgets,
                        int64_t chunk_elements, ps_candidate candidate, const ps_candidate *paused,
                        ps_deadline *deadline, ps_exec_plan **out, ps_forecast *forecast)
{
    *out = NULL;
    PS_TRY(ps_deadline_check(deadline));
    PS_TRY(ps_exec_plan_create(s, program, code, budgets, chunk_elements, candidate, deadline, out));
    ps_status st = paused != NULL ? ps_exec_plan_add_paused(*out, budgets, *paused, deadline) : PS_OK;
    if (st == PS_OK) st = ps_trial_run(*out, budgets, false, deadline, forecast);
    if (st == PS_OK) return PS_OK;
    ps_exec_plan_destroy(*out);
    *out = NULL;
    return st;
}

/* ---- the first candidate that fits ---- */

/* Maximum number of groups gathered ahead. With memory-saving communication a group is one chunk, so that r->n of them
 * need the memory of one group of all ranks otherwise. Without prefetching of chunks there is none of groups. */
static int32_t most_ahead(const ps_settings *s)
{
    const ps_ranks *r = &s->ranks;
    if (r->n == 1 || s->tiers.store.prefetch == 0) return 0;
    return r->saves_memory ? r->n : 1;
}

static search search_of(const ps_settings *s, const ps_program *program, const ps_code *code, const ps_budgets *budgets,
                        ps_deadline *deadline)
{
    return (search){.s = s,
                    .program = program,
                    .code = code,
                    .budgets = budgets,
                    .deadline = deadline,
                    .most_elements = INT64_MAX,
                    .most_ahead = most_ahead(s),
                    .may_recompute = s->batch_copies_bytes > 0 && s->wrong_steps != PS_WRONG_STEPS_KEEP_GRADS,
                    .may_keep_logits =
                        code->keeping != NULL && code->keeping->non_model_bytes <= budgets->bytes[PS_TIER_DEVICE]};
}

static ps_status try_candidate(search *x, ps_candidate v)
{
    return ps_search_try(x->s, x->program, x->code, x->budgets, x->chunk_elements, v, NULL, x->deadline, &x->best,
                         &x->forecast);
}

/* This candidate with all logits kept, if that fits; otherwise with recomputed logits. Kept ones may not use the memory
 * that calls between steps need: they must fit from any initial residency (memory.keep_logits = always skips this
 * condition). */
static ps_status try_both(search *x, ps_candidate v)
{
    ps_candidate keeping = v;
    keeping.keeps_logits = true;
    const ps_status st = x->may_keep_logits ? try_candidate(x, keeping) : PS_EBUDGET;
    if (st == PS_OK && ps_exec_plan_fits_from_anywhere(x->best, x->budgets)) return PS_OK;
    if (st != PS_OK && st != PS_EBUDGET) return st;
    ps_exec_plan_destroy(x->best); /* NULL if it did not fit */
    x->best = NULL;
    return try_candidate(x, v);
}

/* When the updates of all chunks run. */
typedef struct update_way {
    ps_update_time time;
    int32_t n_early;
} update_way;

enum { N_UPDATE_WAYS = 3 };

/* The ways that are allowed, in the order in which they are tried; their number. Deferred updates keep optimizer data
 * next to activations: where that is too much, updates get a separate phase. If gradients have a separate list, early
 * updates need the least memory, as a chunk's gradients are freed when it is updated. */
static int update_ways(const ps_settings *s, update_way ways[N_UPDATE_WAYS])
{
    int n = 0;
    if (s->training && s->defer_updates && !s->always_updates_early) ways[n++] = (update_way){PS_UPDATE_DEFERRED, 0};
    if (!s->always_updates_early) ways[n++] = (update_way){PS_UPDATE_AFTER, 0};
    if (s->may_update_early) ways[n++] = (update_way){PS_UPDATE_AFTER, PS_EARLY_ALL};
    return n;
}

/* The candidates that differ in memory: the first that fits. Gathering ahead needs the memory of other groups. */
static ps_status find_fitting(search *x)
{
    ps_status st = PS_EBUDGET;
    update_way ways[N_UPDATE_WAYS];
    const int n_ways = update_ways(x->s, ways);
    for (int32_t ahead = x->most_ahead;; ahead = ahead > 1 ? 1 : ahead - 1) {
        for (int i = 0; i < n_ways && st == PS_EBUDGET; i++)
            st = try_both(
                x, (ps_candidate){.update_time = ways[i].time, .n_early = ways[i].n_early, .groups_ahead = ahead});
        if (st != PS_EBUDGET || ahead == 0) return st;
    }
}

/* ---- the fastest candidate ---- */

/* What a wrong step takes more than a right one, with the step after it. */
static double wrong_ns(const ps_forecast *f)
{
    const double after_ns = (double)(f->taken_back_step.all_ns - f->step.all_ns);
    return (double)f->recompute_step.all_ns + (f->taken_back_step.all_ns > 0 ? fmax(0, after_ns) : 0);
}

/* Of a step, on average. */
static double expected_ns(const ps_forecast *f)
{
    return (double)f->step.all_ns + wrong_ns(f) / STEPS_PER_WRONG_ONE;
}

static bool is_better(const ps_forecast *f, const ps_exec_plan *b, const search *x)
{
    const double ns = expected_ns(f), best_ns = expected_ns(&x->forecast);
    const int64_t written = f->mean_bytes[PS_LINK_DISK_WRITE], best = x->forecast.mean_bytes[PS_LINK_DISK_WRITE];
    const ps_candidate *v = &b->candidate, *w = &x->best->candidate;
    if (v->evicts_dirty && !w->evicts_dirty && written > best) return ns * SPARING_COST < best_ns;
    const bool begins_later = v->n_early == w->n_early && v->ahead_halvings > 0 && w->ahead_halvings == 0;
    if (begins_later && written < best) return ns < best_ns * SPARING_COST;
    return ns < best_ns;
}

/* A lower bound of a step: computing alone, with updates on a slower tier; if that tier has a separate queue, the
 * longer of both. */
static int64_t compute_ns(const ps_exec_plan *b)
{
    int64_t sum[PS_RAM_TIER_COUNT] = {0};
    for (int32_t m = 0; m < b->trace->n_moments; m++) {
        const ps_moment *moment = &b->trace->moments[m];
        sum[ps_trace_tier_of(b->trace, moment)] += moment->cost_ns;
    }
    const bool is_discrete = ps_backend_space(b->settings->backend)->device->is_asynchronous;
    return is_discrete ? ps_max_i64(sum[PS_TIER_DEVICE], sum[PS_TIER_HOST]) : sum[PS_TIER_DEVICE] + sum[PS_TIER_HOST];
}

/* Keep the candidate if it is faster than the best so far. *tried: it was run. */
static ps_status compare(search *x, ps_candidate v, bool *tried)
{
    ps_exec_plan *b;
    ps_forecast f;
    *tried = false;
    ps_status st = ps_exec_plan_create(x->s, x->program, x->code, x->budgets, x->chunk_elements, v, x->deadline, &b);
    if (st != PS_OK) return st == PS_EBUDGET ? PS_OK : st;
    const bool has_room = !v.keeps_logits || ps_exec_plan_fits_from_anywhere(b, x->budgets);
    const double worth = v.ahead_halvings > 0 ? SPARING_COST : 1; /* it may be better without being faster */
    if (has_room && (double)compute_ns(b) < worth * expected_ns(&x->forecast)) {
        *tried = true;
        st = ps_trial_run(b, x->budgets, false, x->deadline, &f);
        if (st == PS_OK && is_better(&f, b, x)) {
            ps_exec_plan *slower = x->best;
            x->best = b;
            x->forecast = f;
            b = slower;
        }
    }
    ps_exec_plan_destroy(b);
    return st == PS_EBUDGET ? PS_OK : st;
}

static ps_status consider(search *x, ps_candidate v)
{
    bool tried;
    if (x->trials_left <= 0 || ps_deadline_stops(x->deadline)) return PS_OK;
    PS_TRY(compare(x, v, &tried));
    x->trials_left -= tried;
    return PS_OK;
}

/* Kept logits use memory that updates on the device could have: if the step is faster with recomputed ones, they are
 * recomputed. That belongs to the first candidate that fits, and does not count as another one. */
static ps_status weigh_logits(search *x)
{
    bool tried;
    ps_candidate v = x->best->candidate;
    v.keeps_logits = false;
    return x->best->candidate.keeps_logits ? compare(x, v, &tried) : PS_OK;
}

static bool is_worth_it(const search *x)
{
    const ps_step_time *t = &x->forecast.step;
    return (double)(t->all_ns - t->compute_ns) > WORTH_SEARCHING * (double)t->all_ns;
}

static ps_status consider_depths(search *x, int32_t by)
{
    for (const ps_exec_plan *before = NULL; before != x->best;) {
        ps_candidate v = x->best->candidate;
        v.prefetch_doublings += by;
        if (v.prefetch_doublings < DEPTH_LEAST || v.prefetch_doublings > DEPTH_MOST) return PS_OK;
        before = x->best;
        PS_TRY(consider(x, v));
    }
    return PS_OK;
}

/* Start loads sooner, so that both directions of a link are busy; or later, which moves less. */
static ps_status vary_depth(search *x)
{
    const int32_t usual = x->best->candidate.prefetch_doublings;
    if (x->s->tiers.store.prefetch == 0) return PS_OK;
    PS_TRY(consider_depths(x, 1));
    return x->best->candidate.prefetch_doublings == usual ? consider_depths(x, -1) : PS_OK;
}

/* Updates sooner than necessary, so that chunks updated on the host are back when they are used; and sooner still,
 * while that helps. */
static ps_status vary_lead(search *x)
{
    for (int32_t lead = 1; lead <= LEAD_MAX; lead++) {
        ps_candidate v = x->best->candidate;
        if (v.update_time != PS_UPDATE_DEFERRED || v.update_lead_chunks != lead - 1) return PS_OK;
        v.update_lead_chunks = lead;
        PS_TRY(consider(x, v));
    }
    return PS_OK;
}

static ps_status consider_streamed(search *x, int64_t n)
{
    ps_candidate v = x->best->candidate;
    v.n_streamed = (int32_t)n;
    return n >= 0 && n <= x->best->n_kept_on_host && n != x->best->candidate.n_streamed ? consider(x, v) : PS_OK;
}

/* Number of chunks kept on the host that are updated on the device instead: quarters, then closer around the best. With
 * unified memory the same processor computes both. */
static ps_status vary_streamed(search *x)
{
    const int64_t n_kept = x->best->n_kept_on_host;
    if (!x->s->hybrid_updates || ps_backend_space(x->s->backend)->is_unified_memory) return PS_OK;
    int64_t before = 0;
    for (int quarters = 1; quarters <= N_QUARTERS; quarters++) {
        const int64_t n = ps_ceil_div(n_kept * quarters, N_QUARTERS);
        if (n > before) PS_TRY(consider_streamed(x, n));
        before = n;
    }
    const int64_t finest = ps_max_i64(1, n_kept / (8 * N_QUARTERS)); /* leaves trials for the later ones */
    for (int64_t by = n_kept / (2 * N_QUARTERS); by >= finest; by /= 2) {
        const int64_t n = x->best->candidate.n_streamed;
        PS_TRY(consider_streamed(x, n - by));
        PS_TRY(consider_streamed(x, n + by));
    }
    return PS_OK;
}

/* Other update times and numbers of groups gathered ahead, combined with the best so far. Early updates have a separate
 * search, and keep their number here. */
static ps_status vary_update_time(search *x)
{
    const ps_candidate found = x->best->candidate;
    update_way ways[N_UPDATE_WAYS];
    const int n_ways = update_ways(x->s, ways);
    for (int32_t ahead = x->most_ahead; ahead >= 0; ahead = ahead > 1 ? 1 : ahead - 1)
        for (int i = 0; i < n_ways; i++) {
            ps_candidate v = x->best->candidate;
            if ((ways[i].n_early > 0) != (found.n_early > 0)) continue;
            if (found.n_early == 0) v.update_time = ways[i].time;
            v.groups_ahead = ahead;
            if (v.update_time != PS_UPDATE_DEFERRED) v.update_lead_chunks = 0;
            if (ahead != found.groups_ahead || v.update_time != found.update_time) PS_TRY(consider(x, v));
        }
    return PS_OK;
}

/* Start loads for the next step as soon as room can be made for them. */
static ps_status vary_evicts_dirty(search *x)
{
    ps_candidate v = x->best->candidate;
    v.evicts_dirty = true;
    return x->s->tiers.store.prefetch > 0 ? consider(x, v) : PS_OK;
}

/* In the order of their gains (bench/notes.md). */
static ps_status vary_all(search *x)
{
    ps_status (*const steps[])(search *) = {vary_streamed, vary_update_time, vary_depth, vary_evicts_dirty, vary_lead};
    for (size_t i = 0; i < PS_ARRAY_LEN(steps) && is_worth_it(x); i++) PS_TRY(steps[i](x));
    return PS_OK;
}

/* Some early, the others deferred: where a disk is in use, only a mix has optimizer data to move in both passes. The
 * backward pass takes about two thirds of computing, and can move as much of it, first and last layers apart; then closer
 * around the best. */
static ps_status vary_early_share(search *x)
{
    const int32_t n_all = x->best->candidate.n_early;
    ps_candidate v = x->best->candidate;
    if (x->budgets->bytes[PS_TIER_DISK] == 0 || !x->s->defer_updates || x->s->always_updates_early) return PS_OK;
    v.update_time = PS_UPDATE_DEFERRED;
    for (int32_t sixths = 5; sixths >= 3 && is_worth_it(x); sixths--) {
        v.n_early = (int32_t)ps_ceil_div((int64_t)sixths * n_all, 6);
        PS_TRY(consider(x, v));
    }
    const int32_t found = x->best->candidate.n_early, by = n_all / FINEST_SHARE;
    if (found == n_all || by == 0 || !is_worth_it(x)) return PS_OK;
    for (int sign = -1; sign <= 1; sign += 2) {
        v.n_early = found + sign * by;
        PS_TRY(consider(x, v));
    }
    return PS_OK;
}

/* Loads of optimizer data that begin early push out parameters that are needed once more in between, and then dirty
 * data: they begin later, and later still while that helps. */
static ps_status vary_moments_ahead(search *x)
{
    if (x->budgets->bytes[PS_TIER_DISK] == 0 || x->s->tiers.store.prefetch == 0) return PS_OK;
    for (int32_t halvings = AHEAD_FARTHEST; halvings <= AHEAD_NEAREST; halvings++) {
        ps_candidate v = x->best->candidate;
        if (halvings > AHEAD_FARTHEST && v.ahead_halvings != halvings - 1) return PS_OK;
        v.ahead_halvings = halvings;
        PS_TRY(consider(x, v));
    }
    return PS_OK;
}

static void give_up(search *x)
{
    ps_exec_plan_destroy(x->best);
    x->best = NULL;
}

/* An execution plan for steps while speculation is paused, with the schedule of the fastest plan without it. If that
 * does not fit, speculation goes on whatever the share of wrong steps. */
static ps_status add_paused(search *y, const search *waiting)
{
    const ps_candidate *other = &waiting->best->candidate;
    const bool is_deferred = other->update_time == PS_UPDATE_DEFERRED;
    ps_forecast f;
    ps_status st = ps_exec_plan_add_paused(y->best, y->budgets, is_deferred ? *other : y->best->candidate, y->deadline);
    if (st == PS_OK) st = ps_trial_run(y->best, y->budgets, false, y->deadline, &f);
    if (st == PS_OK)
        y->forecast = f;
    else
        ps_exec_plan_drop_paused(y->best);
    return st == PS_EBUDGET ? PS_OK : st;
}

/* Early updates need another number of streamed chunks and another look-ahead: a separate search, from the first
 * candidate on. y->best NULL: none fits. */
static ps_status search_early(const search *x, ps_candidate first, search *y)
{
    *y = *x;
    y->best = NULL;
    y->trials_left = TRIALS_MAX;
    const ps_status st = try_both(y, first);
    if (st == PS_EBUDGET) return PS_OK;
    PS_TRY(st);
    PS_TRY(weigh_logits(y));
    PS_TRY(vary_early_share(y));
    PS_TRY(vary_moments_ahead(y));
    return vary_all(y);
}

/* y takes the place of x if it is faster; the other one is given up. */
static void take_faster(search *x, search *y)
{
    if (x->best == NULL || (y->best != NULL && is_better(&y->forecast, y->best, x))) {
        search slower = *x;
        *x = *y;
        *y = slower;
    }
    give_up(y);
}

/* Speculative ones in both ways of carrying out wrong steps. */
static ps_status vary_early(search *x, ps_candidate first)
{
    search found = {.best = NULL};
    ps_status st = PS_OK;
    first.update_time = x->s->may_speculate ? PS_UPDATE_DEFERRED : PS_UPDATE_AFTER;
    first.n_early = PS_EARLY_ALL;
    first.keeps_logits = false; /* decided again */
    for (int again = 0; again <= x->may_recompute && st == PS_OK; again++) {
        search y;
        if (again == 0 && x->s->wrong_steps == PS_WRONG_STEPS_RECOMPUTE) continue;
        first.recomputes = again;
        st = search_early(x, first, &y);
        take_faster(&found, &y);
    }
    if (st == PS_OK && found.best != NULL && is_better(&found.forecast, found.best, x)) {
        if (found.best->speculates) st = add_paused(&found, x);
        if (found.best->speculates) found.forecast.waiting_step_ns = x->forecast.step.all_ns;
        ps_exec_plan *slower = x->best;
        x->best = found.best;
        x->forecast = found.forecast;
        found.best = slower;
    }
    give_up(&found);
    return st;
}

static ps_status find_fastest(search *x)
{
    if (!x->s->training) return PS_OK;
    PS_TRY(weigh_logits(x));
    x->trials_left = x->s->takes_first_plan ? 0 : TRIALS_MAX;
    const ps_candidate first = x->best->candidate;
    const bool may_be_early = x->s->may_update_early || ps_exec_plan_may_speculate(x->best, x->budgets);
    const bool also_early = may_be_early && first.n_early == 0;
    if (first.n_early > 0) PS_TRY(vary_moments_ahead(x));
    PS_TRY(vary_all(x));
    return also_early && !x->s->takes_first_plan && is_worth_it(x) ? vary_early(x, first) : PS_OK;
}

/* ---- chunk size ---- */

static ps_status find_size(search *x)
{
    PS_TRY(ps_model_data_min_check(x->s, x->program, x->budgets));
    x->chunk_elements = x->s->chunk_elements;
    if (x->chunk_elements > 0) return find_fitting(x);
    const int64_t min_elements = ps_exec_plan_min_chunk_elements(x->s, x->program);
    int64_t max_elements = ps_min_i64(x->most_elements, ps_exec_plan_max_chunk_elements(x->s, x->program, x->budgets));
    for (;;) {
        PS_TRY(ps_exec_plan_search_chunk_elements(x->s, x->program, min_elements, max_elements, &x->chunk_elements));
        const ps_status st = find_fitting(x);
        if (st != PS_EBUDGET || max_elements <= min_elements || ps_deadline_timed_out(x->deadline)) return st;
        max_elements = ps_max_i64(min_elements, max_elements / 2);
    }
}

/* ---- all ranks ---- */

/* Values that ranks must have in common. */
enum { SIZE, AHEAD, RECOMPUTES, N_COMMON };

/* Minimum and maximum over ranks of each. */
typedef struct findings {
    double least[N_COMMON], most[N_COMMON];
} findings;

static findings findings_of(const search *x)
{
    const double size = (double)x->chunk_elements, ahead = x->best->candidate.groups_ahead;
    const double again = x->best->recompute != NULL;
    return (findings){.least = {size, ahead, again}, .most = {size, ahead, again}};
}

static void add_findings(findings *f, const findings *more)
{
    for (int i = 0; i < N_COMMON; i++) {
        if (more->least[i] < f->least[i]) f->least[i] = more->least[i];
        if (more->most[i] > f->most[i]) f->most[i] = more->most[i];
    }
}

/* In a plan without running ranks: the result of another rank, within x's limits of chunk size and ahead. */
static ps_status plan_as_rank(const search *x, int32_t rank, bool searches_fastest, findings *out)
{
    ps_settings s = *x->s;
    search y = *x;
    s.ranks.rank = rank;
    y.s = &s;
    y.best = NULL;
    ps_status st = find_size(&y);
    if (st == PS_OK && searches_fastest) st = find_fastest(&y);
    if (st == PS_OK) *out = findings_of(&y);
    if (st == PS_OK && !searches_fastest)
        out->least[RECOMPUTES] = out->most[RECOMPUTES] = x->best->recompute != NULL; /* it is not known */
    give_up(&y);
    return st;
}

/* In a small plan, for each rank. In a large one only for the first, which owns most, and the last, and only the first
 * candidate that fits: a rank's fastest candidate seldom matters, and finding it would take as long as that rank's
 * plan. */
static ps_status plan_as_ranks(const search *x, findings *f)
{
    const ps_ranks *r = &x->s->ranks;
    const bool is_small = (int64_t)r->n * x->best->layout->n_chunks <= ASKED_CHUNKS_MAX;
    for (int32_t rank = 0; rank < r->n; rank++) {
        if (rank == r->rank || (!is_small && rank > 0 && rank < r->n - 1)) continue;
        findings other;
        PS_TRY(plan_as_rank(x, rank, is_small, &other));
        add_findings(f, &other);
    }
    return PS_OK;
}

static ps_status ask_ranks(const search *x, findings *f)
{
    ps_comm *comm = x->s->ranks.comm;
    if (comm == NULL) { /* after the deadline x's plan is used without the others' */
        const ps_status st = plan_as_ranks(x, f);
        return st == PS_EBUDGET && ps_deadline_timed_out(x->deadline) ? PS_OK : st;
    }
    PS_TRY(ps_comm_all_reduce(comm, f->least, N_COMMON, PS_COMM_MIN));
    return ps_comm_all_reduce(comm, f->most, N_COMMON, PS_COMM_MAX);
}

/* Chunk size, the number of groups gathered ahead and whether passes are recomputed, with their collectives, must be the
 * same on all ranks; each rank chooses the rest. *agreed: they are the same; otherwise x's limits become the minimum
 * over ranks, for another round. */
static ps_status agree(search *x, ps_status st, bool *agreed)
{
    *agreed = true;
    PS_TRY(ps_comm_agree(x->s->ranks.comm, st));
    if (x->s->ranks.n == 1) return PS_OK;
    findings f = findings_of(x);
    PS_TRY(ask_ranks(x, &f));
    *agreed =
        f.least[SIZE] >= f.most[SIZE] && f.least[AHEAD] >= f.most[AHEAD] && f.least[RECOMPUTES] >= f.most[RECOMPUTES];
    x->may_recompute = x->may_recompute && f.least[RECOMPUTES] >= f.most[RECOMPUTES];
    x->most_elements = (int64_t)f.least[SIZE];
    x->most_ahead = (int32_t)f.least[AHEAD];
    return PS_OK;
}

/* A share w of wrong steps, and of steps after them that make their updates again, takes step + w wrong_ns a step.
 * All ranks wait for the slowest, and have the same result. */
static ps_status find_max_wrong_share(const search *x, ps_forecast *f)
{
    enum { STEP, WRONG, PAUSED, ALL };
    const bool speculates = x->best->speculates, pauses = x->best->paused != NULL;
    double s[ALL] = {[STEP] = (double)f->step.all_ns,
                     [WRONG] = speculates ? wrong_ns(f) : 0,
                     [PAUSED] = speculates && !pauses ? INFINITY : (double)(pauses ? f->paused_step : f->step).all_ns};
    if (x->s->ranks.comm != NULL) PS_TRY(ps_comm_all_reduce(x->s->ranks.comm, s, ALL, PS_COMM_MAX));
    f->max_wrong_share = s[WRONG] > 0 ? fmax(0, (s[PAUSED] - s[STEP]) / s[WRONG]) : INFINITY;
    return PS_OK;
}

ps_status ps_search_exec_plan(const ps_settings *s, const ps_program *program, const ps_code *code,
                              const ps_budgets *budgets, ps_deadline *deadline, ps_exec_plan **out,
                              ps_forecast *forecast)
{
    search x = search_of(s, program, code, budgets, deadline), last_round = x;
    ps_status st = PS_OK;
    for (bool agreed = false; st == PS_OK && !agreed;) {
        give_up(&last_round);
        last_round = x;
        x.best = NULL;
        st = find_size(&x);
        if (st == PS_OK) st = find_fastest(&x);
        st = agree(&x, st, &agreed);
    }
    /* The deadline has passed: the best so far is what another round would improve. */
    search *found = &x, *other = &last_round;
    if (st == PS_EBUDGET && last_round.best != NULL && ps_deadline_timed_out(deadline)) {
        found = &last_round, other = &x;
        st = PS_OK;
    }
    give_up(other);
    if (st == PS_OK && s->may_speculate) st = find_max_wrong_share(found, &found->forecast);
    if (st != PS_OK) give_up(found);
    *out = found->best;
    *forecast = found->forecast;
    return st;
}

ps_status ps_search_fits(const ps_settings *s, const ps_program *program, const ps_code *code,
                         const ps_budgets *budgets, ps_deadline *deadline, bool *fits, ps_forecast *forecast)
{
    search x = search_of(s, program, code, budgets, deadline);
    ps_status st = find_size(&x);
    if (st == PS_OK && s->ranks.comm == NULL && s->ranks.n > 1) {
        findings f = findings_of(&x);
        st = plan_as_ranks(&x, &f);
    }
    if (st == PS_OK && forecast != NULL) *forecast = x.forecast;
    give_up(&x);
    *fits = st == PS_OK;
    return st == PS_EBUDGET ? PS_OK : st;
}
