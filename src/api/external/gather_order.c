/* gather_order.c - with several ranks: the order in which a step gathers and reduces groups of chunks, as recorded, and
 * the groups that the next step may prefetch. It is the same on all ranks: its hash is part of each step's
 * announcement. A call that differs from the recorded one ends prefetching until the end of the step. */
#include <xxhash.h>

#include "api/external/moment_trace.h"
#include "base/mem.h"
#include "train/state/footprint.h"

static bool is_in_step(const ps_client *c)
{
    return c->steps.trace != NULL && c->steps.evaluation == NULL;
}

static bool is_same_action(const ps_client_action *a, const ps_client_action *b)
{
    return a->kind == b->kind && a->group == b->group;
}

ps_status ps_client_note_action(ps_client *c, ps_client_action_kind kind, int32_t group)
{
    ps_client_gather_order *now = &c->sharding.now, *last = &c->sharding.recorded;
    if (!is_in_step(c)) return PS_OK;
    const ps_client_action x = {.kind = kind, .group = group, .moment = c->steps.trace->n_moments - 1};
    PS_TRY(ps_client_break(c, ps_mem_reserve(&now->all, (size_t)now->n + 1, sizeof *now->all)));
    now->matches = now->matches && now->n < last->n && is_same_action(&x, &last->all[now->n]);
    now->all[now->n++] = x;
    return PS_OK;
}

void ps_client_begin_gather_order(ps_client *c)
{
    c->sharding.now.n = 0;
    c->sharding.now.matches = true;
}

uint64_t ps_client_hash_gather_order(const ps_client *c)
{
    const ps_client_gather_order *r = &c->sharding.now;
    uint64_t hash = (uint64_t)r->n;
    for (int32_t i = 0; i < r->n; i++) {
        const int32_t x[2] = {(int32_t)r->all[i].kind, r->all[i].group};
        hash = XXH3_64bits_withSeed(x, sizeof x, hash);
    }
    return hash;
}

static bool concerns(const ps_client_action *x, int32_t group)
{
    return x->group == group || x->group == -1;
}

/* A gradient was added to a group that the step gathered only later, before its reduction. That gathering moves to the
 * gradient if it can be complete by then: then no gradient has to move off its parameter for it. */
static void gather_with_gradients(ps_client_gather_order *r)
{
    for (int32_t i = 0; i < r->n; i++) {
        const int32_t group = r->all[i].group;
        int32_t end = i + 1, n = i + 1;
        while (end < r->n && (!concerns(&r->all[end], group) || r->all[end].kind == PS_CLIENT_GIVE_GRADIENT)) end++;
        const bool is_gathered = end < r->n && r->all[end].kind == PS_CLIENT_GATHER;
        if (r->all[i].kind != PS_CLIENT_GIVE_GRADIENT || !r->all[i].may_be_prefetched || !is_gathered) continue;
        r->all[i].kind = PS_CLIENT_GATHER;
        for (int32_t k = i + 1; k < r->n; k++)
            if (k > end || r->all[k].group != group) r->all[n++] = r->all[k];
        r->n = n;
    }
}

/* ---- groups that may be prefetched ---- */

/* Number of the last action before number i after which i's group may be gathered; -1: none. */
static int32_t begins_after(const ps_client_gather_order *r, int32_t i)
{
    for (int32_t k = i - 1; k >= 0; k--)
        if (r->all[k].kind == PS_CLIENT_GATHER || concerns(&r->all[k], r->all[i].group)) return k;
    return -1;
}

/* Is there room for the group next to everything that the recorded step had on the device from then until it was used?
 * At its use the step had the group, too. stuck: ps_client_stuck_bytes. */
static bool has_room(const ps_client *c, const ps_client_gather_order *r, int32_t i, int64_t room, int64_t stuck)
{
    const int64_t page = ps_settings_page_bytes(&c->settings);
    const int32_t begin = begins_after(r, i);
    const ps_trace *t = c->steps.trace;
    if (begin < 0) return false;
    const ps_chunk_group g = ps_client_chunk_group(c, r->all[i].group);
    const int64_t chunk = ps_payload_bytes(&c->settings, c->layout, &c->lists, PS_LIST_PARAM16);
    for (int32_t m = (int32_t)ps_max_i64(0, r->all[begin].moment); m < r->all[i].moment; m++) {
        const int64_t chunks = ps_max_i64(stuck, ps_client_moment_bytes(c, t, m, page));
        if (t->moments[m].non_model_bytes + chunks + g.n_chunks * chunk > room) return false;
    }
    return true;
}

/* The gatherings for which all ranks have room before their use, or before the group's first gradient. */
static ps_status agree_on_room(ps_client *c, ps_client_gather_order *r)
{
    const int64_t room = ps_client_device_room(c), stuck = ps_client_stuck_bytes(c);
    double *has;
    PS_TRY(ps_mem_alloc((size_t)r->n, sizeof *has, &has));
    for (int32_t i = 0; i < r->n; i++) {
        const ps_client_action_kind kind = r->all[i].kind;
        has[i] = (kind == PS_CLIENT_GATHER || kind == PS_CLIENT_GIVE_GRADIENT) && has_room(c, r, i, room, stuck);
    }
    const ps_status st = ps_comm_all_reduce(c->comm, has, r->n, PS_COMM_MIN);
    for (int32_t i = 0; i < r->n; i++) r->all[i].may_be_prefetched = has[i] > 0;
    ps_mem_free(has);
    return st;
}

ps_status ps_client_agree_on_gather_order(ps_client *c)
{
    ps_client_sharding *s = &c->sharding;
    const uint64_t hash = ps_client_hash_gather_order(c);
    bool is_same = true;
    if (c->settings.tiers.store.prefetch == 0) return PS_OK;
    for (int32_t r = 0; r < c->settings.ranks.n; r++)
        is_same = is_same && ps_client_message_of(c, s->messages, r)->gather_order_hash == hash;
    if (!is_same) s->recorded.n = 0;
    if (is_same && s->now.n > 0 && (s->recorded_hash != hash || s->recorded.n == 0)) {
        PS_TRY(agree_on_room(c, &s->now));
        gather_with_gradients(&s->now);
        s->recorded_hash = ps_client_hash_gather_order(c);
        const ps_client_gather_order old = s->recorded;
        s->recorded = s->now;
        s->now = old;
    }
    return PS_OK;
}

/* The action of the recorded order whose group can be gathered from now on: the next gathering, if no known action
 * changes its chunks before. NULL: none. */
const ps_client_action *ps_client_next_gather(const ps_client *c)
{
    const ps_client_gather_order *last = &c->sharding.recorded;
    const ps_client_gather_order *now = &c->sharding.now;
    if (!is_in_step(c) || !now->matches) return NULL;
    int32_t i = now->n;
    while (i < last->n && last->all[i].kind != PS_CLIENT_GATHER) i++;
    if (i >= last->n || !last->all[i].may_be_prefetched || begins_after(last, i) >= now->n) return NULL;
    return c->sharding.is_gathered[last->all[i].group] ? NULL : &last->all[i];
}
