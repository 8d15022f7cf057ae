/* comm_worker.c - the thread that moves messages. It polls, because transports offer nothing else; between polls it
 * sleeps, longer when there is less to do, so that computing threads have the processors. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/mem.h"
#include "chunk/comm/comm_impl.h"
#include "device/device.h"
#include "device/worker.h"

#define IDLE_NS ((int64_t)10000000) /* between checks of the other ranks when no transfer is in flight */

static ps_status alloc_arrays(ps_comm *c)
{
    const size_t p = (size_t)c->size;
    PS_TRY(ps_mem_alloc(p, sizeof *c->peers, &c->peers));
    PS_TRY(ps_mem_alloc(p, sizeof *c->hello, &c->hello));
    PS_TRY(ps_mem_alloc(2 * p, sizeof *c->lanes, &c->lanes));
    return ps_mem_alloc(PS_COMM_BUFFERS * p, sizeof *c->values, &c->values);
}

/* Allocates staging memory, and a thread that adds pieces: a copy queue of RAM has one. */
static ps_status prepare_sums(ps_comm *c)
{
    PS_TRY(ps_mem_alloc((size_t)c->staging_bytes, 1, &c->staging));
    PS_TRY(ps_device_create(&ps_device_cpu_ops, "sums", 0, &c->ram));
    return ps_queue_create(c->ram, "ps-sum", PS_QUEUE_COPY, &c->sums);
}

static bool join_others(ps_comm *c)
{
    ps_comm_hello *mine = &c->hello[c->rank];
    if (gethostname(mine->host, sizeof mine->host - 1) != 0) snprintf(mine->host, sizeof mine->host, "unknown");
    (void)ps_leftover_mark(mine->process);
    mine->staging_bytes = c->staging_bytes;
    ps_comm_transfer *t = NULL;
    if (ps_mem_alloc(1, sizeof *t + (size_t)c->size * sizeof t->parts[0], &t) != PS_OK)
        return ps_comm_heartbeat_fail(c, ps_last_error());
    t->item_bytes = 1;
    t->name = "meeting";
    t->what = "all ranks";
    t->n_parts = c->size;
    for (int32_t r = 0; r < c->size; r++)
        t->parts[r] = (ps_comm_part){.payload = &c->hello[r], .n = sizeof c->hello[r], .owner = r};
    const bool is_met = ps_comm_collective_run(c, t);
    ps_mem_free(t);
    if (!is_met) return false;
    for (int32_t r = 0; r < c->size; r++) {
        ps_comm_hello *h = &c->hello[r];
        h->host[sizeof h->host - 1] = h->process[sizeof h->process - 1] = '\0';
        c->staging_bytes = ps_min_i64(c->staging_bytes, h->staging_bytes);
        if (strcmp(h->host, mine->host) != 0) continue;
        c->local_rank += r < c->rank;
        c->local_size++;
    }
    return prepare_sums(c) == PS_OK || ps_comm_heartbeat_fail(c, ps_last_error());
}

/* Before the rendezvous no rank can be informed of a failure. */
static bool cannot_open(ps_comm *c, ps_status st, const char *text)
{
    pthread_mutex_lock(&c->lock);
    c->open_status = st;
    snprintf(c->failure, sizeof c->failure, "%s", text);
    ps_comm_set_failed(c, c->rank);
    pthread_mutex_unlock(&c->lock);
    return false;
}

static bool open_transport(ps_comm *c)
{
    ps_transport *t = &c->transport;
    if (!t->ops->open(t)) return cannot_open(c, PS_ECOMM, t->error);
    c->rank = t->rank;
    c->size = t->size;
    ps_status st = alloc_arrays(c);
    if (st == PS_OK && c->staging_bytes < PS_COMM_STAGING_MIN * c->size)
        st = PS_FAIL(PS_EINVAL, "%lld bytes of staging memory: %d ranks need at least %lld",
                     (long long)c->staging_bytes, c->size, (long long)(PS_COMM_STAGING_MIN * c->size));
    if (st != PS_OK) {
        t->ops->close(t, false);
        return cannot_open(c, st, ps_last_error());
    }
    ps_comm_heartbeat_begin(c);
    return join_others(c);
}

/* True when no thread waits for it any more. */
static bool set_state(ps_comm *c, ps_comm_state state)
{
    pthread_mutex_lock(&c->lock);
    c->state = state;
    const bool is_abandoned = c->is_abandoned;
    pthread_cond_broadcast(&c->has_progress);
    pthread_mutex_unlock(&c->lock);
    return is_abandoned;
}

