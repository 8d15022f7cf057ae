/* store_moment.c - the store in time: moments begin and end, and activations get memory. */
#include "base/bytes.h"
#include "base/mem.h"
#include "chunk/sim_lanes.h"
#include "chunk/store_impl.h"

void ps_store_set_schedule(ps_store *s, const ps_schedule *schedule)
{
    ps_scheduling *x = &s->s;
    ps_store_end_moment(s); /* of the schedule so far */
    ps_max_tree_deinit(&x->framework_bytes);
    ps_mem_free(x->unready);
    x->unready = NULL;
    x->schedule = schedule;
    x->quiet_until = 0;
    x->now = -1;
    x->turn = 0;
    for (ps_chunk_id id = 0; id < s->r.n_ids; id++) ps_scheduling_note(x, id);
}

void ps_store_set_options(ps_store *s, const ps_store_options *options)
{
    s->s.options = *options;
    s->s.quiet_until = 0;
}

/* Advances `now` by one moment. */
static void turn(ps_scheduling *s)
{
    const ps_trace *t = ps_schedule_trace(s->schedule);
    s->now = (s->now + 1) % t->n_moments;
    s->turn++;
    const ps_moment *m = &t->moments[s->now];
    for (int32_t i = 0; i < m->n_accesses; i++) ps_scheduling_note(s, t->accesses[m->first_access + i].chunk);
}

void ps_store_go_to(ps_store *s, int32_t moment)
{
    const int32_t n = ps_schedule_trace(s->s.schedule)->n_moments;
    PS_ASSERT(moment >= 0 && moment < n);
    if ((s->s.now + 1) % n == moment) return;
    ps_store_end_moment(s);
    while ((s->s.now + 1) % n != moment) turn(&s->s);
    s->s.quiet_until = 0; /* later accesses may be near now */
}

void ps_store_release_non_model(ps_store *s)
{
    s->s.needed_bytes = 0;
    s->s.is_resting = true;
}

void ps_store_limit_chunks(ps_store *s, ps_tier tier, int64_t bytes)
{
    s->r.chunk_limit_bytes[tier] = bytes;
}

ps_status ps_store_reserve_non_model(ps_store *s, int64_t bytes, void **base)
{
    ps_residency *r = &s->r;
    *base = NULL;
    const int64_t reserved = ps_round_up(ps_max_i64(bytes, 1), r->page_bytes);
    if (r->non_model == NULL || reserved > r->non_model_reserved_bytes) {
        ps_region *region = NULL;
        PS_TRY(ps_region_create(r->ram[PS_TIER_DEVICE], reserved, &region));
        (void)ps_residency_trim_non_model(r, 0);
        ps_region_destroy(r->non_model);
        s->s.needed_bytes = 0;
        r->non_model = region;
        r->non_model_reserved_bytes = reserved;
    }
    *base = ps_region_base(r->non_model);
    return PS_OK;
}

/* ---- moments ---- */

/* Non-model bytes of the last occurrence of the current moment; the trace's until the caller has passed another
 * number. */
static int64_t told_now(const ps_scheduling *s)
{
    return s->framework_bytes.nodes != NULL ? ps_max_tree_get(&s->framework_bytes, s->now)
                                            : ps_schedule_trace(s->schedule)->moments[s->now].non_model_bytes;
}

/* A moment that differs from the trace is expected to differ in the same way next time. Nothing is stored before the
 * first one differs. */
static ps_status recalibrate(ps_scheduling *s, int64_t non_model_bytes)
{
    if (non_model_bytes == told_now(s)) return PS_OK;
    if (s->framework_bytes.nodes == NULL) {
        const ps_trace *t = ps_schedule_trace(s->schedule);
        PS_TRY(ps_max_tree_init(&s->framework_bytes, t->n_moments));
        for (int32_t m = 0; m < t->n_moments; m++)
            ps_max_tree_set(&s->framework_bytes, m, t->moments[m].non_model_bytes);
    }
    ps_max_tree_set(&s->framework_bytes, s->now, non_model_bytes);
    s->quiet_until = 0;
    return PS_OK;
}

