/* client_access.c - access to tensors: chunks are pinned and unpinned. */
#include <string.h>

#include "api/external/client_calls.h"
#include "base/bytes.h"
#include "base/sized.h"

/* ---- places ---- */

/* With several ranks a gradient is one rank's until it is reduced, then its owner's. */
static ps_status expect_gradient_here(const ps_client *c, const ps_client_tensor_state *t)
{
    for (int32_t k = 0; k < t->n_pieces; k++)
        if (ps_client_place_of_gradient(c, t, k) == PS_GRADIENT_NONE)
            return PS_FAIL(PS_ESTATE, "%.200s: its gradient is on rank %d, which owns it", t->name,
                           ps_ranks_owner(&c->settings.ranks, ps_client_piece_of(c, t, k)->chunk));
    return PS_OK;
}

static ps_status expect_own(const ps_client *c, int32_t tensor)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++)
        if (!ps_client_owns(c, p.chunk + k))
            return PS_FAIL(PS_ESTATE,
                           "%.200s: its fp32 value is on rank %d, which owns it; ps_client_read_state gives it",
                           c->tensors[tensor].name, ps_ranks_owner(&c->settings.ranks, p.chunk + k));
    return PS_OK;
}

/* Only the owner writes there, and other ranks may have the parameter already, or be about to get it. */
static ps_status expect_between_steps(const ps_client *c, int32_t tensor)
{
    const ps_place p = ps_client_place_of(c, tensor);
    bool is_shared = c->steps.trace != NULL;
    for (int32_t k = 0; k < p.n_chunks && !is_shared; k++) {
        const int32_t group = ps_client_chunk_group_of(c, p.chunk + k);
        is_shared = c->sharding.is_gathered[group] || ps_client_is_prefetching(c, group);
    }
    if (c->settings.ranks.n == 1 || !is_shared) return PS_OK;
    return PS_FAIL(PS_ESTATE,
                   "%.200s: with several ranks its fp32 value may be written between steps only, before an evaluation "
                   "uses it; ps_client_write_state may be called at any time",
                   c->tensors[tensor].name);
}

/* Makes the requested place resident and up to date. */
static ps_status make_ready(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (what == PS_CLIENT_GRADIENT) {
        if (!t->has_gradient) return PS_FAIL(PS_ESTATE, "%.200s has no gradient", t->name);
        if (t->is_unmanaged) return PS_OK;
        PS_TRY(expect_gradient_here(c, t));
        return ps_client_is_torn(c, t) ? ps_client_restore_param(c, tensor) : PS_OK;
    }
    if (t->is_unmanaged) return PS_OK;
    if (what == PS_CLIENT_PARAM && t->has_gradient && !t->keeps_param &&
        ps_client_narrow_place(c) == PS_GRADIENT_IN_PLACE) {
        ps_client_reshard_tensor(c, tensor);
        t->keeps_param = true;
        c->n_restored += ps_client_is_overwritten(c, t);
    }
    if (what == PS_CLIENT_PARAM && ps_client_is_overwritten(c, t)) PS_TRY(ps_client_restore_param(c, tensor));
    if (what == PS_CLIENT_MASTER && ps_settings_separates_gradients(&c->settings))
        return PS_FAIL(PS_ENOSYS,
                       "%.200s: with optimizer.params.state_format = %s its fp32 value lies nowhere as such: "
                       "ps_client_read_state and ps_client_write_state copy it",
                       t->name, ps_config_state_format_names[ps_optimizer_format(&c->settings.optimizer)]);
    if (what == PS_CLIENT_MASTER) PS_TRY(expect_own(c, tensor));
    if (what == PS_CLIENT_MASTER && mode == PS_CLIENT_WRITE) PS_TRY(expect_between_steps(c, tensor));
    if (what == PS_CLIENT_MASTER) PS_TRY(ps_client_need_master(c, tensor));
    return ps_client_sync_value(c, tensor);
}

static ps_status pin_all(ps_client *c, int32_t tensor, ps_list list, bool is_param, ps_access_mode mode)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++) {
        const int32_t chunk = p.chunk + k;
        ps_status st = list == PS_LIST_PARAM16 && is_param ? ps_client_gather(c, tensor, chunk) : PS_OK;
        const bool is_value = list == PS_LIST_MASTER || (is_param && ps_settings_separates_gradients(&c->settings));
        if (st == PS_OK && is_value && mode == PS_ACCESS_WRITE) st = ps_client_save_first(c, chunk);
        if (st == PS_OK) st = ps_client_pin_chunk(c, list, chunk, PS_TIER_DEVICE, mode);
        if (st == PS_OK && is_param && ps_client_owns(c, chunk) && !c->has_master[chunk]) {
            st = ps_snapshot_visit_frozen(&c->snapshot, &c->state, chunk, PS_TIER_DEVICE);
            if (st != PS_OK) ps_client_unpin_chunk(c, list, chunk);
        }
        if (st == PS_OK) continue;
        while (k-- > 0) ps_client_unpin_chunk(c, list, p.chunk + k);
        return st;
    }
    return PS_OK;
}

static void *unmanaged_address(const ps_client *c, const ps_client_tensor_state *t, ps_client_what what)
{
    return ps_client_unmanaged(t, what == PS_CLIENT_GRADIENT ? ps_lists_grad(&c->lists) : PS_LIST_MASTER);
}

