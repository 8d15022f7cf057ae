#include "train/record/profile_sum.h"

#include <stdlib.h>

#include "base/mem.h"

const char *ps_profile_lane_name(int lane)
{
    if (lane == PS_LANE_COMPUTE) return "compute";
    return ps_link_name((ps_link)(lane - PS_LANE_LINKS));
}

/* ---- copies and steps ---- */

/* By link and ticket, of MOVED and MARK. */
static int compare_moved(const void *a, const void *b)
{
    const ps_profile_record *x = *(const ps_profile_record *const *)a, *y = *(const ps_profile_record *const *)b;
    if (x->copy.link != y->copy.link) return x->copy.link < y->copy.link ? -1 : 1;
    return (x->copy.ticket > y->copy.ticket) - (x->copy.ticket < y->copy.ticket);
}

ps_profile_span ps_profile_copy_span(const ps_profile_sum *s, const ps_profile_record *copy)
{
    const ps_profile_record **found =
        bsearch(&copy, s->moved, (size_t)s->n_moved, sizeof(ps_profile_record *), compare_moved);
    const ps_profile_record *r = found != NULL ? *found : copy;
    return (ps_profile_span){r->begin_ns, r->end_ns};
}

static int64_t mark_ns(const ps_profile_sum *s, uint8_t link, uint64_t ticket, int64_t otherwise_ns)
{
    const ps_profile_record wanted = {.copy = {.ticket = ticket, .link = link}}, *key = &wanted;
    if (ticket == 0) return otherwise_ns;
    const ps_profile_record **found =
        bsearch(&key, s->marks, (size_t)s->n_marks, sizeof(ps_profile_record *), compare_moved);
    return found != NULL ? (*found)->begin_ns : otherwise_ns;
}

ps_profile_span ps_profile_work_span(const ps_profile_sum *s, const ps_profile_record *r)
{
    return (ps_profile_span){mark_ns(s, r->marks.link, r->marks.first, r->begin_ns),
                             mark_ns(s, r->marks.link, r->marks.last, r->end_ns)};
}

int64_t ps_profile_step_at(const ps_profile_sum *s, int64_t from, int64_t time_ns)
{
    int64_t i = from;
    while (i < s->n_steps && s->step_spans[i].end_ns < time_ns) i++;
    return i < s->n_steps && s->step_spans[i].begin_ns <= time_ns ? i : s->n_steps;
}

static ps_status find_kind(const ps_profile *p, ps_profile_kind kind, const ps_profile_record ***out, int64_t *n)
{
    *n = 0;
    for (int64_t i = 0; i < ps_profile_count(p); i++) *n += ps_profile_at(p, i)->kind == kind;
    PS_TRY(ps_mem_alloc((size_t)*n, sizeof(ps_profile_record *), out));
    *n = 0;
    for (int64_t i = 0; i < ps_profile_count(p); i++)
        if (ps_profile_at(p, i)->kind == kind) (*out)[(*n)++] = ps_profile_at(p, i);
    return PS_OK;
}

/* ---- sums ---- */

