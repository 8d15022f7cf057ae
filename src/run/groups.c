#include "run/groups.h"

#include "base/mem.h"
#include "run/moment.h"

ps_status ps_groups_fit(ps_runner *r, const ps_blueprint *bp)
{
    ps_group_collective *collectives = NULL;
    PS_TRY(ps_mem_alloc((size_t)ps_max_i64(bp->spans.n, r->bp->spans.n), sizeof *collectives, &collectives));
    ps_mem_free(r->collectives);
    r->collectives = collectives;
    return PS_OK;
}

ps_status ps_groups_open(ps_runner *r)
{
    PS_TRY(ps_groups_fit(r, r->bp));
    return ps_group_collectives_open(&r->between_ranks, &r->state, r->o.compute);
}

/* After a failure the communicator touches no payload from then on. */
void ps_groups_close(ps_runner *r)
{
    ps_status st = PS_OK;
    for (int32_t i = 0; r->collectives != NULL && i < r->bp->spans.n && st == PS_OK; i++)
        st = ps_group_finish(&r->between_ranks, &r->collectives[i]);
    ps_group_collectives_close(&r->between_ranks);
    ps_mem_free(r->collectives);
}

/* ---- the events of a span ---- */

static ps_chunk_group group_of(const ps_runner *r, int32_t i)
{
    const ps_span *span = &r->bp->spans.spans[i];
    return (ps_chunk_group){.chunk = span->chunk, .n_chunks = span->n_chunks};
}

static int32_t end_of(ps_chunk_group g)
{
    return g.chunk + g.n_chunks;
}

/* The moment at which the span gets its memory in the micro-batch under way. */
static int32_t moment_of(const ps_runner *r, int32_t i)
{
    return r->bp->span_moment[r->micro * r->bp->spans.n + i];
}

/* Begin to gather the group of span i. In a forward pass its tensors count as having values from now on, those of other
 * ranks too. */
static ps_status gather(ps_runner *r, int32_t i)
{
    const ps_pieces *pieces = &r->bp->pieces;
    const ps_chunk_group g = group_of(r, i);
    PS_TRY(ps_moment_begin(r, moment_of(r, i)));
    PS_TRY(ps_group_begin_gather(&r->between_ranks, g, &r->collectives[i]));
    if (r->bp->spans.spans[i].is_backward) return PS_OK;
    for (int32_t k = pieces->first[g.chunk]; k < pieces->first[end_of(g)]; k++) {
        PS_TRY(ps_store_tensor_begin(r->tiers->store, pieces->all[k].tensor));
        PS_TRY(ps_store_tensor_end(r->tiers->store, pieces->all[k].tensor, PS_STATE_HOLD));
    }
    return PS_OK;
}

/* One for each list that has gradients. Transfers end in the order in which they began: the last one's end is that of
 * both. */
static ps_status begin_reduction(ps_runner *r, int32_t i)
{
    const ps_blueprint *b = r->bp;
    const ps_chunk_group g = group_of(r, i);
    const ps_list lists[] = {PS_LIST_PARAM16, ps_lists_grad(&b->lists)};
    for (size_t l = 0; l < PS_ARRAY_LEN(lists); l++) {
        for (int32_t k = b->pieces.first[g.chunk]; k < b->pieces.first[end_of(g)]; k++)
            if (ps_blueprint_grad_list(b, b->pieces.all[k].tensor) == lists[l])
                ps_group_add_gradient(&r->between_ranks, lists[l], k);
        if (ps_group_has_gradients(&r->between_ranks))
            PS_TRY(ps_group_begin_reduction(&r->between_ranks, g, lists[l], &r->collectives[i]));
    }
    return PS_OK;
}

/* A piece of a gradient has been reduced to this rank: add it to its sum, take its statistics when it is complete. */
static ps_status take_reduced(ps_runner *r, const ps_piece *p)
{
    const ps_list fresh = ps_blueprint_grad_list(r->bp, p->tensor), sum = ps_blueprint_sum_list(r->bp, p->tensor);
    char *x = ps_state_element(&r->state, sum, p->chunk, p->chunk_offset);
    if (sum != fresh)
        PS_TRY(ps_run_add(r->bp->settings->backend, ps_runner_device_queue(r),
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
    const ps_blueprint *b = r->bp;
    for (int32_t c = g.chunk; r->o.compute && c < end_of(g); c++)
        for (int32_t k = b->pieces.first[c]; ps_blueprint_owns(b, c) && k < b->pieces.first[c + 1]; k++)
            PS_TRY(take_reduced(r, &b->pieces.all[k]));
    return PS_OK;
}

/* Take what has been reduced, and drop what is not this rank's. */
static ps_status release(ps_runner *r, int32_t i)
{
    const ps_blueprint *b = r->bp;
    const bool reduces = b->spans.spans[i].reduces;
    const ps_chunk_group g = group_of(r, i);
    ps_status st = PS_OK;
    if (reduces) st = ps_group_await(&r->between_ranks, &r->collectives[i]);
    if (reduces && st == PS_OK) st = take_all_reduced(r, g);
    ps_moment_end(r, moment_of(r, i));
    for (int32_t c = g.chunk; c < end_of(g); c++) {
        const bool owned = ps_blueprint_owns(b, c);
        if (!owned) ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, PS_LIST_PARAM16, c));
        if (reduces && b->uses_grad_list[c] && (!owned || ps_blueprint_sums_apart(b)))
            ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, ps_lists_grad(&b->lists), c));
    }
    return st;
}

void ps_groups_begin_pass(ps_runner *r)
{
    r->next_event = 0;
}

ps_status ps_groups_run_events(ps_runner *r, int32_t index, ps_span_event_kind last_kind)
{
    const ps_spans *s = &r->bp->spans;
    for (; r->next_event < s->n_events; r->next_event++) {
        const ps_span_event *e = &s->events[r->next_event];
        if (e->instr != index || e->kind > last_kind) break;
        /* the end of a forward pass gathers ahead for the backward pass, which evaluation has not */
        if (s->spans[e->span].is_backward && r->pass.kind != PS_PASS_TRAIN) continue;
        switch (e->kind) {
        case PS_SPAN_GATHER: PS_TRY(gather(r, e->span)); break;
        case PS_SPAN_AWAIT: PS_TRY(ps_group_await(&r->between_ranks, &r->collectives[e->span])); break;
        case PS_SPAN_REDUCE: PS_TRY(begin_reduction(r, e->span)); break;
        case PS_SPAN_RELEASE: PS_TRY(release(r, e->span)); break;
        }
    }
    return PS_OK;
}
