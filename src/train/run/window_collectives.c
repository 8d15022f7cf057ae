#include "train/run/window_collectives.h"

#include "base/mem.h"
#include "train/run/moment.h"

ps_status ps_window_collectives_fit(ps_runner *r, const ps_exec_plan *plan)
{
    ps_group_request *requests = NULL;
    PS_TRY(ps_mem_alloc((size_t)ps_max_i64(plan->windows.n, r->plan->windows.n), sizeof *requests, &requests));
    ps_mem_free(r->requests);
    r->requests = requests;
    return PS_OK;
}

ps_status ps_window_collectives_open(ps_runner *r)
{
    PS_TRY(ps_window_collectives_fit(r, r->plan));
    return ps_group_collectives_open(&r->between_ranks, &r->state, r->o.compute);
}

/* After a failure the communicator no longer accesses payloads. */
void ps_window_collectives_close(ps_runner *r)
{
    ps_status st = PS_OK;
    for (int32_t i = 0; r->requests != NULL && i < r->plan->windows.n && st == PS_OK; i++)
        st = ps_group_synchronize(&r->between_ranks, &r->requests[i]);
    ps_group_collectives_close(&r->between_ranks);
    ps_mem_free(r->requests);
}

/* ---- the events of a window ---- */

static ps_chunk_group group_of(const ps_runner *r, int32_t i)
{
    const ps_gather_window *window = &r->plan->windows.windows[i];
    return (ps_chunk_group){.chunk = window->chunk, .n_chunks = window->n_chunks};
}

static int32_t end_of(ps_chunk_group g)
{
    return g.chunk + g.n_chunks;
}

/* The moment at which the window is allocated in the current micro-batch. */
static int32_t moment_of(const ps_runner *r, int32_t i)
{
    return r->plan->window_moment[r->micro * r->plan->windows.n + i];
}

/* Begin to gather the group of window i. In a forward pass its tensors have values from now on, those of other ranks
 * too. */
static ps_status gather(ps_runner *r, int32_t i)
{
    const ps_pieces *pieces = &r->plan->pieces;
    const ps_chunk_group g = group_of(r, i);
    PS_TRY(ps_moment_begin(r, moment_of(r, i)));
    PS_TRY(ps_group_begin_gather(&r->between_ranks, g, NULL, &r->requests[i]));
    if (r->plan->windows.windows[i].is_backward) return PS_OK;
    for (int32_t k = pieces->first[g.chunk]; k < pieces->first[end_of(g)]; k++)
        r->is_overwritten[pieces->all[k].tensor] = false;
    return PS_OK;
}

/* One for each list with gradients. Transfers end in the order in which they began: the last one's end is that of
 * both. */
static ps_status begin_reduction(ps_runner *r, int32_t i)
{
    const ps_exec_plan *b = r->plan;
    const ps_chunk_group g = group_of(r, i);
    const ps_list lists[] = {ps_exec_plan_narrow_grad(b), ps_lists_grad(&b->lists)};
    for (size_t l = 0; l < PS_ARRAY_LEN(lists); l++) {
        for (int32_t k = b->pieces.first[g.chunk]; k < b->pieces.first[end_of(g)]; k++)
            if (ps_exec_plan_grad_list(b, b->pieces.all[k].tensor) == lists[l])
                ps_group_add_gradient(&r->between_ranks, lists[l], k);
        if (ps_group_has_gradients(&r->between_ranks))
            PS_TRY(ps_group_begin_reduction(&r->between_ranks, g, lists[l], &r->requests[i]));
    }
    return PS_OK;
}

/* A piece of a gradient has been reduced to this rank: add it to its sum, update its statistics when it is complete. */
static ps_status take_reduced(ps_runner *r, const ps_piece *p)
{
    const ps_list fresh = ps_exec_plan_grad_list(r->plan, p->tensor), sum = ps_exec_plan_sum_list(r->plan, p->tensor);
    char *x = ps_state_element(&r->state, sum, p->chunk, p->chunk_offset);
    if (sum != fresh)
        PS_TRY(ps_run_add(r->plan->settings->backend, ps_runner_device_queue(r),
                          &(ps_add_args){.y = x,
                                         .a = x,
                                         .b = ps_state_element(&r->state, fresh, p->chunk, p->chunk_offset),
                                         .n = p->n,
                                         .dtype = PS_DTYPE_F32},
                          0));
    return ps_runner_is_last_micro(r) ? ps_runner_add_grad_stats(r, PS_TIER_DEVICE, p->tensor, x, p->n) : PS_OK;
}

static ps_status take_all_reduced(ps_runner *r, ps_chunk_group g)
{
    const ps_exec_plan *b = r->plan;
    for (int32_t c = g.chunk; r->o.compute && c < end_of(g); c++)
        for (int32_t k = b->pieces.first[c]; ps_exec_plan_owns(b, c) && k < b->pieces.first[c + 1]; k++)
            PS_TRY(take_reduced(r, &b->pieces.all[k]));
    return PS_OK;
}

/* Process reduced gradients, and drop chunks of other ranks. */
static ps_status release(ps_runner *r, int32_t i)
{
    const ps_exec_plan *b = r->plan;
    const bool reduces = b->windows.windows[i].reduces;
    const ps_chunk_group g = group_of(r, i);
    ps_status st = PS_OK;
    if (reduces) st = ps_group_wait(&r->between_ranks, &r->requests[i]);
    if (reduces && st == PS_OK) st = take_all_reduced(r, g);
    ps_moment_end(r, moment_of(r, i));
    for (int32_t c = g.chunk; c < end_of(g); c++) {
        const bool owned = ps_exec_plan_owns(b, c);
        if (!owned) ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, PS_LIST_PARAM16, c));
        if (reduces && b->uses_grad_list[c] && (!owned || ps_exec_plan_has_separate_sums(b)))
            ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, ps_lists_grad(&b->lists), c));
        if (reduces && !owned && ps_exec_plan_has_grad16(b, c))
            ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, ps_exec_plan_narrow_grad(b), c));
    }
    return st;
}

void ps_window_collectives_begin_pass(ps_runner *r)
{
    r->next_event = 0;
}

ps_status ps_window_collectives_run(ps_runner *r, int32_t index, ps_gather_event_kind last_kind)
{
    const ps_gather_windows *s = &r->plan->windows;
    for (; r->next_event < s->n_events; r->next_event++) {
        const ps_gather_event *e = &s->events[r->next_event];
        if (e->instr != index || e->kind > last_kind) break;
        /* the end of a forward pass gathers ahead for the backward pass, which evaluation does not have */
        if (s->windows[e->window].is_backward && r->pass.kind != PS_PASS_TRAIN) continue;
        switch (e->kind) {
        case PS_GATHER_BEGIN: PS_TRY(gather(r, e->window)); break;
        case PS_GATHER_WAIT: PS_TRY(ps_group_wait(&r->between_ranks, &r->requests[e->window])); break;
        case PS_GATHER_REDUCE: PS_TRY(begin_reduction(r, e->window)); break;
        case PS_GATHER_RELEASE: PS_TRY(release(r, e->window)); break;
        }
    }
    return PS_OK;
}
