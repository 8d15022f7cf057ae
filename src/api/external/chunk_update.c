/* chunk_update.c - the update of a chunk, a separate moment: immediate, when the chunk is next used, or within the
 * backward pass. What becomes of early updates that may be wrong is in early_validation.c. */
#include "api/external/chunk_update.h"

#include "base/bytes.h"

#include <stdio.h>

/* The numbers for the updates of a tensor. Its count includes this one, except for early ones: the step counts
 * those. */
ps_piece_update ps_client_update_of(const ps_client *c, const ps_client_tensor_state *t)
{
    ps_piece_update u = ps_param_groups_update(&c->groups, t->group, true);
    u.step.t = t->steps + c->updates.are_early;
    return u;
}

static ps_status update_piece(ps_client *c, const ps_piece *p, ps_tier tier)
{
    const ps_client_tensor_state *t = &c->tensors[p->tensor];
    ps_piece_update u = ps_client_update_of(c, t);
    ps_piece whole = *p;
    u.gradients = ps_client_gradient_list(c, p);
    if (u.optimizer->is_stochastic) u.rounding = ps_state_rounding_key(&c->settings, u.step.t, t->name);
    if (t->is_whole && !u.skips) {
        if (p->tensor_offset > 0) return PS_OK; /* updated with its first piece; its run is adjacent */
        whole.n = t->elements;
        u.rows = t->shape[0];
        u.cols = t->shape[1];
    }
    return ps_state_update_piece(&c->state, tier, &whole, &u);
}

/* ---- a chunk ---- */

/* Is this an early update that may be taken back? */
static bool is_speculative(const ps_client *c, int32_t chunk)
{
    return c->updates.are_early && c->updates.is_unvalidated[chunk];
}

/* List KEPT_GRAD has gradients, or is about to get them from list PARAM16. */
static bool uses_kept(const ps_client *c, int32_t chunk, ps_access_mode *mode)
{
    const bool has_any = ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_KEPT);
    const bool gets_any = is_speculative(c, chunk) && ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_IN_PLACE);
    *mode = has_any ? PS_ACCESS_READ : PS_ACCESS_OVERWRITE;
    return has_any || gets_any;
}

/* How the update of a chunk uses a list; false: not at all. */
static bool uses_list(const ps_client *c, int32_t chunk, ps_list list, ps_access_mode *mode)
{
    const bool skips = c->groups.skips;
    *mode = skips && list != PS_LIST_PARAM16 ? PS_ACCESS_READ : PS_ACCESS_WRITE;
    if (list <= PS_LIST_MASTER) return ps_client_has_list(c, list, chunk);
    if (skips) return false;
    if (list < ps_lists_grad(&c->lists)) return ps_client_has_list(c, list, chunk);
    if (list == ps_lists_kept_grad(&c->lists)) return uses_kept(c, chunk, mode);
    *mode = PS_ACCESS_READ;
    return list == ps_lists_grad(&c->lists) && ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_SEPARATE);
}

/* A skipped step reads nothing, and changes nothing that is being saved. */
static ps_status update_pieces(ps_client *c, ps_run chunks, ps_tier tier)
{
    const bool skips = c->groups.skips;
    const int32_t end = chunks.first + chunks.n_chunks;
    if (is_speculative(c, chunks.first)) PS_TRY(ps_client_keep_gradients(c, chunks.first, tier));
    for (int32_t k = chunks.first; k < end && !skips; k++)
        PS_TRY(ps_snapshot_visit(&c->snapshot, &c->state, k, tier, PS_SNAPSHOT_BEFORE));
    for (int32_t i = c->pieces.first[chunks.first]; i < c->pieces.first[end]; i++)
        if (c->gradients[i].place != PS_GRADIENT_NONE) PS_TRY(update_piece(c, &c->pieces.all[i], tier));
    for (int32_t k = chunks.first; k < end && !skips; k++)
        PS_TRY(ps_snapshot_visit(&c->snapshot, &c->state, k, tier, PS_SNAPSHOT_AFTER));
    return PS_OK;
}

static ps_status update_on(ps_client *c, ps_run chunks, ps_tier tier)
{
    ps_access_mode mode;
    ps_status st = PS_OK;
    const int32_t n_wanted = chunks.n_chunks * c->lists.n; /* chunk by chunk, in each list that it uses */
    int32_t held = 0;
    for (; held < n_wanted && st == PS_OK; held++) {
        const int32_t chunk = chunks.first + held / c->lists.n;
        const ps_list list = held % c->lists.n;
        if (uses_list(c, chunk, list, &mode)) st = ps_client_pin_chunk(c, list, chunk, tier, mode);
    }
    if (st == PS_OK)
        st = update_pieces(c, chunks, tier);
    else
        held--; /* the one that could not be pinned */
    for (int32_t i = 0; i < held; i++) {
        const int32_t chunk = chunks.first + i / c->lists.n;
        if (uses_list(c, chunk, i % c->lists.n, &mode)) ps_client_unpin_chunk(c, i % c->lists.n, chunk);
    }
    return st;
}

