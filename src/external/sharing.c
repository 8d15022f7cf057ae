/* sharing.c - with several ranks: chunk i belongs to rank i mod p. Who needs a parameter of another rank's chunk gathers
 * its group, p chunks or, with memory-saving communication, that one; gradients go back to their owners when all tensors
 * of a group have theirs.
 *
 *     pin        the group is not here: all-gather, which may have begun before (ahead.c); the one gathered before the
 *                last few is forgotten
 *     gradient   the last one of the group: reduce-scatter; others' chunks are dropped
 *     step       reductions that are left, then each owner updates its chunks, and all others are forgotten
 *
 * All of it follows from the order of calls, which is the same on all ranks; each exchange begins with each rank saying
 * which one it means (announce.c). */
#include <string.h>

#include "base/mem.h"
#include "external/client_impl.h"

static bool is_alone(const ps_client *c)
{
    return c->settings.ranks.n == 1;
}

static int32_t first_chunk(const ps_client *c, int32_t group)
{
    return ps_client_chunks_of(c, group).chunk;
}

static int32_t end_chunk(const ps_client *c, int32_t group)
{
    return ps_client_chunks_of(c, group).chunk + ps_client_chunks_of(c, group).n_chunks;
}

static int32_t first_piece(const ps_client *c, int32_t group)
{
    return c->pieces.first[first_chunk(c, group)];
}

static int32_t end_piece(const ps_client *c, int32_t group)
{
    return c->pieces.first[end_chunk(c, group)];
}

ps_status ps_client_sharing_init(ps_client *c)
{
    ps_client_sharing *s = &c->sharing;
    s->n_groups = ps_group_count(c->layout, &c->settings.ranks);
    for (int i = 0; i < PS_CLIENT_GROUPS_HERE; i++) s->recent[i] = -1;
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->is_here, &s->is_here));
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->n_fresh, &s->n_fresh));
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->n_trained, &s->n_trained));
    for (int32_t i = 0; i < c->pieces.n; i++)
        s->n_trained[ps_client_group_of(c, c->pieces.all[i].chunk)] += !c->tensors[c->pieces.all[i].tensor].is_frozen;
    for (int32_t g = 0; g < s->n_groups; g++)
        s->most_pieces = (int32_t)ps_max_i64(s->most_pieces, end_piece(c, g) - first_piece(c, g));
    const size_t n_ranks = (size_t)c->settings.ranks.n, message_bytes = (size_t)ps_client_message_bytes(c);
    PS_TRY(ps_mem_alloc(n_ranks, message_bytes, &s->messages));
    PS_TRY(ps_mem_alloc(n_ranks, message_bytes, &s->ahead.messages));
    ps_client_begin_record(c);
    return PS_OK;
}

void ps_client_sharing_deinit(ps_client_sharing *s)
{
    ps_mem_free(s->is_here);
    ps_mem_free(s->n_fresh);
    ps_mem_free(s->n_trained);
    ps_mem_free(s->messages);
    ps_mem_free(s->ahead.messages);
    ps_mem_free(s->now.all);
    ps_mem_free(s->recorded.all);
}

/* ---- others' chunks go ---- */

/* What is still in use stays until the next time; it is not used for anything else. */
static void discard(ps_client *c, ps_list list, int32_t chunk)
{
    const ps_chunk_id id = ps_store_chunk(c->layout, list, chunk);
    if (c->held.count[id] == 0) ps_store_discard(c->tiers.store, id);
}

static void discard_others(ps_client *c, int32_t group)
{
    for (int32_t k = first_chunk(c, group); k < end_chunk(c, group); k++)
        if (!ps_client_owns(c, k) && !ps_client_chunk_has_any_gradient(c, k)) discard(c, PS_LIST_PARAM16, k);
}

static void forget(ps_client *c, int32_t group)
{
    c->sharing.is_here[group] = false;
    discard_others(c, group);
    for (int i = 0; i < PS_CLIENT_GROUPS_HERE; i++)
        if (c->sharing.recent[i] == group) c->sharing.recent[i] = -1;
}

static ps_status drop_ahead(ps_client *c)
{
    bool was_ahead;
    if (c->sharing.ahead.state == PS_CLIENT_AHEAD_NONE) return PS_OK;
    const int32_t group = c->sharing.ahead.group;
    PS_TRY(ps_client_take_ahead(c, group, &was_ahead));
    forget(c, group);
    return PS_OK;
}

ps_status ps_client_forget_others(ps_client *c)
{
    if (is_alone(c)) return PS_OK;
    PS_TRY(drop_ahead(c));
    for (int32_t g = 0; g < c->sharing.n_groups; g++) forget(c, g);
    return ps_client_note_exchange(c, PS_CLIENT_DROP, -1);
}

