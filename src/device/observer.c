#include "device/observer.h"

#include "device/queue_impl.h"
#include "device/sim_time_impl.h"

static void record(const ps_observed *w, const ps_notice *n)
{
    if (n->kind != PS_NOTICE_DONE) return;
    ps_profile_add(w->profile,
                   &(ps_profile_record){.kind = n->item == PS_QUEUE_ITEM_MARK ? PS_PROFILE_MARK : PS_PROFILE_MOVED,
                                        .chunk = -1,
                                        .begin_ns = n->begin_ns,
                                        .end_ns = n->end_ns,
                                        .copy = {.ticket = n->ticket, .link = n->link}});
}

static ps_observer *const observers[] = {[PS_OBSERVER_ORDER] = ps_order_observe,
                                         [PS_OBSERVER_CLOCK] = ps_sim_clock_observe,
                                         [PS_OBSERVER_RECORDER] = record};

void ps_announce_to_all(const ps_observed *w, const ps_notice *n)
{
    const unsigned subscribed = atomic_load_explicit(&w->observers, memory_order_relaxed);
    for (size_t i = 0; i < PS_ARRAY_LEN(observers); i++)
        if ((subscribed >> i & 1) != 0) observers[i](w, n);
}
