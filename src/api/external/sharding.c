/* sharding.c - with several ranks: chunk i belongs to rank i mod p. A rank that needs a parameter of another rank's
 * chunk gathers its group, p chunks or, with memory-saving communication, that one; gradients are reduced to their
 * owners when all tensors of a group have theirs.
 *
 *     pin        all-gather, if the group is not gathered and was not prefetched (prefetch.c); groups before
 *                the last few are dropped
 *     gradient   the last one of the group: reduce-scatter; others' chunks are dropped
 *     step       remaining reductions, then each owner updates its chunks, and copies are dropped
 *
 * All of it follows from the order of calls, which is the same on all ranks; each collective begins with an
 * announcement of every rank (announce.c). */
#include <string.h>

#include "api/external/sharding.h"
#include "base/mem.h"

static bool is_single_rank(const ps_client *c)
{
    return c->settings.ranks.n == 1;
}

static int32_t first_piece(const ps_client *c, int32_t group)
{
    return c->pieces.first[ps_client_first_chunk(c, group)];
}

static int32_t end_piece(const ps_client *c, int32_t group)
{
    return c->pieces.first[ps_client_end_chunk(c, group)];
}

ps_status ps_client_sharding_init(ps_client *c)
{
    ps_client_sharding *s = &c->sharding;
    s->n_groups = ps_chunk_group_count(c->layout, &c->settings.ranks);
    for (int i = 0; i < PS_CLIENT_GROUPS_KEPT; i++) s->recent[i] = -1;
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->is_gathered, &s->is_gathered));
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->n_unreduced, &s->n_unreduced));
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->n_trained, &s->n_trained));
    for (int32_t i = 0; i < c->pieces.n; i++)
        s->n_trained[ps_client_chunk_group_of(c, c->pieces.all[i].chunk)] +=
            !c->tensors[c->pieces.all[i].tensor].is_frozen;
    for (int32_t g = 0; g < s->n_groups; g++)
        s->most_pieces = (int32_t)ps_max_i64(s->most_pieces, end_piece(c, g) - first_piece(c, g));
    const size_t n_ranks = (size_t)c->settings.ranks.n, message_bytes = (size_t)ps_client_message_bytes(c);
    PS_TRY(ps_mem_alloc(n_ranks, message_bytes, &s->messages));
    for (int i = 0; i < 2; i++) {
        s->prefetch.votes[i].client = c;
        PS_TRY(ps_mem_alloc(n_ranks, message_bytes, &s->prefetch.votes[i].messages));
    }
    ps_client_begin_gather_order(c);
    return PS_OK;
}

void ps_client_sharding_deinit(ps_client_sharding *s)
{
    ps_mem_free(s->is_gathered);
    ps_mem_free(s->n_unreduced);
    ps_mem_free(s->n_trained);
    ps_mem_free(s->messages);
    for (int i = 0; i < 2; i++) ps_mem_free(s->prefetch.votes[i].messages);
    ps_mem_free(s->now.all);
    ps_mem_free(s->recorded.all);
}

/* ---- dropping other ranks' chunks ---- */

static void forget(ps_client *c, int32_t group)
{
    c->sharding.is_gathered[group] = false;
    ps_client_discard_others(c, group);
    for (int i = 0; i < PS_CLIENT_GROUPS_KEPT; i++)
        if (c->sharding.recent[i] == group) c->sharding.recent[i] = -1;
}

static ps_status drop_prefetch(ps_client *c)
{
    bool was_prefetched;
    if (c->sharding.prefetch.state == PS_CLIENT_PREFETCH_NONE) return PS_OK;
    const int32_t group = c->sharding.prefetch.group;
    PS_TRY(ps_client_take_prefetch(c, group, &was_prefetched));
    forget(c, group);
    return PS_OK;
}

ps_status ps_client_reshard_all(ps_client *c)
{
    if (is_single_rank(c)) return PS_OK;
    PS_TRY(drop_prefetch(c));
    for (int32_t g = 0; g < c->sharding.n_groups; g++) forget(c, g);
    return ps_client_note_action(c, PS_CLIENT_RELEASE_GATHERED, -1);
}

/* Drops the oldest group, but none that waits for gradients: they overwrite its parameters. */
static void note_recent(ps_client *c, int32_t group)
{
    ps_client_sharding *s = &c->sharding;
    const int32_t oldest = s->recent[0];
    memmove(s->recent, s->recent + 1, sizeof s->recent - sizeof *s->recent);
    s->recent[PS_CLIENT_GROUPS_KEPT - 1] = group;
    const bool is_used = oldest == group || ps_client_is_prefetching(c, oldest);
    if (oldest >= 0 && !is_used && s->n_unreduced[oldest] == 0) forget(c, oldest);
}

