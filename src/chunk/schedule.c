#include "chunk/schedule.h"
#include "base/mem.h"

/* A slot is a pair (chunk, tier). The uses of slot k, ascending, are uses[first[k] .. first[k + 1]). */
struct ps_schedule {
    const ps_trace *trace;
    int32_t n_slots;
    int32_t *first;         /* [n_slots + 1] */
    int32_t *uses;          /* [n_accesses] moments */
    int32_t *used_by;       /* [n_accesses] the accesses of these uses */
    ps_access_past *pasts;  /* [n_accesses] by access */
    int32_t *next_handover; /* [n_moments] moments from there to the next handover */
    ps_max_tree non_model;  /* [n_moments] bytes */
};

static int32_t slot_of(ps_chunk_id chunk, ps_tier tier)
{
    return chunk * PS_RAM_TIER_COUNT + (int32_t)tier;
}

static bool is_change(const ps_access *a)
{
    return a->mode != PS_ACCESS_READ;
}

/* Record the changes of moment m in `changed` with time `time`. */
static void note_changes(const ps_trace *t, int32_t m, int32_t time, int32_t *changed)
{
    const ps_moment *moment = &t->moments[m];
    for (int32_t j = moment->first_access; j < moment->first_access + moment->n_accesses; j++)
        if (is_change(&t->accesses[j])) changed[slot_of(t->accesses[j].chunk, t->accesses[j].tier)] = time;
}

/* Moments from `then` to `time`; then < 0: never. */
static int32_t back_to(int32_t then, int32_t time)
{
    return then < 0 ? PS_NEVER : time - then;
}

/* Two passes over the step: accesses of its first moments come after changes of the step before, so the first pass only
 * fills `changed`: [n_slots] the time of the last change of each, all -1 at first. */
static void find_pasts(ps_schedule *s, int32_t *changed)
{
    const ps_trace *t = s->trace;
    for (int32_t m = 0; m < t->n_moments; m++) note_changes(t, m, m, changed);
    for (int32_t m = 0; m < t->n_moments; m++) {
        const int32_t time = t->n_moments + m, first = t->moments[m].first_access;
        for (int32_t j = first; j < first + t->moments[m].n_accesses; j++) {
            const ps_access *a = &t->accesses[j];
            const ps_tier other = a->tier == PS_TIER_DEVICE ? PS_TIER_HOST : PS_TIER_DEVICE;
            const int32_t here = back_to(changed[slot_of(a->chunk, a->tier)], time);
            const int32_t there = back_to(changed[slot_of(a->chunk, other)], time);
            s->pasts[j] =
                (ps_access_past){.moment = m, .change = here < there ? here : there, .change_elsewhere = there};
        }
        note_changes(t, m, time, changed);
    }
}

static void find_handovers(ps_schedule *s)
{
    const int32_t n = s->trace->n_moments;
    int32_t next = PS_NEVER;
    for (int32_t m = 0; m < n; m++) s->next_handover[m] = PS_NEVER;
    for (int32_t j = 0; j < s->trace->n_accesses; j++)
        if (s->pasts[j].change_elsewhere != PS_NEVER)
            s->next_handover[(s->pasts[j].moment + n - s->pasts[j].change) % n] = 0;
    for (int32_t i = 2 * n - 1; i >= 0; i--) {
        int32_t *here = &s->next_handover[i % n];
        if (*here != 0 && next != PS_NEVER) *here = next + 1;
        next = *here;
    }
}

