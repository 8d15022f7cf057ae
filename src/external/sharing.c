/* sharing.c - with several ranks: chunk i belongs to rank i mod p. Who needs a parameter of another rank's chunk gathers
 * its group, p chunks or, with memory-saving communication, that one; gradients go back to their owners when all tensors
 * of a group have theirs.
 *
 *     pin        the group is not here: all-gather; the one gathered before the last few is forgotten
 *     gradient   the last one of the group: reduce-scatter; others' chunks are dropped
 *     step       reductions that are left, then each owner updates its chunks, and all others are forgotten
 *
 * All of it follows from the order of calls, which is the same on all ranks; each exchange begins with each rank saying
 * which one it means. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "external/client_impl.h"

static bool is_alone(const ps_client *c)
{
    return c->settings.ranks.n == 1;
}

static int32_t group_of(const ps_client *c, int32_t chunk)
{
    return chunk / c->sharing.group_chunks;
}

static int32_t first_chunk(const ps_client *c, int32_t group)
{
    return group * c->sharing.group_chunks;
}

static int32_t end_chunk(const ps_client *c, int32_t group)
{
    return (int32_t)ps_min_i64(c->layout->n_chunks, (int64_t)(group + 1) * c->sharing.group_chunks);
}

ps_status ps_client_sharing_init(ps_client *c)
{
    ps_client_sharing *s = &c->sharing;
    s->group_chunks = c->settings.ranks.saves_memory ? 1 : c->settings.ranks.n;
    s->n_groups = (c->layout->n_chunks + s->group_chunks - 1) / s->group_chunks;
    for (int i = 0; i < PS_CLIENT_GROUPS_HERE; i++) s->recent[i] = -1;
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->is_here, &s->is_here));
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->n_fresh, &s->n_fresh));
    PS_TRY(ps_mem_alloc((size_t)s->n_groups, sizeof *s->n_trained, &s->n_trained));
    for (int32_t i = 0; i < c->pieces.n; i++)
        s->n_trained[group_of(c, c->pieces.all[i].chunk)] += !c->tensors[c->pieces.all[i].tensor].is_frozen;
    return ps_mem_alloc((size_t)c->pieces.n + (size_t)c->settings.ranks.n, sizeof *s->parts, &s->parts);
}

void ps_client_sharing_deinit(ps_client_sharing *s)
{
    ps_mem_free(s->is_here);
    ps_mem_free(s->n_fresh);
    ps_mem_free(s->n_trained);
    ps_mem_free(s->parts);
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

void ps_client_forget_others(ps_client *c)
{
    if (is_alone(c)) return;
    for (int32_t g = 0; g < c->sharing.n_groups; g++) forget(c, g);
}

/* The oldest goes, but for a group that waits for gradients: they lie over its parameters. */
static void note_recent(ps_client *c, int32_t group)
{
    ps_client_sharing *s = &c->sharing;
    const int32_t oldest = s->recent[0];
    memmove(s->recent, s->recent + 1, sizeof s->recent - sizeof *s->recent);
    s->recent[PS_CLIENT_GROUPS_HERE - 1] = group;
    if (oldest >= 0 && oldest != group && s->n_fresh[oldest] == 0) forget(c, oldest);
}

/* ---- the same on all ranks ---- */

typedef enum exchange_kind { GATHER = 1, REDUCE, STEP, READ, EVALUATE } exchange_kind;

/* What a rank is about to do. */
typedef struct intent {
    int64_t kind, number; /* exchange_kind; of a group, a step, a tensor */
    int64_t tensor;       /* GATHER, REDUCE: whose parameter or gradient it is for */
    uint64_t trained;     /* STEP: hash of which tensors have got a gradient on this rank */
} intent;

enum { INTENT_TEXT_MAX = 280 };

static const char *describe(const ps_client *c, const intent *i, char text[INTENT_TEXT_MAX])
{
    const bool is_tensor = i->tensor >= 0 && i->tensor < c->n_tensors;
    const char *name = is_tensor ? c->tensors[i->tensor].name : "a parameter";
    switch ((exchange_kind)i->kind) {
    case GATHER: snprintf(text, INTENT_TEXT_MAX, "uses %.200s", name); break;
    case REDUCE: snprintf(text, INTENT_TEXT_MAX, "has the gradient of %.200s", name); break;
    case STEP: snprintf(text, INTENT_TEXT_MAX, "makes step %lld", (long long)i->number + 1); break;
    case READ: snprintf(text, INTENT_TEXT_MAX, "reads the value of %.200s", name); break;
    case EVALUATE: snprintf(text, INTENT_TEXT_MAX, "evaluates or generates"); break;
    default: snprintf(text, INTENT_TEXT_MAX, "does something else"); break;
    }
    return text;
}

