#include "chunk/schedule.h"
#include "base/mem.h"

/* Uses of (chunk, tier), ascending, in one array: those of slot k are uses[first[k] .. first[k + 1]). */
struct ps_schedule {
    const ps_trace *trace;
    int32_t n_slots;
    int32_t *first; /* [n_slots + 1] */
    int32_t *uses;  /* [n_accesses] moments */
};

static int32_t slot_of(ps_chunk_id chunk, ps_tier tier)
{
    return chunk * PS_RAM_TIER_COUNT + (int32_t)tier;
}

ps_status ps_schedule_create(const ps_trace *trace, int32_t n_chunks, ps_schedule **out)
{
    *out = NULL;
    ps_status st = PS_OK;
    ps_schedule *s = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    s->trace = trace;
    s->n_slots = n_chunks * PS_RAM_TIER_COUNT;
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_slots + 1, sizeof *s->first, &s->first));
    PS_TRY_GOTO(ps_mem_alloc((size_t)trace->n_accesses, sizeof *s->uses, &s->uses));
    for (int32_t i = 0; i < trace->n_accesses; i++)
        s->first[slot_of(trace->accesses[i].chunk, trace->accesses[i].tier) + 1]++;
    for (int32_t k = 0; k < s->n_slots; k++) s->first[k + 1] += s->first[k];
    for (int32_t m = 0; m < trace->n_moments; m++) {
        const ps_moment *moment = &trace->moments[m];
        for (int32_t i = 0; i < moment->n_accesses; i++) {
            const ps_access *a = &trace->accesses[moment->first_access + i];
            s->uses[s->first[slot_of(a->chunk, a->tier)]++] = m;
        }
    }
    /* filling moved each slot's start to its end; move them back */
    for (int32_t k = s->n_slots; k > 0; k--) s->first[k] = s->first[k - 1];
    s->first[0] = 0;
    *out = s;
    s = NULL;
out:
    ps_schedule_destroy(s);
    return st;
}

void ps_schedule_destroy(ps_schedule *s)
{
    if (s == NULL) return;
    ps_mem_free(s->first);
    ps_mem_free(s->uses);
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

int64_t ps_schedule_non_model_ahead(const ps_schedule *s, const int64_t *told, int32_t now, int32_t n_ahead)
{
    const ps_trace *t = s->trace;
    int64_t most = 0;
    for (int32_t k = 0; k <= n_ahead; k++) {
        const int32_t m = (now + k) % t->n_moments;
        most = ps_max_i64(most, told != NULL ? told[m] : t->moments[m].non_model_bytes);
    }
    return most;
}
