/* client_enter.c - begin and end of each call of a client, one thread at a time; and release of exported tensors that
 * came back on another thread. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "api/external/client_impl.h"
#include "base/mem.h"

/* ---- release of exported tensors ---- */

void ps_client_unpin_chunk(ps_client *c, ps_list list, int32_t chunk)
{
    const ps_chunk_id id = ps_store_chunk(c->layout, list, chunk);
    ps_client_pinned *h = &c->pinned;
    ps_store_unpin(c->tiers.store, id);
    if (ps_client_is_pinned(c, list, chunk)) return;
    int32_t i = h->n - 1;
    while (h->ids[i] != id) i--;
    memmove(h->ids + i, h->ids + i + 1, (size_t)(--h->n - i) * sizeof *h->ids);
}

/* After a possible write, the other of parameter and master must be updated; by its next user, which can report a
 * failure. */
void ps_client_unpin_place(ps_client *c, int32_t tensor, ps_client_what what)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    int32_t *pins = ps_client_pins_of(c, tensor, what);
    PS_ASSERT(*pins > 0);
    if (t->is_writing[what] && !t->is_unmanaged) {
        t->is_param_newer = t->is_param_newer || what == PS_CLIENT_PARAM;
        t->is_master_newer = t->is_master_newer || what == PS_CLIENT_MASTER;
    }
    if (t->is_writing[what] && what == PS_CLIENT_GRADIENT) t->is_gradient_changed = true;
    if (!t->is_unmanaged) {
        const ps_list list = ps_client_list_of(c, tensor, what);
        const ps_place p = ps_client_place_of(c, tensor);
        for (int32_t k = 0; k < p.n_chunks; k++) ps_client_unpin_chunk(c, list, p.chunk + k);
    }
    c->n_gradient_pins -= what == PS_CLIENT_GRADIENT;
    if (--*pins == 0) t->is_writing[what] = false;
}

void ps_client_take_returned(ps_client *c)
{
    ps_client_returned *l = atomic_exchange(&c->returned, NULL);
    while (l != NULL) {
        ps_client_returned *next = l->next;
        ps_client_unpin_place(c, l->tensor, l->what);
        ps_mem_free(l);
        l = next;
    }
}

void ps_client_look_for_returned(ps_client *c)
{
    while (atomic_load(&c->returned) != NULL && pthread_mutex_trylock(&c->lock) == 0) {
        ps_client_take_returned(c);
        pthread_mutex_unlock(&c->lock);
    }
}

/* ---- one thread at a time ---- */

ps_status ps_client_enter(ps_client *c, const char *call, ps_client_stage wanted)
{
    if (!ps_client_is_here(c))
        return PS_FAIL(PS_ESTATE, "%s: the client belongs to process %lld, from which this one was forked off", call,
                       (long long)c->process);
    pthread_mutex_lock(&c->lock);
    ps_client_take_returned(c);
    if (c->stage == wanted || wanted == PS_CLIENT_ANY_STAGE) return PS_OK;
    return ps_client_leave(c, c->stage == PS_CLIENT_IS_BROKEN
                                  ? PS_FAIL(PS_ESTATE, "%s is not allowed after a failure: %s", call, c->failure)
                                  : PS_FAIL(PS_ESTATE, "%s is for %s ps_client_begin", call,
                                            wanted == PS_CLIENT_IS_BUILDING ? "before" : "after"));
}

ps_status ps_client_leave(ps_client *c, ps_status st)
{
    ps_client_take_returned(c);
    pthread_mutex_unlock(&c->lock);
    ps_client_look_for_returned(c);
    return st;
}

ps_status ps_client_enter_with(ps_client *c, const char *call, ps_client_stage wanted, int32_t tensor)
{
    PS_TRY(ps_client_enter(c, call, wanted));
    const bool is_there = tensor >= 0 && tensor < c->n_tensors;
    if (is_there && !c->tensors[tensor].is_dropped) return PS_OK;
    const ps_status st =
        is_there ? PS_FAIL(PS_EINVAL, "%s: tensor %d (%s) was dropped", call, tensor, c->tensors[tensor].name)
                 : PS_FAIL(PS_EINVAL, "%s: tensor %d of %d", call, tensor, c->n_tensors);
    return ps_client_leave(c, st);
}

bool ps_client_lock(const ps_client *client, ps_client **out)
{
    if (client == NULL || !ps_client_is_here(client)) return false;
    *out = (ps_client *)(uintptr_t)client;
    pthread_mutex_lock(&(*out)->lock);
    return true;
}

ps_status ps_client_break(ps_client *c, ps_status st)
{
    if (st == PS_OK || c->stage == PS_CLIENT_IS_BROKEN) return st;
    snprintf(c->failure, sizeof c->failure, "%s", ps_last_error());
    c->stage = PS_CLIENT_IS_BROKEN;
    /* all ranks have seen the divergence, or the step's result, themselves */
    const bool is_seen_by_all = st == PS_ECOMM || st == PS_EINVAL || st == PS_ENUMERIC;
    if (c->comm != NULL && !is_seen_by_all) ps_comm_fail(c->comm, c->failure);
    return st;
}

ps_status ps_client_break_ranks(ps_client *c, ps_status st)
{
    return c->comm != NULL && st != PS_EINVAL && st != PS_ESTATE ? ps_client_break(c, st) : st;
}

bool ps_client_is_written(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    const int32_t param_pins = c->pin_counts[tensor];
    t->is_param_newer = t->is_param_newer || (param_pins > 0 && t->is_writing[PS_CLIENT_PARAM] && !t->is_unmanaged);
    t->is_master_newer =
        t->is_master_newer || (t->pins[PS_CLIENT_MASTER] > 0 && t->is_writing[PS_CLIENT_MASTER] && !t->is_unmanaged);
    return t->is_param_newer || t->is_master_newer;
}