/* ---- collectives ---- */

static ps_status pin_group(ps_client *c, int32_t group, ps_list list, ps_access_mode of_own, bool insists)
{
    for (int32_t k = ps_client_first_chunk(c, group); k < ps_client_end_chunk(c, group); k++) {
        const ps_access_mode mode = ps_client_owns(c, k) ? of_own : PS_ACCESS_WRITE;
        const ps_status st = insists ? ps_client_pin_chunk(c, list, k, PS_TIER_DEVICE, mode)
                                     : ps_client_try_pin_chunk(c, list, k, PS_TIER_DEVICE, mode);
        if (st == PS_OK) continue;
        while (k-- > ps_client_first_chunk(c, group)) ps_client_unpin_chunk(c, list, k);
        return st;
    }
    return PS_OK;
}

/* ---- gathering ---- */

/* Owners send the parameters in their current state. */
static ps_status make_whole(ps_client *c, int32_t group)
{
    for (int32_t i = first_piece(c, group); i < end_piece(c, group); i++) {
        const ps_piece *p = &c->pieces.all[i];
        const ps_client_gradient *g = ps_client_gradient_of(c, p);
        if (g->is_used_up) PS_TRY(ps_client_check_not_updated_early(c, p->tensor, "its group of chunks is gathered"));
        if (g->place == PS_GRADIENT_IN_PLACE) PS_TRY(ps_client_restore_param(c, p->tensor));
        PS_TRY(ps_client_sync_value(c, p->tensor));
    }
    return PS_OK;
}

ps_status ps_client_prepare_gather(ps_client *c, int32_t group, bool insists)
{
    PS_TRY(ps_client_flush_group(c, group));
    PS_TRY(make_whole(c, group));
    const ps_status st = pin_group(c, group, PS_LIST_PARAM16, PS_ACCESS_READ, insists);
    if (st != PS_OK) ps_client_discard_others(c, group); /* those that had room have no content */
    return st;
}

/* Among the latest announcements one was of a prefetch, which its rank refuses. */
static bool is_refused(const ps_client *c)
{
    for (int32_t r = 0; r < c->settings.ranks.n; r++)
        if (ps_client_message_of(c, c->sharding.messages, r)->refuses) return true;
    return false;
}

static bool does_not_hold(const void *arg)
{
    (void)arg;
    return false;
}

/* Where ranks have departed from the recorded order differently, this may match another one's prefetch, with a transfer
 * that is not made: that rank announces the group once more when it uses it. */
static ps_status gather_now(ps_client *c, int32_t tensor, int32_t group)
{
    static const ps_transfer_condition never = {.holds = does_not_hold};
    const ps_client_message m = {.kind = PS_CLIENT_GATHER, .number = group, .tensor = tensor};
    ps_group_request x;
    PS_TRY(ps_client_announce(c, &m, NULL, 0));
    while (is_refused(c)) {
        PS_TRY(ps_group_begin_gather(&c->between_ranks, (ps_chunk_group){.chunk = ps_client_first_chunk(c, group)},
                                     &never, &x));
        PS_TRY(ps_group_wait(&c->between_ranks, &x));
        PS_TRY(ps_client_announce(c, &m, NULL, 0));
    }
    PS_TRY(ps_client_prepare_gather(c, group, true));
    ps_status st = ps_group_begin_gather(&c->between_ranks, ps_client_chunk_group(c, group), NULL, &x);
    if (st == PS_OK) st = ps_group_wait(&c->between_ranks, &x);
    ps_client_end_gather(c, group, true);
    return st;
}

static ps_status note_gathered(ps_client *c, int32_t group)
{
    c->sharding.n_gathered++;
    c->sharding.is_gathered[group] = true;
    note_recent(c, group);
    return ps_client_note_action(c, PS_CLIENT_GATHER, group);
}

static ps_status take_prefetched(ps_client *c, int32_t group, bool *was_prefetched)
{
    PS_TRY(ps_client_take_prefetch(c, group, was_prefetched));
    c->sharding.n_prefetched += *was_prefetched;
    return *was_prefetched ? note_gathered(c, group) : PS_OK;
}