ps_status ps_schedule_create(const ps_trace *trace, int32_t n_chunks, ps_schedule **out)
{
    *out = NULL;
    ps_status st = PS_OK;
    ps_schedule *s = NULL;
    int32_t *changed = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    s->trace = trace;
    s->n_slots = n_chunks * PS_RAM_TIER_COUNT;
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_slots + 1, sizeof *s->first, &s->first));
    PS_TRY_GOTO(ps_mem_alloc((size_t)trace->n_accesses, sizeof *s->uses, &s->uses));
    PS_TRY_GOTO(ps_mem_alloc((size_t)trace->n_accesses, sizeof *s->used_by, &s->used_by));
    PS_TRY_GOTO(ps_mem_alloc((size_t)trace->n_accesses, sizeof *s->pasts, &s->pasts));
    PS_TRY_GOTO(ps_mem_alloc((size_t)trace->n_moments, sizeof *s->next_handover, &s->next_handover));
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_slots, sizeof *changed, &changed));
    PS_TRY_GOTO(ps_max_tree_init(&s->non_model, trace->n_moments));
    for (int32_t m = 0; m < trace->n_moments; m++) ps_max_tree_set(&s->non_model, m, trace->moments[m].non_model_bytes);
    for (int32_t i = 0; i < trace->n_accesses; i++)
        s->first[slot_of(trace->accesses[i].chunk, trace->accesses[i].tier) + 1]++;
    for (int32_t k = 0; k < s->n_slots; k++) s->first[k + 1] += s->first[k];
    for (int32_t m = 0; m < trace->n_moments; m++) {
        const ps_moment *moment = &trace->moments[m];
        for (int32_t i = 0; i < moment->n_accesses; i++) {
            const ps_access *a = &trace->accesses[moment->first_access + i];
            const int32_t use = s->first[slot_of(a->chunk, a->tier)]++;
            s->uses[use] = m;
            s->used_by[use] = moment->first_access + i;
        }
    }
    /* filling moved each slot's start to its end; move them back */
    for (int32_t k = s->n_slots; k > 0; k--) s->first[k] = s->first[k - 1];
    s->first[0] = 0;
    for (int32_t k = 0; k < s->n_slots; k++) changed[k] = -1;
    find_pasts(s, changed);
    find_handovers(s);
    *out = s;
    s = NULL;
out:
    ps_mem_free(changed);
    ps_schedule_destroy(s);
    return st;
}

void ps_schedule_destroy(ps_schedule *s)
{
    if (s == NULL) return;
    ps_mem_free(s->first);
    ps_mem_free(s->uses);
    ps_mem_free(s->used_by);
    ps_mem_free(s->pasts);
    ps_mem_free(s->next_handover);
    ps_max_tree_deinit(&s->non_model);
    ps_mem_free(s);
}

const ps_trace *ps_schedule_trace(const ps_schedule *s)
{
    return s->trace;
}

int32_t ps_schedule_next_use(const ps_schedule *s, ps_chunk_id chunk, ps_tier tier, int32_t now)
{
    const int32_t slot = slot_of(chunk, tier);
    const int32_t begin = s->first[slot], end = s->first[slot + 1];
    if (begin == end) return PS_NEVER;
    int32_t lo = begin, hi = end; /* first use > now */
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (s->uses[mid] > now)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo < end ? s->uses[lo] - now : s->trace->n_moments + s->uses[begin] - now;
}

int32_t ps_schedule_next_use_anywhere(const ps_schedule *s, ps_chunk_id chunk, int32_t now)
{
    const int32_t on_device = ps_schedule_next_use(s, chunk, PS_TIER_DEVICE, now);
    const int32_t on_host = ps_schedule_next_use(s, chunk, PS_TIER_HOST, now);
    return on_device < on_host ? on_device : on_host;
}

const ps_access_past *ps_schedule_pasts(const ps_schedule *s)
{
    return s->pasts;
}

const int32_t *ps_schedule_accesses(const ps_schedule *s, ps_chunk_id chunk, ps_tier tier, int32_t *n)
{
    const int32_t slot = slot_of(chunk, tier);
    *n = s->first[slot + 1] - s->first[slot];
    return s->used_by + s->first[slot];
}

int32_t ps_schedule_next_handover(const ps_schedule *s, int32_t now)
{
    return s->next_handover[now];
}

int64_t ps_schedule_non_model_ahead(const ps_schedule *s, const ps_max_tree *last_bytes, int32_t now, int32_t n_ahead)
{
    const ps_max_tree *bytes = last_bytes != NULL ? last_bytes : &s->non_model;
    const int32_t n = s->trace->n_moments;
    if (n_ahead >= n) return ps_max_tree_greatest(bytes, 0, n);
    const int32_t end = now + n_ahead + 1;
    if (end <= n) return ps_max_tree_greatest(bytes, now, end);
    return ps_max_i64(ps_max_tree_greatest(bytes, now, n), ps_max_tree_greatest(bytes, 0, end - n));
}