/* Fp32 values, states and separate gradients are pinned one by one, so a lack of room may show late. */
static ps_status tell_update_room(const ps_client *c, ps_status st)
{
    const int64_t *b = c->settings.budgets.bytes;
    char advice[PS_CLIENT_ADVICE_TEXT_MAX], text[4][PS_BYTES_TEXT_MAX];
    if (st != PS_EBUDGET) return st;
    return PS_FAIL(
        st,
        "the update of a chunk finds no room in a device tier of %s, a host tier of %s and a disk tier of %s "
        "beside other chunks, gradients of their own and the framework's %s: give one of them more, "
        "memory.disk first, or %s: %s",
        ps_bytes_format(b[PS_TIER_DEVICE], text[0]), ps_bytes_format(b[PS_TIER_HOST], text[1]),
        ps_bytes_format(b[PS_TIER_DISK], text[2]), ps_bytes_format(c->steps.step_bytes, text[3]),
        ps_client_step_advice(c, c->steps.step_bytes, ps_client_update_bytes(c), 0, advice), ps_last_error());
}

bool ps_client_is_any_list_pinned(const ps_client *c, int32_t chunk)
{
    for (ps_list list = 0; list < c->lists.n; list++)
        if (ps_client_is_pinned(c, list, chunk)) return true;
    return false;
}

static bool are_any_pinned(const ps_client *c, ps_run chunks)
{
    for (int32_t k = chunks.first; k < chunks.first + chunks.n_chunks; k++)
        if (ps_client_is_any_list_pinned(c, k)) return true;
    return false;
}

/* Between steps an update is no moment, and nothing is recorded. */
enum { UNRECORDED = -1 };

static ps_status begin_update(ps_client *c, const char *label, int64_t framework_bytes)
{
    return framework_bytes == UNRECORDED ? PS_OK : ps_client_begin_moment(c, PS_PHASE_UPDATE, label, framework_bytes);
}

/* If there is no room next to the framework's memory, the other tier may have it. */
static ps_status update_any_tier(ps_client *c, int32_t chunk, int64_t framework_bytes)
{
    const ps_run chunks = ps_client_updated_with(c, chunk);
    const ps_tier tier = ps_client_update_tier(c, chunk), other = tier == PS_TIER_HOST ? PS_TIER_DEVICE : PS_TIER_HOST;
    PS_TRY(begin_update(c, "update", framework_bytes));
    const ps_status st = update_on(c, chunks, tier);
    if (st != PS_EBUDGET || c->settings.budgets.bytes[other] == 0 || !ps_client_may_update_on(c, other) ||
        are_any_pinned(c, chunks))
        return tell_update_room(c, st);
    PS_TRY(begin_update(c, "update elsewhere", framework_bytes));
    return tell_update_room(c, update_on(c, chunks, other));
}

void ps_client_discard_unused(ps_client *c, int32_t chunk, ps_client_gradient_place place)
{
    const bool is_kept = place == PS_GRADIENT_KEPT;
    if ((!is_kept && place != PS_GRADIENT_SEPARATE) || ps_client_chunk_has_gradient(c, chunk, place)) return;
    const ps_list list = is_kept ? ps_lists_kept_grad(&c->lists) : ps_lists_grad(&c->lists);
    if (!ps_lists_exists(&c->lists, list)) return;
    ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, list, chunk));
}

void ps_client_end_gradients(ps_client *c, int32_t chunk)
{
    if (ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_KEPT))
        ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, ps_lists_kept_grad(&c->lists), chunk));
    if (ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_SEPARATE))
        ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, ps_lists_grad(&c->lists), chunk));
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        c->gradients[i].place = PS_GRADIENT_NONE;
}

ps_status ps_client_update_chunk(ps_client *c, int32_t chunk, int64_t framework_bytes)
{
    const ps_run chunks = ps_client_updated_with(c, chunk);
    PS_TRY(update_any_tier(c, chunk, framework_bytes));
    for (int32_t k = chunks.first; k < chunks.first + chunks.n_chunks; k++) {
        ps_client_end_gradients(c, k);
        PS_TRY(ps_client_write_ahead(c, k));
    }
    return PS_OK;
}