static ps_status gather(ps_client *c, int32_t tensor, int32_t group)
{
    bool was_prefetched;
    PS_TRY(take_prefetched(c, group, &was_prefetched));
    if (was_prefetched) return PS_OK;
    PS_TRY(gather_now(c, tensor, group));
    return note_gathered(c, group);
}

ps_status ps_client_gather(ps_client *c, int32_t tensor, int32_t chunk)
{
    if (is_single_rank(c) || c->sharding.is_gathered[ps_client_chunk_group_of(c, chunk)]) return PS_OK;
    return ps_client_break(c, gather(c, tensor, ps_client_chunk_group_of(c, chunk)));
}

void ps_client_reshard_tensor(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    for (int32_t k = 0; k < t->n_pieces && !is_single_rank(c); k++)
        c->sharding.is_gathered[ps_client_chunk_group_of(c, ps_client_piece_of(c, t, k)->chunk)] = false;
}

/* ---- reduction ---- */

enum { NARROW = PS_GRADIENT_KEPT + 1 }; /* separate, but rounded */

static uint8_t place_of(const ps_client_gradient *g)
{
    return g->place == PS_GRADIENT_SEPARATE && g->is_narrow ? NARROW : (uint8_t)g->place;
}

/* For a gradient that one rank has separately, or not at all, the others contribute in fp32; the sum is rounded if all
 * contributions are. */
static ps_status agree_on_places(ps_client *c, int32_t first, int32_t n)
{
    const ps_list grad = ps_lists_grad(&c->lists);
    for (int32_t i = 0; i < n; i++) {
        const ps_piece *p = &c->pieces.all[first + i];
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        bool has_any = false, is_alike = true, is_narrow = true;
        for (int32_t r = 0; r < c->settings.ranks.n; r++) {
            const uint8_t place = ps_client_places_of(c, c->sharding.messages, r)[i];
            has_any = has_any || place != PS_GRADIENT_NONE;
            is_alike = is_alike && place == (uint8_t)ps_client_narrow_place(c);
            is_narrow = is_narrow && place != PS_GRADIENT_SEPARATE;
        }
        c->tensors[p->tensor].has_gradient = c->tensors[p->tensor].has_gradient || has_any;
        /* the tensor's other pieces may have been reduced, and updated, before this one */
        if (has_any && g->is_used_up)
            PS_TRY(ps_client_check_not_updated_early(c, p->tensor, "another gradient has come"));
        if (!has_any || is_alike) continue;
        if (g->place == ps_client_narrow_place(c)) PS_TRY(ps_client_restore_param(c, p->tensor));
        g->is_narrow = is_narrow;
        if (g->place != PS_GRADIENT_NONE) continue;
        PS_TRY(ps_client_need_master(c, p->tensor));
        PS_TRY(ps_client_pin_chunk(c, grad, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE));
        const ps_status st = ps_queue_fill(c->tiers.compute[PS_TIER_DEVICE],
                                           ps_state_element(&c->state, grad, p->chunk, p->chunk_offset), 0,
                                           p->n * (int64_t)sizeof(float));
        ps_client_unpin_chunk(c, grad, p->chunk);
        PS_TRY(st);
        g->place = PS_GRADIENT_SEPARATE;
    }
    return PS_OK;
}

/* Whether a gradient had to move depends on the chunks, the sum does not. */
static ps_status finish_sum(ps_client *c, const ps_piece *p)
{
    const ps_client_gradient *g = ps_client_gradient_of(c, p);
    if (g->place == PS_GRADIENT_SEPARATE && g->is_narrow) PS_TRY(ps_client_round_gradient(c, p));
    return ps_client_sum_piece(c, p);
}

/* For pieces whose gradients are there: the owners have sums afterwards. */
static ps_status reduce_list(ps_client *c, int32_t group, ps_client_gradient_place place)
{
    const ps_list list = place == PS_GRADIENT_IN_PLACE ? PS_LIST_PARAM16
                         : place == PS_GRADIENT_KEPT   ? ps_lists_kept_grad(&c->lists)
                                                       : ps_lists_grad(&c->lists);
    const int32_t first = first_piece(c, group), end = end_piece(c, group);
    ps_group_request x;
    bool has_any = false;
    for (int32_t i = first; i < end; i++) has_any = has_any || c->gradients[i].place == place;
    if (!has_any) return PS_OK;
    PS_TRY(pin_group(c, group, list, PS_ACCESS_WRITE, true));
    for (int32_t i = first; i < end; i++)
        if (c->gradients[i].place == place) ps_group_add_gradient(&c->between_ranks, list, i);
    ps_status st = ps_group_begin_reduction(&c->between_ranks, ps_client_chunk_group(c, group), list, &x);
    if (st == PS_OK) st = ps_group_wait(&c->between_ranks, &x);
    for (int32_t i = first; i < end && st == PS_OK; i++)
        if (c->gradients[i].place == place && ps_client_owns(c, c->pieces.all[i].chunk))
            st = finish_sum(c, &c->pieces.all[i]);
    ps_client_unpin_group(c, group, list);
    return st;
}