static int compare_spans(const void *a, const void *b)
{
    const ps_profile_span *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Time inside of steps that at least one span covers. Reorders the spans. */
static int64_t covered_ns(const ps_profile_sum *s, ps_profile_span *spans, int64_t n)
{
    int64_t sum = 0, i = 0;
    qsort(spans, (size_t)n, sizeof *spans, compare_spans);
    for (int64_t k = 0, at = 0; k < s->n_steps; k++) {
        const int64_t step_end = s->step_spans[k].end_ns;
        at = ps_max_i64(at, s->step_spans[k].begin_ns);
        for (; i < n && spans[i].begin_ns < step_end; i++) {
            const int64_t begin = ps_max_i64(at, spans[i].begin_ns), end = ps_min_i64(step_end, spans[i].end_ns);
            if (end > begin) sum += end - begin, at = end;
            if (spans[i].end_ns > step_end) break; /* continues after the step */
        }
    }
    return sum;
}

/* The lane that a record keeps busy, and its interval; -1: none. */
static int lane_of(const ps_profile_sum *s, const ps_profile_record *r, ps_profile_span *span)
{
    *span = (ps_profile_span){r->begin_ns, r->end_ns};
    if (r->kind == PS_PROFILE_OP) {
        *span = ps_profile_work_span(s, r);
        return PS_LANE_COMPUTE;
    }
    if (r->kind == PS_PROFILE_COLLECTIVE) return PS_LANE_LINKS + PS_LINK_COLLECTIVES;
    if (r->kind != PS_PROFILE_COPY) return -1;
    *span = ps_profile_copy_span(s, r);
    return PS_LANE_LINKS + r->copy.link;
}

static ps_status sum_busy(ps_profile_sum *s)
{
    ps_profile_span *spans = NULL;
    const int64_t n_records = ps_profile_count(s->profile);
    PS_TRY(ps_mem_alloc((size_t)n_records, sizeof *spans, &spans));
    for (int lane = 0; lane < PS_LANE_COUNT; lane++) {
        int64_t n = 0;
        for (int64_t i = 0; i < n_records; i++) n += lane_of(s, ps_profile_at(s->profile, i), &spans[n]) == lane;
        s->busy_ns[lane] = covered_ns(s, spans, n) / s->n_steps;
        if (s->busy_ns[lane] > s->busy_ns[s->critical]) s->critical = lane;
    }
    ps_mem_free(spans);
    return PS_OK;
}

/* As ps_profile_step_at, by the times of issue: a copy belongs to the step that requested it. */
static int64_t step_issued_at(const ps_profile_sum *s, int64_t from, int64_t time_ns)
{
    int64_t i = from;
    while (i < s->n_steps && s->steps[i]->end_ns < time_ns) i++;
    return i < s->n_steps && s->steps[i]->begin_ns <= time_ns ? i : s->n_steps;
}

static void sum_bytes(ps_profile_sum *s)
{
    for (int64_t i = 0, step = 0; i < ps_profile_count(s->profile); i++) {
        const ps_profile_record *r = ps_profile_at(s->profile, i);
        if (r->kind == PS_PROFILE_MEMORY) {
            int64_t *peak = &s->peak_bytes[r->memory.tier];
            *peak = ps_max_i64(*peak, r->memory.chunk_bytes + r->memory.non_model_bytes + r->memory.other_bytes);
        } else if (r->kind == PS_PROFILE_COPY || r->kind == PS_PROFILE_COLLECTIVE) { /* in order of begin_ns */
            const int64_t at = step_issued_at(s, step, r->begin_ns);
            if (at == s->n_steps) continue;
            step = at;
            if (r->kind == PS_PROFILE_COPY)
                s->moved_bytes[r->copy.link] += r->copy.bytes;
            else
                s->moved_bytes[PS_LINK_COLLECTIVES] += r->collective.bytes;
        }
    }
    for (int link = 0; link < PS_LINK_COUNT; link++) s->moved_bytes[link] /= ps_max_i64(1, s->n_steps);
}

ps_status ps_profile_sum_init(ps_profile_sum *s, const ps_profile *profile)
{
    ps_status st;
    *s = (ps_profile_sum){.profile = profile};
    PS_TRY_GOTO(ps_profile_check(profile));
    PS_TRY_GOTO(find_kind(profile, PS_PROFILE_MOVED, &s->moved, &s->n_moved));
    PS_TRY_GOTO(find_kind(profile, PS_PROFILE_MARK, &s->marks, &s->n_marks));
    PS_TRY_GOTO(find_kind(profile, PS_PROFILE_STEP, &s->steps, &s->n_steps));
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_steps, sizeof *s->step_spans, &s->step_spans));
    qsort(s->marks, (size_t)s->n_marks, sizeof(ps_profile_record *), compare_moved);
    qsort(s->moved, (size_t)s->n_moved, sizeof(ps_profile_record *), compare_moved);
    for (int64_t i = 0; i < s->n_steps; i++) s->step_spans[i] = ps_profile_work_span(s, s->steps[i]);
    sum_bytes(s);
    if (s->n_steps == 0) return PS_OK;
    for (int64_t i = 0; i < s->n_steps; i++) s->step_ns += s->step_spans[i].end_ns - s->step_spans[i].begin_ns;
    s->step_ns /= s->n_steps;
    PS_TRY_GOTO(sum_busy(s));
    return PS_OK;
out:
    ps_profile_sum_deinit(s);
    return st;
}

void ps_profile_sum_deinit(ps_profile_sum *s)
{
    ps_mem_free(s->moved);
    ps_mem_free(s->marks);
    ps_mem_free(s->steps);
    ps_mem_free(s->step_spans);
    *s = (ps_profile_sum){0};
}
