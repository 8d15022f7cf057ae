#include "plan/search.h"

#include "base/mem.h"
#include "comm/agree.h"
#include "plan/model_data_min.h"

/* A step that waits for no more than this share of its time cannot be made much faster by moving chunks at other
 * times. */
#define WORTH_SEARCHING 0.01
/* Of device memory for updates, zero to three quarters of the margin are tried first. */
#define N_QUARTERS 4
#define LEAD_MAX 4
/* Look-ahead of half to eight times the usual depth. */
#define DEPTH_LEAST (-1)
#define DEPTH_MOST 3
/* Disks wear out by writing: so much longer a step may take that writes less. */
#define SPARING_COST 1.02
/* A plan of so many chunks, times the ranks, is short enough to ask what each rank would come to. */
#define ASKED_CHUNKS_MAX 4096

typedef struct search {
    const ps_settings *s;
    const ps_program *program;
    const ps_code *code;
    const ps_budgets *budgets;
    int64_t most_elements, chunk_elements; /* the largest chunk size allowed; the one tried now */
    int32_t most_ahead;
    bool may_keep_logits;
    int32_t trials_left;
    ps_deadline *deadline;
    ps_blueprint *best;
    ps_forecast forecast; /* of best */
} search;

ps_status ps_search_try(const ps_settings *s, const ps_program *program, const ps_code *code, const ps_budgets *budgets,
                        int64_t chunk_elements, ps_variant variant, ps_deadline *deadline, ps_blueprint **out,
                        ps_forecast *forecast)
{
    *out = NULL;
    PS_TRY(ps_deadline_check(deadline));
    PS_TRY(ps_blueprint_create(s, program, code, budgets, chunk_elements, variant, deadline, out));
    const ps_status st = ps_trial_run(*out, budgets, false, deadline, forecast);
    if (st == PS_OK) return PS_OK;
    ps_blueprint_destroy(*out);
    *out = NULL;
    return st;
}

/* ---- what fits ---- */

/* How many groups ahead may be gathered. With memory-saving communication a group is one chunk, so that r->n of them
 * take what one group of all ranks takes otherwise. Where chunks are fetched only when they are needed, so are
 * groups. */
static int32_t most_ahead(const ps_settings *s)
{
    const ps_ranks *r = &s->ranks;
    if (r->n == 1 || s->prefetch == 0 || s->wait_at_once) return 0;
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
                    .may_keep_logits =
                        code->keeping != NULL && code->keeping->non_model_bytes <= budgets->bytes[PS_TIER_DEVICE]};
}

static ps_status try_way(search *x, ps_variant v)
{
    return ps_search_try(x->s, x->program, x->code, x->budgets, x->chunk_elements, v, x->deadline, &x->best,
                         &x->forecast);
}

/* This way with all logits kept, if that fits; otherwise with logits computed again. Kept ones may not take the memory
 * that calls between steps need: they must fit wherever chunks are at first (memory.keep_logits = always does without
 * this). */
static ps_status try_both(search *x, ps_variant v)
{
    ps_variant keeping = v;
    keeping.keeps_logits = true;
    const ps_status st = x->may_keep_logits ? try_way(x, keeping) : PS_EBUDGET;
    if (st == PS_OK && ps_blueprint_fits_from_anywhere(x->best, x->budgets)) return PS_OK;
    if (st != PS_OK && st != PS_EBUDGET) return st;
    ps_blueprint_destroy(x->best); /* NULL, where it did not fit */
    x->best = NULL;
    return try_way(x, v);
}

enum { N_UPDATE_TIMES = PS_UPDATE_EARLY + 1 };

/* When updates may run, in the order in which times are tried; their number. Deferred updates keep optimizer data
 * beside activations: where that is too much, they get a phase of their own. Where gradients have a list to themselves
 * early ones need the least, as a chunk's gradients are gone when it is updated. */
static int update_times(const ps_settings *s, ps_update_time times[N_UPDATE_TIMES])
{
    int n = 0;
    if (s->training && s->defer_updates && !s->always_updates_early) times[n++] = PS_UPDATE_DEFERRED;
    if (!s->always_updates_early) times[n++] = PS_UPDATE_AFTER;
    if (s->may_update_early) times[n++] = PS_UPDATE_EARLY;
    return n;
}