/* ---- within the backward pass ---- */

ps_status ps_client_check_not_updated_early(ps_client *c, int32_t tensor, const char *what)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    bool is_early = false;
    for (int32_t k = 0; k < t->n_pieces && c->updates.n_early > 0; k++)
        is_early = is_early || ps_client_gradient_of(c, ps_client_piece_of(c, t, k))->is_used_up;
    if (!is_early) return PS_OK;
    const ps_moment *now = ps_client_present_moment(c);
    const ps_status st = PS_FAIL(
        PS_ESTATE,
        "%.200s: %s%s%.100s, but it has been updated within the backward pass of this step already, as the step before "
        "did not use it any more (%s); set memory.update_in_backward = auto, and all updates come after the backward "
        "pass",
        t->name, what, now != NULL ? " in " : "", now != NULL ? now->label : "", ps_client_early_option(c));
    return c->comm != NULL ? ps_client_break(c, st) : st;
}

ps_status ps_client_check_gradients_complete(const ps_client *c, const char *what)
{
    if (!c->updates.are_early) return PS_OK;
    return PS_FAIL(
        PS_ESTATE,
        "%s is not allowed between the beginning of a step's last backward pass and the step, as updates may "
        "have used gradients up by then (%s); set memory.update_in_backward = auto, and all updates come after the "
        "backward pass",
        what, ps_client_early_option(c));
}

bool ps_client_can_be_early(ps_client *c, int32_t chunk)
{
    if (!ps_client_owns(c, chunk) || !ps_client_chunk_has_any_gradient(c, chunk) ||
        ps_client_is_any_list_pinned(c, chunk) || ps_client_is_in_whole_run(c, chunk))
        return false;
    const bool speculates = c->settings.may_speculate;
    if (speculates && (!c->updates.may_keep[chunk] || c->updates.is_unvalidated[chunk])) return false;
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++) {
        const int32_t tensor = c->pieces.all[i].tensor;
        ps_client_tensor_state *t = &c->tensors[tensor];
        const bool has_none = c->gradients[i].place == PS_GRADIENT_NONE;
        if (has_none ? speculates || !t->is_frozen : c->gradients[i].is_unreduced) return false;
        if (t->is_gradient_changed || ps_client_is_written(c, tensor)) return false;
    }
    return true;
}

/* If there is no room after all, or nothing can be kept, the update comes at the step's end. */
static ps_status update_early(ps_client *c, int32_t chunk, int64_t framework_bytes)
{
    const bool speculates = c->settings.may_speculate;
    if (speculates) PS_TRY(ps_client_break(c, ps_client_keep_states(c, chunk)));
    const bool is_possible = !speculates || c->updates.is_unvalidated[chunk];
    const ps_status st = is_possible ? update_any_tier(c, chunk, framework_bytes) : PS_EBUDGET;
    if (st == PS_EBUDGET) {
        if (speculates && is_possible) ps_client_forget_states(c, chunk);
        (void)ps_client_drop_prediction(c);
        return PS_OK;
    }
    PS_TRY(ps_client_break(c, st));
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        c->gradients[i].is_used_up = c->gradients[i].is_used_up || c->gradients[i].place != PS_GRADIENT_NONE;
    if (!speculates) ps_client_end_gradients(c, chunk);
    c->updates.n_early++;
    return PS_OK;
}

void ps_client_end_early_updates(ps_client *c)
{
    for (int32_t i = 0; i < c->pieces.n && c->updates.n_early > 0; i++) c->gradients[i].is_used_up = false;
    c->updates.are_early = false;
    c->updates.n_early = 0;
}

/* ---- deferred updates ---- */

static ps_status execute(ps_client *c, int32_t chunk, int64_t framework_bytes)
{
    ps_client_updates *u = &c->updates;
    const ps_run chunks = ps_client_updated_with(c, chunk);
    const ps_status st = ps_client_update_chunk(c, chunk, framework_bytes);
    if (st == PS_EBUDGET) return st;
    PS_TRY(ps_client_break(c, st));
    for (int32_t k = chunks.first; k < chunks.first + chunks.n_chunks; k++) u->is_waiting[k] = false;
    u->n_waiting -= chunks.n_chunks;
    return PS_OK;
}

static ps_status execute_all(ps_client *c, int64_t framework_bytes)
{
    for (int32_t k = 0; k < c->layout->n_chunks; k++)
        if (c->updates.is_waiting[k]) PS_TRY(execute(c, k, framework_bytes));
    return PS_OK;
}