/* The oldest goes, but for a group that waits for gradients: they lie over its parameters. */
static void note_recent(ps_client *c, int32_t group)
{
    ps_client_sharing *s = &c->sharing;
    const int32_t oldest = s->recent[0];
    memmove(s->recent, s->recent + 1, sizeof s->recent - sizeof *s->recent);
    s->recent[PS_CLIENT_GROUPS_HERE - 1] = group;
    const bool is_used = oldest == group || ps_client_is_coming(c, oldest);
    if (oldest >= 0 && !is_used && s->n_fresh[oldest] == 0) forget(c, oldest);
}

/* ---- transfers ---- */

static ps_status hold_group(ps_client *c, int32_t group, ps_list list, ps_access_mode of_own, bool insists)
{
    for (int32_t k = first_chunk(c, group); k < end_chunk(c, group); k++) {
        const ps_access_mode mode = ps_client_owns(c, k) ? of_own : PS_ACCESS_WRITE;
        const ps_status st = insists ? ps_client_hold(c, list, k, PS_TIER_DEVICE, mode)
                                     : ps_client_try_hold(c, list, k, PS_TIER_DEVICE, mode);
        if (st == PS_OK) continue;
        while (k-- > first_chunk(c, group)) ps_client_let_go(c, list, k);
        return st;
    }
    return PS_OK;
}

static void let_go_group(ps_client *c, int32_t group, ps_list list)
{
    for (int32_t k = first_chunk(c, group); k < end_chunk(c, group); k++) ps_client_let_go(c, list, k);
}

/* ---- parameters come ---- */

/* What owners send is the parameters as they are now. */
static ps_status make_whole(ps_client *c, int32_t group)
{
    for (int32_t i = first_piece(c, group); i < end_piece(c, group); i++) {
        const ps_piece *p = &c->pieces.all[i];
        const ps_client_tensor_state *t = &c->tensors[p->tensor];
        PS_TRY(ps_client_expect_no_early_update(c, p->tensor, "its group of chunks is gathered"));
        if (ps_client_gradient_of(c, p)->place == PS_GRADIENT_OVER) PS_TRY(ps_client_restore(c, p->tensor));
        if (t->is_master_newer || t->is_param_newer) PS_TRY(ps_client_settle(c, p->tensor));
    }
    return PS_OK;
}

ps_status ps_client_prepare_gather(ps_client *c, int32_t group, bool insists)
{
    PS_TRY(ps_client_flush_group(c, group));
    PS_TRY(make_whole(c, group));
    return hold_group(c, group, PS_LIST_PARAM16, PS_ACCESS_READ, insists);
}

void ps_client_let_go_gathered(ps_client *c, int32_t group)
{
    let_go_group(c, group, PS_LIST_PARAM16);
}

static ps_status gather_now(ps_client *c, int32_t tensor, int32_t group)
{
    const ps_client_message m = {.kind = PS_CLIENT_GATHER, .number = group, .tensor = tensor};
    ps_group_collective x;
    PS_TRY(ps_client_announce(c, &m, NULL, 0));
    PS_TRY(ps_client_prepare_gather(c, group, true));
    ps_status st = ps_group_begin_gather(&c->between_ranks, ps_client_chunks_of(c, group), &x);
    if (st == PS_OK) st = ps_group_await(&c->between_ranks, &x);
    let_go_group(c, group, PS_LIST_PARAM16);
    return st;
}

static ps_status gather(ps_client *c, int32_t tensor, int32_t group)
{
    bool was_ahead;
    PS_TRY(ps_client_take_ahead(c, group, &was_ahead));
    if (!was_ahead) PS_TRY(gather_now(c, tensor, group));
    c->sharing.n_gathered++;
    c->sharing.is_here[group] = true;
    note_recent(c, group);
    return ps_client_note_exchange(c, PS_CLIENT_GATHER, group);
}

ps_status ps_client_gather(ps_client *c, int32_t tensor, int32_t chunk)
{
    if (is_alone(c) || c->sharing.is_here[ps_client_group_of(c, chunk)]) return PS_OK;
    return ps_client_break(c, gather(c, tensor, ps_client_group_of(c, chunk)));
}

void ps_client_unshare(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    for (int32_t k = 0; k < t->n_pieces && !is_alone(c); k++)
        c->sharing.is_here[ps_client_group_of(c, ps_client_piece_of(c, t, k)->chunk)] = false;
}

/* ---- gradients go ---- */

enum { NARROW = PS_GRADIENT_BESIDE + 1 }; /* beside, but rounded */