static const char use_alike[] =
    "all ranks must use the same parameters in the same order. What one rank alone reads (weight.norm() after if rank "
    "== "
    "0) counts too: have all ranks read it. Where the data decides that (experts), call each of them on every rank, "
    "with "
    "an input of no rows (x[:0]) where it has none; or keep them out of chunks (torch_scope)";

static const char call_alike[] = "all ranks must make the same calls (state_dict, save, evaluate, generate), not one "
                                 "rank alone, and as many of them";

static ps_status fail_unlike(const ps_client *c, const intent *mine, int32_t rank, const intent *other)
{
    char here[INTENT_TEXT_MAX], there[INTENT_TEXT_MAX];
    const bool is_step = mine->kind <= STEP && other->kind <= STEP;
    return PS_FAIL(PS_EINVAL, "ranks have gone different ways: rank %d %s, rank %d %s; %s", c->settings.ranks.rank,
                   describe(c, mine, here), rank, describe(c, other, there), is_step ? use_alike : call_alike);
}

/* Ranks that wait in a collective of the program's own meanwhile do so for ever: that may be the only sign of it. */
static ps_status gather_intents(ps_client *c, const intent *mine, intent *all)
{
    char text[1024], here[INTENT_TEXT_MAX];
    if (mine->kind <= STEP) return ps_comm_all_gather(c->comm, mine, sizeof *mine, all);
    snprintf(text, sizeof text, "rank %d %s, and has waited for the others for %g s: %s", c->settings.ranks.rank,
             describe(c, mine, here), (double)c->patience_ns * 1e-9, call_alike);
    ps_comm_set_late_text(c->comm, text, c->patience_ns);
    const ps_status st = ps_comm_all_gather(c->comm, mine, sizeof *mine, all);
    ps_comm_set_late_text(c->comm, NULL, 0);
    return st;
}

/* all: [n_ranks] what this rank is about to do is what all are. */
static ps_status exchange_intents(ps_client *c, const intent *mine, intent *all)
{
    PS_TRY(gather_intents(c, mine, all));
    for (int32_t r = 0; r < c->settings.ranks.n; r++)
        if (all[r].kind != mine->kind || all[r].number != mine->number) return fail_unlike(c, mine, r, &all[r]);
    return PS_OK;
}

static ps_status announce(ps_client *c, exchange_kind kind, int64_t number, int32_t tensor)
{
    const intent mine = {.kind = (int64_t)kind, .number = number, .tensor = tensor};
    intent *all;
    PS_TRY(ps_mem_alloc((size_t)c->settings.ranks.n, sizeof *all, &all));
    const ps_status st = exchange_intents(c, &mine, all);
    ps_mem_free(all);
    return st;
}

ps_status ps_client_announce_read(ps_client *c, int32_t tensor)
{
    return is_alone(c) ? PS_OK : announce(c, READ, tensor, tensor);
}

ps_status ps_client_announce_evaluation(ps_client *c)
{
    return is_alone(c) ? PS_OK : announce(c, EVALUATE, 0, -1);
}

/* ---- the same tensors in a step ---- */

/* Those that are apart any rank may use or not. */
static void list_trained(const ps_client *c, uint8_t *is_trained)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        is_trained[i] = !c->tensors[i].is_dropped && !c->tensors[i].is_apart && c->tensors[i].is_given;
}

/* is_trained: [n_tensors] this rank's, then those of all. */
static ps_status name_difference(ps_client *c, uint8_t *is_trained)
{
    const int32_t n = c->n_tensors;
    uint8_t *all = is_trained + n;
    PS_TRY(ps_comm_all_gather(c->comm, is_trained, n, all));
    for (int32_t i = 0; i < n; i++)
        for (int32_t r = 1; r < c->settings.ranks.n; r++) {
            const bool is_first = all[i] != 0;
            if (all[r * n + i] == all[i]) continue;
            return PS_FAIL(PS_EINVAL, "%.200s has got a gradient on rank %d in this step, and none on rank %d: %s",
                           c->tensors[i].name, is_first ? 0 : r, is_first ? r : 0, use_alike);
        }
    return PS_OK;
}

/* A group of chunks is summed up when it has all its gradients. Where ranks differ in which tensors they have used,
 * such groups differ sooner or later; so the first step that shows it is refused. */
