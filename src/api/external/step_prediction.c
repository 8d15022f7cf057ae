/* step_prediction.c - the end of a step: the next one is predicted from its recording. */
#include "api/external/moment_trace.h"
#include "base/mem.h"

static bool uses_chunk(const ps_client *c, const ps_trace *t, const ps_moment *m, int32_t chunk)
{
    for (int32_t i = m->first_access; i < m->first_access + m->n_accesses; i++)
        if (ps_lists_index_of(&c->lists, c->layout, t->accesses[i].chunk) == chunk) return true;
    return false;
}

/* For a moment that is continued by others, the last one: the program begins none in between. */
int32_t ps_client_last_use(const ps_client *c, int32_t chunk)
{
    const ps_trace *t = c->steps.trace;
    int32_t last = t != NULL ? t->n_moments - 1 : -1;
    while (last >= c->updates.first_moment && !uses_chunk(c, t, &t->moments[last], chunk)) last--;
    if (last < c->updates.first_moment || t->moments[last].phase != PS_PHASE_BACKWARD) return -1;
    while (last + 1 < t->n_moments && t->moments[last + 1].continues) last++;
    return last + 1 < t->n_moments && ps_client_may_update_after(c, chunk, last) ? last : -1;
}

/* The moment of the trace after which this one, an update at the step's end, could have been made; -1: none. */
static int32_t could_follow(const ps_client *c, const ps_trace *t, int32_t moment)
{
    const int32_t chunk = ps_client_updated_chunk(c, t, &t->moments[moment]);
    return chunk >= 0 && moment > c->updates.could_follow[chunk] ? c->updates.could_follow[chunk] : -1;
}

static ps_status copy_moment(const ps_trace *from, int32_t moment, int64_t non_model_bytes, ps_trace *to)
{
    const ps_moment *m = &from->moments[moment];
    PS_TRY(ps_trace_add_moment(to, m->phase, m->label, non_model_bytes, m->cost_ns));
    to->moments[to->n_moments - 1].continues = m->continues;
    for (int32_t i = m->first_access; i < m->first_access + m->n_accesses; i++)
        PS_TRY(ps_trace_add_access(to, from->accesses[i].chunk, from->accesses[i].tier, from->accesses[i].mode));
    return PS_OK;
}

/* Their chunks will not be deferred into the next step's forward pass. */
static ps_status copy_with_early(const ps_client *c, const ps_trace *from, ps_trace *to)
{
    int32_t first = from->n_moments; /* of those that could have been made earlier */
    for (int32_t i = from->n_moments - 1; i >= 0; i--)
        if (could_follow(c, from, i) >= 0) first = i;
    for (int32_t i = 0; i < from->n_moments; i++) {
        const int32_t chunk = ps_client_updated_chunk(c, from, &from->moments[i]);
        const int64_t bytes = from->moments[i].non_model_bytes;
        if (chunk < 0 || c->updates.could_follow[chunk] < 0) PS_TRY(copy_moment(from, i, bytes, to));
        for (int32_t k = first; k < from->n_moments; k++)
            if (could_follow(c, from, k) == i) PS_TRY(copy_moment(from, k, bytes, to));
    }
    return PS_OK;
}

/* Makes the trace of the ended step the prediction of the next one. If allocation fails the old one stays. */
static void place_early_updates(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    ps_trace *placed = NULL;
    bool has_any = false;
    for (int32_t k = 0; k < c->layout->n_chunks; k++) has_any = has_any || c->updates.could_follow[k] >= 0;
    if (!has_any || ps_trace_create(&placed) != PS_OK) return;
    if (copy_with_early(c, s->trace, placed) == PS_OK) {
        ps_trace *old = s->trace;
        s->trace = placed;
        placed = old;
    }
    ps_trace_destroy(placed);
}

/* ---- the next step ---- */

static bool is_same(const ps_trace *a, const ps_trace *b)
{
    if (a->n_moments != b->n_moments || a->n_accesses != b->n_accesses) return false;
    for (int32_t i = 0; i < a->n_moments; i++) {
        const ps_moment *m = &a->moments[i], *n = &b->moments[i];
        if (m->phase != n->phase || m->label != n->label || m->n_accesses != n->n_accesses ||
            m->continues != n->continues)
            return false;
    }
    for (int32_t i = 0; i < a->n_accesses; i++) {
        const ps_access *x = &a->accesses[i], *y = &b->accesses[i];
        if (x->chunk != y->chunk || x->tier != y->tier || x->mode != y->mode) return false;
    }
    return true;
}

/* From the step that has just ended. If allocation fails the next one is not predicted. */
static void predict(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    ps_schedule *schedule = NULL;
    const ps_status st = ps_schedule_create(s->trace, ps_lists_n_ids(&c->lists, c->layout), &schedule);
    ps_store_set_schedule(c->tiers.store, schedule);
    s->is_installed = st == PS_OK;
    if (!c->settings.static_partition) ps_store_limit_chunks(c->tiers.store, PS_TIER_DEVICE, INT64_MAX);
    if (s->predicted == NULL) c->n_margin = (int32_t)ps_max_i64(c->n_margin, ps_client_count_margin(c, s->trace));
    ps_schedule_destroy(s->schedule);
    ps_trace_destroy(s->predicted);
    s->schedule = schedule;
    s->predicted = s->trace;
    s->trace = NULL;
}

void ps_client_abandon_step(ps_client *c)
{
    ps_client_steps *s = &c->steps;
    ps_trace_destroy(s->trace);
    s->trace = NULL;
    ps_client_begin_gather_order(c);
    s->is_recording = s->matches = false;
    if (s->is_installed) ps_store_go_to(c->tiers.store, 0);
}

void ps_client_end_step(ps_client *c, bool *was_recorded)
{
    ps_client_steps *s = &c->steps;
    *was_recorded = false;
    s->evaluation = NULL;
    ps_client_record_step(c);
    ps_client_begin_gather_order(c);
    if (s->trace == NULL) return;
    ps_client_finish_moment(c, s->step_bytes);
    s->is_recording = false;
    place_early_updates(c);
    if (s->trace->n_moments > 0 && (s->predicted == NULL || !is_same(s->trace, s->predicted))) {
        *was_recorded = true;
        predict(c);
    } else if (!s->is_installed && s->schedule != NULL) {
        ps_store_set_schedule(c->tiers.store, s->schedule);
        s->is_installed = true;
    }
    ps_trace_destroy(s->trace);
    s->trace = NULL;
}

void ps_client_steps_deinit(ps_client_steps *s)
{
    ps_schedule_destroy(s->schedule);
    ps_trace_destroy(s->predicted);
    ps_trace_destroy(s->trace);
    for (size_t i = 0; i < s->n_labels; i++) ps_mem_free(s->labels[i]);
    ps_mem_free(s->labels);
}
