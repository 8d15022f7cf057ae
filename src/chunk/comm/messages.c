/* messages.c - transfers of chunks by messages, as callers see them: queued for the worker, waited for, ended by a
 * failure. The worker carries them out in collective.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "chunk/comm/comm_impl.h"
#include "chunk/comm/topology.h"
#include "device/stall.h"

/* How long the worker may be in the transport, in addition to the heartbeat time-out. */
#define STUCK_NS ((int64_t)5000000000)
/* Period at which a waiting thread checks the worker. */
#define SLICE_NS ((int64_t)1000000000)

static ps_comm *comm_of(ps_collectives *x)
{
    return (ps_comm *)x;
}

/* ---- waiting and failing ---- */

/* The lock is held. */
static void watch_worker(ps_comm *c)
{
    const int64_t now_ns = ps_clock_ns(), n_looks = atomic_load(&c->n_looks);
    const int64_t gap_ns = ps_min_i64(now_ns - c->checked_ns, SLICE_NS); /* there may have been no waiting thread for
                                                                          * long */
    c->still_ns = n_looks == c->checked_looks ? c->still_ns + gap_ns : 0;
    c->checked_looks = n_looks;
    c->checked_ns = now_ns;
    if (c->state == PS_COMM_OPENING || c->still_ns <= c->timeout_ns + STUCK_NS) return;
    atomic_store(&c->is_stuck, true);
    if (atomic_load(&c->failed_rank) >= 0) return;
    snprintf(c->failure, sizeof c->failure, "rank %d (%s) failed: %s has not returned for %g s", c->rank,
             ps_comm_host(c, c->rank), c->transport.name, (double)c->still_ns * 1e-9);
    ps_comm_set_failed(c, c->rank);
}

void ps_comm_watch_worker(void *comm)
{
    ps_comm *c = comm;
    pthread_mutex_lock(&c->lock);
    watch_worker(c);
    pthread_mutex_unlock(&c->lock);
}

void ps_comm_await_worker(ps_comm *c)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SLICE_NS / 1000000000;
    if (pthread_cond_timedwait(&c->has_progress, &c->lock, &until) != 0) watch_worker(c);
}

ps_status ps_comm_check_failure(const ps_comm *c)
{
    const int32_t failed = atomic_load(&c->failed_rank);
    if (failed < 0) return PS_OK;
    const ps_status st = PS_FAIL(PS_ECOMM, "%s", c->failure);
    ps_fail_on_rank(failed, ps_comm_host(c, failed), failed != c->rank, false);
    return st;
}

void ps_comm_set_failed(ps_comm *c, int32_t rank)
{
    const ps_comm_ticket done = atomic_load(&c->done);
    atomic_store(&c->failed_rank, rank); /* a waiting thread may read it at once */
    if (done < c->issued) {
        const ps_status st = PS_FAIL(PS_ECOMM, "%s", c->failure);
        ps_host_queue_end(c->transfers, (ps_ticket)done + 1, st); /* the first one that fails; later ones fail too */
        ps_host_queue_end(c->transfers, (ps_ticket)c->issued, st);
    }
    pthread_cond_broadcast(&c->has_progress);
}

void ps_comm_describe_transfer(void *comm, ps_ticket t, char *text, size_t bytes)
{
    ps_comm *c = comm;
    if (pthread_mutex_trylock(&c->lock) != 0) return;
    if ((ps_comm_ticket)t <= c->issued && (ps_comm_ticket)t + PS_COMM_NAMES > c->issued)
        snprintf(text, bytes, "%s of rank %d (%s) with the others", c->names[t % PS_COMM_NAMES], c->rank,
                 ps_comm_host(c, c->rank));
    pthread_mutex_unlock(&c->lock);
}

static bool is_over(const ps_comm *c, ps_comm_ticket ticket)
{
    return atomic_load(&c->done) >= ticket || atomic_load(&c->failed_rank) >= 0;
}

void ps_comm_set_late_text(ps_comm *c, const char *text, int64_t after_ns)
{
    c->late_text = text;
    c->late_after_ns = after_ns;
}

/* The lock is held, but not while other ranks are notified. */
static void await_ticket(ps_comm *c, ps_comm_ticket ticket, int64_t begin_ns)
{
    bool is_told = c->late_text == NULL;
    while (!is_over(c, ticket)) {
        ps_comm_await_worker(c);
        if (is_told || is_over(c, ticket) || ps_clock_ns() - begin_ns < c->late_after_ns) continue;
        is_told = true;
        pthread_mutex_unlock(&c->lock);
        ps_log(PS_LOG_WARNING, "%s", c->late_text);
        pthread_mutex_lock(&c->lock);
    }
}

