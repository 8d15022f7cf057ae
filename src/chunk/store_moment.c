/* store_moment.c - the store in time: moments begin and end, and activations get memory. */
#include <string.h>

#include "base/mem.h"
#include "chunk/store_impl.h"

void ps_store_set_schedule(ps_store *s, const ps_schedule *schedule)
{
    ps_store_end_moment(s); /* of the schedule so far */
    ps_max_tree_deinit(&s->told_bytes);
    ps_mem_free(s->unready);
    s->unready = NULL;
    s->schedule = schedule;
    s->quiet_until = 0;
    s->now = -1;
    s->turn = 0;
    for (ps_chunk_id id = 0; id < s->n_ids; id++) ps_store_note_standing(s, id);
}

void ps_store_set_look_ahead(ps_store *s, int32_t prefetch, bool spares_writes)
{
    s->d.prefetch = prefetch;
    s->d.spares_writes = spares_writes;
    s->quiet_until = 0;
}

void ps_store_go_to(ps_store *s, int32_t moment)
{
    const int32_t n = ps_schedule_trace(s->schedule)->n_moments;
    PS_ASSERT(moment >= 0 && moment < n);
    if ((s->now + 1) % n == moment) return;
    ps_store_end_moment(s);
    while ((s->now + 1) % n != moment) ps_store_note_turn(s);
    s->quiet_until = 0; /* what was to come later may be near now */
}

void ps_store_rest(ps_store *s)
{
    s->non_model_needed_bytes = 0;
    s->is_resting = true;
}

void ps_store_limit_chunks(ps_store *s, ps_tier tier, int64_t bytes)
{
    s->chunk_limit_bytes[tier] = bytes;
}

void ps_store_release_non_model(ps_store *s, int64_t from, int64_t bytes)
{
    const ps_events after = ps_store_computed(s);
    if (bytes == 0) return;
    if (s->d.counts_non_model)
        ps_device_unclaim(s->d.ram[PS_TIER_DEVICE], bytes);
    else
        ps_region_decommit(s->non_model, from, bytes, &after);
}

static ps_status take_non_model(ps_store *s, int64_t from, int64_t bytes)
{
    if (s->d.counts_non_model) return ps_device_claim(s->d.ram[PS_TIER_DEVICE], bytes);
    return ps_region_commit(s->non_model, from, bytes);
}

void ps_store_decommit_non_model(ps_store *s)
{
    ps_store_release_non_model(s, 0, s->non_model_committed_bytes);
    s->non_model_committed_bytes = s->non_model_needed_bytes = 0;
}

ps_status ps_store_reserve_non_model(ps_store *s, int64_t bytes, void **base)
{
    *base = NULL;
    const int64_t reserved = ps_round_up(ps_max_i64(bytes, 1), s->page_bytes);
    if (s->non_model == NULL || reserved > s->non_model_reserved_bytes) {
        ps_region *region = NULL;
        PS_TRY(ps_region_create(s->d.ram[PS_TIER_DEVICE], reserved, &region));
        ps_store_decommit_non_model(s);
        ps_region_destroy(s->non_model);
        s->non_model = region;
        s->non_model_reserved_bytes = reserved;
        ps_store_record_memory(s, PS_TIER_DEVICE);
    }
    *base = ps_region_base(s->non_model);
    return PS_OK;
}

/* Memory that one moment holds on a tier while it runs: for the message of a refusal. */
static int64_t wanted_bytes(const ps_store *s, const ps_moment *m, ps_tier tier)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < m->n_accesses; i++) {
        const ps_access *a = &ps_schedule_trace(s->schedule)->accesses[m->first_access + i];
        if (a->tier == tier) bytes += s->chunks[a->chunk].bytes;
    }
    return bytes;
}

/* What the caller has last told of the present moment's non-model bytes; the trace's as long as it told nothing
 * else. */
static int64_t told_now(const ps_store *s)
{
    return s->told_bytes.nodes != NULL ? ps_max_tree_get(&s->told_bytes, s->now)
                                       : ps_schedule_trace(s->schedule)->moments[s->now].non_model_bytes;
}

/* A moment that differs from the trace is expected to be like that the next time too. Nothing is kept as long as none
 * does. */
static ps_status recalibrate(ps_store *s, int64_t non_model_bytes)
{
    if (non_model_bytes == told_now(s)) return PS_OK;
    if (s->told_bytes.nodes == NULL) {
        const ps_trace *t = ps_schedule_trace(s->schedule);
        PS_TRY(ps_max_tree_init(&s->told_bytes, t->n_moments));
        for (int32_t m = 0; m < t->n_moments; m++) ps_max_tree_set(&s->told_bytes, m, t->moments[m].non_model_bytes);
    }
    ps_max_tree_set(&s->told_bytes, s->now, non_model_bytes);
    s->quiet_until = 0;
    return PS_OK;
}