/* The ways to run a step, by what they ask of memory: the first that fits. Gathering ahead takes the memory of other
 * groups. */
static ps_status find_fitting(search *x)
{
    ps_status st = PS_EBUDGET;
    ps_update_time times[N_UPDATE_TIMES];
    const int n_times = update_times(x->s, times);
    for (int32_t ahead = x->most_ahead;; ahead = ahead > 1 ? 1 : ahead - 1) {
        for (int i = 0; i < n_times && st == PS_EBUDGET; i++)
            st = try_both(x, (ps_variant){.update_time = times[i], .ahead = ahead, .n_resident = PS_RESIDENT_ALL});
        if (st != PS_EBUDGET || ahead == 0) return st;
    }
}

/* ---- what is fastest ---- */

static bool is_better(const ps_forecast *f, const ps_blueprint *b, const search *x)
{
    if (b->variant.hurries && !x->best->variant.hurries &&
        f->moved_bytes[PS_LINK_DISK_WRITE] > x->forecast.moved_bytes[PS_LINK_DISK_WRITE])
        return (double)f->step.all_ns * SPARING_COST < (double)x->forecast.step.all_ns;
    if (f->step.all_ns != x->forecast.step.all_ns) return f->step.all_ns < x->forecast.step.all_ns;
    return b->n_resident_updates > x->best->n_resident_updates;
}

/* The least that a step can take: computing alone, which updates on a slower tier lengthen; where that tier has a queue
 * of its own, the longer of both. */
static int64_t compute_ns(const ps_blueprint *b)
{
    int64_t sum[PS_RAM_TIER_COUNT] = {0};
    for (int32_t m = 0; m < b->trace->n_moments; m++) {
        const ps_moment *moment = &b->trace->moments[m];
        sum[ps_trace_tier_of(b->trace, moment)] += moment->cost_ns;
    }
    const bool apart = ps_backend_space(b->settings->backend)->device->works_later;
    return apart ? ps_max_i64(sum[PS_TIER_DEVICE], sum[PS_TIER_HOST]) : sum[PS_TIER_DEVICE] + sum[PS_TIER_HOST];
}

/* Keep it if it is faster than the best so far. *tried: it was run. */
static ps_status compare(search *x, ps_variant v, bool *tried)
{
    ps_blueprint *b;
    ps_forecast f;
    *tried = false;
    ps_status st = ps_blueprint_create(x->s, x->program, x->code, x->budgets, x->chunk_elements, v, x->deadline, &b);
    if (st != PS_OK) return st == PS_EBUDGET ? PS_OK : st;
    const bool has_room = !v.keeps_logits || ps_blueprint_fits_from_anywhere(b, x->budgets);
    if (has_room && compute_ns(b) < x->forecast.step.all_ns) {
        *tried = true;
        st = ps_trial_run(b, x->budgets, false, x->deadline, &f);
        if (st == PS_OK && is_better(&f, b, x)) {
            ps_blueprint *slower = x->best;
            x->best = b;
            x->forecast = f;
            b = slower;
        }
    }
    ps_blueprint_destroy(b);
    return st == PS_EBUDGET ? PS_OK : st;
}

static ps_status consider(search *x, ps_variant v)
{
    bool tried;
    if (x->trials_left <= 0 || ps_deadline_stops(x->deadline)) return PS_OK;
    PS_TRY(compare(x, v, &tried));
    x->trials_left -= tried;
    return PS_OK;
}

/* Logits take memory that updates on the device could have: where the step is faster without them, they are computed
 * again. That is part of the first way that fits, and no other way to be searched for. */
static ps_status weigh_logits(search *x)
{
    bool tried;
    ps_variant v = x->best->variant;
    v.keeps_logits = false;
    return x->best->variant.keeps_logits ? compare(x, v, &tried) : PS_OK;
}

static bool is_worth_it(const search *x)
{
    const ps_step_time *t = &x->forecast.step;
    return (double)(t->all_ns - t->compute_ns) > WORTH_SEARCHING * (double)t->all_ns;
}

