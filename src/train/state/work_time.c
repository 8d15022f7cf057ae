#include "train/state/work_time.h"

/* A mark fails only on a queue that has failed: its next item reports it. */
ps_work_time ps_work_now(const ps_tiers *t, ps_tier tier)
{
    ps_work_time now = {.issued_ns = ps_profile_now(t->profile)};
    if (!ps_profile_is_on(t->profile) || !ps_device_is_asynchronous(t->ram[PS_TIER_DEVICE])) return now;
    if (ps_queue_mark(t->compute[tier], &now.mark) != PS_OK) now.mark = (ps_event){NULL, 0};
    return now;
}

void ps_work_record(const ps_tiers *t, ps_tier tier, const ps_work_time *begin, ps_profile_record *r)
{
    const ps_work_time end = ps_work_now(t, tier);
    r->begin_ns = begin->issued_ns;
    r->end_ns = end.issued_ns;
    r->marks = (ps_profile_marks){begin->mark.ticket, end.mark.ticket, ps_work_link(tier)};
    ps_profile_add(t->profile, r);
}