static ps_status wait_for(ps_collectives *x, ps_event done)
{
    ps_comm *c = comm_of(x);
    const ps_comm_ticket ticket = (ps_comm_ticket)done.ticket;
    const int64_t begin_ns = ps_clock_ns();
    if (!is_over(c, ticket)) {
        ps_stall_entry s;
        ps_stall_begin_item(&s, "waits for", c->transfers, done.ticket, NULL);
        pthread_mutex_lock(&c->lock);
        PS_ASSERT(done.queue == c->transfers && ticket <= c->issued);
        const int64_t profile_ns = ps_profile_now(c->profile);
        await_ticket(c, ticket, begin_ns);
        ps_profile_add(c->profile, &(ps_profile_record){.kind = PS_PROFILE_WAIT,
                                                        .chunk = -1,
                                                        .begin_ns = profile_ns,
                                                        .end_ns = ps_profile_now(c->profile),
                                                        .copy = {.link = c->profile_link}});
        pthread_mutex_unlock(&c->lock);
        ps_stall_end(&s);
        atomic_fetch_add(&c->wait_ns, ps_clock_ns() - begin_ns);
        if (atomic_load(&c->failed_rank) >= 0) ps_stall_await_report(); /* which may be why */
    }
    const ps_status st = ps_event_wait(done); /* returns at once, but observers record it */
    PS_TRY(ps_comm_check_failure(c));
    return st;
}

static void fail(ps_collectives *x, const char *text)
{
    ps_comm *c = comm_of(x);
    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->failed_rank) < 0) {
        snprintf(c->own_text, sizeof c->own_text, "%s", text);
        atomic_store(&c->wants_failure, true);
        pthread_cond_signal(&c->has_work);
    }
    while (atomic_load(&c->failed_rank) < 0) ps_comm_await_worker(c);
    pthread_mutex_unlock(&c->lock);
}

/* False: the worker does not return, and frees everything if it does later. */
static bool end_worker(ps_comm *c)
{
    pthread_mutex_lock(&c->lock);
    c->wants_close = true;
    pthread_cond_signal(&c->has_work);
    while (c->state != PS_COMM_ENDED && !atomic_load(&c->is_stuck)) ps_comm_await_worker(c);
    const bool has_ended = c->state == PS_COMM_ENDED;
    const pthread_t worker = c->worker;
    c->is_abandoned = !has_ended;
    pthread_mutex_unlock(&c->lock);
    if (has_ended)
        pthread_join(worker, NULL);
    else
        pthread_detach(worker);
    return has_ended;
}

static void destroy(ps_collectives *x)
{
    ps_comm *c = comm_of(x);
    if (c->has_worker && !end_worker(c)) return;
    if (!c->has_worker && c->transport.self != NULL) c->transport.ops->close(&c->transport, false);
    ps_comm_destroy(c);
}

/* ---- transfers ---- */

static ps_status make_transfer(const ps_comm *c, const ps_comm_transfer *head, const ps_comm_part *parts,
                               ps_comm_transfer **out)
{
    const size_t parts_bytes = (size_t)head->n_parts * sizeof parts[0];
    PS_TRY(ps_mem_alloc(1, sizeof **out + parts_bytes, out));
    **out = *head;
    if (parts_bytes > 0) memcpy((*out)->parts, parts, parts_bytes);
    for (int32_t i = 0; i < head->n_parts; i++)
        PS_ASSERT(parts[i].n >= 0 && parts[i].owner >= 0 && parts[i].owner < c->size);
    return PS_OK;
}

static void free_all(ps_comm_transfer *list)
{
    for (ps_comm_transfer *t = list, *next; t != NULL; t = next) {
        next = t->next;
        ps_mem_free(t);
    }
}

/* For observers, a transfer is an item of the queue that stands for transfers. */
static ps_status begin_item(ps_comm *c, const ps_comm_transfer *t, ps_event *out)
{
    ps_use *uses = NULL;
    if (c->order == NULL) {
        *out = ps_host_queue_begin(c->transfers);
        return PS_OK;
    }
    PS_TRY(ps_mem_alloc((size_t)t->n_parts, sizeof *uses, &uses));
    for (int32_t i = 0; i < t->n_parts; i++) {
        const ps_comm_part *p = &t->parts[i];
        const bool is_own = p->owner == c->rank;
        uses[i] = (ps_use){.address = p->payload,
                           .bytes = p->n * t->item_bytes,
                           .is_write = is_own == (t->kind == PS_COMM_KIND_REDUCE),
                           .name = t->what};
    }
    *out = ps_host_queue_begin_item(c->transfers, t->name, &t->after, uses, t->n_parts);
    ps_mem_free(uses);
    return PS_OK;
}

