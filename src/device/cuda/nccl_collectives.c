/* nccl_collectives.c - collectives as items of a queue: sends, receives and broadcasts of NCCL, and kernels that add.
 *
 * All-gather: a broadcast of each part by its owner, all as one group. Reduce-scatter: in rounds. In each round every
 * owner receives one piece of its parts from all other ranks into staging memory, and adds the values in the order of
 * ranks:
 *
 *     collective stream |= receive piece 0 =|= add =|= receive piece 1 =|= add =| ...
 *     staging           [rank 0][rank 1]...[rank p - 1], without this rank's: its values are the payload, which becomes
 * the sum
 *
 * So NCCL only transfers bytes, and the bits are those of messages.
 *
 * The NCCL communicator is nonblocking: a thread polls its calls until they are done, and checks the ranks meanwhile.
 * When a rank is lost, NCCL kernels on the other ranks' streams would wait for it for ever. A watcher thread learns of
 * the loss from the communicator of messages; it fails the queue's items (ps_gpu_pending_wait), and then aborts NCCL:
 * the streams continue, and waits for those items return the error. */
#include "device/cuda/nccl_collectives.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/machine.h"
#include "base/mem.h"
#include "chunk/comm/agree.h"
#include "chunk/comm/topology.h"
#include "device/cuda/backend_cuda.h"
#include "device/cuda/gpu_impl.h"
#include "device/stall.h"
#include "device/worker.h"

#define WATCH_NS ((int64_t)10000000) /* period of the watcher */
#define EAGER_NS ((int64_t)50000)    /* a call is polled so long without sleeping: most are done by then */
#define NAP_FIRST_NS ((int64_t)5000) /* first sleep of the thread that polls; doubled each time */
#define NAP_LONGEST_NS ((int64_t)1000000)
#define CAUSE_NS ((int64_t)1000000000) /* in addition to the time-out of heartbeats */
#define PIECE_ALIGN 64

/* Progress in the pieces of an owner's parts. */
typedef struct cursor {
    int32_t part;
    int64_t done; /* elements of that part */
    void *piece;  /* of this round; NULL: none */
    int64_t n;    /* elements of it */
} cursor;

typedef struct nccl_state {
    ps_collectives base;
    ps_nccl_options o;
    ps_gpu *gpu;
    int32_t rank, size;
    cursor *at;   /* [size] */
    ps_use *uses; /* for observers of order */
    ps_gpu_pending_wait *pending;
    pthread_t watcher;
    bool is_monitored;
    pthread_mutex_t lock; /* guards the rest, and calls of the library */
    pthread_cond_t has_changed;
    ps_nccl_comm comm; /* NULL: not initialised, or aborted */
    bool stops;
    bool has_failed;
    ps_status failure;
    char why[640];
    int64_t sick_ns; /* since when NCCL reports an error of another rank; 0: none */
} nccl_state;

static nccl_state *nccl_state_of(ps_collectives *x)
{
    return (nccl_state *)x;
}

/* ---- failure ---- */

static ps_status report_failure(const nccl_state *x)
{
    return PS_FAIL(x->failure, "%s", x->why);
}

/* The lock is held. After this NCCL accesses no payload once the stream is idle. */
static void give_up(nccl_state *x, ps_status st, const char *why)
{
    if (x->has_failed) return;
    x->has_failed = true;
    x->failure = st;
    snprintf(x->why, sizeof x->why, "%s", why);
    (void)report_failure(x);
    ps_gpu_pending_wait_end(x->gpu, x->pending, st);
    x->pending = NULL;
    if (x->comm != NULL) {
        (void)ps_gpu_enter_quietly(x->gpu);
        (void)x->o.library->abort(x->comm);
    }
    x->comm = NULL;
    pthread_cond_broadcast(&x->has_changed);
}