/* The next transfer; NULL: the caller closes. False: the worker must end. */
static bool next_transfer(ps_comm *c, ps_comm_transfer **out)
{
    bool goes_on = true;
    pthread_mutex_lock(&c->lock);
    while (goes_on && c->first == NULL && !c->wants_close) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        const int64_t ns = until.tv_nsec + IDLE_NS;
        until = (struct timespec){.tv_sec = until.tv_sec + ns / 1000000000, .tv_nsec = ns % 1000000000};
        pthread_cond_timedwait(&c->has_work, &c->lock, &until);
        pthread_mutex_unlock(&c->lock);
        goes_on = ps_comm_heartbeat_listen(c);
        pthread_mutex_lock(&c->lock);
    }
    *out = c->first;
    pthread_mutex_unlock(&c->lock);
    return goes_on;
}

/* Its begin by both clocks, and the bytes sent before it. */
typedef struct mark {
    int64_t begin_ns, profile_ns, sent_bytes;
} mark;

static mark mark_begin(ps_comm *c)
{
    pthread_mutex_lock(&c->lock);
    const int64_t profile_ns = ps_profile_now(c->profile);
    pthread_mutex_unlock(&c->lock);
    return (mark){ps_clock_ns(), profile_ns, atomic_load(&c->sent_bytes)};
}

static bool is_made(const ps_comm_transfer *t)
{
    return t->only_if.holds == NULL || t->only_if.holds(t->only_if.arg);
}

/* The lock is held: the worker checks for a recorder at the next transfer. */
static void count_transfer(ps_comm *c, const ps_comm_transfer *t, const mark *m)
{
    if (!t->is_payload) return;
    atomic_fetch_add(&c->n_transfers, 1);
    atomic_fetch_add(&c->busy_ns, ps_clock_ns() - m->begin_ns);
    if (m->profile_ns == 0) return; /* recording began during the transfer */
    ps_profile_add(
        c->profile,
        &(ps_profile_record){
            .kind = PS_PROFILE_COLLECTIVE,
            .chunk = -1,
            .begin_ns = m->profile_ns,
            .end_ns = ps_profile_now(c->profile),
            .collective = {.name = t->name, .group = "world", .bytes = atomic_load(&c->sent_bytes) - m->sent_bytes}});
}

/* m NULL: the transfer was not made. */
static void finish_transfer(ps_comm *c, ps_comm_transfer *t, const mark *m)
{
    pthread_mutex_lock(&c->lock);
    if (m != NULL) count_transfer(c, t, m);
    c->current = NULL;
    c->first = t->next;
    if (c->first == NULL) c->last = NULL;
    ps_host_queue_end(c->transfers, (ps_ticket)t->ticket, PS_OK);
    atomic_store(&c->done, t->ticket);
    pthread_cond_broadcast(&c->has_progress);
    pthread_mutex_unlock(&c->lock);
    ps_mem_free(t);
}

/* Waits until the transfer's payloads may be accessed. A device may take long: heartbeats continue meanwhile. False:
 * the worker must end. */
static bool await_events(ps_comm *c, const ps_comm_transfer *t)
{
    c->current = t;
    c->moved_ns = ps_clock_ns();
    for (int i = 0; i < t->after.n; i++) {
        while (!ps_event_is_done(t->after.event[i]))
            if (!ps_comm_heartbeat_tick(c, false)) return false;
        if (ps_event_wait(t->after.event[i]) != PS_OK) return ps_comm_heartbeat_fail(c, ps_last_error());
    }
    return true;
}

static bool run_transfers(ps_comm *c)
{
    ps_comm_transfer *t;
    while (next_transfer(c, &t)) {
        if (t == NULL) return ps_comm_heartbeat_leave(c);
        if (!await_events(c, t)) return false;
        const bool takes_place = is_made(t);
        const mark begin = mark_begin(c);
        if (takes_place && !ps_comm_collective_run(c, t)) return false;
        finish_transfer(c, t, takes_place ? &begin : NULL);
    }
    return false;
}

static void *thread_main(void *arg)
{
    ps_comm *c = arg;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* so that a sleep of 20 us does not last 70 */
    if (open_transport(c)) {
        set_state(c, PS_COMM_OPEN);
        if (run_transfers(c)) c->transport.ops->close(&c->transport, true);
    }
    if (set_state(c, PS_COMM_ENDED)) ps_comm_destroy(c);
    return NULL;
}

ps_status ps_comm_worker_start(ps_comm *c)
{
    PS_TRY(ps_host_queue_create("messages", &c->transfers));
    ps_host_queue_set_watch(c->transfers, ps_comm_watch_worker, c);
    ps_host_queue_set_ranks(c->transfers, ps_comm_describe_transfer, c);
    PS_TRY(ps_worker_start("ps-comm", thread_main, c, &c->worker));
    c->has_worker = true;
    return PS_OK;
}
