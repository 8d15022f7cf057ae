/* profile_records.c - operators and steps as records of a profile; the store records chunks, copies and memory. */
#include "api/external/moment_trace.h"

static int64_t waited_ns(const ps_client *c)
{
    return ps_store_get_stats(c->tiers.store).wait_ns;
}

static void end_operator(ps_client *c)
{
    ps_client_profiling *r = &c->recording;
    if (r->label == NULL) return;
    ps_work_time begin = r->began;
    begin.issued_ns = ps_min_i64(begin.issued_ns + waited_ns(c) - r->waited_ns, ps_profile_now(c->profile));
    ps_work_record(&c->tiers, PS_TIER_DEVICE, &begin,
                   &(ps_profile_record){.kind = PS_PROFILE_OP,
                                        .chunk = -1,
                                        .op = {.label = r->label,
                                               .step = c->n_steps + 1,
                                               .non_model_bytes = r->framework_bytes,
                                               .moment = r->number,
                                               .phase = (int32_t)r->phase}});
    r->label = NULL;
}

static void end_step(ps_client *c)
{
    ps_client_profiling *r = &c->recording;
    end_operator(c);
    if (!r->is_in_step) return;
    ps_work_record(&c->tiers, PS_TIER_DEVICE, &r->step_began,
                   &(ps_profile_record){.kind = PS_PROFILE_STEP, .chunk = -1, .step = {.number = c->n_steps + 1}});
    r->is_in_step = false;
    r->number = 0;
}

void ps_client_record_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes, bool is_in_step)
{
    ps_client_profiling *r = &c->recording;
    if (!ps_profile_is_on(c->profile)) return;
    end_operator(c);
    r->label = label;
    r->phase = phase;
    r->framework_bytes = framework_bytes;
    r->waited_ns = waited_ns(c);
    r->began = ps_work_now(&c->tiers, PS_TIER_DEVICE);
    r->number = is_in_step && r->is_in_step ? r->number + 1 : 0;
    if (!is_in_step || r->is_in_step) return;
    r->is_in_step = true;
    r->step_began = r->began;
}

void ps_client_unrecord_moment(ps_client *c)
{
    ps_client_profiling *r = &c->recording;
    if (!ps_profile_is_on(c->profile)) return;
    r->label = NULL;
    r->is_in_step = r->number > 0;
    r->number -= r->number > 0;
}

void ps_client_stop_recording(ps_client *c)
{
    if (c->profile == NULL || !ps_profile_is_on(c->profile)) return;
    end_step(c);
    ps_store_profile_synchronize(c->tiers.store);
    ps_profile_stop(c->profile);
    if (c->comm != NULL) ps_comm_set_profile(c->comm, NULL, 0);
}

void ps_client_record_step(ps_client *c)
{
    if (!ps_profile_is_on(c->profile)) return;
    end_step(c);
    if (ps_profile_is_full(c->profile)) ps_client_stop_recording(c);
}