static ps_status consider_depths(search *x, int32_t by)
{
    for (const ps_blueprint *before = NULL; before != x->best;) {
        ps_variant v = x->best->variant;
        v.depth += by;
        if (v.depth < DEPTH_LEAST || v.depth > DEPTH_MOST) return PS_OK;
        before = x->best;
        PS_TRY(consider(x, v));
    }
    return PS_OK;
}

/* Loads begin sooner, so that both ways of a link have work; or later, which moves less. */
static ps_status vary_depth(search *x)
{
    const int32_t usual = x->best->variant.depth;
    if (x->s->prefetch == 0 || x->s->wait_at_once) return PS_OK;
    PS_TRY(consider_depths(x, 1));
    return x->best->variant.depth == usual ? consider_depths(x, -1) : PS_OK;
}

/* Updates sooner than they must be, so that what the host updated is back when it is used; and sooner yet, while that
 * helps. */
static ps_status vary_lead(search *x)
{
    for (int32_t lead = 1; lead <= LEAD_MAX; lead++) {
        ps_variant v = x->best->variant;
        if (v.update_time != PS_UPDATE_DEFERRED || v.lead != lead - 1) return PS_OK;
        v.lead = lead;
        PS_TRY(consider(x, v));
    }
    return PS_OK;
}

/* As many updates in device memory, but of other chunks. */
static ps_status vary_choice(search *x)
{
    const int32_t n = x->best->n_resident_updates;
    for (int choice = PS_RESIDENT_SPREAD; choice <= PS_RESIDENT_LAST && n > 0; choice++) {
        ps_variant v = x->best->variant;
        v.resident = (ps_resident_choice)choice;
        PS_TRY(consider(x, v));
    }
    return PS_OK;
}

static ps_status consider_residents(search *x, int64_t n)
{
    ps_variant v = x->best->variant;
    v.n_resident = (int32_t)n;
    return n >= 0 && n < x->best->n_margin ? consider(x, v) : PS_OK;
}

/* Other numbers of updates in device memory: quarters of the margin, then ever closer around the best. */
static ps_status vary_residents(search *x)
{
    const int64_t n_margin = x->best->n_margin;
    int64_t before = n_margin;
    for (int quarters = N_QUARTERS - 1; quarters >= 0; quarters--) {
        const int64_t n = n_margin * quarters / N_QUARTERS;
        if (n < before) PS_TRY(consider_residents(x, n));
        before = n;
    }
    for (int64_t by = (n_margin / N_QUARTERS + 1) / 2; by > 0; by = by > 1 ? (by + 1) / 2 : 0) {
        const int64_t n = x->best->n_resident_updates;
        PS_TRY(consider_residents(x, n - by));
        PS_TRY(consider_residents(x, n + by));
    }
    return PS_OK;
}

static ps_status consider_streamed(search *x, int64_t n)
{
    ps_variant v = x->best->variant;
    v.n_streamed = (int32_t)n;
    return n >= 0 && n <= x->best->n_kept_on_host && n != x->best->variant.n_streamed ? consider(x, v) : PS_OK;
}

/* Chunks kept on the host that pass through the device instead of being updated there: quarters, then closer around
 * the best. Where both are one memory it is the same processor that computes. */
static ps_status vary_streamed(search *x)
{
    const int64_t n_kept = x->best->n_kept_on_host;
    if (!x->s->hybrid_updates || ps_backend_space(x->s->backend)->is_one_memory) return PS_OK;
    for (int quarters = 1; quarters <= N_QUARTERS; quarters++)
        PS_TRY(consider_streamed(x, ps_ceil_div(n_kept * quarters, N_QUARTERS)));
    for (int64_t by = n_kept / (2 * N_QUARTERS); by > 0; by /= 2) {
        const int64_t n = x->best->variant.n_streamed;
        PS_TRY(consider_streamed(x, n - by));
        PS_TRY(consider_streamed(x, n + by));
    }
    return PS_OK;
}

/* The other ways, with what was found so far. */
static ps_status vary_way(search *x)
{
    const ps_variant found = x->best->variant;
    ps_update_time times[N_UPDATE_TIMES];
    const int n_times = update_times(x->s, times);
    for (int32_t ahead = x->most_ahead; ahead >= 0; ahead = ahead > 1 ? 1 : ahead - 1)
        for (int i = 0; i < n_times; i++) {
            ps_variant v = x->best->variant;
            v.update_time = times[i];
            v.ahead = ahead;
            if (times[i] != PS_UPDATE_DEFERRED) v.lead = 0;
            if (ahead != found.ahead || times[i] != found.update_time) PS_TRY(consider(x, v));
        }
    return PS_OK;
}

