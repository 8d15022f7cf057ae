/* ahead.c - with several ranks: the groups that a step gathers are recorded, and in the next one each is gathered while
 * the framework computes with the one before it.
 *
 *     calls          pin a                     pin b                     pin c
 *     recorded        | gather a | compute      | gather b | compute      | gather c | compute
 *     as recorded     |== a ==|  b begins       | b is here,  c begins    | c is here
 *
 * What is gathered ahead follows from the record alone, which is the same on all ranks: its hash goes along with each
 * step's announcement. A call that is not the recorded one ends that until the end of the step; what is under way then
 * stays until it is used, or the step ends. As ever each rank announces what it gathers, and looks at the others'
 * announcements before it uses what has come. FSDP and DeepSpeed's ZeRO-3 call it prefetching. */
#include <xxhash.h>

#include "base/mem.h"
#include "external/client_impl.h"
#include "state/placement.h"

static ps_client_ahead *ahead_of(ps_client *c)
{
    return &c->sharing.ahead;
}

/* ---- the record ---- */

static bool is_in_step(const ps_client *c)
{
    return c->steps.trace != NULL && c->steps.evaluation == NULL;
}

static bool is_same_exchange(const ps_client_exchange *a, const ps_client_exchange *b)
{
    return a->kind == b->kind && a->group == b->group;
}

ps_status ps_client_note_exchange(ps_client *c, ps_client_exchange_kind kind, int32_t group)
{
    ps_client_record *now = &c->sharing.now, *last = &c->sharing.recorded;
    if (!is_in_step(c)) return PS_OK;
    const ps_client_exchange x = {.kind = kind, .group = group, .moment = c->steps.trace->n_moments - 1};
    PS_TRY(ps_client_break(c, ps_mem_reserve(&now->all, (size_t)now->n + 1, sizeof *now->all)));
    now->follows = now->follows && now->n < last->n && is_same_exchange(&x, &last->all[now->n]);
    now->all[now->n++] = x;
    return PS_OK;
}

void ps_client_begin_record(ps_client *c)
{
    c->sharing.now.n = 0;
    c->sharing.now.follows = true;
}

uint64_t ps_client_hash_record(const ps_client *c)
{
    const ps_client_record *r = &c->sharing.now;
    uint64_t hash = (uint64_t)r->n;
    for (int32_t i = 0; i < r->n; i++) {
        const int32_t x[2] = {(int32_t)r->all[i].kind, r->all[i].group};
        hash = XXH3_64bits_withSeed(x, sizeof x, hash);
    }
    return hash;
}

bool ps_client_expects_gather(const ps_client *c, int32_t group)
{
    const ps_client_record *now = &c->sharing.now, *last = &c->sharing.recorded;
    if (!is_in_step(c) || !now->follows || now->n >= last->n) return false;
    return last->all[now->n].kind == PS_CLIENT_GATHER && last->all[now->n].group == group;
}

static bool concerns(const ps_client_exchange *x, int32_t group)
{
    return x->group == group || x->group == -1;
}

/* A gradient was given to a group that the step gathered only later, before its reduction. That gathering moves to the
 * gradient: then it can come ahead, and no gradient has to make way for it. */
static void gather_with_gradients(ps_client_record *r)
{
    for (int32_t i = 0; i < r->n; i++) {
        const int32_t group = r->all[i].group;
        int32_t end = i + 1, n = i + 1;
        while (end < r->n && (!concerns(&r->all[end], group) || r->all[end].kind == PS_CLIENT_GIVE_GRADIENT)) end++;
        const bool is_gathered = end < r->n && r->all[end].kind == PS_CLIENT_GATHER;
        if (r->all[i].kind != PS_CLIENT_GIVE_GRADIENT || !is_gathered) continue;
        r->all[i].kind = PS_CLIENT_GATHER;
        for (int32_t k = i + 1; k < r->n; k++)
            if (k > end || r->all[k].group != group) r->all[n++] = r->all[k];
        r->n = n;
    }
}

/* ---- what may be gathered ahead ---- */

/* Number of the exchange before number i after which i's group may be gathered; -1: none. */
static int32_t begins_after(const ps_client_record *r, int32_t i)
{
    for (int32_t k = i - 1; k >= 0; k--)
        if (r->all[k].kind == PS_CLIENT_GATHER || concerns(&r->all[k], r->all[i].group)) return k;
    return -1;
}