/* The lock is held. Has another rank been lost, or this one failed? */
static void look_at_ranks(nccl_state *x)
{
    if (x->has_failed || ps_comm_failed_rank(x->o.comm) < 0) return;
    const ps_status st = ps_comm_check_failure(x->o.comm);
    give_up(x, st, ps_last_error());
}

/* The lock is held, but not while it sleeps. */
static void nap(nccl_state *x, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until = (struct timespec){.tv_sec = until.tv_sec + ns / 1000000000, .tv_nsec = ns % 1000000000};
    pthread_cond_timedwait(&x->has_changed, &x->lock, &until);
    look_at_ranks(x);
}

static bool is_others(ps_nccl_result r)
{
    return r == PS_NCCL_SYSTEM_ERROR || r == PS_NCCL_REMOTE_ERROR;
}

/* The lock is held. NCCL notices at once that a rank has died, but not which: messages report it soon. */
static void await_cause(nccl_state *x)
{
    const int64_t until_ns = ps_clock_ns() + ps_comm_timeout_ns(x->o.comm) + CAUSE_NS;
    while (!x->has_failed && ps_clock_ns() < until_ns) nap(x, WATCH_NS);
}

/* The reason, in one line. */
static ps_status explain(nccl_state *x, ps_nccl_result r, const char *what)
{
    const ps_nccl *n = x->o.library;
    size_t free_bytes, total_bytes;
    PS_TRY(ps_gpu_enter(x->gpu));
    PS_TRY(ps_gpu_check(x->gpu, x->gpu->driver->memory_info(&free_bytes, &total_bytes), what));
    const char *more = n->last_error(x->comm);
    const size_t length = more != NULL ? strcspn(more, "\n") : 0;
    return PS_FAIL(PS_ECOMM, "NCCL: %s: %s%s%.*s; NCCL_DEBUG=INFO says more, comm.collectives = messages does without",
                   what, n->result_text(r), length > 0 ? ": " : "", (int)length, more != NULL ? more : "");
}

/* The lock is held: the error of an NCCL call. */
static ps_status check(nccl_state *x, ps_nccl_result r, const char *what)
{
    if (r == PS_NCCL_SUCCESS) return PS_OK;
    if (is_others(r)) await_cause(x);
    return x->has_failed ? report_failure(x) : explain(x, r, what);
}

/* The lock is held: polls until a call that returned r is done. */
static ps_status complete(nccl_state *x, ps_nccl_result r, const char *what)
{
    const int64_t begin_ns = ps_clock_ns();
    int64_t ns = NAP_FIRST_NS;
    ps_stall_entry s;
    ps_stall_begin_item(&s, "waits for NCCL,", x->o.queue, ps_queue_event(x->o.queue).ticket, what);
    while (r == PS_NCCL_IN_PROGRESS) {
        if (ps_clock_ns() - begin_ns < EAGER_NS) {
            sched_yield();
        } else {
            nap(x, ns);
            ns = ps_min_i64(2 * ns, NAP_LONGEST_NS);
        }
        if (x->has_failed) break; /* without a communicator */
        const ps_nccl_result asked = x->o.library->state(x->comm, &r);
        if (asked != PS_NCCL_SUCCESS) r = asked;
    }
    ps_stall_end(&s);
    return r == PS_NCCL_IN_PROGRESS ? report_failure(x) : check(x, r, what);
}

static void fail(ps_collectives *self, const char *text)
{
    nccl_state *x = nccl_state_of(self);
    char why[sizeof x->why];
    snprintf(why, sizeof why, "rank %d (%s) failed: %.500s", x->rank, ps_comm_host(x->o.comm, x->rank), text);
    pthread_mutex_lock(&x->lock);
    look_at_ranks(x);
    give_up(x, PS_ECOMM, why);
    pthread_mutex_unlock(&x->lock);
}

/* Without the lock: messages report it to the other ranks. Not by ps_comm_fail: the watcher runs before the
 * communicator knows these collectives. */