/* The use of room, and a budget that would suffice: everything in use stays, and this comes on top. */
static ps_status tell_room(const ps_client *c, const ps_client_tensor_state *t, ps_status st)
{
    int64_t held = 0;
    char text[PS_CLIENT_FRAMEWORK_TEXT_MAX], advice[PS_CLIENT_ADVICE_TEXT_MAX], sizes[4][PS_BYTES_TEXT_MAX];
    const int64_t framework = ps_store_get_stats(c->tiers.store).non_model_bytes;
    if (st != PS_EBUDGET) return st;
    for (int32_t i = 0; i < c->pinned.n; i++) held += ps_client_id_bytes(c, c->pinned.ids[i]);
    const int64_t wanted = t->n_pieces * ps_lists_chunk_bytes(&c->lists, c->layout, PS_LIST_PARAM16);
    const int64_t budget = c->settings.budgets.bytes[PS_TIER_DEVICE];
    const ps_moment *now = ps_client_present_moment(c);
    const char *label = now != NULL ? now->label : NULL;
    return PS_FAIL(
        st,
        "%.200s%s%.100s: no room for its chunks, %s, beside chunks in use, %s, and %s of the framework itself, in the "
        "%s that budgets leave to them: try %s, smaller chunks (default_chunk_size), or letting tensors go before "
        "others are used%s%s",
        t->name, label != NULL ? " in " : "", label != NULL ? label : "", ps_bytes_format(wanted, sizes[0]),
        ps_bytes_format(held, sizes[1]), ps_bytes_format(framework, sizes[2]), ps_bytes_format(budget, sizes[3]),
        ps_client_step_advice(c, framework, held + wanted, budget + wanted, advice), framework > 0 ? "; " : "",
        framework > 0 ? ps_client_framework_text(c, framework, text) : "");
}

static ps_status pin_place(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode,
                           ps_client_place *place)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (what < 0 || what >= PS_CLIENT_WHAT_COUNT) return PS_FAIL(PS_EINVAL, "%d is no ps_client_what", (int)what);
    if (mode != PS_CLIENT_READ && mode != PS_CLIENT_WRITE)
        return PS_FAIL(PS_EINVAL, "%d is no ps_client_mode", (int)mode);
    if (what == PS_CLIENT_GRADIENT) PS_TRY(ps_client_check_gradients_complete(c, "to ask for a gradient (p.grad)"));
    PS_TRY(ps_client_check_not_updated_early(c, tensor, "its value is asked for"));
    PS_TRY(ps_client_flush_tensor(c, tensor));
    PS_TRY(tell_room(c, t, make_ready(c, tensor, what, mode)));
    const ps_list list = ps_client_list_of(c, tensor, what);
    *place = (ps_client_place){.dtype = t->is_unmanaged ? PS_DTYPE_F32 : ps_state_dtype(&c->state, list),
                               .gpu = c->settings.backend_kind == PS_BACKEND_CUDA ? c->settings.gpu.ordinal : -1};
    if (t->is_unmanaged) {
        place->address = unmanaged_address(c, t, what);
    } else {
        const ps_access_mode access = mode == PS_CLIENT_READ ? PS_ACCESS_READ : PS_ACCESS_WRITE;
        PS_TRY(tell_room(c, t, pin_all(c, tensor, list, what == PS_CLIENT_PARAM, access)));
        const ps_place p = ps_client_place_of(c, tensor);
        place->address = ps_state_element(&c->state, list, p.chunk, p.offset);
    }
    if (what == PS_CLIENT_GRADIENT) t->gradient_list = list;
    ++*ps_client_pins_of(c, tensor, what);
    c->n_gradient_pins += what == PS_CLIENT_GRADIENT;
    t->is_writing[what] = t->is_writing[what] || mode == PS_CLIENT_WRITE;
    return PS_OK;
}

/* With several ranks prefetching of the next group begins once this one has its room. */
ps_status ps_client_pin_place(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode,
                              ps_client_place *place)
{
    PS_TRY(pin_place(c, tensor, what, mode, place));
    const ps_status st = what == PS_CLIENT_PARAM ? ps_client_issue_prefetch(c) : PS_OK;
    if (st != PS_OK) ps_client_unpin_place(c, tensor, what);
    return st;
}

ps_status ps_client_pin(ps_client *c, int32_t tensor, ps_client_what what, ps_client_mode mode, ps_client_place *place)
{
    PS_TRY(PS_NEED("client place", c, place));
    ps_client_place own;
    PS_TRY(ps_client_enter_with(c, "ps_client_pin", PS_CLIENT_IS_READY, tensor));
    ps_status st = ps_client_break_ranks(c, ps_client_pin_place(c, tensor, what, mode, &own));
    if (st == PS_OK) {
        st = PS_SIZED_GIVE(ps_client_place, &own, place);
        if (st != PS_OK) ps_client_unpin_place(c, tensor, what);
    }
    return ps_client_leave(c, st);
}

static bool is_pinned(ps_client *c, int32_t tensor, ps_client_what what)
{
    const bool is_there = c->pin_counts != NULL && tensor >= 0 && tensor < c->n_tensors;
    return is_there && what >= PS_CLIENT_PARAM && what <= PS_CLIENT_GRADIENT && *ps_client_pins_of(c, tensor, what) > 0;
}

void ps_client_unpin(ps_client *c, int32_t tensor, ps_client_what what)
{
    if (c == NULL || !ps_client_is_here(c)) return;
    pthread_mutex_lock(&c->lock);
    if (is_pinned(c, tensor, what)) ps_client_unpin_place(c, tensor, what);
    (void)ps_client_leave(c, PS_OK);
}