/* Is there room for the group beside all that the recorded step had on the device from then until it was used? */
static bool has_room(const ps_client *c, const ps_client_record *r, int32_t i, int64_t room)
{
    const int64_t page = ps_settings_page_bytes(&c->settings);
    const int32_t begin = begins_after(r, i);
    const ps_trace *t = c->steps.trace;
    if (begin < 0) return false;
    const ps_chunk_group g = ps_client_chunks_of(c, r->all[i].group);
    const int64_t chunk = ps_payload_bytes(&c->settings, c->layout, &c->lists, PS_LIST_PARAM16);
    for (int32_t m = (int32_t)ps_max_i64(0, r->all[begin].moment); m <= r->all[i].moment && m < t->n_moments; m++)
        if (t->moments[m].non_model_bytes + ps_client_moment_bytes(c, t, m, page) + g.n_chunks * chunk > room)
            return false;
    return true;
}

/* All ranks have room. */
static ps_status agree_on_room(ps_client *c, ps_client_record *r)
{
    const int64_t room = ps_client_device_room(c);
    double *has;
    PS_TRY(ps_mem_alloc((size_t)r->n, sizeof *has, &has));
    for (int32_t i = 0; i < r->n; i++) {
        const bool lacked = i < c->sharing.recorded.n && c->sharing.recorded.all[i].lacks_room;
        r->all[i].lacks_room = lacked && is_same_exchange(&r->all[i], &c->sharing.recorded.all[i]);
        has[i] = r->all[i].kind == PS_CLIENT_GATHER && !r->all[i].lacks_room && has_room(c, r, i, room);
    }
    const ps_status st = ps_comm_all_reduce(c->comm, has, r->n, PS_COMM_MIN);
    for (int32_t i = 0; i < r->n; i++) r->all[i].goes_ahead = has[i] > 0;
    ps_mem_free(has);
    return st;
}

ps_status ps_client_agree_on_record(ps_client *c)
{
    ps_client_sharing *s = &c->sharing;
    const uint64_t hash = ps_client_hash_record(c);
    bool is_same = true, lacks_room = false;
    if (c->settings.wait_at_once) return PS_OK;
    for (int32_t r = 0; r < c->settings.ranks.n; r++) {
        const ps_client_message *m = ps_client_message_of(c, s->messages, r);
        is_same = is_same && m->record == hash;
        lacks_room = lacks_room || m->lacks_room != 0;
    }
    if (!is_same) s->recorded.n = 0;
    if (is_same && s->now.n > 0 && (lacks_room || s->recorded_hash != hash || s->recorded.n == 0)) {
        gather_with_gradients(&s->now);
        s->recorded_hash = ps_client_hash_record(c);
        PS_TRY(agree_on_room(c, &s->now));
        const ps_client_record old = s->recorded;
        s->recorded = s->now;
        s->now = old;
    }
    s->lacks_room = false;
    return PS_OK;
}

/* The exchange of the record whose group can begin to come now: the next gathering, if nothing is known to change its
 * chunks before. NULL: none. */
static ps_client_exchange *next_gathering(ps_client *c)
{
    ps_client_record *last = &c->sharing.recorded;
    const ps_client_record *now = &c->sharing.now;
    if (!is_in_step(c) || !now->follows) return NULL;
    int32_t i = now->n;
    while (i < last->n && last->all[i].kind != PS_CLIENT_GATHER) i++;
    if (i >= last->n || !last->all[i].goes_ahead || begins_after(last, i) >= now->n) return NULL;
    return c->sharing.is_here[last->all[i].group] ? NULL : &last->all[i];
}

/* ---- a group comes ---- */

/* insists: lack of room is an error, not a reason to postpone. */
static ps_status begin(ps_client *c, bool insists)
{
    ps_client_ahead *a = ahead_of(c);
    const ps_client_message m = {.kind = PS_CLIENT_GATHER, .number = a->group, .tensor = a->tensor};
    PS_TRY(ps_client_prepare_gather(c, a->group, insists));
    a->state = PS_CLIENT_AHEAD_UNDER_WAY;
    a->announced = (ps_event){0};
    a->gather = (ps_group_collective){0};
    PS_TRY(ps_client_begin_announcing(c, &m, NULL, 0, a->messages, &a->announced));
    return ps_group_begin_gather(&c->between_ranks, ps_client_chunks_of(c, a->group), &a->gather);
}