static void fail_messages(nccl_state *x, const char *text)
{
    ps_collectives *m = ps_comm_messages(x->o.comm);
    m->ops->fail(m, text);
}

/* Without the lock: reports any failure of this rank to the others, which wait for it. Returns st. */
static ps_status report_to_others(nccl_state *x, ps_status st)
{
    char text[sizeof x->why];
    if (st == PS_OK || ps_comm_failed_rank(x->o.comm) >= 0) return st;
    snprintf(text, sizeof text, "%s", ps_last_error());
    fail(&x->base, text);
    fail_messages(x, text);
    return PS_FAIL(st, "%s", text);
}

/* ---- the watcher ---- */

/* The lock is held: has NCCL noticed an error? */
static void look_at_library(nccl_state *x)
{
    ps_nccl_result r = PS_NCCL_SUCCESS;
    if (x->has_failed || x->comm == NULL) return;
    const ps_nccl_result asked = x->o.library->state(x->comm, &r);
    if (asked != PS_NCCL_SUCCESS) r = asked;
    if (r == PS_NCCL_SUCCESS || r == PS_NCCL_IN_PROGRESS) return;
    if (x->sick_ns == 0) x->sick_ns = ps_clock_ns();
    if (is_others(r) && ps_clock_ns() - x->sick_ns < ps_comm_timeout_ns(x->o.comm) + CAUSE_NS) return;
    const ps_status st = explain(x, r, "a transfer");
    char text[sizeof x->why];
    snprintf(text, sizeof text, "%s", ps_last_error());
    give_up(x, st, text);
    pthread_mutex_unlock(&x->lock);
    fail_messages(x, text);
    pthread_mutex_lock(&x->lock);
}

