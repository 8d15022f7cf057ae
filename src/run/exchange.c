#include "run/exchange.h"

#include "base/mem.h"
#include "device/order.h"
#include "run/moment.h"

static ps_collectives *carrier(const ps_runner *r)
{
    return ps_comm_collectives(r->bp->settings->ranks.comm);
}

static int64_t most_parts(const ps_blueprint *b)
{
    int64_t most = 0;
    for (int32_t i = 0; i < b->spans.n; i++) {
        const ps_span *s = &b->spans.spans[i];
        most = ps_max_i64(most, s->n_chunks + b->pieces.first[s->chunk + s->n_chunks] - b->pieces.first[s->chunk]);
    }
    return most;
}

ps_status ps_exchange_fit(ps_runner *r, const ps_blueprint *bp)
{
    ps_exchange *exchanges = NULL;
    ps_comm_part *parts = NULL;
    const int64_t n_exchanges = ps_max_i64(bp->spans.n, r->bp->spans.n);
    const int64_t n_parts = ps_max_i64(most_parts(bp), most_parts(r->bp));
    ps_status st = ps_mem_alloc((size_t)n_exchanges, sizeof *exchanges, &exchanges);
    if (st == PS_OK) st = ps_mem_alloc((size_t)n_parts, sizeof *parts, &parts);
    if (st != PS_OK) {
        ps_mem_free(exchanges);
        return st;
    }
    ps_mem_free(r->exchanges);
    ps_mem_free(r->parts);
    r->exchanges = exchanges;
    r->parts = parts;
    return PS_OK;
}

/* To who looks at order or time of a trial, in which nothing is sent, exchanges are items of a queue. */
static ps_status open_stand_in(ps_runner *r)
{
    ps_device *dev = r->tiers->ram[PS_TIER_DEVICE];
    const bool is_looked_at = ps_device_order(dev) != NULL || r->tiers->time != NULL;
    if (r->o.compute || r->bp->settings->ranks.n == 1 || !is_looked_at) return PS_OK;
    PS_TRY(ps_queue_create(dev, "exchanges", PS_QUEUE_COPY, &r->stand_in));
    ps_sim_queue_join(r->stand_in, PS_LINK_COLLECTIVES);
    return PS_OK;
}

ps_status ps_exchange_open(ps_runner *r)
{
    PS_TRY(ps_exchange_fit(r, r->bp));
    if (r->o.compute) PS_TRY(ps_carrier_open(&r->carrier, r->bp->settings, r->tiers));
    return open_stand_in(r);
}

ps_status ps_exchange_join(ps_runner *r)
{
    return ps_carrier_join(&r->carrier, r->bp->settings, r->tiers);
}

/* Until the communicator touches no payload any more; after a failure it does not from then on. */
static void finish(ps_runner *r)
{
    if (!r->o.compute || r->exchanges == NULL) return;
    ps_status st = PS_OK;
    for (int32_t i = 0; i < r->bp->spans.n && st == PS_OK; i++)
        if (r->exchanges[i].done.queue != NULL) st = ps_collectives_wait(carrier(r), r->exchanges[i].done);
}

void ps_exchange_close(ps_runner *r)
{
    finish(r);
    ps_carrier_close(&r->carrier);
    ps_queue_destroy(r->stand_in);
    ps_mem_free(r->exchanges);
    ps_mem_free(r->parts);
}

int32_t ps_exchange_moment(const ps_runner *r, int32_t i)
{
    return r->bp->span_moment[r->micro * r->bp->spans.n + i];
}

/* ---- parts ---- */

static bool has_payloads(const ps_runner *r)
{
    return r->o.compute || r->stand_in != NULL;
}

