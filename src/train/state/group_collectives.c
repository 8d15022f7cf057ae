#include "train/state/group_collectives.h"

#include "base/mem.h"
#include "device/cuda/nccl_choice.h"
#include "device/order.h"

/* ---- a beginning and an end ---- */

static ps_status create_copies(const ps_tiers *t, const char *name, ps_queue **out)
{
    PS_TRY(ps_queue_create(t->ram[PS_TIER_DEVICE], name, PS_QUEUE_COPY, out));
    ps_queue_set_order(*out, NULL); /* the collective that they are part of is observed instead */
    return PS_OK;
}

static ps_status open_real(ps_group_collectives *x)
{
    const ps_settings *s = x->s->settings;
    const ps_tiers *t = x->s->tiers;
    x->comm = s->ranks.comm;
    ps_comm_set_order(x->comm, ps_device_order(t->ram[PS_TIER_DEVICE]));
    if (s->nccl.is_used) return ps_queue_create(t->ram[PS_TIER_DEVICE], "collectives", PS_QUEUE_COLLECTIVES, &x->queue);
    if (t->comm_staging == NULL) return PS_OK;
    PS_TRY(create_copies(t, "messages-out", &x->copies.out));
    PS_TRY(create_copies(t, "messages-in", &x->copies.in));
    x->copies.staging = t->comm_staging;
    ps_comm_set_device(x->comm, &x->copies);
    return PS_OK;
}

/* A trial sends nothing; if its order or time is observed, collectives are items of a queue. */
static ps_status open_simulated(ps_group_collectives *x)
{
    const ps_tiers *t = x->s->tiers;
    if (ps_device_order(t->ram[PS_TIER_DEVICE]) == NULL && t->time == NULL) return PS_OK;
    PS_TRY(ps_queue_create(t->ram[PS_TIER_DEVICE], "simulated-collectives", PS_QUEUE_COPY, &x->simulated));
    ps_sim_queue_join(x->simulated, PS_LINK_COLLECTIVES);
    return PS_OK;
}

ps_status ps_group_collectives_open(ps_group_collectives *x, const ps_model_state *s, bool sends)
{
    x->s = s;
    if (s->settings->ranks.n > 1)
        PS_TRY(ps_mem_alloc((size_t)s->pieces->n + (size_t)s->settings->ranks.n, sizeof *x->parts, &x->parts));
    if (sends) return s->settings->ranks.comm != NULL ? open_real(x) : PS_OK;
    return s->settings->ranks.n > 1 ? open_simulated(x) : PS_OK;
}

ps_status ps_group_collectives_join(ps_group_collectives *x)
{
    ps_collectives *nccl;
    if (x->queue == NULL) return PS_OK;
    const ps_tiers *t = x->s->tiers;
    const ps_nccl_options o = {.backend = x->s->settings->backend,
                               .comm = x->comm,
                               .queue = x->queue,
                               .staging = t->comm_staging,
                               .staging_bytes = t->comm_staging_bytes};
    PS_TRY(ps_nccl_choice_open(o, &nccl));
    ps_comm_set_collectives(x->comm, nccl);
    return PS_OK;
}

void ps_group_collectives_close(ps_group_collectives *x)
{
    /* on an asynchronous device queues have waited for it, not the host */
    (void)!ps_group_synchronize(x, &x->last);
    if (x->queue != NULL) ps_comm_set_collectives(x->comm, NULL);
    ps_queue_destroy(x->queue);
    if (x->comm != NULL) ps_comm_set_device(x->comm, NULL);
    if (x->comm != NULL) ps_comm_set_order(x->comm, NULL);
    ps_queue_destroy(x->copies.out);
    ps_queue_destroy(x->copies.in);
    ps_queue_destroy(x->simulated);
    ps_mem_free(x->parts);
    *x = (ps_group_collectives){0};
}

/* ---- parts ---- */

static void add_part(ps_group_collectives *x, ps_list list, int32_t chunk, int64_t offset, int64_t n)
{
    const bool has_payload = x->comm != NULL || x->simulated != NULL;
    x->parts[x->n_parts++] = (ps_comm_part){.payload = has_payload ? ps_state_element(x->s, list, chunk, offset) : NULL,
                                            .n = n,
                                            .owner = ps_ranks_owner(&x->s->settings->ranks, chunk)};
}

void ps_group_add_gradient(ps_group_collectives *x, ps_list list, int32_t piece)
{
    const ps_piece *p = &x->s->pieces->all[piece];
    const bool follows = x->n_parts > 0 && piece == x->next_piece && piece > x->s->pieces->first[p->chunk];
    x->next_piece = piece + 1;
    if (!follows) {
        add_part(x, list, p->chunk, p->chunk_offset, p->n);
        return;
    }
    const ps_piece *before = p - 1;
    x->parts[x->n_parts - 1].n += p->chunk_offset + p->n - (before->chunk_offset + before->n);
}

/* ---- collectives ---- */

typedef struct kind {
    ps_collective of_many, of_one; /* for parts of many owners, or of one */
    const char *name, *what;
    bool is_reduction;
} kind;

static const kind gathering = {PS_ALL_GATHER, PS_BROADCAST, "gathering", "gathering of parameters", false};
static const kind reduction = {PS_REDUCE_SCATTER, PS_REDUCE, "reduction", "reduction of gradients", true};

/* Of lists whose elements are each by themselves. */
static int64_t largest_part(const ps_group_collectives *x)
{
    int64_t n = 0;
    for (int32_t i = 0; i < x->n_parts; i++) n = ps_max_i64(n, x->parts[i].n);
    return n;
}

