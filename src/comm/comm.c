/* comm.c - the callers' side: opens, queues transfers for the worker, waits for it. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/mem.h"
#include "comm/comm_impl.h"
#include "comm/topology.h"
#include "comm/transport_mpi.h"
#include "comm/transport_thread.h"

/* ---- waiting ---- */

/* How long the worker may be away in the transport, beyond the time in which ranks must be heard of. */
#define STUCK_NS ((int64_t)5000000000)

typedef struct waiting {
    int64_t n_looks, still_ns;
} waiting;

/* Waits for the worker's next word; the lock is held. A worker that no longer looks after the ranks is held for lost
 * itself: its time counts only while the caller runs too. */
static void await_worker(ps_comm *c, waiting *w)
{
    static const int64_t slice_s = 1;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += slice_s;
    if (pthread_cond_timedwait(&c->has_progress, &c->lock, &until) == 0) return;
    const int64_t n_looks = atomic_load(&c->n_looks);
    w->still_ns = n_looks == w->n_looks ? w->still_ns + slice_s * 1000000000 : 0;
    w->n_looks = n_looks;
    if (c->state == PS_COMM_OPENING || w->still_ns <= c->timeout_ns + STUCK_NS) return;
    atomic_store(&c->is_stuck, true);
    if (atomic_load(&c->failed_rank) >= 0) return;
    snprintf(c->failure, sizeof c->failure, "rank %d (%s) failed: %s has not returned for %g s", c->rank,
             ps_comm_host(c, c->rank), c->transport.name, (double)w->still_ns * 1e-9);
    atomic_store(&c->failed_rank, c->rank);
}

static ps_status check_failure(const ps_comm *c)
{
    return atomic_load(&c->failed_rank) < 0 ? PS_OK : PS_FAIL(PS_ECOMM, "%s", c->failure);
}

ps_status ps_comm_wait(ps_comm *c, ps_comm_ticket ticket)
{
    const int64_t begin_ns = ps_clock_ns();
    if (!ps_comm_is_done(c, ticket)) {
        waiting w = {0};
        pthread_mutex_lock(&c->lock);
        PS_ASSERT(ticket <= c->issued);
        const int64_t profile_ns = ps_profile_now(c->profile);
        while (atomic_load(&c->done) < ticket && atomic_load(&c->failed_rank) < 0) await_worker(c, &w);
        ps_profile_add(c->profile, &(ps_profile_record){.kind = PS_PROFILE_WAIT,
                                                        .chunk = -1,
                                                        .begin_ns = profile_ns,
                                                        .end_ns = ps_profile_now(c->profile),
                                                        .copy = {.link = c->profile_link}});
        pthread_mutex_unlock(&c->lock);
        atomic_fetch_add(&c->wait_ns, ps_clock_ns() - begin_ns);
    }
    return check_failure(c);
}

bool ps_comm_is_done(const ps_comm *c, ps_comm_ticket ticket)
{
    return atomic_load(&c->done) >= ticket || atomic_load(&c->failed_rank) >= 0;
}

/* ---- open and close ---- */

/* Until the worker has met the others, or failed to. */
static ps_status await_open(ps_comm *c)
{
    waiting w = {0};
    pthread_mutex_lock(&c->lock);
    while (c->state == PS_COMM_OPENING) await_worker(c, &w);
    const ps_status st = c->open_status;
    pthread_mutex_unlock(&c->lock);
    return atomic_load(&c->failed_rank) < 0 ? PS_OK : PS_FAIL(st, "%s", c->failure);
}

static ps_status open_single(const ps_comm_options *o, ps_comm **out)
{
    PS_TRY(ps_comm_create(o, out));
    ps_comm *c = *out;
    const ps_status st = ps_mem_alloc(1, sizeof *c->hello, &c->hello);
    if (st != PS_OK) {
        ps_comm_destroy(c);
        *out = NULL;
        return st;
    }
    snprintf(c->transport.name, sizeof c->transport.name, "single");
    if (gethostname(c->hello->host, sizeof c->hello->host - 1) != 0)
        snprintf(c->hello->host, sizeof c->hello->host, "unknown");
    c->local_size = 1;
    return PS_OK;
}

/* A process that MPI takes for alone, though a launcher started several, would train a model of its own. */
static ps_status check_launched(const ps_comm *c)
{
    const int32_t n_launched = ps_transport_mpi_launched();
    if (c->size > 1 || n_launched == 1) return PS_OK;
    return PS_FAIL(PS_ENOSYS,
                   "the launcher has started %d processes, but %s sees one: it is not the launcher's MPI (Slurm: srun "
                   "--mpi=pmix; else set PATRICKSTAR_MPI to openmpi or mpich)",
                   n_launched, c->transport.name);
}

ps_status ps_comm_open_over(const ps_comm_options *o, const ps_transport *transport, ps_comm **out)
{
    ps_status st;
    PS_TRY(ps_comm_create(o, out));
    ps_comm *c = *out;
    c->transport = *transport;
    PS_TRY_GOTO(ps_comm_worker_start(c));
    PS_TRY_GOTO(await_open(c));
    return PS_OK;
out:
    ps_comm_close(c);
    *out = NULL;
    return st;
}