/* Fills r->parts for a gathering: one a chunk, all that is used of it. Their number. */
static int32_t gathered_parts(const ps_runner *r, const ps_span *span)
{
    const ps_blueprint *b = r->bp;
    int32_t n = 0;
    for (int32_t c = span->chunk; c < span->chunk + span->n_chunks; c++) {
        const int64_t used = b->layout->used_elements[c];
        void *data = has_payloads(r) ? ps_state_element(&r->state, PS_LIST_PARAM16, c, 0) : NULL;
        r->parts[n++] = (ps_comm_part){.payload = data, .n = used, .owner = ps_ranks_owner(&b->settings->ranks, c)};
    }
    return n;
}

/* Fills r->parts for a reduction: tensors whose gradients are in `list`, those that follow each other in a chunk as one
 * part, with what lies between them. Their number. */
static int32_t reduced_parts(const ps_runner *r, const ps_span *span, ps_list list)
{
    const ps_blueprint *b = r->bp;
    int32_t n = 0;
    for (int32_t c = span->chunk; c < span->chunk + span->n_chunks; c++) {
        const int32_t end = b->pieces.first[c + 1];
        for (int32_t k = b->pieces.first[c]; k < end; k++) {
            if (ps_blueprint_grad_list(b, b->pieces.all[k].tensor) != list) continue;
            const int64_t begin = b->pieces.all[k].chunk_offset;
            while (k + 1 < end && ps_blueprint_grad_list(b, b->pieces.all[k + 1].tensor) == list) k++;
            const int64_t length = b->pieces.all[k].chunk_offset + b->pieces.all[k].n - begin;
            char *data = has_payloads(r) ? ps_state_element(&r->state, list, c, begin) : NULL;
            r->parts[n++] =
                (ps_comm_part){.payload = data, .n = length, .owner = ps_ranks_owner(&b->settings->ranks, c)};
        }
    }
    return n;
}

/* ---- exchanges ---- */

/* Pins have let the queue of kernels wait until payloads are there and unused, and kernels of it write gradients: what
 * has been issued to it so far comes before a transfer. */
static ps_events issued_so_far(const ps_runner *r)
{
    ps_events all = {.n = 0};
    ps_events_add(&all, ps_queue_event(ps_runner_device_queue(r)));
    return all;
}

static int64_t largest_part(const ps_runner *r, int32_t n_parts)
{
    int64_t n = 0;
    for (int32_t i = 0; i < n_parts; i++) n = ps_max_i64(n, r->parts[i].n);
    return n;
}

typedef struct exchange_kind {
    ps_collective of_many, of_one; /* as the parts have many owners or one */
} exchange_kind;

static const exchange_kind gathering = {PS_ALL_GATHER, PS_BROADCAST}, reduction = {PS_REDUCE_SCATTER, PS_REDUCE};

/* Puts the exchange of span i on the store's timeline; what it is. */
static ps_store_collective estimate(ps_runner *r, int32_t i, int32_t n_parts, ps_list list, const exchange_kind *k)
{
    const ps_blueprint *b = r->bp;
    const ps_ranks *ranks = &b->settings->ranks;
    const ps_collective kind = ps_comm_one_owner(r->parts, n_parts) >= 0 ? k->of_one : k->of_many;
    const int64_t sends = k == &gathering ? ps_comm_gathering_sends(r->parts, n_parts, ranks->rank, ranks->n)
                                          : ps_comm_reduction_sends(r->parts, n_parts, ranks->rank);
    const int64_t bytes = largest_part(r, n_parts) * b->lists.list[list].item_bytes;
    const ps_store_collective c = {.name = ps_collective_name(kind),
                                   .group = "world",
                                   .chunk = b->spans.spans[i].chunk,
                                   .ns = ps_collective_ns(&b->settings->rates.topology, kind, bytes),
                                   .sent_bytes = sends * b->lists.list[list].item_bytes};
    r->exchanges[i].done_ns = ps_store_begin_collective(r->tiers->store, &c);
    return c;
}