/* With what was found, memory for logits may be well spent, or too much. */
static ps_status vary_logits(search *x)
{
    ps_variant v = x->best->variant;
    v.keeps_logits = !v.keeps_logits;
    return x->may_keep_logits ? consider(x, v) : PS_OK;
}

/* Loads for the next step as soon as there is any way to make room for them. */
static ps_status vary_hurry(search *x)
{
    ps_variant v = x->best->variant;
    v.hurries = true;
    return x->s->prefetch > 0 && !x->s->wait_at_once ? consider(x, v) : PS_OK;
}

static ps_status vary_all(search *x)
{
    ps_status (*const steps[])(search *) = {vary_depth,     vary_hurry,    vary_lead, vary_choice,
                                            vary_residents, vary_streamed, vary_way,  vary_logits};
    for (size_t i = 0; i < PS_ARRAY_LEN(steps) && is_worth_it(x); i++) PS_TRY(steps[i](x));
    return PS_OK;
}

static void give_up(search *x)
{
    ps_blueprint_destroy(x->best);
    x->best = NULL;
}

/* Early updates ask for another placement and depth than later ones: a search of their own, from the first way on. */
static ps_status vary_early(search *x, ps_variant first)
{
    search y = *x;
    y.best = NULL;
    y.trials_left = x->s->placement_trials;
    first.update_time = PS_UPDATE_EARLY;
    ps_status st = try_way(&y, first);
    if (st == PS_EBUDGET) return PS_OK;
    if (st == PS_OK) st = vary_all(&y);
    if (st == PS_OK && is_better(&y.forecast, y.best, x)) {
        ps_blueprint *slower = x->best;
        x->best = y.best;
        x->forecast = y.forecast;
        y.best = slower;
    }
    give_up(&y);
    return st;
}

static ps_status find_fastest(search *x)
{
    if (!x->s->training) return PS_OK;
    PS_TRY(weigh_logits(x));
    const ps_variant first = x->best->variant;
    const bool also_early = x->s->may_update_early && first.update_time != PS_UPDATE_EARLY;
    PS_TRY(vary_all(x));
    return also_early && x->s->placement_trials > 0 && is_worth_it(x) ? vary_early(x, first) : PS_OK;
}

/* ---- chunk size ---- */

static ps_status find_size(search *x)
{
    PS_TRY(ps_model_data_min_check(x->s, x->program, x->budgets));
    x->chunk_elements = x->s->chunk_elements;
    if (x->chunk_elements > 0) return find_fitting(x);
    const int64_t min_elements = ps_blueprint_min_chunk_elements(x->s, x->program);
    int64_t max_elements = ps_min_i64(x->most_elements, ps_blueprint_max_chunk_elements(x->s, x->program, x->budgets));
    for (;;) {
        PS_TRY(ps_blueprint_search_chunk_elements(x->s, x->program, min_elements, max_elements, &x->chunk_elements));
        const ps_status st = find_fitting(x);
        if (st != PS_EBUDGET || max_elements <= min_elements || ps_deadline_timed_out(x->deadline)) return st;
        max_elements = ps_max_i64(min_elements, max_elements / 2);
    }
}

/* ---- all ranks ---- */

/* What ranks must have in common. */
enum { SIZE, AHEAD, N_COMMON };

/* The least and the most that a rank came to, of each. */
typedef struct findings {
    double least[N_COMMON], most[N_COMMON];
} findings;

static findings findings_of(const search *x)
{
    const double size = (double)x->chunk_elements, ahead = x->best->variant.ahead;
    return (findings){.least = {size, ahead}, .most = {size, ahead}};
}

static void add_findings(findings *f, const findings *more)
{
    for (int i = 0; i < N_COMMON; i++) {
        if (more->least[i] < f->least[i]) f->least[i] = more->least[i];
        if (more->most[i] > f->most[i]) f->most[i] = more->most[i];
    }
}