static ps_status open_mpi(const ps_comm_options *o, ps_comm **out)
{
    ps_transport transport;
    *out = NULL;
    PS_TRY(ps_transport_mpi_load(&transport));
    PS_TRY(ps_comm_open_over(o, &transport, out));
    const ps_status st = check_launched(*out);
    if (st == PS_OK) return PS_OK;
    ps_comm_close(*out);
    *out = NULL;
    return st;
}

ps_status ps_comm_open(const ps_comm_options *o, ps_comm **out)
{
    const bool is_mpi = o->backend == PS_COMM_MPI || (o->backend == PS_COMM_AUTO && ps_transport_mpi_launched() > 1);
    return is_mpi ? open_mpi(o, out) : open_single(o, out);
}

ps_status ps_comm_open_threads(const ps_comm_options *o, int32_t n, ps_comm **out)
{
    ps_thread_hub *hub = NULL;
    ps_status st;
    for (int32_t r = 0; r < n; r++) out[r] = NULL;
    PS_TRY_GOTO(ps_thread_hub_create(n, &hub));
    for (int32_t r = 0; r < n; r++) {
        PS_TRY_GOTO(ps_comm_create(o, &out[r]));
        PS_TRY_GOTO(ps_thread_hub_attach(hub, r, &out[r]->transport));
    }
    for (int32_t r = 0; r < n; r++) PS_TRY_GOTO(ps_comm_worker_start(out[r]));
    for (int32_t r = 0; r < n; r++) PS_TRY_GOTO(await_open(out[r]));
out:
    ps_thread_hub_release(hub);
    if (st == PS_OK) return PS_OK;
    for (int32_t r = 0; r < n && out[r] != NULL; r++) ps_comm_vanish(out[r]);
    for (int32_t r = 0; r < n && out[r] != NULL; r++) {
        ps_comm_close(out[r]);
        out[r] = NULL;
    }
    return st;
}

void ps_comm_close(ps_comm *c)
{
    if (c == NULL) return;
    if (c->has_worker) {
        waiting w = {0};
        pthread_mutex_lock(&c->lock);
        c->wants_close = true;
        pthread_cond_signal(&c->has_work);
        while (c->state != PS_COMM_ENDED && !atomic_load(&c->is_stuck)) await_worker(c, &w);
        const bool is_abandoned = c->is_abandoned = c->state != PS_COMM_ENDED;
        const pthread_t worker = c->worker;
        pthread_mutex_unlock(&c->lock);
        if (is_abandoned) {
            pthread_detach(worker);
            return;
        }
        pthread_join(c->worker, NULL);
    } else if (c->transport.self != NULL) {
        c->transport.ops->close(&c->transport, false);
    }
    ps_comm_destroy(c);
}

/* ---- transfers ---- */

/* Hands the transfer, of which it becomes the owner, to the worker. */
static ps_comm_ticket queue_transfer(ps_comm *c, ps_comm_transfer *t)
{
    pthread_mutex_lock(&c->lock);
    const ps_comm_ticket ticket = ++c->issued;
    t->ticket = ticket;
    if (c->last != NULL)
        c->last->next = t;
    else
        c->first = t;
    c->last = t;
    pthread_cond_signal(&c->has_work);
    pthread_mutex_unlock(&c->lock);
    return ticket;
}

static ps_status begin_transfer(ps_comm *c, const ps_comm_transfer *head, const ps_comm_part *parts,
                                ps_comm_ticket *ticket)
{
    *ticket = 0;
    PS_TRY(check_failure(c));
    if (c->size == 1) {
        if (head->is_payload) atomic_fetch_add(&c->n_transfers, 1);
        return PS_OK;
    }
    const size_t parts_bytes = (size_t)head->n_parts * sizeof parts[0];
    ps_comm_transfer *t = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *t + parts_bytes, &t));
    *t = *head;
    if (parts_bytes > 0) memcpy(t->parts, parts, parts_bytes);
    for (int32_t i = 0; i < t->n_parts; i++)
        PS_ASSERT(parts[i].n >= 0 && parts[i].owner >= 0 && parts[i].owner < c->size);
    *ticket = queue_transfer(c, t);
    return PS_OK;
}

ps_status ps_comm_begin_all_gather(ps_comm *c, const ps_comm_part *parts, int32_t n_parts, ps_dtype dtype,
                                   const char *what, ps_comm_ticket *ticket)
{
    const bool is_broadcast = ps_comm_one_owner(parts, n_parts) >= 0;
    const ps_comm_transfer head = {.kind = is_broadcast ? PS_COMM_KIND_BROADCAST : PS_COMM_KIND_GATHER,
                                   .item_bytes = (int64_t)ps_dtype_bytes(dtype),
                                   .is_payload = true,
                                   .name = ps_collective_name(is_broadcast ? PS_BROADCAST : PS_ALL_GATHER),
                                   .what = what,
                                   .n_parts = n_parts};
    return begin_transfer(c, &head, parts, ticket);
}

