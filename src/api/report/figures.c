#include "api/report/figures.h"

#include <stdlib.h>

#include "base/base.h"
#include "base/mem.h"

const char *const ps_figure_phase_names[PS_REPORT_N_PHASES] = {"forward", "backward", "update"};

/* ---- the time axis ---- */

static void widen(ps_figures *f, int64_t begin_ns, int64_t end_ns)
{
    f->begin_ns = ps_min_i64(f->begin_ns, begin_ns);
    f->end_ns = ps_max_i64(f->end_ns, end_ns);
}

static void find_axis(ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    f->begin_ns = INT64_MAX;
    f->end_ns = 0;
    for (int i = 0; i < p->n_spans; i++) {
        if (p->spans[i].lane != PS_REPORT_STEPS) continue;
        widen(f, p->spans[i].begin_ns, p->spans[i].end_ns);
        f->n_steps++;
    }
    if (f->n_steps == 0) {
        for (int i = 0; i < p->n_spans; i++) widen(f, p->spans[i].begin_ns, p->spans[i].end_ns);
        for (int i = 0; i < p->n_samples; i++) widen(f, p->samples[i].at_ns, p->samples[i].at_ns);
        for (int i = 0; i < p->n_changes; i++) widen(f, p->changes[i].at_ns, p->changes[i].at_ns);
    }
    f->begin_ns = ps_min_i64(f->begin_ns, f->end_ns);
    f->end_ns = ps_max_i64(f->end_ns, f->begin_ns + 1);
}

/* ---- where chunks are ---- */

static ps_status order_rows(ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    int n = 0;
    PS_TRY(ps_mem_alloc((size_t)p->n_chunks, sizeof *f->rows, &f->rows));
    for (int list = 0; list < PS_REPORT_LISTS_MAX; list++)
        for (int c = 0; c < p->n_chunks; c++)
            if (p->chunks[c].list == list) f->rows[n++] = c;
    return PS_OK;
}

/* The tiers that a chunk is on, and since when. */
typedef struct where {
    unsigned tiers;
    int64_t since_ns;
} where;

static void end_stay(ps_figures *f, int chunk, const where *w, int64_t at_ns)
{
    const int64_t begin = ps_max_i64(w->since_ns, f->begin_ns), end = ps_min_i64(at_ns, f->end_ns);
    if (w->tiers == 0 || end <= begin) return;
    f->stays[f->n_stays++] = (ps_figure_stay){chunk, begin, end, w->tiers};
}

static int by_chunk(const void *a, const void *b)
{
    const ps_figure_stay *x = a, *y = b;
    if (x->chunk != y->chunk) return x->chunk - y->chunk;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static ps_status find_stays(ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    where *now = NULL;
    PS_TRY(ps_mem_alloc((size_t)p->n_changes + (size_t)p->n_chunks, sizeof *f->stays, &f->stays));
    PS_TRY(ps_mem_alloc((size_t)p->n_chunks, sizeof *now, &now));
    for (int i = 0; i < p->n_changes; i++) {
        const ps_report_profile_change *c = &p->changes[i];
        where *w = &now[c->chunk];
        const unsigned bit = 1u << c->tier, tiers = c->is_there ? w->tiers | bit : w->tiers & ~bit;
        if (tiers == w->tiers) continue;
        end_stay(f, c->chunk, w, c->at_ns);
        *w = (where){tiers, c->at_ns};
    }
    for (int c = 0; c < p->n_chunks; c++) end_stay(f, c, &now[c], f->end_ns);
    ps_mem_free(now);
    qsort(f->stays, (size_t)f->n_stays, sizeof *f->stays, by_chunk);
    return PS_OK;
}

/* ---- the timeline ---- */

enum { SLOTS_MAX = 8 };

/* Spans are sorted by their begin: each takes the first slot that is free by then, the last one when all are taken. */
static ps_status find_slots(ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    int64_t free_ns[PS_REPORT_N_LANES][SLOTS_MAX] = {{0}};
    PS_TRY(ps_mem_alloc((size_t)p->n_spans, sizeof *f->slots, &f->slots));
    for (int i = 0; i < PS_REPORT_N_LANES; i++) f->n_slots[i] = 1;
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        int k = 0;
        while (k < SLOTS_MAX - 1 && free_ns[s->lane][k] > s->begin_ns) k++;
        free_ns[s->lane][k] = ps_max_i64(free_ns[s->lane][k], s->end_ns);
        f->slots[i] = k;
        if (k >= f->n_slots[s->lane]) f->n_slots[s->lane] = k + 1;
    }
    return PS_OK;
}

/* ---- where the time went ---- */

/* Nanoseconds of [begin, end) that lie in steps. Calls go forward in time; *step, from 0, is the first span to look at:
 * the step that the call before ended in. */
static int64_t inside_steps(const ps_report_profile *p, int64_t begin_ns, int64_t end_ns, int *step)
{
    int64_t sum = 0;
    for (int i = *step; i < p->n_spans && p->spans[i].begin_ns < end_ns; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        if (s->lane != PS_REPORT_STEPS) continue;
        sum += ps_max_i64(ps_min_i64(end_ns, s->end_ns) - ps_max_i64(begin_ns, s->begin_ns), 0);
        *step = i;
    }
    return sum;
}

/* Computing and waits are one thread's, so they follow each other; what overlaps all the same counts once, for the
 * span that began first. */
static void add_parts(ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    ps_figure_parts *parts = &f->parts;
    int64_t taken_ns = 0;
    int step = 0;
    const double unit = f->n_steps > 0 ? 1e-9 / f->n_steps : 0;
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        if (s->lane == PS_REPORT_STEPS) parts->step_seconds += (double)(s->end_ns - s->begin_ns) * unit;
        if (s->lane != PS_REPORT_COMPUTE && s->lane != PS_REPORT_WAITS) continue;
        const int64_t begin_ns = ps_max_i64(s->begin_ns, taken_ns);
        if (s->end_ns <= begin_ns) continue;
        const double seconds = (double)inside_steps(p, begin_ns, s->end_ns, &step) * unit;
        if (s->lane == PS_REPORT_COMPUTE)
            parts->compute_seconds[s->phase] += seconds;
        else
            parts->wait_seconds[s->link] += seconds;
        taken_ns = s->end_ns;
    }
    parts->rest_seconds = parts->step_seconds;
    for (int i = 0; i < PS_REPORT_N_PHASES; i++) parts->rest_seconds -= parts->compute_seconds[i];
    for (int i = 0; i < PS_REPORT_N_LANES; i++) parts->rest_seconds -= parts->wait_seconds[i];
    if (parts->rest_seconds < 1e-9) parts->rest_seconds = 0; /* rounding */
}

ps_status ps_figures_create(const ps_report_profile *p, ps_figures **out)
{
    ps_status st = PS_OK;
    ps_figures *f = NULL;
    *out = NULL;
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *f, &f));
    f->profile = p;
    find_axis(f);
    PS_TRY_GOTO(order_rows(f));
    PS_TRY_GOTO(find_stays(f));
    PS_TRY_GOTO(find_slots(f));
    add_parts(f);
    *out = f;
    f = NULL;
out:
    ps_figures_destroy(f);
    return st;
}

void ps_figures_destroy(ps_figures *f)
{
    if (f == NULL) return;
    ps_mem_free(f->rows);
    ps_mem_free(f->stays);
    ps_mem_free(f->slots);
    ps_mem_free(f);
}