/* Puts it on the store's timeline; returns its kind. */
static ps_store_collective estimate(ps_group_collectives *x, const kind *k, int32_t chunk, ps_list list,
                                    int64_t *done_ns)
{
    const ps_ranks *ranks = &x->s->settings->ranks;
    const int64_t item_bytes = x->s->lists->list[list].item.bytes;
    const ps_collective c = ps_comm_one_owner(x->parts, x->n_parts) >= 0 ? k->of_one : k->of_many;
    const int64_t sends = k->is_reduction ? ps_comm_reduction_sends(x->parts, x->n_parts, ranks->rank)
                                          : ps_comm_gathering_sends(x->parts, x->n_parts, ranks->rank, ranks->n);
    const int64_t bytes = largest_part(x) * item_bytes;
    const ps_store_collective what = {.name = ps_collective_name(c),
                                      .group = "world",
                                      .chunk = chunk,
                                      .ns = ps_collective_ns(&x->s->settings->throughput.topology, c, bytes),
                                      .sent_bytes = sends * item_bytes};
    *done_ns = ps_store_begin_collective(x->s->tiers->store, &what);
    return what;
}

/* The simulated queue is busy for so long. */
static void spend(const ps_group_collectives *x, const ps_store_collective *c)
{
    const ps_tiers *t = x->s->tiers;
    if (t->time == NULL) return;
    ps_sim_queue_spend(x->simulated, c->ns, false);
    const ps_sim_item item = ps_sim_queue_last(x->simulated);
    ps_profile_add(t->profile,
                   &(ps_profile_record){.kind = PS_PROFILE_COLLECTIVE,
                                        .chunk = c->chunk,
                                        .begin_ns = item.begin_ns,
                                        .end_ns = item.end_ns,
                                        .collective = {.name = c->name, .group = c->group, .bytes = c->sent_bytes}});
}

/* Issue the accesses of the parts to the simulated queue. */
static ps_status simulate(ps_group_collectives *x, const kind *k, ps_list list, const ps_store_collective *c,
                          ps_event *done)
{
    if (x->simulated == NULL) return PS_OK;
    PS_TRY(ps_queue_wait(x->simulated, ps_queue_event(x->s->tiers->compute[PS_TIER_DEVICE])));
    for (int32_t i = 0; i < x->n_parts; i++) {
        const ps_comm_part *p = &x->parts[i];
        const ps_use use = {.address = p->payload,
                            .bytes = p->n * x->s->lists->list[list].item.bytes,
                            .is_write = (p->owner == x->s->settings->ranks.rank) == k->is_reduction,
                            .name = x->s->lists->list[list].name};
        PS_TRY(ps_queue_issue_use(x->simulated, k->name, &use));
    }
    spend(x, c);
    *done = ps_queue_event(x->simulated);
    return PS_OK;
}

/* Pins have made the queue of kernels wait until payloads are there and unused, and its kernels write gradients:
 * everything issued to it so far comes before a collective. */
static ps_status send(ps_group_collectives *x, const kind *k, ps_list list, const ps_transfer_condition *only_if,
                      ps_event *done)
{
    ps_collectives *by = ps_comm_collectives(x->comm);
    ps_events after = {.n = 0};
    ps_events_add(&after, ps_queue_event(x->s->tiers->compute[PS_TIER_DEVICE]));
    const ps_transfer t = {.parts = x->parts,
                           .n_parts = x->n_parts,
                           .dtype = ps_state_dtype(x->s, list),
                           .on_device = true,
                           .what = k->what,
                           .after = &after,
                           .only_if = only_if};
    return k->is_reduction ? ps_collectives_reduce(by, &t, done) : ps_collectives_gather(by, &t, done);
}

static ps_status begin(ps_group_collectives *x, const kind *k, int32_t chunk, ps_list list,
                       const ps_transfer_condition *only_if, ps_group_request *out)
{
    *out = (ps_group_request){0};
    const ps_store_collective c = estimate(x, k, chunk, list, &out->done_ns);
    const ps_status st = x->comm != NULL ? send(x, k, list, only_if, &out->done) : simulate(x, k, list, &c, &out->done);
    x->n_parts = 0;
    if (st == PS_OK) x->last = *out;
    return st;
}

ps_status ps_group_begin_gather(ps_group_collectives *x, ps_chunk_group g, const ps_transfer_condition *only_if,
                                ps_group_request *out)
{
    for (int32_t c = g.chunk; c < g.chunk + g.n_chunks; c++)
        add_part(x, PS_LIST_PARAM16, c, 0, x->s->layout->used_elements[c]);
    return begin(x, &gathering, g.chunk, PS_LIST_PARAM16, only_if, out);
}

ps_status ps_group_begin_reduction(ps_group_collectives *x, ps_chunk_group g, ps_list list, ps_group_request *out)
{
    return begin(x, &reduction, g.chunk, list, NULL, out);
}

ps_status ps_group_wait(ps_group_collectives *x, const ps_group_request *c)
{
    const ps_tiers *t = x->s->tiers;
    if (x->comm != NULL && !ps_device_is_asynchronous(t->ram[PS_TIER_DEVICE]))
        PS_TRY(ps_group_synchronize(x, c));
    else
        PS_TRY(ps_queue_wait_at(t->compute[PS_TIER_DEVICE], c->done, PS_WAIT_COLLECTIVE));
    ps_store_end_collective(t->store, c->done_ns);
    return PS_OK;
}

ps_status ps_group_synchronize(ps_group_collectives *x, const ps_group_request *c)
{
    if (x->comm == NULL || c->done.queue == NULL) return PS_OK;
    return ps_collectives_wait(ps_comm_collectives(x->comm), c->done);
}
