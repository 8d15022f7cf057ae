#include "chunk/trace.h"
#include <string.h>

#include "base/mem.h"

const char *ps_tier_name(ps_tier t)
{
    static const char *const names[PS_TIER_COUNT] = {
        [PS_TIER_DEVICE] = "device", [PS_TIER_HOST] = "host", [PS_TIER_DISK] = "disk"};
    return t < PS_TIER_COUNT ? names[t] : "?";
}

const char *ps_phase_name(ps_phase p)
{
    static const char *const names[PS_PHASE_COUNT] = {
        [PS_PHASE_FORWARD] = "forward", [PS_PHASE_BACKWARD] = "backward", [PS_PHASE_UPDATE] = "update"};
    return p < PS_PHASE_COUNT ? names[p] : "?";
}

const char *ps_moment_suffix(const ps_moment *m)
{
    static const char *const suffixes[PS_PHASE_COUNT] = {
        [PS_PHASE_FORWARD] = " (forward)", [PS_PHASE_BACKWARD] = " (backward)", [PS_PHASE_UPDATE] = " (update)"};
    return strstr(m->label, ps_phase_name(m->phase)) != NULL ? "" : suffixes[m->phase];
}

ps_status ps_trace_create(ps_trace **out)
{
    return ps_mem_alloc(1, sizeof **out, out);
}

void ps_trace_destroy(ps_trace *t)
{
    if (t == NULL) return;
    ps_mem_free(t->moments);
    ps_mem_free(t->accesses);
    ps_mem_free(t->latest);
    ps_mem_free(t);
}

ps_status ps_trace_add_moment(ps_trace *t, ps_phase phase, const char *label, int64_t non_model_bytes, int64_t cost_ns)
{
    PS_TRY(ps_mem_reserve(&t->moments, (size_t)t->n_moments + 1, sizeof *t->moments));
    t->moments[t->n_moments++] = (ps_moment){.phase = phase,
                                             .label = label,
                                             .non_model_bytes = non_model_bytes,
                                             .cost_ns = cost_ns,
                                             .first_access = t->n_accesses};
    return PS_OK;
}

ps_status ps_trace_add_access(ps_trace *t, ps_chunk_id chunk, ps_tier tier, ps_access_mode mode)
{
    PS_ASSERT(t->n_moments > 0 && chunk >= 0 && tier < PS_RAM_TIER_COUNT);
    ps_moment *m = &t->moments[t->n_moments - 1];
    PS_TRY(ps_mem_reserve(&t->latest, (size_t)chunk + 1, sizeof *t->latest));
    const int32_t latest = t->latest[chunk];
    if (latest >= m->first_access && latest < t->n_accesses && t->accesses[latest].chunk == chunk) {
        ps_access *a = &t->accesses[latest];
        if (a->tier != tier)
            return PS_FAIL(PS_EINVAL, "%s: chunk %d is accessed on %s and on %s in one moment", m->label, chunk,
                           ps_tier_name(a->tier), ps_tier_name(tier));
        /* One tensor of the chunk is read, another overwritten: the chunk as a whole is changed, not replaced. */
        if (a->mode != mode) a->mode = PS_ACCESS_WRITE;
        return PS_OK;
    }
    PS_TRY(ps_mem_reserve(&t->accesses, (size_t)t->n_accesses + 1, sizeof *t->accesses));
    t->latest[chunk] = t->n_accesses;
    t->accesses[t->n_accesses++] = (ps_access){.chunk = chunk, .tier = tier, .mode = mode};
    m->n_accesses++;
    return PS_OK;
}
