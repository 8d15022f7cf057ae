#include "train/run/moment.h"

#include "chunk/sim_lanes.h"
#include "train/run/memory_dump.h"

static const ps_access *accesses_of(const ps_exec_plan *b, int32_t moment, int32_t *n)
{
    *n = b->trace->moments[moment].n_accesses;
    return &b->trace->accesses[b->trace->moments[moment].first_access];
}

static void unpin_first(ps_runner *r, int32_t moment, int32_t n)
{
    int32_t all;
    const ps_access *a = accesses_of(r->plan, moment, &all);
    for (int32_t i = 0; i < n; i++) ps_store_unpin(r->tiers->store, a[i].chunk);
}

ps_status ps_moment_dump(const ps_runner *r, int32_t moment, ps_status st)
{
    if (r->o.keeps_dump) ps_memory_dump_keep(r->plan, r->tiers, moment, st);
    return st;
}

/* ---- for observers of a trial's order ---- */

static ps_use use_of(const ps_runner *r, const ps_access *a)
{
    const ps_exec_plan *b = r->plan;
    const ps_list list = ps_lists_list_of(&b->lists, b->layout, a->chunk);
    return (ps_use){.address = ps_store_payload(r->tiers->store, a->chunk),
                    .bytes = ps_exec_plan_chunk_bytes(b, list),
                    .is_write = a->mode != PS_ACCESS_READ,
                    .name = b->lists.list[list].name};
}

/* A trial does not compute; the accesses of kernels are issued all the same. */
static ps_status issue_uses(const ps_runner *r, int32_t moment)
{
    const char *name = r->plan->trace->moments[moment].label;
    const int64_t non_model = r->plan->trace->moments[moment].non_model_bytes;
    int32_t n;
    const ps_access *a = accesses_of(r->plan, moment, &n);
    for (int32_t i = 0; i < n; i++) {
        const ps_use use = use_of(r, &a[i]);
        PS_TRY(ps_queue_issue_use(r->tiers->compute[a[i].tier], name, &use));
    }
    if (non_model == 0) return PS_OK;
    return ps_queue_issue_use(
        ps_runner_device_queue(r), name,
        &(ps_use){.address = r->non_model, .bytes = non_model, .is_write = true, .name = "activations"});
}

/* ---- moments ---- */

ps_status ps_moment_begin(ps_runner *r, int32_t moment)
{
    ps_store_go_to(r->tiers->store, moment);
    ps_status st = ps_store_begin_moment(r->tiers->store, r->plan->trace->moments[moment].non_model_bytes);
    if (st != PS_OK) return ps_moment_dump(r, moment, st);
    int32_t n;
    const ps_access *a = accesses_of(r->plan, moment, &n);
    for (int32_t i = 0; i < n; i++) {
        st = ps_store_pin(r->tiers->store, a[i].chunk, a[i].tier, a[i].mode, NULL);
        if (st == PS_OK) continue;
        (void)ps_moment_dump(r, moment, st);
        unpin_first(r, moment, i);
        return st;
    }
    if (r->o.compute || ps_device_order(r->tiers->ram[PS_TIER_DEVICE]) == NULL) return PS_OK;
    st = issue_uses(r, moment);
    if (st != PS_OK) unpin_first(r, moment, n);
    return st;
}

void ps_moment_end(ps_runner *r, int32_t moment)
{
    int32_t n;
    (void)accesses_of(r->plan, moment, &n);
    unpin_first(r, moment, n);
}

/* For simulated queues with time: the wait of the moment. */
static void record_wait(const ps_runner *r)
{
    const ps_sim_item item = ps_sim_queue_last(r->tiers->compute[PS_TIER_DEVICE]);
    const int cause = item.cause >= 0 ? item.cause : PS_SIM_HOST;
    if (item.begin_ns > item.free_ns)
        ps_profile_add(r->tiers->profile, &(ps_profile_record){.kind = PS_PROFILE_WAIT,
                                                               .chunk = -1,
                                                               .begin_ns = item.free_ns,
                                                               .end_ns = item.begin_ns,
                                                               .copy = {.link = (uint8_t)cause}});
}

void ps_moment_record(const ps_runner *r, int32_t moment, ps_tier tier, ps_chunk_id chunk, const ps_work_time *begin)
{
    const ps_moment *m = &r->plan->trace->moments[moment];
    ps_store_end_moment(r->tiers->store);
    if (r->tiers->time != NULL && tier == PS_TIER_DEVICE) record_wait(r);
    ps_work_record(r->tiers, tier, begin,
                   &(ps_profile_record){.kind = PS_PROFILE_OP,
                                        .chunk = chunk,
                                        .op = {.label = m->label,
                                               .step = r->step + 1,
                                               .non_model_bytes = m->non_model_bytes,
                                               .moment = r->plan->usual == NULL ? moment : -1,
                                               .phase = (int32_t)m->phase,
                                               .is_recompute = r->plan->is_recompute}});
}
