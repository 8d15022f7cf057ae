/* comm.c - opening and closing a communicator, and collectives of small data, for which the caller waits. */
#include "chunk/comm/comm.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/mem.h"
#include "chunk/comm/comm_impl.h"
#include "chunk/comm/rounds.h"
#include "chunk/comm/transport_mpi.h"
#include "chunk/comm/transport_thread.h"

/* ---- open and close ---- */

/* Waits until the worker has made the rendezvous, or failed to. */
static ps_status await_open(ps_comm *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->state == PS_COMM_OPENING) ps_comm_await_worker(c);
    const ps_status st = c->open_status;
    pthread_mutex_unlock(&c->lock);
    return atomic_load(&c->failed_rank) < 0 ? PS_OK : PS_FAIL(st, "%s", c->failure);
}

static ps_status open_single(const ps_comm_options *o, ps_comm **out)
{
    PS_TRY(ps_comm_create(o, &ps_comm_single_rank_ops, out));
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

/* A process that MPI sees as a single rank, though a launcher started several, would train a separate model. */
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
    PS_TRY(ps_comm_create(o, &ps_comm_messages_ops, out));
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

ps_status ps_comm_open_group(const ps_comm_options *o, const ps_process_group *group, ps_comm **out)
{
    ps_transport transport;
    *out = NULL;
    PS_TRY(ps_rounds_make(group, &transport));
    const ps_status st = ps_comm_open_over(o, &transport, out);
    ps_rounds_release(&transport, st != PS_OK);
    return st;
}

ps_status ps_comm_open_threads(const ps_comm_options *o, int32_t n, ps_comm **out)
{
    ps_thread_hub *hub = NULL;
    ps_status st;
    for (int32_t r = 0; r < n; r++) out[r] = NULL;
    PS_TRY_GOTO(ps_thread_hub_create(n, &hub));
    for (int32_t r = 0; r < n; r++) {
        PS_TRY_GOTO(ps_comm_create(o, &ps_comm_messages_ops, &out[r]));
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

void ps_comm_keep(ps_comm *c)
{
    c->n_keepers++;
}

void ps_comm_close(ps_comm *c)
{
    if (c == NULL || c->n_keepers-- > 0) return;
    ps_comm_set_collectives(c, NULL);
    c->own.ops->destroy(&c->own);
}

ps_collectives *ps_comm_collectives(ps_comm *c)
{
    return c->chunks;
}

ps_collectives *ps_comm_messages(ps_comm *c)
{
    return &c->own;
}

void ps_comm_set_collectives(ps_comm *c, ps_collectives *x)
{
    PS_ASSERT(x == NULL || c->chunks == &c->own);
    if (c->chunks != &c->own) c->chunks->ops->destroy(c->chunks);
    c->chunks = x != NULL ? x : &c->own;
    if (x == NULL) return;
    /* it has staging of its own; messages allocate theirs again if they have to add */
    pthread_mutex_lock(&c->lock);
    ps_mem_free(c->staging);
    c->staging = NULL;
    pthread_mutex_unlock(&c->lock);
}

void ps_comm_count_carried(ps_comm *c, int64_t sent_bytes)
{
    atomic_fetch_add(&c->n_other_transfers, 1);
    atomic_fetch_add(&c->n_transfers, 1);
    atomic_fetch_add(&c->sent_bytes, sent_bytes);
}

void ps_comm_set_device(ps_comm *c, const ps_comm_device *d)
{
    pthread_mutex_lock(&c->lock);
    c->has_device = d != NULL;
    if (d != NULL) {
        c->device = *d;
        ps_mem_free(c->staging);
        c->staging = NULL;
    }
    pthread_mutex_unlock(&c->lock);
}

void ps_comm_set_order(ps_comm *c, ps_order *o)
{
    if (c->transfers == NULL) return;
    c->order = o;
    ps_queue_set_order(c->transfers, o);
}

/* ---- small data ---- */

static ps_status run_small(ps_comm *c, const ps_comm_transfer *head, const ps_comm_part *parts)
{
    ps_event done;
    if (c->size == 1) return ps_comm_check_failure(c);
    PS_TRY(ps_comm_begin(c, head, parts, &done));
    return c->own.ops->wait(&c->own, done);
}

/* All ranks make the same check of arguments: nothing was sent, so no rank waits. */
static ps_status check_small(const ps_comm *c, const char *call, const char *what, int64_t n, int64_t item_bytes)
{
    const int64_t most = INT64_MAX / c->size / item_bytes;
    if (n >= 0 && n <= most) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: %s %lld, expected 0 to %lld", call, what, (long long)n, (long long)most);
}

/* all[r * bytes], with this rank's part in place; more than one rank. */
static ps_status begin_gather_small(ps_comm *c, char *all, int64_t bytes, const char *name, ps_event *done)
{
    ps_comm_part *parts = NULL;
    PS_TRY(ps_mem_alloc((size_t)c->size, sizeof *parts, &parts));
    for (int32_t r = 0; r < c->size; r++) parts[r] = (ps_comm_part){.payload = all + r * bytes, .n = bytes, .owner = r};
    const ps_comm_transfer head = {.kind = PS_COMM_KIND_GATHER, .item_bytes = 1, .name = name, .n_parts = c->size};
    const ps_status st = ps_comm_begin(c, &head, parts, done);
    ps_mem_free(parts);
    return st;
}

static ps_status gather_small(ps_comm *c, char *all, int64_t bytes, const char *name)
{
    ps_event done;
    if (c->size == 1) return ps_comm_check_failure(c);
    PS_TRY(begin_gather_small(c, all, bytes, name, &done));
    return c->own.ops->wait(&c->own, done);
}

ps_status ps_comm_all_gather(ps_comm *c, const void *mine, int64_t bytes, void *all)
{
    PS_TRY(PS_NEED("comm mine all", c, PS_NEED_IF(bytes > 0, mine), PS_NEED_IF(bytes > 0, all)));
    PS_TRY(check_small(c, "ps_comm_all_gather", "bytes", bytes, 1));
    if (bytes > 0) memmove((char *)all + c->rank * bytes, mine, (size_t)bytes);
    return gather_small(c, all, bytes, "all-gather");
}

ps_status ps_comm_begin_all_gather(ps_comm *c, char *all, int64_t bytes, ps_event *done)
{
    PS_ASSERT(c->size > 1 && bytes > 0);
    return begin_gather_small(c, all, bytes, "all-gather", done);
}

ps_status ps_comm_barrier(ps_comm *c)
{
    PS_TRY(PS_NEED("comm", c));
    char *all = NULL;
    PS_TRY(ps_mem_alloc((size_t)c->size, 1, &all));
    const ps_status st = gather_small(c, all, 1, "barrier");
    ps_mem_free(all);
    return st;
}

ps_status ps_comm_broadcast(ps_comm *c, void *data, int64_t bytes, int32_t root)
{
    PS_TRY(PS_NEED("comm data", c, PS_NEED_IF(bytes > 0, data)));
    PS_TRY(check_small(c, "ps_comm_broadcast", "bytes", bytes, 1));
    if (root < 0 || root >= c->size)
        return PS_FAIL(PS_EINVAL, "ps_comm_broadcast: root %d, expected 0 to %d, a rank", root, c->size - 1);
    const ps_comm_part part = {.payload = data, .n = bytes, .owner = root};
    const ps_comm_transfer head = {.kind = PS_COMM_KIND_BROADCAST, .item_bytes = 1, .name = "broadcast", .n_parts = 1};
    return run_small(c, &head, &part);
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
    PS_TRY(PS_NEED("comm values", c, PS_NEED_IF(n > 0, values)));
    double *all = NULL;
    PS_TRY(check_small(c, "ps_comm_all_reduce", "n", n, (int64_t)sizeof *all));
    if ((int)op < PS_COMM_SUM || op > PS_COMM_MAX)
        return PS_FAIL(PS_EINVAL, "ps_comm_all_reduce: operation %d, expected 0 to %d", (int)op, PS_COMM_MAX);
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
    if (c->chunks != &c->own) c->chunks->ops->fail(c->chunks, text);
    c->own.ops->fail(&c->own, text);
}

int32_t ps_comm_failed_rank(const ps_comm *c)
{
    return atomic_load(&c->failed_rank);
}

void ps_comm_vanish(ps_comm *c)
{
    if (!c->has_worker) return;
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->wants_vanish, true);
    pthread_cond_signal(&c->has_work);
    while (atomic_load(&c->failed_rank) < 0) ps_comm_await_worker(c);
    pthread_mutex_unlock(&c->lock);
}

void ps_comm_set_message_bytes(ps_comm *c, int64_t bytes)
{
    c->message_bytes = bytes;
}