/* How long it takes. */
static void spend(const ps_runner *r, const ps_store_collective *c)
{
    if (r->tiers->time == NULL) return;
    ps_sim_queue_spend(r->stand_in, c->ns, false);
    const ps_sim_item item = ps_sim_queue_last(r->stand_in);
    ps_profile_add(r->tiers->profile,
                   &(ps_profile_record){.kind = PS_PROFILE_COLLECTIVE,
                                        .chunk = c->chunk,
                                        .begin_ns = item.begin_ns,
                                        .end_ns = item.end_ns,
                                        .collective = {.name = c->name, .group = c->group, .bytes = c->sent_bytes}});
}

/* In a trial: what an exchange of r->parts would touch. */
static ps_status imagine(ps_runner *r, const ps_store_collective *c, int32_t n_parts, ps_list list, bool is_reduction,
                         ps_event *done)
{
    const ps_blueprint *b = r->bp;
    if (r->stand_in == NULL) return PS_OK;
    PS_TRY(ps_queue_wait(r->stand_in, ps_queue_event(ps_runner_device_queue(r))));
    for (int32_t i = 0; i < n_parts; i++) {
        const ps_comm_part *p = &r->parts[i];
        const bool is_own = p->owner == b->settings->ranks.rank;
        const ps_use use = {.address = p->payload,
                            .bytes = p->n * b->lists.list[list].item_bytes,
                            .is_write = is_own == is_reduction,
                            .name = b->lists.list[list].name};
        PS_TRY(ps_moment_issue_use(r->stand_in, is_reduction ? "reduction" : "gathering", &use));
    }
    spend(r, c);
    *done = ps_queue_event(r->stand_in);
    return PS_OK;
}

ps_status ps_exchange_begin_gather(ps_runner *r, int32_t i)
{
    const ps_settings *s = r->bp->settings;
    const int32_t n = gathered_parts(r, &r->bp->spans.spans[i]);
    const ps_store_collective c = estimate(r, i, n, PS_LIST_PARAM16, &gathering);
    if (!r->o.compute) return imagine(r, &c, n, PS_LIST_PARAM16, false, &r->exchanges[i].done);
    const ps_events after = issued_so_far(r);
    const ps_transfer t = {.parts = r->parts,
                           .n_parts = n,
                           .dtype = s->dtype,
                           .on_device = true,
                           .what = "gathering of parameters",
                           .after = &after};
    return ps_collectives_gather(carrier(r), &t, &r->exchanges[i].done);
}

ps_status ps_exchange_begin_reduction(ps_runner *r, int32_t i)
{
    const ps_settings *s = r->bp->settings;
    const ps_list lists[] = {PS_LIST_PARAM16, ps_lists_grad(&r->bp->lists)};
    for (size_t k = 0; k < PS_ARRAY_LEN(lists); k++) {
        const int32_t n = reduced_parts(r, &r->bp->spans.spans[i], lists[k]);
        if (n == 0) continue;
        const ps_store_collective c = estimate(r, i, n, lists[k], &reduction);
        if (!r->o.compute) {
            PS_TRY(imagine(r, &c, n, lists[k], true, &r->exchanges[i].done));
            continue;
        }
        const ps_events after = issued_so_far(r);
        const ps_transfer t = {.parts = r->parts,
                               .n_parts = n,
                               .dtype = lists[k] == PS_LIST_PARAM16 ? s->dtype : PS_DTYPE_F32,
                               .on_device = true,
                               .what = "reduction of gradients",
                               .after = &after};
        PS_TRY(ps_collectives_reduce(carrier(r), &t, &r->exchanges[i].done));
    }
    return PS_OK;
}

/* A device that works later waits by itself. */
static ps_status await(ps_runner *r, ps_event done)
{
    const bool host_waits = r->o.compute && !ps_device_works_later(r->tiers->ram[PS_TIER_DEVICE]);
    if (host_waits) return ps_collectives_wait(carrier(r), done);
    return ps_queue_wait_at(ps_runner_device_queue(r), done, PS_WAIT_EXCHANGE);
}

ps_status ps_exchange_await(ps_runner *r, int32_t i)
{
    PS_TRY(await(r, r->exchanges[i].done));
    ps_store_end_collective(r->tiers->store, r->exchanges[i].done_ns);
    return PS_OK;
}