/* The program has a place in one of its chunks, which it may read and write at any time. Places come back at other times
 * on other ranks. */
static bool is_in_use(const ps_client *c, int32_t group)
{
    const ps_chunk_group g = ps_client_chunks_of(c, group);
    for (int32_t k = g.chunk; k < g.chunk + g.n_chunks; k++)
        if (c->held.count[ps_store_chunk(c->layout, PS_LIST_PARAM16, k)] > 0) return true;
    return false;
}

/* What fails for want of room, or as the program has a gradient in use that would have to make way, can be done later. */
static ps_status try_to_begin(ps_client *c)
{
    ps_client_ahead *a = ahead_of(c);
    if (is_in_use(c, a->group)) return PS_OK;
    const ps_status st = begin(c, false);
    const bool is_postponed = a->state == PS_CLIENT_AHEAD_POSTPONED && (st == PS_EBUDGET || st == PS_ESTATE);
    c->sharing.lacks_room = c->sharing.lacks_room || (is_postponed && st == PS_EBUDGET);
    return is_postponed ? PS_OK : ps_client_break(c, st);
}

ps_status ps_client_gather_ahead(ps_client *c)
{
    ps_client_ahead *a = ahead_of(c);
    if (a->state == PS_CLIENT_AHEAD_POSTPONED) return try_to_begin(c);
    if (a->state != PS_CLIENT_AHEAD_NONE || c->sharing.recorded.n == 0) return PS_OK;
    ps_client_exchange *x = next_gathering(c);
    if (x == NULL) return PS_OK;
    a->group = x->group;
    a->tensor = c->pieces.all[c->pieces.first[ps_client_chunks_of(c, x->group).chunk]].tensor;
    a->state = PS_CLIENT_AHEAD_POSTPONED;
    const bool lacked_room = c->sharing.lacks_room;
    PS_TRY(try_to_begin(c));
    x->lacks_room = c->sharing.lacks_room && !lacked_room;
    return PS_OK;
}

ps_status ps_client_do_postponed(ps_client *c)
{
    if (ahead_of(c)->state != PS_CLIENT_AHEAD_POSTPONED) return PS_OK;
    PS_TRY(ps_client_break(c, begin(c, true)));
    return ps_client_finish_ahead(c);
}

ps_status ps_client_finish_ahead(ps_client *c)
{
    ps_client_ahead *a = ahead_of(c);
    PS_TRY(ps_client_do_postponed(c));
    if (a->state != PS_CLIENT_AHEAD_UNDER_WAY) return PS_OK;
    ps_status st = ps_client_finish_announcing(c, a->messages, a->announced);
    if (st == PS_OK) st = ps_group_await(&c->between_ranks, &a->gather);
    if (st != PS_OK) return ps_client_break(c, st);
    a->state = PS_CLIENT_AHEAD_HERE;
    ps_client_let_go_gathered(c, a->group);
    return PS_OK;
}

ps_status ps_client_take_ahead(ps_client *c, int32_t group, bool *was_ahead)
{
    ps_client_ahead *a = ahead_of(c);
    *was_ahead = ps_client_is_coming(c, group);
    if (!*was_ahead) return PS_OK;
    c->sharing.n_gathered_ahead += a->state != PS_CLIENT_AHEAD_POSTPONED;
    PS_TRY(ps_client_finish_ahead(c));
    a->state = PS_CLIENT_AHEAD_NONE;
    return PS_OK;
}

bool ps_client_is_coming(const ps_client *c, int32_t group)
{
    return c->sharing.ahead.state != PS_CLIENT_AHEAD_NONE && c->sharing.ahead.group == group;
}

/* After a failure no payload is touched any more; else the other ranks send theirs, too. */
void ps_client_end_ahead(ps_client *c)
{
    ps_client_ahead *a = ahead_of(c);
    if (a->state == PS_CLIENT_AHEAD_UNDER_WAY) {
        (void)!ps_collectives_wait(ps_comm_messages(c->comm), a->announced);
        (void)!ps_group_finish(&c->between_ranks, &a->gather);
    }
    a->state = PS_CLIENT_AHEAD_NONE;
}