/* Memory that one moment needs on a tier while it runs: for the message of a refusal. */
static int64_t wanted_bytes(const ps_store *s, const ps_moment *m, ps_tier tier)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < m->n_accesses; i++) {
        const ps_access *a = &ps_schedule_trace(s->s.schedule)->accesses[m->first_access + i];
        if (a->tier == tier) bytes += s->r.chunks[a->chunk].bytes;
    }
    return bytes;
}

ps_status ps_store_with_moment(const ps_store *s, ps_status st)
{
    if (st != PS_EBUDGET || s->s.schedule == NULL || s->s.now < 0) return st;
    const ps_moment *m = &ps_schedule_trace(s->s.schedule)->moments[s->s.now];
    char text[3][PS_BYTES_TEXT_MAX];
    return PS_FAIL(st, "%s%s needs %s of activations and workspace and %s of chunks on the device, %s on the host: %s",
                   m->label, ps_moment_suffix(m), ps_bytes_format(told_now(&s->s), text[0]),
                   ps_bytes_format(wanted_bytes(s, m, PS_TIER_DEVICE), text[1]),
                   ps_bytes_format(wanted_bytes(s, m, PS_TIER_HOST), text[2]), ps_last_error());
}

/* Computing, as an item of the compute queue. The device reads what embeddings compute on the host, and the other way
 * round. */
static void spend_moment(ps_store *s, const ps_moment *m)
{
    ps_queue *device = s->r.compute[PS_TIER_DEVICE], *host = s->r.compute[PS_TIER_HOST];
    const bool on_host = ps_trace_tier_of(ps_schedule_trace(s->s.schedule), m) == PS_TIER_HOST;
    if (on_host && m->phase == PS_PHASE_BACKWARD) ps_sim_queue_come_after(host, device);
    ps_sim_queue_spend(on_host ? host : device, m->cost_ns, !on_host);
    if (on_host && m->phase == PS_PHASE_FORWARD) ps_sim_queue_come_after(device, host);
}

void ps_store_end_moment(ps_store *s)
{
    if (!s->owes_moment) return;
    const ps_moment *m = &ps_schedule_trace(s->s.schedule)->moments[s->s.now];
    ps_timeline_compute(&s->m.time, m->cost_ns);
    if (s->m.is_timed) spend_moment(s, m);
    s->owes_moment = false;
}

ps_status ps_store_begin_moment(ps_store *s, int64_t non_model_bytes)
{
    ps_scheduling *x = &s->s;
    PS_ASSERT(s->r.non_model == NULL || non_model_bytes <= s->r.non_model_reserved_bytes);
    x->moment_serial++;
    x->is_resting = false;
    x->needed_bytes = ps_residency_has_non_model(&s->r) ? ps_round_up(non_model_bytes, s->r.page_bytes) : 0;
    if (x->schedule == NULL) return ps_scheduling_commit_non_model(x);
    ps_store_end_moment(s);
    turn(x);
    s->owes_moment = true;
    PS_TRY(recalibrate(x, non_model_bytes));
    PS_TRY(ps_movement_retire_due(&s->m));
    PS_TRY(ps_store_with_moment(s, ps_scheduling_start_wanted(x)));
    PS_TRY(ps_scheduling_look_ahead(x));
    STORE_CHECK(s);
    return PS_OK;
}

ps_status ps_store_claim_outside_step(ps_store *s, int64_t non_model_bytes)
{
    ps_scheduling *x = &s->s;
    PS_ASSERT(s->r.counts_non_model);
    const int64_t before = x->needed_bytes;
    x->moment_serial++; /* no chunk is needed by the moment any more */
    x->needed_bytes = ps_round_up(non_model_bytes, s->r.page_bytes);
    const ps_status st = ps_scheduling_commit_non_model(x);
    if (st != PS_OK) x->needed_bytes = before;
    STORE_CHECK(s);
    return st;
}