ps_status ps_comm_begin_reduce_scatter(ps_comm *c, const ps_comm_part *parts, int32_t n_parts, ps_dtype dtype,
                                       const char *what, ps_comm_ticket *ticket)
{
    const ps_comm_transfer head = {
        .kind = PS_COMM_KIND_REDUCE,
        .dtype = dtype,
        .item_bytes = (int64_t)ps_dtype_bytes(dtype),
        .is_payload = true,
        .name = ps_collective_name(ps_comm_one_owner(parts, n_parts) >= 0 ? PS_REDUCE : PS_REDUCE_SCATTER),
        .what = what,
        .n_parts = n_parts};
    return begin_transfer(c, &head, parts, ticket);
}

/* ---- small things ---- */

/* all[r * bytes], with this rank's in place. */
static ps_status gather_small(ps_comm *c, char *all, int64_t bytes, const char *name)
{
    ps_comm_part *parts = NULL;
    ps_comm_ticket ticket;
    PS_TRY(ps_mem_alloc((size_t)c->size, sizeof *parts, &parts));
    for (int32_t r = 0; r < c->size; r++) parts[r] = (ps_comm_part){.payload = all + r * bytes, .n = bytes, .owner = r};
    const ps_comm_transfer head = {.kind = PS_COMM_KIND_GATHER, .item_bytes = 1, .name = name, .n_parts = c->size};
    const ps_status st = begin_transfer(c, &head, parts, &ticket);
    ps_mem_free(parts);
    return st != PS_OK ? st : ps_comm_wait(c, ticket);
}

ps_status ps_comm_all_gather(ps_comm *c, const void *mine, int64_t bytes, void *all)
{
    if (bytes > 0) memmove((char *)all + c->rank * bytes, mine, (size_t)bytes);
    return gather_small(c, all, bytes, "all-gather");
}

ps_status ps_comm_barrier(ps_comm *c)
{
    char *all = NULL;
    PS_TRY(ps_mem_alloc((size_t)c->size, 1, &all));
    const ps_status st = gather_small(c, all, 1, "barrier");
    ps_mem_free(all);
    return st;
}

ps_status ps_comm_broadcast(ps_comm *c, void *data, int64_t bytes, int32_t root)
{
    const ps_comm_part part = {.payload = data, .n = bytes, .owner = root};
    const ps_comm_transfer head = {.kind = PS_COMM_KIND_BROADCAST, .item_bytes = 1, .name = "broadcast", .n_parts = 1};
    ps_comm_ticket ticket;
    PS_TRY(begin_transfer(c, &head, &part, &ticket));
    return ps_comm_wait(c, ticket);
}

static double op_apply(ps_comm_op op, double a, double b)
{
    switch (op) {
    case PS_COMM_MIN: return b < a || b != b ? b : a;
    case PS_COMM_MAX: return b > a || b != b ? b : a;
    case PS_COMM_SUM: break;
    }
    return a + b;
}

ps_status ps_comm_all_reduce(ps_comm *c, double *values, int64_t n, ps_comm_op op)
{
    double *all = NULL;
    const int64_t bytes = n * (int64_t)sizeof *all;
    PS_TRY(ps_mem_alloc((size_t)(c->size * n), sizeof *all, &all));
    if (n > 0) memcpy(all + c->rank * n, values, (size_t)bytes);
    const ps_status st = gather_small(c, (char *)all, bytes, "all-reduce");
    for (int64_t i = 0; st == PS_OK && i < n; i++) {
        values[i] = all[i];
        for (int32_t r = 1; r < c->size; r++) values[i] = op_apply(op, values[i], all[r * n + i]);
    }
    ps_mem_free(all);
    return st;
}

/* ---- failure ---- */

void ps_comm_fail(ps_comm *c, const char *text)
{
    if (atomic_load(&c->failed_rank) >= 0) return;
    pthread_mutex_lock(&c->lock);
    if (!c->has_worker) {
        snprintf(c->failure, sizeof c->failure, "rank %d (%s) failed: %s", c->rank, ps_comm_host(c, c->rank), text);
        atomic_store(&c->failed_rank, c->rank);
    } else {
        waiting w = {0};
        snprintf(c->own_text, sizeof c->own_text, "%s", text);
        atomic_store(&c->wants_failure, true);
        pthread_cond_signal(&c->has_work);
        while (atomic_load(&c->failed_rank) < 0) await_worker(c, &w);
    }
    pthread_mutex_unlock(&c->lock);
}

int32_t ps_comm_failed_rank(const ps_comm *c)
{
    return atomic_load(&c->failed_rank);
}

void ps_comm_vanish(ps_comm *c)
{
    if (!c->has_worker) return;
    waiting w = {0};
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->wants_vanish, true);
    pthread_cond_signal(&c->has_work);
    while (atomic_load(&c->failed_rank) < 0) await_worker(c, &w);
    pthread_mutex_unlock(&c->lock);
}

void ps_comm_set_message_bytes(ps_comm *c, int64_t bytes)
{
    c->message_bytes = bytes;
}