/* In a step that is larger than the recorded one, room that there is now may be gone later. */
ps_status ps_client_update_as_predicted(ps_client *c, int64_t framework_bytes)
{
    const ps_client_updates *u = &c->updates;
    if (u->n_waiting > 0 && ps_client_takes_more_than_predicted(c, framework_bytes))
        return execute_all(c, framework_bytes);
    while (u->n_waiting > 0 || u->are_early) {
        const ps_moment *next = ps_client_predicted_moment(c);
        const int32_t chunk = next != NULL ? ps_client_updated_chunk(c, c->steps.predicted, next) : -1;
        if (chunk < 0 || (!u->is_waiting[chunk] && !ps_client_can_be_early(c, chunk))) return PS_OK;
        PS_TRY(u->is_waiting[chunk] ? execute(c, chunk, framework_bytes) : update_early(c, chunk, framework_bytes));
    }
    return PS_OK;
}

/* A moment that has accesses already is continued as another one of the same name; also after a lack of room, as the
 * caller may continue without. */
static ps_status flush_chunk(ps_client *c, int32_t chunk)
{
    if (c->updates.n_waiting == 0 || !c->updates.is_waiting[chunk]) return PS_OK;
    const ps_moment *now = ps_client_present_moment(c);
    if (now == NULL) return execute(c, chunk, UNRECORDED);
    const ps_phase phase = now->phase;
    const char *label = now->label; /* valid as long as the client */
    if (now->n_accesses == 0) ps_client_retract_moment(c);
    const ps_status st = execute(c, chunk, c->steps.step_bytes);
    if (st != PS_OK && st != PS_EBUDGET) return st;
    char no_room[512];
    snprintf(no_room, sizeof no_room, "%s", st != PS_OK ? ps_last_error() : "");
    const ps_status begun = ps_client_begin_moment(c, phase, label, c->steps.step_bytes);
    if (begun != PS_OK && begun != PS_EBUDGET) return begun;
    return st != PS_OK ? PS_FAIL(st, "%s", no_room) : begun;
}

ps_status ps_client_flush_group(ps_client *c, int32_t group)
{
    for (int32_t k = ps_client_first_chunk(c, group); k < ps_client_end_chunk(c, group); k++) PS_TRY(flush_chunk(c, k));
    return PS_OK;
}

ps_status ps_client_flush_tensor(ps_client *c, int32_t tensor)
{
    if (c->updates.n_waiting == 0 || c->tensors[tensor].in_layout < 0) return PS_OK;
    const ps_place p = ps_client_place_of(c, tensor);
    const int32_t first = ps_client_chunk_group_of(c, p.chunk),
                  last = ps_client_chunk_group_of(c, p.chunk + p.n_chunks - 1);
    for (int32_t g = first; g <= last; g++) PS_TRY(ps_client_flush_group(c, g));
    return PS_OK;
}

void ps_client_drop_updates(ps_client *c)
{
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        if (!c->updates.is_waiting[k]) continue;
        c->updates.is_waiting[k] = false;
        ps_client_end_gradients(c, k);
    }
    c->updates.n_waiting = 0;
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        if (!c->updates.is_unvalidated[k]) continue;
        ps_client_forget_states(c, k);
        ps_client_end_gradients(c, k);
    }
    ps_client_end_early_updates(c);
}

/* Between steps it is no moment, so that the next step is predicted as if nothing had been taken back. */
ps_status ps_client_update_taken_back(ps_client *c)
{
    ps_status st = PS_OK;
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        if (!c->updates.is_unvalidated[k]) continue;
        c->updates.is_unvalidated[k] = false;
        if (st == PS_OK) st = execute(c, k, UNRECORDED);
        if (st == PS_EBUDGET) st = PS_OK; /* it stays deferred */
    }
    return st;
}

ps_status ps_client_flush(ps_client *c)
{
    for (int32_t k = 0; k < c->layout->n_chunks; k++) PS_TRY(flush_chunk(c, k));
    return PS_OK;
}

/* ---- saving ---- */

ps_status ps_client_save_first(ps_client *c, int32_t chunk)
{
    if (!ps_snapshot_is_under_way(&c->snapshot)) return PS_OK;
    PS_TRY(flush_chunk(c, chunk));
    return ps_snapshot_take(&c->snapshot, &c->state, chunk);
}

ps_status ps_client_save_tensor_first(ps_client *c, int32_t tensor)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++) PS_TRY(ps_client_save_first(c, p.chunk + k));
    return PS_OK;
}