static void *watch(void *arg)
{
    nccl_state *x = arg;
    pthread_mutex_lock(&x->lock);
    while (!x->stops && !x->has_failed) {
        nap(x, WATCH_NS);
        look_at_library(x);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* ---- calls of the queue: they run when they are issued ---- */

typedef struct transfer_call {
    nccl_state *x;
    const ps_transfer *t;
    int64_t item_bytes;
} transfer_call;

/* The lock is held: ops between begin and end of a group. */
static ps_status run_group(const transfer_call *c, ps_nccl_result (*ops)(const transfer_call *c))
{
    nccl_state *x = c->x;
    if (x->has_failed) return report_failure(x);
    PS_TRY(check(x, x->o.library->group_start(), c->t->what));
    const ps_nccl_result r = ops(c), ended = x->o.library->group_end();
    if (r != PS_NCCL_SUCCESS && r != PS_NCCL_IN_PROGRESS) return check(x, r, c->t->what);
    return complete(x, ended, c->t->what);
}

/* It waits for room before the lock is taken: the watcher, which ends a stream that waits for a lost rank, needs it. */
static ps_status group(const transfer_call *c, ps_nccl_result (*ops)(const transfer_call *c))
{
    PS_TRY(ps_gpu_will_issue(c->x->gpu, ps_gpu_stream(c->x->o.queue), PS_GPU_LIBRARY_COMMANDS));
    pthread_mutex_lock(&c->x->lock);
    const ps_status st = run_group(c, ops);
    pthread_mutex_unlock(&c->x->lock);
    return st;
}

static bool is_bad(ps_nccl_result r)
{
    return r != PS_NCCL_SUCCESS && r != PS_NCCL_IN_PROGRESS;
}

static ps_nccl_result gather_ops(const transfer_call *c)
{
    const nccl_state *x = c->x;
    ps_nccl_result r = PS_NCCL_SUCCESS;
    for (int32_t i = 0; i < c->t->n_parts && !is_bad(r); i++) {
        const ps_comm_part *p = &c->t->parts[i];
        if (p->n > 0)
            r = x->o.library->broadcast(p->payload, p->payload, (size_t)(p->n * c->item_bytes), PS_NCCL_BYTES, p->owner,
                                        x->comm, ps_gpu_stream(x->o.queue));
    }
    return r;
}

/* Address in staging memory of another rank's values. */
static char *slot_of(const nccl_state *x, int32_t rank, int64_t slot_bytes)
{
    return (char *)x->o.staging + (rank < x->rank ? rank : rank - 1) * slot_bytes;
}

static int64_t slot_bytes_of(const nccl_state *x)
{
    return x->o.staging_bytes / (x->size > 1 ? x->size - 1 : 1) / PIECE_ALIGN * PIECE_ALIGN;
}

/* Sends each owner this rank's values of its piece, beginning with the rank after this one, so that not all begin with
 * the same; and receives the others' values of the own piece. */
static ps_nccl_result round_ops(const transfer_call *c)
{
    const nccl_state *x = c->x;
    const ps_nccl *n = x->o.library;
    const ps_cu_stream stream = ps_gpu_stream(x->o.queue);
    const cursor *own = &x->at[x->rank];
    ps_nccl_result r = PS_NCCL_SUCCESS;
    for (int32_t k = 1; k < x->size && !is_bad(r); k++) {
        const int32_t to = (x->rank + k) % x->size, from = (x->rank + x->size - k) % x->size;
        const cursor *theirs = &x->at[to];
        if (theirs->n > 0)
            r = n->send(theirs->piece, (size_t)(theirs->n * c->item_bytes), PS_NCCL_BYTES, to, x->comm, stream);
        if (own->n > 0 && !is_bad(r))
            r = n->receive(slot_of(x, from, slot_bytes_of(x)), (size_t)(own->n * c->item_bytes), PS_NCCL_BYTES, from,
                           x->comm, stream);
    }
    return r;
}

static ps_status run_gather(void *self, const void *args)
{
    (void)self;
    return group(args, gather_ops);
}

static ps_status run_round(void *self, const void *args)
{
    const transfer_call *c = args;
    nccl_state *x = c->x;
    const cursor *own = &x->at[x->rank];
    (void)self;
    PS_TRY(group(c, round_ops));
    if (own->n == 0) return PS_OK;
    const ps_cuda_rank_sum_args a = {.own = own->piece,
                                     .others = x->o.staging,
                                     .n = own->n,
                                     .stride = slot_bytes_of(x) / c->item_bytes,
                                     .n_ranks = x->size,
                                     .rank = x->rank};
    return ps_backend_cuda_rank_sum(x->o.backend, ps_gpu_stream(x->o.queue), c->t->dtype, &a);
}

/* ---- collectives ---- */

static ps_status issue(const transfer_call *c, const char *name, ps_status (*run)(void *, const void *), int n_uses)
{
    nccl_state *x = c->x;
    return ps_queue_call(x->o.queue, &(ps_call){.name = name,
                                                .run = run,
                                                .self = x,
                                                .args = c,
                                                .args_bytes = sizeof *c,
                                                .uses = n_uses > 0 ? x->uses : NULL,
                                                .n_uses = n_uses});
}

/* One item: the owner of a part reads it, the other ranks write theirs. */
static ps_status issue_gather(const transfer_call *c, const char *name)
{
    nccl_state *x = c->x;
    const ps_transfer *t = c->t;
    const bool is_looked_at = ps_queue_wants_uses(x->o.queue);
    int64_t n = 0;
    for (int32_t i = 0; i < t->n_parts; i++) n += t->parts[i].n;
    if (n == 0) return PS_OK;
    if (is_looked_at) PS_TRY(ps_mem_reserve(&x->uses, (size_t)t->n_parts, sizeof *x->uses));
    for (int32_t i = 0; i < t->n_parts && is_looked_at; i++)
        x->uses[i] = (ps_use){.address = t->parts[i].payload,
                              .bytes = t->parts[i].n * c->item_bytes,
                              .is_write = t->parts[i].owner != x->rank,
                              .name = t->what};
    return issue(c, name, run_gather, is_looked_at ? t->n_parts : 0);
}

/* The next piece of an owner, at most so many elements. */
static void advance(const ps_transfer *t, int64_t item_bytes, int32_t owner, int64_t most, cursor *at)
{
    at->done += at->n;
    at->piece = NULL;
    at->n = 0;
    for (; at->part < t->n_parts; at->part++, at->done = 0) {
        const ps_comm_part *p = &t->parts[at->part];
        if (p->owner != owner || p->n == at->done) continue;
        at->piece = (char *)p->payload + at->done * item_bytes;
        at->n = ps_min_i64(most, p->n - at->done);
        return;
    }
}

/* Payloads of this round, and staging memory. */
static ps_status name_uses(const transfer_call *c, int *n_uses)
{
    nccl_state *x = c->x;
    int n = 0;
    *n_uses = 0;
    if (!ps_queue_wants_uses(x->o.queue)) return PS_OK;
    PS_TRY(ps_mem_reserve(&x->uses, (size_t)x->size + 1, sizeof *x->uses));
    for (int32_t r = 0; r < x->size; r++)
        if (x->at[r].n > 0)
            x->uses[n++] = (ps_use){.address = x->at[r].piece,
                                    .bytes = x->at[r].n * c->item_bytes,
                                    .is_write = r == x->rank,
                                    .name = c->t->what};
    if (x->at[x->rank].n > 0)
        x->uses[n++] =
            (ps_use){.address = x->o.staging, .bytes = x->o.staging_bytes, .is_write = true, .name = "comm.staging"};
    *n_uses = n;
    return PS_OK;
}

static ps_status issue_rounds(const transfer_call *c, const char *name)
{
    nccl_state *x = c->x;
    const int64_t most = slot_bytes_of(x) / c->item_bytes;
    if (x->size == 1) return PS_OK;
    memset(x->at, 0, (size_t)x->size * sizeof *x->at);
    for (;;) {
        int64_t n = 0;
        int n_uses;
        for (int32_t r = 0; r < x->size; r++) {
            advance(c->t, c->item_bytes, r, most, &x->at[r]);
            n += x->at[r].n;
        }
        if (n == 0) return PS_OK;
        PS_TRY(name_uses(c, &n_uses));
        PS_TRY(issue(c, name, run_round, n_uses));
    }
}

typedef enum kind { GATHER, REDUCE, ALL_REDUCE } kind;

static ps_status issue_all(const transfer_call *c, kind k, ps_collective name)
{
    const char *text = ps_collective_name(name);
    if (k != GATHER) PS_TRY(issue_rounds(c, text));
    return k == REDUCE ? PS_OK : issue_gather(c, text);
}

static int64_t sent_elements(const nccl_state *x, const ps_transfer *t, kind k)
{
    const int64_t gathered = k == REDUCE ? 0 : ps_comm_gathering_sends(t->parts, t->n_parts, x->rank, x->size);
    return gathered + (k == GATHER ? 0 : ps_comm_reduction_sends(t->parts, t->n_parts, x->rank));
}

static ps_collectives *messages_of(const nccl_state *x)
{
    return ps_comm_messages(x->o.comm);
}

/* A kernel cannot be cancelled when its collective is not made: the host waits for the condition. */
static ps_status ask(const nccl_state *x, const ps_transfer_condition *c, bool *holds)
{
    *holds = true;
    if (c == NULL) return PS_OK;
    PS_TRY(ps_collectives_wait(messages_of(x), c->known));
    *holds = c->holds(c->arg);
    return PS_OK;
}

static ps_status begin(nccl_state *x, const ps_transfer *t, kind k, ps_collective name, ps_event *done)
{
    bool is_made;
    const transfer_call c = {.x = x, .t = t, .item_bytes = (int64_t)ps_dtype_bytes(t->dtype)};
    pthread_mutex_lock(&x->lock);
    look_at_ranks(x);
    const ps_status st = x->has_failed ? report_failure(x) : PS_OK;
    pthread_mutex_unlock(&x->lock);
    PS_TRY(st);
    *done = ps_queue_event(x->o.queue);
    PS_TRY(ask(x, t->only_if, &is_made));
    if (!is_made) return PS_OK;
    if (t->after != NULL) PS_TRY(ps_queue_wait_all(x->o.queue, t->after));
    ps_comm_count_carried(x->o.comm, sent_elements(x, t, k) * c.item_bytes);
    PS_TRY(report_to_others(x, issue_all(&c, k, name)));
    *done = ps_queue_event(x->o.queue);
    return PS_OK;
}

#define BEGIN(name, kind, collective)                                                                                  \
    static ps_status name(ps_collectives *self, const ps_transfer *t, ps_event *done)                                  \
    {                                                                                                                  \
        nccl_state *x = nccl_state_of(self);                                                                           \
        if (!t->on_device) return messages_of(x)->ops->name(messages_of(x), t, done);                                  \
        return begin(x, t, kind, collective, done);                                                                    \
    }
BEGIN(all_gather, GATHER, PS_ALL_GATHER)
BEGIN(broadcast, GATHER, PS_BROADCAST)
BEGIN(reduce_scatter, REDUCE, PS_REDUCE_SCATTER)
BEGIN(reduce, REDUCE, PS_REDUCE)
BEGIN(all_reduce, ALL_REDUCE, PS_ALL_REDUCE)
#undef BEGIN

/* Waits until it is done, or a rank is lost: then the stream continues at once. */
static ps_status wait_for(ps_collectives *self, ps_event done)
{
    nccl_state *x = nccl_state_of(self);
    if (done.queue != x->o.queue) return messages_of(x)->ops->wait(messages_of(x), done);
    ps_stall_entry s;
    ps_stall_begin_item(&s, "waits for", done.queue, done.ticket, NULL);
    pthread_mutex_lock(&x->lock);
    for (int64_t ns = NAP_FIRST_NS; !x->has_failed && !ps_event_is_done(done); ns = ps_min_i64(2 * ns, NAP_LONGEST_NS))
        nap(x, ns);
    ps_stall_end(&s);
    look_at_ranks(x);
    const ps_status failed = x->has_failed ? x->failure : PS_OK;
    pthread_mutex_unlock(&x->lock);
    const ps_status st = ps_event_wait(done);
    return failed != PS_OK && st != PS_EDEVICE ? report_failure(x) : st;
}

/* ---- create, destroy ---- */

/* The queue is idle. A single rank waits for no other, but keeps the order. */
static void leave(nccl_state *x)
{
    pthread_mutex_lock(&x->lock);
    look_at_ranks(x);
    if (!x->has_failed && x->comm != NULL) {
        (void)ps_gpu_enter_quietly(x->gpu);
        if (complete(x, x->o.library->finalize(x->comm), "its end") == PS_OK) {
            (void)x->o.library->destroy(x->comm);
            x->comm = NULL;
        } else {
            give_up(x, PS_ECOMM, ps_last_error());
        }
    }
    ps_gpu_pending_wait_end(x->gpu, x->pending, PS_OK);
    x->pending = NULL;
    pthread_mutex_unlock(&x->lock);
}

static void destroy(ps_collectives *self)
{
    nccl_state *x = nccl_state_of(self);
    if (x->is_monitored) {
        (void)!wait_for(self, ps_queue_event(x->o.queue));
        pthread_mutex_lock(&x->lock);
        x->stops = true;
        pthread_cond_broadcast(&x->has_changed);
        pthread_mutex_unlock(&x->lock);
        pthread_join(x->watcher, NULL);
    }
    leave(x);
    pthread_cond_destroy(&x->has_changed);
    pthread_mutex_destroy(&x->lock);
    ps_mem_free(x->uses);
    ps_mem_free(x->at);
    ps_mem_free(x);
}

static const ps_collectives_ops ops = {.all_gather = all_gather,
                                       .broadcast = broadcast,
                                       .reduce_scatter = reduce_scatter,
                                       .reduce = reduce,
                                       .all_reduce = all_reduce,
                                       .wait = wait_for,
                                       .fail = fail,
                                       .destroy = destroy};

/* Joins the communicator of all ranks: all call, or the communicator has failed. */
static ps_status join(nccl_state *x, const ps_nccl_id *id)
{
    ps_nccl_config config = {.bytes = sizeof config,
                             .magic = PS_NCCL_CONFIG_MAGIC,
                             .version = PS_NCCL_CONFIG_VERSION,
                             .blocking = 0,
                             .cluster_size = PS_NCCL_NOT_GIVEN,
                             .least_blocks = PS_NCCL_NOT_GIVEN,
                             .most_blocks = PS_NCCL_NOT_GIVEN};
    pthread_mutex_lock(&x->lock);
    const ps_nccl_result r = x->o.library->join(&x->comm, x->size, *id, x->rank, &config);
    const ps_status st = complete(x, r, "initialising the communicator");
    pthread_mutex_unlock(&x->lock);
    return report_to_others(x, st);
}

static ps_status get_id(nccl_state *x, ps_nccl_id *id)
{
    ps_status st = PS_OK;
    if (x->rank == 0) {
        const ps_nccl_result r = x->o.library->unique_id(id);
        if (r != PS_NCCL_SUCCESS) st = PS_FAIL(PS_ENOSYS, "NCCL: creating an id: %s", x->o.library->result_text(r));
    }
    PS_TRY(ps_comm_agree(x->o.comm, st));
    return ps_comm_broadcast(x->o.comm, id, sizeof *id, 0);
}

/* A failure before the rendezvous is known to all; a later one is reported by report_to_others. */
static ps_status prepare(nccl_state *x)
{
    PS_TRY(ps_gpu_enter(x->gpu));
    PS_TRY(ps_mem_alloc((size_t)x->size, sizeof *x->at, &x->at));
    PS_TRY(ps_gpu_pending_wait_begin(x->o.queue, &x->pending));
    PS_TRY(ps_worker_start("ps-nccl", watch, x, &x->watcher));
    x->is_monitored = true;
    return PS_OK;
}

static ps_status create(const ps_nccl_options *o, nccl_state **out)
{
    nccl_state *x = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *x, &x));
    o->queue->is_of_ranks = true;
    *x = (nccl_state){.base.ops = &ops,
                      .o = *o,
                      .gpu = ps_backend_space(o->backend)->driver,
                      .rank = ps_comm_rank(o->comm),
                      .size = ps_comm_size(o->comm)};
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->has_changed, &clock);
    pthread_condattr_destroy(&clock);
    *out = x;
    return PS_OK;
}

ps_status ps_nccl_collectives_open(const ps_nccl_options *o, ps_collectives **out)
{
    nccl_state *x = NULL;
    ps_nccl_id id = {{0}};
    *out = NULL;
    ps_status st = create(o, &x);
    if (st == PS_OK) {
        PS_ASSERT(slot_bytes_of(x) > 0);
        st = prepare(x);
    }
    st = ps_comm_agree(o->comm, st);
    if (st == PS_OK) st = get_id(x, &id);
    if (st == PS_OK) st = join(x, &id);
    if (st == PS_OK) {
        *out = &x->base;
        return PS_OK;
    }
    if (x != NULL) {
        char text[sizeof x->why];
        snprintf(text, sizeof text, "%s", ps_last_error());
        destroy(&x->base);
        return PS_FAIL(st, "%s", text);
    }
    return st;
}
