/* value_sync.c - a parameter and its fp32 value agree: a write of the program to one of them updates the other one, at
 * its next use. Where the parameter is a part of the fp32 value (state_format = compact_split) a write to it is one to
 * both, and the other 16 bits stay; with bf16_stochastic it is the value. */
#include <string.h>

#include "api/external/chunk_update.h"
#include "patrickstar_own.h"

/* The master follows its parameter where that differs from the rounded master: unchanged elements keep their bits. By
 * the host, on any tier: parameters are seldom written to. */
static ps_status widen_param(ps_client *c, const ps_piece *p)
{
    enum { AT_ONCE = 4096 };
    _Alignas(64) float masters[AT_ONCE];
    _Alignas(64) char params[AT_ONCE * sizeof(float)], rounded[AT_ONCE * sizeof(float)];
    const ps_dtype dtype = c->settings.dtype;
    const size_t item = ps_dtype_bytes(dtype);
    ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
    for (int64_t done = 0; done < p->n; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, p->n - done), at = p->chunk_offset + done;
        float *master = ps_state_element(&c->state, PS_LIST_MASTER, p->chunk, at);
        PS_TRY(ps_queue_get(q, masters, master, n * (int64_t)sizeof *masters));
        PS_TRY(ps_queue_get(q, params, ps_state_element(&c->state, PS_LIST_PARAM16, p->chunk, at), n * (int64_t)item));
        ps_from_floats(dtype, rounded, 0, n, masters);
        if (memcmp(params, rounded, (size_t)n * item) == 0) continue;
        for (int64_t i = 0; i < n; i++)
            if (memcmp(params + (size_t)i * item, rounded + (size_t)i * item, item) != 0)
                ps_to_floats(dtype, params, i, 1, &masters[i]);
        PS_TRY(ps_queue_put(q, master, masters, n * (int64_t)sizeof *masters));
    }
    return PS_OK;
}

/* If the device has both. */
static ps_status follow(ps_client *c, const ps_piece *p, ps_list from, ps_list to)
{
    if (ps_settings_separates_gradients(&c->settings)) return PS_OK;
    if (to == PS_LIST_MASTER) PS_TRY(ps_client_save_first(c, p->chunk));
    PS_TRY(ps_client_pin_chunk(c, from, p->chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
    ps_status st = ps_client_pin_chunk(c, to, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        st = to == PS_LIST_MASTER ? widen_param(c, p) : ps_state_round_master(&c->state, PS_TIER_DEVICE, p);
        ps_client_unpin_chunk(c, to, p->chunk);
    }
    ps_client_unpin_chunk(c, from, p->chunk);
    return st;
}

static ps_status follow_all(ps_client *c, int32_t tensor, ps_list from, ps_list to)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        if (c->has_master[p->chunk]) PS_TRY(follow(c, p, from, to));
    }
    return PS_OK;
}

ps_status ps_client_sync_value(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (!ps_client_is_written(c, tensor)) return PS_OK;
    if (t->is_param_newer) PS_TRY(follow_all(c, tensor, PS_LIST_PARAM16, PS_LIST_MASTER));
    t->is_param_newer = false;
    if (!t->is_master_newer || ps_client_is_overwritten(c, t))
        return PS_OK; /* the parameter is restored at its next use */
    PS_TRY(follow_all(c, tensor, PS_LIST_MASTER, PS_LIST_PARAM16));
    t->is_master_newer = false;
    return PS_OK;
}

/* All tensors of such a chunk have had no gradient so far, so their parameters are there. */
static ps_status make_master(ps_client *c, int32_t chunk)
{
    c->has_master[chunk] = !ps_lists_exists(&c->lists, PS_LIST_MASTER);
    if (c->has_master[chunk]) return PS_OK; /* its parameters are the masters */
    PS_TRY(ps_client_pin_chunk(c, PS_LIST_PARAM16, chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
    ps_status st = ps_client_pin_chunk(c, PS_LIST_MASTER, chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        void *master = ps_state_element(&c->state, PS_LIST_MASTER, chunk, 0);
        const int64_t n = c->layout->used_elements[chunk];
        st = ps_state_is_split(&c->state, PS_LIST_MASTER) /* base/split.h: 0 beside a value that is the parameter's */
                 ? ps_queue_fill(c->tiers.compute[PS_TIER_DEVICE], master, 0, n * (int64_t)sizeof(uint16_t))
                 : ps_state_cast(&c->state, PS_TIER_DEVICE, master, PS_DTYPE_F32,
                                 ps_state_element(&c->state, PS_LIST_PARAM16, chunk, 0), c->settings.dtype, n);
        ps_client_unpin_chunk(c, PS_LIST_MASTER, chunk);
    }
    ps_client_unpin_chunk(c, PS_LIST_PARAM16, chunk);
    c->has_master[chunk] = st == PS_OK;
    return st;
}

ps_status ps_client_need_master(ps_client *c, int32_t tensor)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++)
        if (!c->has_master[p.chunk + k] && ps_client_owns(c, p.chunk + k)) PS_TRY(make_master(c, p.chunk + k));
    return PS_OK;
}