ps_status ps_store_with_moment(const ps_store *s, ps_status st)
{
    if (st != PS_EBUDGET || s->schedule == NULL || s->now < 0) return st;
    const ps_moment *m = &ps_schedule_trace(s->schedule)->moments[s->now];
    return PS_FAIL(
        st,
        "moment %d (%s, %s) needs %lld bytes of device memory at once (%lld activations and workspace + %lld "
        "chunks) and %lld of host memory: %s",
        s->now, m->label, ps_phase_name(m->phase), (long long)(told_now(s) + wanted_bytes(s, m, PS_TIER_DEVICE)),
        (long long)told_now(s), (long long)wanted_bytes(s, m, PS_TIER_DEVICE),
        (long long)wanted_bytes(s, m, PS_TIER_HOST), ps_last_error());
}

static ps_status commit_non_model(ps_store *s)
{
    const int64_t need = s->non_model_needed_bytes, have = s->non_model_committed_bytes;
    if (need <= have) return PS_OK; /* an excess stays until room is needed */
    PS_TRY(ps_store_make_room(s, PS_TIER_DEVICE, need - have, PS_REASON_ACTIVATIONS));
    PS_TRY(take_non_model(s, have, need - have));
    s->non_model_committed_bytes = need;
    PS_TRY(ps_store_await_non_model(s));
    ps_store_note_use(s, PS_TIER_DEVICE);
    ps_store_record_memory(s, PS_TIER_DEVICE);
    return PS_OK;
}

/* Start loading what this moment wants, before any wait, so that the copies run side by side. */
static ps_status start_wanted(ps_store *s, const ps_moment *m)
{
    const ps_access *accesses = &ps_schedule_trace(s->schedule)->accesses[m->first_access];
    for (int32_t i = 0; i < m->n_accesses; i++) {
        s->chunks[accesses[i].chunk].wanted_serial = s->moment_serial;
        s->chunks[accesses[i].chunk].wanted_tier = accesses[i].tier;
    }
    PS_TRY(commit_non_model(s));
    for (int32_t i = 0; i < m->n_accesses; i++) {
        const ps_access *a = &accesses[i];
        chunk *c = &s->chunks[a->chunk];
        if (has_payload(c, a->tier) || c->current == 0 || a->mode == PS_ACCESS_OVERWRITE || c->pins > 0) continue;
        if (c->flight.active && !ps_store_can_hand_over(s, a->chunk, a->tier)) PS_TRY(ps_store_retire(s, a->chunk));
        if (has_payload(c, a->tier)) continue;
        PS_TRY(ps_store_bring(s, a->chunk, a->tier, PS_REASON_WANTED));
    }
    return PS_OK;
}

/* Computing it, as an item of the queue that would. What embeddings compute on the host the device reads, and the other
 * way round. */
static void spend_moment(ps_store *s, const ps_moment *m)
{
    ps_queue *device = s->d.compute[PS_TIER_DEVICE], *host = s->d.compute[PS_TIER_HOST];
    const bool on_host = ps_trace_tier_of(ps_schedule_trace(s->schedule), m) == PS_TIER_HOST;
    if (on_host && m->phase == PS_PHASE_BACKWARD) ps_sim_queue_come_after(host, device);
    ps_sim_queue_spend(on_host ? host : device, m->cost_ns, !on_host);
    if (on_host && m->phase == PS_PHASE_FORWARD) ps_sim_queue_come_after(device, host);
}

void ps_store_end_moment(ps_store *s)
{
    if (!s->owes_moment) return;
    const ps_moment *m = &ps_schedule_trace(s->schedule)->moments[s->now];
    ps_timeline_compute(&s->time, m->cost_ns);
    if (s->is_timed) spend_moment(s, m);
    s->owes_moment = false;
}

ps_status ps_store_begin_moment(ps_store *s, int64_t non_model_bytes)
{
    PS_ASSERT(s->non_model == NULL || non_model_bytes <= s->non_model_reserved_bytes);
    s->moment_serial++;
    s->is_resting = false;
    s->non_model_needed_bytes = has_non_model(s) ? ps_round_up(non_model_bytes, s->page_bytes) : 0;
    if (s->schedule == NULL) return commit_non_model(s);
    const ps_trace *t = ps_schedule_trace(s->schedule);
    ps_store_end_moment(s);
    ps_store_note_turn(s);
    s->owes_moment = true;
    PS_TRY(recalibrate(s, non_model_bytes));
    PS_TRY(ps_store_retire_due(s));
    PS_TRY(ps_store_with_moment(s, start_wanted(s, &t->moments[s->now])));
    PS_TRY(ps_store_look_ahead(s));
    STORE_CHECK(s);
    return PS_OK;
}

ps_status ps_store_claim_aside(ps_store *s, int64_t non_model_bytes)
{
    PS_ASSERT(s->d.counts_non_model);
    const int64_t before = s->non_model_needed_bytes;
    s->moment_serial++; /* nothing is wanted any more */
    s->non_model_needed_bytes = ps_round_up(non_model_bytes, s->page_bytes);
    const ps_status st = commit_non_model(s);
    if (st != PS_OK) s->non_model_needed_bytes = before;
    STORE_CHECK(s);
    return st;
}
