/* in_use.c - order among queues: after which events a payload's content is whole, and its memory unused.
 *
 *     to device    |== copy in ==|            ready = this event
 *     compute                     |== reads ==|== writes ==|       in_use += each; ready = the last that writes
 *     to host                                               |== copy out ==|        in_use += this one
 *
 * Who reads waits for `ready`; who writes, and who gets the memory next, for all of `in_use` too. The store issues
 * these waits on the queue that goes on, so that the host need not. On devices that compute within a call, and have
 * waited for their copies, they find everything done. */
#include "chunk/store_impl.h"

ps_status ps_store_await_whole(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_queue *q, ps_wait_site site)
{
    const ps_event e = s->chunks[id].ready[tier];
    return q != NULL ? ps_queue_wait_at(q, e, site) : ps_event_wait_at(e, site);
}

ps_status ps_store_await_unused(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_queue *q, ps_wait_site site)
{
    const ps_events *all = &s->chunks[id].in_use[tier];
    return q != NULL ? ps_queue_wait_all_at(q, all, site) : ps_events_wait_at(all, site);
}

void ps_store_note_item(ps_store *s, ps_chunk_id id, ps_tier tier, ps_event e, bool writes)
{
    chunk *c = &s->chunks[id];
    ps_events_add(&c->in_use[tier], e);
    if (writes) c->ready[tier] = e;
}

void ps_store_note_given(ps_store *s, ps_chunk_id id, ps_tier tier)
{
    chunk *c = &s->chunks[id];
    c->ready[tier] = (ps_event){NULL, 0};
    c->in_use[tier] = (ps_events){.n = 0};
    ps_events_add(&c->in_use[tier], ps_device_gave_after(s->d.ram[tier]));
}

ps_events ps_store_usable(const ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->chunks[id];
    PS_ASSERT(c->pins > 0);
    ps_events all = {.n = 0};
    ps_events_add(&all, c->ready[c->pin_tier]);
    if (c->is_changing) ps_events_add_all(&all, &c->in_use[c->pin_tier]);
    return all;
}

/* That the store itself makes items of a payload on: compute, two for copies, and what gave the memory. */
enum { OWN_QUEUES = 4 };

static void drop_done(ps_events *all)
{
    int n = 0;
    for (int i = 0; i < all->n; i++)
        if (!ps_event_is_done(all->event[i])) all->event[n++] = all->event[i];
    all->n = n;
}

ps_status ps_store_use_until(ps_store *s, ps_chunk_id id, ps_event e)
{
    const chunk *c = &s->chunks[id];
    ps_queue *q = s->d.compute[c->pin_tier];
    PS_ASSERT(c->pins > 0);
    drop_done(&s->chunks[id].in_use[c->pin_tier]);
    if (c->in_use[c->pin_tier].n + OWN_QUEUES > PS_EVENTS_MAX)
        return PS_FAIL(PS_EINVAL, "chunk id %d is used by items of more than %d queues of the caller's at once", id,
                       PS_EVENTS_MAX - OWN_QUEUES);
    ps_store_note_item(s, id, c->pin_tier, e, c->is_changing);
    if (!c->is_changing) return PS_OK;
    return q != NULL ? ps_queue_wait(q, e) : PS_OK; /* unpin makes its latest item the one to wait for */
}

ps_status ps_store_await_non_model(const ps_store *s)
{
    ps_queue *q = s->d.compute[PS_TIER_DEVICE];
    const ps_event e = ps_device_gave_after(s->d.ram[PS_TIER_DEVICE]);
    return q != NULL ? ps_queue_wait_at(q, e, PS_WAIT_ACTIVATIONS) : ps_event_wait_at(e, PS_WAIT_ACTIVATIONS);
}

ps_events ps_store_computed(const ps_store *s)
{
    ps_events all = {.n = 0};
    if (s->d.compute[PS_TIER_DEVICE] != NULL) ps_events_add(&all, ps_queue_event(s->d.compute[PS_TIER_DEVICE]));
    return all;
}

ps_status ps_store_await_queues(const ps_store *s)
{
    ps_events all = {.n = 0};
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (s->d.compute[t] != NULL) ps_events_add(&all, ps_queue_event(s->d.compute[t]));
    for (int l = 0; l < PS_LINK_COUNT; l++)
        if (s->copies[l] != NULL) ps_events_add(&all, ps_queue_event(s->copies[l]));
    return ps_events_wait(&all);
}