static ps_status announce_step(ps_client *c)
{
    const size_t size = (size_t)c->settings.ranks.n;
    uint8_t *is_trained = NULL;
    intent *all = NULL;
    bool is_same = true;
    PS_TRY(ps_mem_alloc((size_t)c->n_tensors, size + 1, &is_trained));
    list_trained(c, is_trained);
    const intent mine = {.kind = STEP, .number = c->n_steps, .trained = XXH3_64bits(is_trained, (size_t)c->n_tensors)};
    ps_status st = ps_mem_alloc(size, sizeof *all, &all);
    if (st == PS_OK) st = exchange_intents(c, &mine, all);
    for (size_t r = 0; r < size && st == PS_OK; r++) is_same = is_same && all[r].trained == mine.trained;
    if (st == PS_OK && !is_same) st = name_difference(c, is_trained);
    ps_mem_free(all);
    ps_mem_free(is_trained);
    return st;
}

/* ---- transfers ---- */

static ps_status hold_group(ps_client *c, int32_t group, ps_list list, ps_access_mode of_own, ps_access_mode of_others)
{
    for (int32_t k = first_chunk(c, group); k < end_chunk(c, group); k++) {
        const ps_access_mode mode = ps_client_owns(c, k) ? of_own : of_others;
        const ps_status st = ps_client_hold(c, list, k, PS_TIER_DEVICE, mode);
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

static void add_part(ps_client *c, int32_t *n, ps_list list, int32_t chunk, int64_t offset, int64_t elements)
{
    c->sharing.parts[(*n)++] = (ps_comm_part){.payload = ps_state_element(&c->state, list, chunk, offset),
                                              .n = elements,
                                              .owner = ps_ranks_owner(&c->settings.ranks, chunk)};
}

static ps_status carry(ps_client *c, int32_t n_parts, ps_list list, bool is_reduction)
{
    ps_collectives *x = ps_comm_collectives(c->comm);
    ps_events after = {.n = 0};
    ps_event done;
    ps_events_add(&after, ps_queue_event(c->tiers.compute[PS_TIER_DEVICE]));
    const ps_transfer t = {.parts = c->sharing.parts,
                           .n_parts = n_parts,
                           .dtype = list == PS_LIST_PARAM16 ? c->settings.dtype : PS_DTYPE_F32,
                           .on_device = true,
                           .what = is_reduction ? "reduction of gradients" : "gathering of parameters",
                           .after = &after};
    PS_TRY(is_reduction ? ps_collectives_reduce(x, &t, &done) : ps_collectives_gather(x, &t, &done));
    return ps_collectives_wait(x, done);
}

/* ---- parameters come ---- */

/* What owners send is the parameters as they are now. */
static ps_status make_whole(ps_client *c, int32_t group)
{
    for (int32_t i = c->pieces.first[first_chunk(c, group)]; i < c->pieces.first[end_chunk(c, group)]; i++) {
        const ps_piece *p = &c->pieces.all[i];
        const ps_client_tensor_state *t = &c->tensors[p->tensor];
        if (ps_client_gradient_of(c, p)->place == PS_GRADIENT_OVER) PS_TRY(ps_client_restore(c, p->tensor));
        if (t->is_master_newer || t->is_param_newer) PS_TRY(ps_client_settle(c, p->tensor));
    }
    return PS_OK;
}

static ps_status gather(ps_client *c, int32_t tensor, int32_t group)
{
    int32_t n = 0;
    PS_TRY(announce(c, GATHER, group, tensor));
    PS_TRY(make_whole(c, group));
    PS_TRY(hold_group(c, group, PS_LIST_PARAM16, PS_ACCESS_READ, PS_ACCESS_WRITE));
    for (int32_t k = first_chunk(c, group); k < end_chunk(c, group); k++)
        add_part(c, &n, PS_LIST_PARAM16, k, 0, c->layout->used_elements[k]);
    const ps_status st = carry(c, n, PS_LIST_PARAM16, false);
    let_go_group(c, group, PS_LIST_PARAM16);
    PS_TRY(st);
    c->sharing.is_here[group] = true;
    note_recent(c, group);
    return PS_OK;
}

ps_status ps_client_gather(ps_client *c, int32_t tensor, int32_t chunk)
{
    if (is_alone(c) || c->sharing.is_here[group_of(c, chunk)]) return PS_OK;
    return ps_client_break(c, gather(c, tensor, group_of(c, chunk)));
}

void ps_client_unshare(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    for (int32_t k = 0; k < t->n_pieces && !is_alone(c); k++)
        c->sharing.is_here[group_of(c, ps_client_piece_of(c, t, k)->chunk)] = false;
}

/* ---- gradients go ---- */

enum { NARROW = PS_GRADIENT_BESIDE + 1 }; /* beside, but rounded */

static uint8_t place_of(const ps_client_gradient *g)
{
    return g->place == PS_GRADIENT_BESIDE && g->is_narrow ? NARROW : (uint8_t)g->place;
}

/* In what one rank has beside its parameter, or not at all, the others take part in fp32; the sum is rounded where all
 * that were given are. */
static ps_status agree_on_places(ps_client *c, const uint8_t *all, int32_t first, int32_t n)
{
    const ps_list grad = ps_lists_grad(&c->lists);
    for (int32_t i = 0; i < n; i++) {
        const ps_piece *p = &c->pieces.all[first + i];
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        bool has_any = false, is_over_everywhere = true, is_narrow = true;
        for (int32_t r = 0; r < c->settings.ranks.n; r++) {
            has_any = has_any || all[r * n + i] != PS_GRADIENT_NONE;
            is_over_everywhere = is_over_everywhere && all[r * n + i] == PS_GRADIENT_OVER;
            is_narrow = is_narrow && all[r * n + i] != PS_GRADIENT_BESIDE;
        }
        c->tensors[p->tensor].has_gradient = c->tensors[p->tensor].has_gradient || has_any;
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
    const int32_t first = c->pieces.first[first_chunk(c, group)], end = c->pieces.first[end_chunk(c, group)];
    int32_t n = 0, n_pieces = 0;
    for (int32_t i = first; i < end; i++) n_pieces += c->gradients[i].place == place;
    if (n_pieces == 0) return PS_OK;
    PS_TRY(hold_group(c, group, list, PS_ACCESS_WRITE, PS_ACCESS_WRITE));
    for (int32_t i = first; i < end; i++)
        if (c->gradients[i].place == place)
            add_part(c, &n, list, c->pieces.all[i].chunk, c->pieces.all[i].chunk_offset, c->pieces.all[i].n);
    ps_status st = carry(c, n, list, true);
    for (int32_t i = first; i < end && st == PS_OK; i++)
        if (c->gradients[i].place == place && ps_client_owns(c, c->pieces.all[i].chunk))
            st = finish_sum(c, &c->pieces.all[i]);
    let_go_group(c, group, list);
    return st;
}

static void drop_others(ps_client *c, int32_t group)
{
    const ps_list grad = ps_lists_grad(&c->lists);
    for (int32_t i = c->pieces.first[first_chunk(c, group)]; i < c->pieces.first[end_chunk(c, group)]; i++) {
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
    const int32_t first = c->pieces.first[first_chunk(c, group)], n = c->pieces.first[end_chunk(c, group)] - first;
    const size_t size = (size_t)c->settings.ranks.n;
    uint8_t *places; /* this rank's, then those of all */
    PS_TRY(announce(c, REDUCE, group, tensor));
    PS_TRY(ps_mem_alloc((size_t)n, size + 1, &places));
    for (int32_t i = 0; i < n; i++) places[i] = place_of(&c->gradients[first + i]);
    ps_status st = ps_comm_all_gather(c->comm, places, n, places + n);
    if (st == PS_OK) st = agree_on_places(c, places + n, first, n);
    if (st == PS_OK) st = reduce_list(c, group, PS_GRADIENT_OVER);
    if (st == PS_OK) st = reduce_list(c, group, PS_GRADIENT_BESIDE);
    if (st == PS_OK) drop_others(c, group);
    ps_mem_free(places);
    return st;
}

ps_status ps_client_note_gradient(ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    if (is_alone(c)) return PS_OK;
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        ps_client_gradient *g = ps_client_gradient_of(c, p);
        c->sharing.n_fresh[group_of(c, p->chunk)] += !g->is_fresh;
        g->is_fresh = true;
    }
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const int32_t g = group_of(c, ps_client_piece_of(c, t, k)->chunk);
        if (c->sharing.n_fresh[g] > 0 && c->sharing.n_fresh[g] == c->sharing.n_trained[g]) PS_TRY(reduce(c, tensor, g));
    }
    return PS_OK;
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
    PS_TRY(announce_step(c));
    PS_TRY(ps_mem_alloc((size_t)c->sharing.n_groups, sizeof *has, &has));
    for (int32_t g = 0; g < c->sharing.n_groups; g++) has[g] = c->sharing.n_fresh[g] > 0;
    PS_TRY_GOTO(ps_comm_all_reduce(c->comm, has, c->sharing.n_groups, PS_COMM_MAX));
    for (int32_t g = 0; g < c->sharing.n_groups; g++)
        if (has[g] > 0) PS_TRY_GOTO(reduce(c, c->pieces.all[c->pieces.first[first_chunk(c, g)]].tensor, g));
    PS_TRY_GOTO(reduce_apart(c));
out:
    ps_mem_free(has);
    return st;
}