/* ---- moving gradients off their parameters ---- */

/* Another rank's parameter is gathered again at its next use. */
static ps_status bring_back(ps_client *c, const ps_piece *p)
{
    if (!c->has_master[p->chunk]) return PS_OK;
    PS_TRY(ps_client_pin_chunk(c, PS_LIST_MASTER, p->chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
    const ps_status st = ps_state_round_master(&c->state, PS_TIER_DEVICE, p);
    ps_client_unpin_chunk(c, PS_LIST_MASTER, p->chunk);
    return st;
}

static ps_status restore_piece(ps_client *c, const ps_piece *p)
{
    ps_client_gradient *g = ps_client_gradient_of(c, p);
    const ps_list grad = ps_lists_grad(&c->lists), narrow = ps_client_gradient_list(c, p);
    const ps_client_gradient_place was = g->place;
    PS_TRY(ps_client_pin_chunk(c, narrow, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE));
    void *place = ps_state_element(&c->state, narrow, p->chunk, p->chunk_offset);
    ps_status st = ps_client_pin_chunk(c, grad, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        st = ps_state_cast(&c->state, PS_TIER_DEVICE, ps_state_element(&c->state, grad, p->chunk, p->chunk_offset),
                           PS_DTYPE_F32, place, c->settings.dtype, p->n);
        ps_client_unpin_chunk(c, grad, p->chunk);
    }
    if (st == PS_OK && was == PS_GRADIENT_IN_PLACE) st = bring_back(c, p);
    ps_client_unpin_chunk(c, narrow, p->chunk);
    if (st != PS_OK) return st;
    g->place = PS_GRADIENT_SEPARATE;
    g->is_narrow = true;
    ps_client_discard_unused(c, p->chunk, was);
    return PS_OK;
}

ps_status ps_client_restore_param(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (t->pins[PS_CLIENT_GRADIENT] > 0)
        return PS_FAIL(PS_ESTATE,
                       "%.200s: its gradient is in use where it lies: let it go before the parameter is asked for, or "
                       "another gradient comes",
                       t->name);
    bool was_over = false;
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        if (ps_client_gradient_of(c, p)->place != ps_client_narrow_place(c)) continue;
        PS_TRY(restore_piece(c, p));
        was_over = true;
    }
    if (was_over) t->is_master_newer = false; /* its value is restored from there */
    c->n_separate += was_over;
    return PS_OK;
}

ps_status ps_client_round_gradient(ps_client *c, const ps_piece *p)
{
    const ps_dtype dtype = c->settings.dtype;
    float *gradient = ps_state_element(&c->state, ps_lists_grad(&c->lists), p->chunk, p->chunk_offset);
    for (int64_t done = 0; done < p->n && dtype != PS_DTYPE_F32; done += PS_CLIENT_SCRATCH_ELEMENTS) {
        const int64_t n = ps_min_i64(PS_CLIENT_SCRATCH_ELEMENTS, p->n - done);
        PS_TRY(ps_state_cast(&c->state, PS_TIER_DEVICE, c->scratch, dtype, gradient + done, PS_DTYPE_F32, n));
        PS_TRY(ps_state_cast(&c->state, PS_TIER_DEVICE, gradient + done, PS_DTYPE_F32, c->scratch, dtype, n));
    }
    return PS_OK;
}

ps_status ps_client_check_gradient_unpinned(const ps_client *c, int32_t tensor, const char *call)
{
    const int32_t first = tensor >= 0 ? tensor : 0, end = tensor >= 0 ? tensor + 1 : c->n_tensors;
    for (int32_t i = first; i < end && c->n_gradient_pins > 0; i++)
        if (c->tensors[i].pins[PS_CLIENT_GRADIENT] > 0)
            return PS_FAIL(PS_ESTATE, "%s: the gradient of %.200s is in use: let it go before", call,
                           c->tensors[i].name);
    return PS_OK;
}
