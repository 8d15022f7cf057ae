/* early_validation.c - early updates that are made before it is known whether they are right: with gradients that are
 * taken for finite and for not clipped (memory.update_in_backward = speculate). train/run/speculation.h has the same for
 * the engine.
 *
 *                     masters and states       PARAM16      gradients
 *     before          old                      gradient     PARAM16, or GRAD
 *     early update    new; old kept on disk    new          KEPT_GRAD, or GRAD
 *     valid           new                      new          none
 *     taken back      old, on disk             wrong        as after the early update; the update waits
 *
 * Without whole masters PARAM16 is kept as masters are, and gradients stay in GRAD16 (PS_GRADIENT_KEPT).
 *
 * A program may read parameters right after the step, so what was taken back is updated again at its end, with the
 * factor as decided; in a skipped step parameters are rounded from their old masters. A chunk that waits is updated
 * before anything reads it, so nothing sees the wrong parameters. */
#include "api/external/chunk_update.h"

ps_status ps_client_keep_states(ps_client *c, int32_t chunk)
{
    ps_store *s = c->tiers.store;
    const ps_list end = ps_lists_grad(&c->lists);
    for (ps_list l = ps_lists_first_kept(&c->settings); l < end; l++)
        if (ps_client_has_list(c, l, chunk) && !ps_store_can_keep(s, ps_store_chunk(c->layout, l, chunk))) return PS_OK;
    for (ps_list l = ps_lists_first_kept(&c->settings); l < end; l++)
        if (ps_client_has_list(c, l, chunk)) PS_TRY(ps_store_keep(s, ps_store_chunk(c->layout, l, chunk)));
    c->updates.is_unvalidated[chunk] = c->updates.writes_ahead[chunk] = true;
    return PS_OK;
}

void ps_client_forget_states(ps_client *c, int32_t chunk)
{
    for (ps_list l = ps_lists_first_kept(&c->settings); l < ps_lists_grad(&c->lists); l++)
        if (ps_client_has_list(c, l, chunk)) ps_store_forget_kept(c->tiers.store, ps_store_chunk(c->layout, l, chunk));
    c->updates.is_unvalidated[chunk] = false;
}

/* Pieces without a gradient there are copied, too, and not used. */
ps_status ps_client_keep_gradients(ps_client *c, int32_t chunk, ps_tier tier)
{
    const ps_list kept = ps_lists_kept_grad(&c->lists);
    if (!ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_IN_PLACE)) return PS_OK;
    PS_TRY(ps_queue_copy(c->tiers.compute[tier], ps_state_element(&c->state, kept, chunk, 0),
                         ps_state_element(&c->state, PS_LIST_PARAM16, chunk, 0),
                         ps_item_bytes(c->lists.list[kept].item, c->layout->used_elements[chunk])));
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        if (c->gradients[i].place == PS_GRADIENT_IN_PLACE) c->gradients[i].place = PS_GRADIENT_KEPT;
    return PS_OK;
}

/* Before its first update a chunk has no states. */
bool ps_client_can_keep_next(const ps_client *c, int32_t chunk)
{
    if (!c->updates.may_keep[chunk]) return false;
    for (ps_list l = ps_lists_first_kept(&c->settings); l < ps_lists_grad(&c->lists) && c->groups.skips; l++)
        if (ps_client_has_list(c, l, chunk) && !ps_store_can_keep(c->tiers.store, ps_store_chunk(c->layout, l, chunk)))
            return false;
    return true;
}

static ps_status accept(ps_client *c, int32_t chunk)
{
    ps_client_forget_states(c, chunk);
    ps_client_end_gradients(c, chunk);
    return ps_client_write_ahead(c, chunk);
}

static ps_status take_back(ps_client *c, int32_t chunk)
{
    for (ps_list l = ps_lists_first_kept(&c->settings); l < ps_lists_grad(&c->lists); l++)
        if (ps_client_has_list(c, l, chunk)) ps_store_restore_kept(c->tiers.store, ps_store_chunk(c->layout, l, chunk));
    return PS_OK;
}

ps_status ps_client_validate(ps_client *c, bool are_right, int32_t *n)
{
    *n = 0;
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        if (!c->updates.is_unvalidated[k]) continue;
        ++*n;
        PS_TRY((are_right ? accept : take_back)(c, k));
    }
    return PS_OK;
}

ps_status ps_client_write_ahead(ps_client *c, int32_t chunk)
{
    if (!c->updates.writes_ahead[chunk] || c->groups.skips) return PS_OK;
    for (ps_list l = ps_lists_first_kept(&c->settings); l < ps_lists_grad(&c->lists); l++)
        if (ps_client_has_list(c, l, chunk) && !ps_client_is_pinned(c, l, chunk))
            PS_TRY(ps_store_write_ahead(c->tiers.store, ps_store_chunk(c->layout, l, chunk)));
    return PS_OK;
}
