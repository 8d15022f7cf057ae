/* gradient_sums.c - sums over gradients: their squares, and whether they are finite. */
#include "api/external/chunk_update.h"
#include "base/mem.h"

ps_dtype ps_client_gradient_dtype(const ps_client *c, const ps_piece *p)
{
    return ps_state_dtype(&c->state, ps_client_gradient_list(c, p));
}

ps_status ps_client_add_sums(ps_client *c, ps_grad_sums *sums, int32_t tensor, const void *gradient, ps_dtype dtype,
                             int64_t n, bool clears)
{
    ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
    if (clears) PS_TRY(ps_queue_fill(q, sums, 0, sizeof *sums));
    return ps_run_grad_stats(
        c->settings.backend, q,
        &(ps_grad_stats_args){.sums = sums, .x = gradient, .n = n, .tensor = tensor, .dtype = dtype}, 0);
}

ps_status ps_client_sum_piece(ps_client *c, const ps_piece *p)
{
    const void *gradient = ps_state_element(&c->state, ps_client_gradient_list(c, p), p->chunk, p->chunk_offset);
    return ps_client_add_sums(c, &c->sums[p - c->pieces.all], p->tensor, gradient, ps_client_gradient_dtype(c, p), p->n,
                              true);
}

static ps_status sum_again(ps_client *c, int32_t tensor)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    t->is_gradient_changed = false;
    if (t->is_unmanaged)
        return ps_client_add_sums(c, &c->sums[c->pieces.n + tensor], tensor,
                                  ps_client_unmanaged(t, ps_lists_grad(&c->lists)), PS_DTYPE_F32, t->elements, true);
    for (int32_t k = 0; k < t->n_pieces; k++) {
        const ps_piece *p = ps_client_piece_of(c, t, k);
        if (ps_client_gradient_of(c, p)->place == PS_GRADIENT_NONE) continue;
        const ps_list list = ps_client_gradient_list(c, p);
        PS_TRY(ps_client_pin_chunk(c, list, p->chunk, PS_TIER_DEVICE, PS_ACCESS_READ));
        const ps_status st = ps_client_sum_piece(c, p);
        ps_client_unpin_chunk(c, list, p->chunk);
        PS_TRY(st);
    }
    return PS_OK;
}

/* Those of unmanaged tensors are the same on all ranks; rank 0 counts them. */
static void join_all(const ps_client *c, ps_grad_sums *sums, ps_grad_sums *all)
{
    const int32_t n_pieces = c->pieces.n;
    *all = (ps_grad_sums){0};
    for (int32_t i = 0; i < n_pieces; i++)
        if (c->gradients[i].place != PS_GRADIENT_NONE || c->gradients[i].is_used_up) ps_grad_sums_join(all, &sums[i]);
    for (int32_t i = 0; i < c->n_tensors && c->settings.ranks.rank == 0; i++)
        if (c->tensors[i].is_unmanaged && c->tensors[i].has_gradient) ps_grad_sums_join(all, &sums[n_pieces + i]);
}

ps_status ps_client_sum_gradients(ps_client *c, ps_grad_sums *all)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].has_gradient && c->tensors[i].is_gradient_changed) PS_TRY(sum_again(c, i));
    ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
    const int64_t n = c->pieces.n + c->n_tensors;
    ps_grad_sums *read = c->sums;
    if (c->tiers.results != NULL) PS_TRY(ps_mem_alloc((size_t)n, sizeof *read, &read));
    const ps_status st = c->tiers.results != NULL ? ps_queue_get(q, read, c->sums, n * (int64_t)sizeof *read)
                                                  : ps_event_wait(ps_queue_event(q));
    if (st == PS_OK) join_all(c, read, all);
    if (read != c->sums) ps_mem_free(read);
    return st;
}
