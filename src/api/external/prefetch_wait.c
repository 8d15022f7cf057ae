/* prefetch_wait.c - with several ranks: completion of an issued prefetch (prefetch.c). */
#include "api/external/moment_trace.h"

static const ps_client_message *vote_of(const ps_client_votes *v, int32_t rank)
{
    return ps_client_message_of(v->client, v->messages, rank);
}

bool ps_client_is_prefetch_agreed(const void *votes)
{
    const ps_client_votes *v = votes;
    const ps_ranks *ranks = &v->client->settings.ranks;
    const ps_client_message *mine = vote_of(v, ranks->rank);
    for (int32_t r = 0; r < ranks->n; r++) {
        const ps_client_message *m = vote_of(v, r);
        if (m->kind != mine->kind || m->number != mine->number || m->refuses) return false;
    }
    return true;
}

void ps_client_discard(ps_client *c, ps_list list, int32_t chunk)
{
    if (!ps_client_is_pinned(c, list, chunk)) ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, list, chunk));
}

void ps_client_discard_others(ps_client *c, int32_t group)
{
    for (int32_t k = ps_client_first_chunk(c, group); k < ps_client_end_chunk(c, group); k++)
        if (!ps_client_owns(c, k) && !ps_client_chunk_has_any_gradient(c, k)) ps_client_discard(c, PS_LIST_PARAM16, k);
}

void ps_client_unpin_group(ps_client *c, int32_t group, ps_list list)
{
    for (int32_t k = ps_client_first_chunk(c, group); k < ps_client_end_chunk(c, group); k++)
        ps_client_unpin_chunk(c, list, k);
}

void ps_client_end_gather(ps_client *c, int32_t group, bool has_come)
{
    ps_client_unpin_group(c, group, PS_LIST_PARAM16);
    if (!has_come) ps_client_discard_others(c, group);
}

ps_status ps_client_finish_prefetch(ps_client *c)
{
    ps_client_prefetch *p = &c->sharding.prefetch;
    if (p->state != PS_CLIENT_PREFETCH_ISSUED) return PS_OK;
    const ps_client_votes *votes = &p->votes[p->turn];
    ps_status st = ps_client_finish_announcing(c, votes->messages, p->announced);
    if (st == PS_OK) st = ps_group_wait(&c->between_ranks, &p->gather);
    if (st != PS_OK) return ps_client_break(c, st);
    p->state = ps_client_is_prefetch_agreed(votes) ? PS_CLIENT_PREFETCH_READY : PS_CLIENT_PREFETCH_REFUSED;
    if (!p->refuses) ps_client_end_gather(c, p->group, p->state == PS_CLIENT_PREFETCH_READY);
    return PS_OK;
}

bool ps_client_release_prefetch(ps_client *c, ps_status *st)
{
    if (*st != PS_EBUDGET || c->sharding.prefetch.state != PS_CLIENT_PREFETCH_ISSUED) return false;
    *st = ps_client_finish_prefetch(c);
    return *st == PS_OK;
}

ps_status ps_client_take_prefetch(ps_client *c, int32_t group, bool *was_prefetched)
{
    ps_client_prefetch *p = &c->sharding.prefetch;
    *was_prefetched = false;
    if (!ps_client_is_prefetching(c, group)) return PS_OK;
    PS_TRY(ps_client_finish_prefetch(c));
    *was_prefetched = p->state == PS_CLIENT_PREFETCH_READY;
    p->state = PS_CLIENT_PREFETCH_NONE;
    return PS_OK;
}

bool ps_client_is_prefetching(const ps_client *c, int32_t group)
{
    return c->sharding.prefetch.state != PS_CLIENT_PREFETCH_NONE && c->sharding.prefetch.group == group;
}

/* After a failure no payload is accessed any more; otherwise the other ranks send theirs, too. */
void ps_client_end_prefetch(ps_client *c)
{
    ps_client_prefetch *p = &c->sharding.prefetch;
    if (p->state == PS_CLIENT_PREFETCH_ISSUED) {
        (void)!ps_collectives_wait(ps_comm_messages(c->comm), p->announced);
        (void)!ps_group_synchronize(&c->between_ranks, &p->gather);
    }
    p->state = PS_CLIENT_PREFETCH_NONE;
}