static ps_status begin_all(ps_comm *c, ps_comm_transfer **list, ps_event *done)
{
    PS_TRY(ps_comm_check_failure(c)); /* after a failure they would never be ended */
    while (*list != NULL) {
        ps_comm_transfer *t = *list;
        PS_TRY(begin_item(c, t, done));
        *list = t->next;
        t->next = NULL;
        t->ticket = ++c->issued;
        snprintf(c->names[t->ticket % PS_COMM_NAMES], sizeof c->names[0], "%s%s%s", t->name,
                 t->what != NULL ? " of " : "", t->what != NULL ? t->what : "");
        PS_ASSERT((ps_ticket)t->ticket == done->ticket);
        if (c->last != NULL)
            c->last->next = t;
        else
            c->first = t;
        c->last = t;
    }
    return PS_OK;
}

/* Passes a list of transfers to the worker, which owns it. */
static ps_status queue_transfers(ps_comm *c, ps_comm_transfer *list, ps_event *done)
{
    pthread_mutex_lock(&c->lock);
    const ps_status st = begin_all(c, &list, done);
    pthread_cond_signal(&c->has_work);
    pthread_mutex_unlock(&c->lock);
    free_all(list);
    return st;
}

ps_status ps_comm_begin(ps_comm *c, const ps_comm_transfer *head, const ps_comm_part *parts, ps_event *done)
{
    ps_comm_transfer *t = NULL;
    PS_TRY(make_transfer(c, head, parts, &t));
    return queue_transfers(c, t, done);
}

static ps_comm_transfer head_of(const ps_transfer *t, ps_comm_kind kind, ps_collective name)
{
    return (ps_comm_transfer){.kind = kind,
                              .dtype = t->dtype,
                              .item_bytes = (int64_t)ps_dtype_bytes(t->dtype),
                              .after = t->after != NULL ? *t->after : (ps_events){.n = 0},
                              .only_if = t->only_if != NULL ? *t->only_if : (ps_transfer_condition){.holds = NULL},
                              .is_payload = true,
                              .on_device = t->on_device,
                              .name = ps_collective_name(name),
                              .what = t->what,
                              .n_parts = t->n_parts};
}

static ps_status begin_one(ps_collectives *x, const ps_transfer *t, ps_comm_kind kind, ps_collective name,
                           ps_event *done)
{
    const ps_comm_transfer head = head_of(t, kind, name);
    return ps_comm_begin(comm_of(x), &head, t->parts, done);
}

static ps_status all_gather(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    return begin_one(x, t, PS_COMM_KIND_GATHER, PS_ALL_GATHER, done);
}

static ps_status broadcast(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    return begin_one(x, t, PS_COMM_KIND_BROADCAST, PS_BROADCAST, done);
}

static ps_status reduce_scatter(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    return begin_one(x, t, PS_COMM_KIND_REDUCE, PS_REDUCE_SCATTER, done);
}

static ps_status reduce(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    return begin_one(x, t, PS_COMM_KIND_REDUCE, PS_REDUCE, done);
}

/* Sums at the owners, then gathered: each element is rounded once, and is the same everywhere. */
static ps_status all_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    const bool has_one_owner = ps_comm_one_owner(t->parts, t->n_parts) >= 0;
    const ps_comm_transfer sums = head_of(t, PS_COMM_KIND_REDUCE, PS_ALL_REDUCE);
    const ps_comm_transfer share =
        head_of(t, has_one_owner ? PS_COMM_KIND_BROADCAST : PS_COMM_KIND_GATHER, PS_ALL_REDUCE);
    ps_comm_transfer *list = NULL;
    PS_TRY(make_transfer(comm_of(x), &sums, t->parts, &list));
    const ps_status st = make_transfer(comm_of(x), &share, t->parts, &list->next);
    if (st == PS_OK) return queue_transfers(comm_of(x), list, done);
    ps_mem_free(list);
    return st;
}

const ps_collectives_ops ps_comm_messages_ops = {.all_gather = all_gather,
                                                 .broadcast = broadcast,
                                                 .reduce_scatter = reduce_scatter,
                                                 .reduce = reduce,
                                                 .all_reduce = all_reduce,
                                                 .wait = wait_for,
                                                 .fail = fail,
                                                 .destroy = destroy};