static void drop_others(ps_client *c, int32_t group)
{
    for (int32_t i = first_piece(c, group); i < end_piece(c, group); i++) {
        const ps_piece *p = &c->pieces.all[i];
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        g->is_unreduced = false;
        if (!ps_client_owns(c, p->chunk)) g->place = PS_GRADIENT_NONE;
    }
    for (int32_t k = ps_client_first_chunk(c, group); k < ps_client_end_chunk(c, group); k++)
        for (ps_list l = ps_lists_grad(&c->lists); l < c->lists.n && !ps_client_owns(c, k); l++)
            if (ps_lists_exists(&c->lists, l)) ps_client_discard(c, l, k);
    c->sharding.n_unreduced[group] = 0;
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
    if (st == PS_OK) st = reduce_list(c, group, ps_client_narrow_place(c));
    if (st == PS_OK) st = reduce_list(c, group, PS_GRADIENT_SEPARATE);
    if (st == PS_OK) drop_others(c, group);
    return st;
}

ps_status ps_client_prepare_for_gradient(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    int32_t last = -1;
    for (int32_t k = 0; k < t->n_pieces && !is_single_rank(c); k++) {
        const int32_t group = ps_client_chunk_group_of(c, ps_client_piece_of(c, t, k)->chunk);
        if (group == last || c->sharding.is_gathered[group]) continue;
        bool was_prefetched;
        PS_TRY(take_prefetched(c, group, &was_prefetched));
        if (!was_prefetched) PS_TRY(ps_client_note_action(c, PS_CLIENT_GIVE_GRADIENT, group));
        last = group;
    }
    return PS_OK;
}

ps_status ps_client_note_gradient(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    if (is_single_rank(c)) return PS_OK;
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        c->sharding.n_unreduced[ps_client_chunk_group_of(c, p->chunk)] += !g->is_unreduced;
        g->is_unreduced = true;
    }
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const int32_t g = ps_client_chunk_group_of(c, ps_client_piece_of(c, t, k)->chunk);
        if (c->sharding.n_unreduced[g] == 0 || c->sharding.n_unreduced[g] != c->sharding.n_trained[g]) continue;
        PS_TRY(reduce(c, tensor, g));
        PS_TRY(ps_client_note_action(c, PS_CLIENT_REDUCE, g));
    }
    return PS_OK;
}

/* Those of unmanaged tensors are the same on all ranks, and all update them. */
static ps_status reduce_unmanaged(ps_client *c)
{
    ps_collectives *x = ps_comm_collectives(c->comm);
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        double has = t->has_gradient;
        if (!t->is_unmanaged || t->is_dropped) continue;
        PS_TRY(ps_comm_all_reduce(c->comm, &has, 1, PS_COMM_MAX));
        if (has < 1) continue;
        float *gradient = ps_client_unmanaged(t, ps_lists_grad(&c->lists));
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

ps_status ps_client_reduce_remaining(ps_client *c)
{
    double *has;
    ps_status st = PS_OK;
    if (is_single_rank(c)) return PS_OK;
    PS_TRY(ps_client_announce_step(c));
    PS_TRY(ps_client_agree_on_gather_order(c));
    PS_TRY(ps_mem_alloc((size_t)c->sharding.n_groups, sizeof *has, &has));
    for (int32_t g = 0; g < c->sharding.n_groups; g++) has[g] = c->sharding.n_unreduced[g] > 0;
    PS_TRY_GOTO(ps_comm_all_reduce(c->comm, has, c->sharding.n_groups, PS_COMM_MAX));
    for (int32_t g = 0; g < c->sharding.n_groups; g++)
        if (has[g] > 0) PS_TRY_GOTO(reduce(c, c->pieces.all[first_piece(c, g)].tensor, g));
    PS_TRY_GOTO(reduce_unmanaged(c));
out:
    ps_mem_free(has);
    return st;
}