/* In a plan nobody else is there: what another rank would come to, within x's limits of chunk size and ahead. */
static ps_status imagine_rank(const search *x, int32_t rank, bool searches_fastest, findings *out)
{
    ps_settings s = *x->s;
    search y = *x;
    s.ranks.rank = rank;
    y.s = &s;
    y.best = NULL;
    y.trials_left = s.placement_trials;
    ps_status st = find_size(&y);
    if (st == PS_OK && searches_fastest) st = find_fastest(&y);
    if (st == PS_OK) *out = findings_of(&y);
    give_up(&y);
    return st;
}

/* In a small plan, each rank. In a large one only the first, which owns most, and the last, and of these only what
 * fits: what a rank finds fastest seldom decides, and finding it would take as long as that rank's own plan. */
static ps_status imagine_ranks(const search *x, findings *f)
{
    const ps_ranks *r = &x->s->ranks;
    const bool is_small = (int64_t)r->n * x->best->layout->n_chunks <= ASKED_CHUNKS_MAX;
    for (int32_t rank = 0; rank < r->n; rank++) {
        if (rank == r->rank || (!is_small && rank > 0 && rank < r->n - 1)) continue;
        findings other;
        PS_TRY(imagine_rank(x, rank, is_small, &other));
        add_findings(f, &other);
    }
    return PS_OK;
}

static ps_status ask_ranks(const search *x, findings *f)
{
    ps_comm *comm = x->s->ranks.comm;
    if (comm == NULL) { /* when time is up, x's plan stands without the others' */
        const ps_status st = imagine_ranks(x, f);
        return st == PS_EBUDGET && ps_deadline_timed_out(x->deadline) ? PS_OK : st;
    }
    PS_TRY(ps_comm_all_reduce(comm, f->least, N_COMMON, PS_COMM_MIN));
    return ps_comm_all_reduce(comm, f->most, N_COMMON, PS_COMM_MAX);
}

/* Chunk size and how far ahead groups are gathered must be the same on all ranks; the rest is each one's own. *agreed:
 * they are; otherwise x's limits become the least that any rank came to, for another round. */
static ps_status agree(search *x, ps_status st, bool *agreed)
{
    *agreed = true;
    PS_TRY(ps_comm_agree(x->s->ranks.comm, st));
    if (x->s->ranks.n == 1) return PS_OK;
    findings f = findings_of(x);
    PS_TRY(ask_ranks(x, &f));
    *agreed = f.least[SIZE] >= f.most[SIZE] && f.least[AHEAD] >= f.most[AHEAD];
    x->most_elements = (int64_t)f.least[SIZE];
    x->most_ahead = (int32_t)f.least[AHEAD];
    return PS_OK;
}

ps_status ps_search_blueprint(const ps_settings *s, const ps_program *program, const ps_code *code,
                              const ps_budgets *budgets, ps_deadline *deadline, ps_blueprint **out,
                              ps_forecast *forecast)
{
    search x = search_of(s, program, code, budgets, deadline), last_round = x;
    ps_status st = PS_OK;
    for (bool agreed = false; st == PS_OK && !agreed;) {
        give_up(&last_round);
        last_round = x;
        x.best = NULL;
        x.trials_left = s->placement_trials;
        st = find_size(&x);
        if (st == PS_OK) st = find_fastest(&x);
        st = agree(&x, st, &agreed);
    }
    /* A plan that time ran out for: the best so far is what another round was to improve. */
    search *found = &x, *other = &last_round;
    if (st == PS_EBUDGET && last_round.best != NULL && ps_deadline_timed_out(deadline)) {
        found = &last_round, other = &x;
        st = PS_OK;
    }
    give_up(other);
    if (st != PS_OK) give_up(found);
    *out = found->best;
    *forecast = found->forecast;
    return st;
}

ps_status ps_search_fits(const ps_settings *s, const ps_program *program, const ps_code *code,
                         const ps_budgets *budgets, ps_deadline *deadline, bool *fits)
{
    search x = search_of(s, program, code, budgets, deadline);
    ps_status st = find_size(&x);
    if (st == PS_OK && s->ranks.comm == NULL && s->ranks.n > 1) {
        findings f = findings_of(&x);
        st = imagine_ranks(&x, &f);
    }
    give_up(&x);
    *fits = st == PS_OK;
    return st == PS_EBUDGET ? PS_OK : st;
}
