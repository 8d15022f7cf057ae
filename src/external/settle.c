/* settle.c - a parameter and its fp32 value are the same: what the program has written to one of them the other gets,
 * when it is next asked for. */
#include <string.h>

#include "external/client_impl.h"
#include "patrickstar_own.h"

/* The master follows its parameter, where that is not what the master rounds to: elements that nobody has changed keep
 * their bits. By the host, wherever they are: parameters are seldom written to. */
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

/* Where the device has both. */
static ps_status follow(ps_client *c, const ps_piece *p, ps_list from, ps_list to)
{
    if (to == PS_LIST_MASTER) PS_TRY(ps_client_save_first(c, p->chunk));
    PS_TRY(ps_client_hold(c, from, p->chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
    ps_status st = ps_client_hold(c, to, p->chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        st = to == PS_LIST_MASTER ? widen_param(c, p) : ps_state_round_master(&c->state, PS_TIER_DEVICE, p);
        ps_client_let_go(c, to, p->chunk);
    }
    ps_client_let_go(c, from, p->chunk);
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

bool ps_client_is_overwritten(const ps_client *c, const ps_client_tensor_state *t)
{
    for (int32_t k = 0; k < t->n_pieces; k++)
        if (ps_client_place_of_gradient(c, t, k) == PS_GRADIENT_OVER) return true;
    return false;
}

bool ps_client_is_written(ps_client_tensor_state *t, int32_t param_pins)
{
    t->is_param_newer = t->is_param_newer || (param_pins > 0 && t->is_writing[PS_CLIENT_PARAM] && !t->is_apart);
    t->is_master_newer =
        t->is_master_newer || (t->pins[PS_CLIENT_MASTER] > 0 && t->is_writing[PS_CLIENT_MASTER] && !t->is_apart);
    return t->is_param_newer || t->is_master_newer;
}

ps_status ps_client_settle(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    if (t->is_param_newer) PS_TRY(follow_all(c, tensor, PS_LIST_PARAM16, PS_LIST_MASTER));
    t->is_param_newer = false;
    if (!t->is_master_newer || ps_client_is_overwritten(c, t))
        return PS_OK; /* the parameter comes when it is asked for */
    PS_TRY(ps_client_finish_coming(c, tensor));
    PS_TRY(follow_all(c, tensor, PS_LIST_MASTER, PS_LIST_PARAM16));
    t->is_master_newer = false;
    return PS_OK;
}

/* All tensors of such a chunk are without gradient so far, so their parameters are there. */
static ps_status make_master(ps_client *c, int32_t chunk)
{
    PS_TRY(ps_client_hold(c, PS_LIST_PARAM16, chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
    ps_status st = ps_client_hold(c, PS_LIST_MASTER, chunk, PS_TIER_DEVICE, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        st = ps_state_cast(&c->state, PS_TIER_DEVICE, ps_state_element(&c->state, PS_LIST_MASTER, chunk, 0),
                           PS_DTYPE_F32, ps_state_element(&c->state, PS_LIST_PARAM16, chunk, 0), c->settings.dtype,
                           c->layout->used_elements[chunk]);
        ps_client_let_go(c, PS_LIST_MASTER, chunk);
    }
    ps_client_let_go(c, PS_LIST_PARAM16, chunk);
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