static uint8_t place_of(const ps_client_gradient *g)
{
    return g->place == PS_GRADIENT_BESIDE && g->is_narrow ? NARROW : (uint8_t)g->place;
}

/* In what one rank has beside its parameter, or not at all, the others take part in fp32; the sum is rounded where all
 * that were given are. */
static ps_status agree_on_places(ps_client *c, int32_t first, int32_t n)
{
    const ps_list grad = ps_lists_grad(&c->lists);
    for (int32_t i = 0; i < n; i++) {
        const ps_piece *p = &c->pieces.all[first + i];
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        bool has_any = false, is_over_everywhere = true, is_narrow = true;
        for (int32_t r = 0; r < c->settings.ranks.n; r++) {
            const uint8_t place = ps_client_places_of(c, c->sharing.messages, r)[i];
            has_any = has_any || place != PS_GRADIENT_NONE;
            is_over_everywhere = is_over_everywhere && place == PS_GRADIENT_OVER;
            is_narrow = is_narrow && place != PS_GRADIENT_BESIDE;
        }
        c->tensors[p->tensor].has_gradient = c->tensors[p->tensor].has_gradient || has_any;
        if (has_any) PS_TRY(ps_client_expect_no_early_update(c, p->tensor, "another gradient has come"));
        if (!has_any || is_over_everywhere) continue;
        if (g->place == PS_GRADIENT_OVER) PS_TRY(ps_client_restore(c, p->tensor));
        g->is_narrow = is_narrow;
        if (g->place != PS_GRADIENT_NONE) continue;
        PS_TRY(ps_client_need_master(c, p->tensor));
        PS_TRY(ps_client_hold(c, grad, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE));
        const ps_status st = ps_queue_fill(c->tiers.compute[PS_TIER_DEVICE],
                                           ps_state_element(&c->state, grad, p->chunk, p->chunk_offset), 0,
                                           p->n * (int64_t)sizeof(float));
        ps_client_let_go(c, grad, p->chunk);
        PS_TRY(st);
        g->place = PS_GRADIENT_BESIDE;
    }
    return PS_OK;
}

/* Whether a gradient had to make way depends on the chunks, the sum does not. */
static ps_status finish_sum(ps_client *c, const ps_piece *p)
{
    const ps_client_gradient *g = ps_client_gradient_of(c, p);
    if (g->place == PS_GRADIENT_BESIDE && g->is_narrow) PS_TRY(ps_client_round_gradient(c, p));
    return ps_client_sum_piece(c, p);
}

/* Of the pieces whose gradients lie there: the owners have sums afterwards. */
static ps_status reduce_list(ps_client *c, int32_t group, ps_client_gradient_place place)
{
    const ps_list list = place == PS_GRADIENT_OVER ? PS_LIST_PARAM16 : ps_lists_grad(&c->lists);
    const int32_t first = first_piece(c, group), end = end_piece(c, group);
    ps_group_collective x;
    bool has_any = false;
    for (int32_t i = first; i < end; i++) has_any = has_any || c->gradients[i].place == place;
    if (!has_any) return PS_OK;
    PS_TRY(hold_group(c, group, list, PS_ACCESS_WRITE, true));
    for (int32_t i = first; i < end; i++)
        if (c->gradients[i].place == place) ps_group_add_gradient(&c->between_ranks, list, i);
    ps_status st = ps_group_begin_reduction(&c->between_ranks, ps_client_chunks_of(c, group), list, &x);
    if (st == PS_OK) st = ps_group_await(&c->between_ranks, &x);
    for (int32_t i = first; i < end && st == PS_OK; i++)
        if (c->gradients[i].place == place && ps_client_owns(c, c->pieces.all[i].chunk))
            st = finish_sum(c, &c->pieces.all[i]);
    let_go_group(c, group, list);
    return st;
}

static void drop_others(ps_client *c, int32_t group)
{
    const ps_list grad = ps_lists_grad(&c->lists);
    for (int32_t i = first_piece(c, group); i < end_piece(c, group); i++) {
        const ps_piece *p = &c->pieces.all[i];
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        g->is_fresh = false;
        if (!ps_client_owns(c, p->chunk)) g->place = PS_GRADIENT_NONE;
    }
    for (int32_t k = first_chunk(c, group); k < end_chunk(c, group); k++)
        if (!ps_client_owns(c, k)) discard(c, grad, k);
    c->sharing.n_fresh[group] = 0;
    forget(c, group);
}

