/* comm_state.c - creation of a communicator's state, and its properties. */
#include "base/mem.h"
#include "chunk/comm/comm_impl.h"
#include "device/device.h"

ps_status ps_comm_create(const ps_comm_options *o, const ps_collectives_ops *ops, ps_comm **out)
{
    static const double timeout_max_s = 1e6;
    *out = NULL;
    if (!(o->timeout_s > 0)) return PS_FAIL(PS_EINVAL, "a rank's time-out of %g s must be > 0", o->timeout_s);
    ps_comm *c = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *c, &c));
    c->own.ops = ops;
    c->chunks = &c->own;
    c->size = 1;
    c->timeout_ns = (int64_t)((o->timeout_s < timeout_max_s ? o->timeout_s : timeout_max_s) * 1e9);
    c->heartbeat_ns = ps_min_i64(2000000000, c->timeout_ns / 5);
    c->staging_bytes = o->staging_bytes;
    c->message_bytes = PS_COMM_MESSAGE_BYTES;
    c->open_status = PS_ECOMM;
    atomic_init(&c->failed_rank, -1);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->has_work, &clock);
    pthread_cond_init(&c->has_progress, &clock);
    pthread_condattr_destroy(&clock);
    *out = c;
    return PS_OK;
}

void ps_comm_destroy(ps_comm *c)
{
    for (ps_comm_transfer *t = c->first, *next; t != NULL; t = next) {
        next = t->next;
        ps_mem_free(t);
    }
    ps_queue_destroy(c->sums);
    ps_device_destroy(c->ram);
    ps_queue_destroy(c->transfers);
    pthread_cond_destroy(&c->has_work);
    pthread_cond_destroy(&c->has_progress);
    pthread_mutex_destroy(&c->lock);
    ps_mem_free(c->values);
    ps_mem_free(c->lanes);
    ps_mem_free(c->peers);
    ps_mem_free(c->staging);
    ps_mem_free(c->hello);
    ps_mem_free(c);
}

/* ---- properties ---- */

int32_t ps_comm_rank(const ps_comm *c)
{
    return c->rank;
}

int32_t ps_comm_size(const ps_comm *c)
{
    return c->size;
}

int64_t ps_comm_timeout_ns(const ps_comm *c)
{
    return c->timeout_ns;
}

int64_t ps_comm_staging_bytes(const ps_comm *c)
{
    return c->staging_bytes;
}

int32_t ps_comm_local_rank(const ps_comm *c)
{
    return c->local_rank;
}

int32_t ps_comm_local_size(const ps_comm *c)
{
    return c->local_size;
}

const char *ps_comm_host(const ps_comm *c, int32_t rank)
{
    if (rank < 0 || rank >= c->size) return "unknown host";
    return c->hello[rank].host[0] != '\0' ? c->hello[rank].host : "unknown host";
}

const char *ps_comm_describe(const ps_comm *c)
{
    return c->transport.name;
}

void ps_comm_set_profile(ps_comm *c, ps_profile *p, int link)
{
    pthread_mutex_lock(&c->lock);
    c->profile = p;
    c->profile_link = (uint8_t)link;
    pthread_mutex_unlock(&c->lock);
}

ps_comm_stats ps_comm_get_stats(const ps_comm *c)
{
    return (ps_comm_stats){.sent_bytes = atomic_load(&c->sent_bytes),
                           .n_transfers = atomic_load(&c->n_transfers),
                           .busy_ns = atomic_load(&c->busy_ns),
                           .wait_ns = atomic_load(&c->wait_ns)};
}

void ps_comm_finish_payloads(ps_comm *c)
{
    const ps_comm_device *d = c->copying;
    if (c->sums != NULL) (void)!ps_event_wait(ps_queue_event(c->sums));
    if (d == NULL || atomic_load(&c->is_stuck)) return; /* after a failure the queues may be gone */
    (void)!ps_event_wait(ps_queue_event(d->out));
    (void)!ps_event_wait(ps_queue_event(d->in));
}
