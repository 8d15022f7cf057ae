/* prefetch.c - with several ranks: the order in which a step gathers groups is recorded, and in the next one each group
 * is prefetched while the framework computes with the one before it, as FSDP and DeepSpeed's ZeRO-3 do.
 *
 *     calls          pin a                     pin b                     pin c
 *     recorded        | gather a | compute      | gather b | compute      | gather c | compute
 *     as recorded     |== a ==|  issue b        | b is ready, issue c     | c is ready
 *
 * The prefetched groups follow from the recorded gather order alone, which is the same on all ranks: its hash is part
 * of each step's announcement. A call that differs from the recorded one ends prefetching until the end of the step; a
 * prefetch in flight then stays until it is used, or the step ends. As always each rank announces what it gathers, and
 * checks the others' announcements before it uses the result.
 *
 * A rank may turn out to have no room. It says so in its announcement, and the parameters are sent only if no rank
 * does: a condition of the transfer, which the communicator's thread evaluates. If some ranks began and others deferred
 * it until their next collective, a rank could wait for another one that is in a collective of the program, and that
 * one for it. */
#include "api/external/sharding.h"

/* The program has a pointer to one of its chunks, which it may read and write at any time, and which ranks release at
 * different times. Or a gradient there would have to move off its parameter, which is unnecessary if the step turns out
 * not to use the group. */
static bool is_in_use(const ps_client *c, int32_t group)
{
    for (int32_t k = ps_client_first_chunk(c, group); k < ps_client_end_chunk(c, group); k++) {
        const bool is_over = ps_client_chunk_has_gradient(c, k, PS_GRADIENT_IN_PLACE) && !c->updates.is_waiting[k];
        if (is_over || ps_client_is_pinned(c, PS_LIST_PARAM16, k)) return true;
    }
    return false;
}

/* Unless this rank refuses, because the group is in use or there is no room, its chunks are pinned. */
static ps_status prepare(ps_client *c, int32_t group, bool *refuses)
{
    *refuses = is_in_use(c, group);
    if (*refuses) return PS_OK;
    const ps_status st = ps_client_prepare_gather(c, group, false);
    *refuses = st == PS_EBUDGET;
    return *refuses ? PS_OK : st;
}

static ps_status issue(ps_client *c)
{
    ps_client_prefetch *p = &c->sharding.prefetch;
    ps_chunk_group g = ps_client_chunk_group(c, p->group);
    const int32_t tensor = c->pieces.all[c->pieces.first[g.chunk]].tensor;
    PS_TRY(prepare(c, p->group, &p->refuses));
    p->turn = 1 - p->turn;
    ps_client_votes *votes = &p->votes[p->turn];
    p->state = PS_CLIENT_PREFETCH_ISSUED;
    p->announced = (ps_event){0};
    p->gather = (ps_group_request){0};
    const ps_client_message m = {.kind = PS_CLIENT_GATHER, .number = p->group, .tensor = tensor, .refuses = p->refuses};
    PS_TRY(ps_client_begin_announcing(c, &m, NULL, 0, votes->messages, &p->announced));
    const ps_transfer_condition condition = {
        .holds = ps_client_is_prefetch_agreed, .arg = votes, .known = p->announced};
    if (p->refuses) g.n_chunks = 0;
    return ps_group_begin_gather(&c->between_ranks, g, &condition, &p->gather);
}

ps_status ps_client_issue_prefetch(ps_client *c)
{
    ps_client_prefetch *p = &c->sharding.prefetch;
    if (p->state != PS_CLIENT_PREFETCH_NONE || c->sharding.recorded.n == 0) return PS_OK;
    const ps_client_action *next = ps_client_next_gather(c);
    if (next == NULL) return PS_OK;
    p->group = next->group;
    return ps_client_break(c, issue(c));
}