/* tensor: whose gradient was the last one. */
static ps_status reduce(ps_client *c, int32_t tensor, int32_t group)
{
    const ps_client_message m = {.kind = PS_CLIENT_REDUCE, .number = group, .tensor = tensor};
    const int32_t first = first_piece(c, group), n = end_piece(c, group) - first;
    uint8_t *places;
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *places, &places));
    for (int32_t i = 0; i < n; i++) places[i] = place_of(&c->gradients[first + i]);
    ps_status st = ps_client_announce(c, &m, places, n);
    ps_mem_free(places);
    if (st == PS_OK) st = agree_on_places(c, first, n);
    if (st == PS_OK) st = reduce_list(c, group, PS_GRADIENT_OVER);
    if (st == PS_OK) st = reduce_list(c, group, PS_GRADIENT_BESIDE);
    if (st == PS_OK) drop_others(c, group);
    return st;
}

ps_status ps_client_finish_coming(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    if (c->sharing.ahead.state != PS_CLIENT_AHEAD_UNDER_WAY) return PS_OK;
    for (int32_t k = 0; k < t->n_pieces; k++)
        if (ps_client_is_coming(c, ps_client_group_of(c, ps_client_piece_of(c, t, k)->chunk)))
            return ps_client_finish_ahead(c);
    return PS_OK;
}

ps_status ps_client_expect_gradient(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    int32_t last = -1;
    for (int32_t k = 0; k < t->n_pieces && !is_alone(c); k++) {
        const int32_t group = ps_client_group_of(c, ps_client_piece_of(c, t, k)->chunk);
        if (group == last || c->sharing.is_here[group]) continue;
        if (ps_client_is_coming(c, group) || ps_client_expects_gather(c, group))
            PS_TRY(gather(c, tensor, group));
        else
            PS_TRY(ps_client_note_exchange(c, PS_CLIENT_GIVE_GRADIENT, group));
        last = group;
    }
    return PS_OK;
}

ps_status ps_client_note_gradient(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    if (is_alone(c)) return PS_OK;
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        c->sharing.n_fresh[ps_client_group_of(c, p->chunk)] += !g->is_fresh;
        g->is_fresh = true;
    }
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const int32_t g = ps_client_group_of(c, ps_client_piece_of(c, t, k)->chunk);
        if (c->sharing.n_fresh[g] == 0 || c->sharing.n_fresh[g] != c->sharing.n_trained[g]) continue;
        PS_TRY(reduce(c, tensor, g));
        PS_TRY(ps_client_note_exchange(c, PS_CLIENT_REDUCE, g));
    }
    return ps_client_gather_ahead(c);
}

/* Those that are apart are the same on all ranks, and all update them. */
static ps_status reduce_apart(ps_client *c)
{
    ps_collectives *x = ps_comm_collectives(c->comm);
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        double has = t->has_gradient;
        if (!t->is_apart || t->is_dropped) continue;
        PS_TRY(ps_comm_all_reduce(c->comm, &has, 1, PS_COMM_MAX));
        if (has < 1) continue;
        float *gradient = ps_client_apart(t, ps_lists_grad(&c->lists));
        ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
        if (!t->has_gradient) PS_TRY(ps_queue_fill(q, gradient, 0, t->elements * (int64_t)sizeof *gradient));
        t->has_gradient = t->is_gradient_changed = true;
        ps_events after = {.n = 0};
        ps_event done;
        ps_events_add(&after, ps_queue_event(q));
        const ps_comm_part part = {.payload = gradient, .n = t->elements};
        const ps_transfer transfer = {.parts = &part,
                                      .n_parts = 1,
                                      .dtype = PS_DTYPE_F32,
                                      .on_device = true,
                                      .what = "sum of gradients",
                                      .after = &after};
        PS_TRY(ps_collectives_all_reduce(x, &transfer, &done));
        PS_TRY(ps_collectives_wait(x, done));
    }
    return PS_OK;
}

ps_status ps_client_reduce_rest(ps_client *c)
{
    double *has;
    ps_status st = PS_OK;
    if (is_alone(c)) return PS_OK;
    PS_TRY(ps_client_announce_step(c));
    PS_TRY(ps_mem_alloc((size_t)c->sharing.n_groups, sizeof *has, &has));
    for (int32_t g = 0; g < c->sharing.n_groups; g++) has[g] = c->sharing.n_fresh[g] > 0;
    PS_TRY_GOTO(ps_comm_all_reduce(c->comm, has, c->sharing.n_groups, PS_COMM_MAX));
    for (int32_t g = 0; g < c->sharing.n_groups; g++)
        if (has[g] > 0) PS_TRY_GOTO(reduce(c, c->pieces.all[first_piece(c, g)].tensor, g));
    PS_TRY_GOTO(reduce_apart(c));
out:
    ps_mem_free(has);
    return st;
}
