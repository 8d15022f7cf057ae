/* shared_collectives.h - collectives of ranks that are threads of this process, without messages: each looks into the
 * others' payloads. Another carrier than the library's own, to be given to communicators. */
#ifndef PS_TEST_SHARED_COLLECTIVES_H
#define PS_TEST_SHARED_COLLECTIVES_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/comm/comm.h"
#include "chunk/comm/sum.h"
#include "device/device.h"

enum { SHARED_RANKS_MAX = 8 };

typedef struct shared_job {
    bool sums, shares; /* to the owners; from the owners to all */
    ps_dtype dtype;
    ps_transfer_condition only_if;
    int32_t n_parts;
    ps_comm_part parts[];
} shared_job;

/* What the ranks have in common. */
typedef struct shared_hub {
    int32_t size, n_here;
    int64_t n_meetings;
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    const shared_job *jobs[SHARED_RANKS_MAX];
    char failure[256];
} shared_hub;

typedef struct shared_rank {
    ps_collectives base;
    shared_hub *hub;
    int32_t rank;
    ps_device *ram;
    ps_queue *queue;          /* a thread: one job after the other */
    int64_t n_begun, n_after; /* of these, after an event */
} shared_rank;

static inline void shared_hub_init(shared_hub *h, int32_t size)
{
    *h = (shared_hub){.size = size};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->all_here, NULL);
}

static inline void shared_hub_deinit(shared_hub *h)
{
    pthread_cond_destroy(&h->all_here);
    pthread_mutex_destroy(&h->lock);
}

/* Returns when all are here, or one has failed. */
static inline ps_status shared_rendezvous(shared_hub *h)
{
    pthread_mutex_lock(&h->lock);
    const int64_t meeting = h->n_meetings;
    if (++h->n_here == h->size) {
        h->n_here = 0;
        h->n_meetings++;
        pthread_cond_broadcast(&h->all_here);
    }
    while (h->n_meetings == meeting && h->failure[0] == '\0') pthread_cond_wait(&h->all_here, &h->lock);
    const ps_status st = h->n_meetings != meeting ? PS_OK : PS_FAIL(PS_ECOMM, "%s", h->failure);
    pthread_mutex_unlock(&h->lock);
    return st;
}

static inline void shared_add(const shared_rank *r, const shared_job *job)
{
    const void *values[SHARED_RANKS_MAX];
    for (int32_t i = 0; i < job->n_parts; i++) {
        if (job->parts[i].owner != r->rank) continue;
        for (int32_t k = 0; k < r->hub->size; k++) values[k] = r->hub->jobs[k]->parts[i].payload;
        ps_comm_sum(job->dtype, values, r->hub->size, job->parts[i].n, job->parts[i].payload);
    }
}

static inline void shared_fetch(const shared_rank *r, const shared_job *job)
{
    for (int32_t i = 0; i < job->n_parts; i++) {
        const ps_comm_part *from = &r->hub->jobs[job->parts[i].owner]->parts[i];
        if (from->owner != r->rank && from->n > 0)
            memcpy(job->parts[i].payload, from->payload, (size_t)from->n * ps_dtype_bytes(job->dtype));
    }
}

static inline ps_status shared_carry(shared_rank *r, const shared_job *job)
{
    r->hub->jobs[r->rank] = job;
    PS_TRY(shared_rendezvous(r->hub));
    if (job->sums) shared_add(r, job);
    PS_TRY(shared_rendezvous(r->hub));
    if (job->shares) shared_fetch(r, job);
    return shared_rendezvous(r->hub); /* until no rank looks into payloads */
}

static inline ps_status shared_carry_if(shared_rank *r, const shared_job *job)
{
    const ps_transfer_condition *c = &job->only_if;
    if (c->holds == NULL) return shared_carry(r, job);
    PS_TRY(ps_event_wait(c->known));
    return c->holds(c->arg) ? shared_carry(r, job) : PS_OK;
}

static inline ps_status shared_run(void *self, const void *args)
{
    shared_job *const *job = args;
    const ps_status st = shared_carry_if(self, *job);
    free(*job);
    return st;
}

static inline ps_status shared_begin(ps_collectives *x, const ps_transfer *t, bool sums, bool shares, ps_event *done)
{
    shared_rank *r = (shared_rank *)x;
    const size_t parts_bytes = (size_t)t->n_parts * sizeof t->parts[0];
    shared_job *job = malloc(sizeof *job + parts_bytes);
    if (job == NULL) abort();
    *job = (shared_job){.sums = sums, .shares = shares, .dtype = t->dtype, .n_parts = t->n_parts};
    if (t->only_if != NULL) job->only_if = *t->only_if;
    if (parts_bytes > 0) memcpy(job->parts, t->parts, parts_bytes);
    r->n_begun++;
    r->n_after += t->after != NULL && t->after->n > 0;
    if (t->after != NULL) PS_TRY(ps_queue_wait_all(r->queue, t->after));
    PS_TRY(ps_queue_call(
        r->queue,
        &(ps_call){.name = "transfer", .run = shared_run, .self = r, .args = &job, .args_bytes = sizeof job}));
    *done = ps_queue_event(r->queue);
    return PS_OK;
}

static inline ps_status shared_gather(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    return shared_begin(x, t, false, true, done);
}

static inline ps_status shared_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    return shared_begin(x, t, true, false, done);
}

static inline ps_status shared_all_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    return shared_begin(x, t, true, true, done);
}

static inline ps_status shared_wait(ps_collectives *x, ps_event done)
{
    (void)x;
    return ps_event_wait(done);
}

static inline void shared_fail(ps_collectives *x, const char *text)
{
    shared_hub *h = ((shared_rank *)x)->hub;
    pthread_mutex_lock(&h->lock);
    if (h->failure[0] == '\0') snprintf(h->failure, sizeof h->failure, "%s", text);
    pthread_cond_broadcast(&h->all_here);
    pthread_mutex_unlock(&h->lock);
}

static inline void shared_destroy(ps_collectives *x)
{
    shared_rank *r = (shared_rank *)x;
    ps_queue_destroy(r->queue);
    ps_device_destroy(r->ram);
    free(r);
}

static const ps_collectives_ops shared_ops = {.all_gather = shared_gather,
                                              .broadcast = shared_gather,
                                              .reduce_scatter = shared_reduce,
                                              .reduce = shared_reduce,
                                              .all_reduce = shared_all_reduce,
                                              .wait = shared_wait,
                                              .fail = shared_fail,
                                              .destroy = shared_destroy};

/* For this rank, which is the caller's thread. */
static inline ps_collectives *shared_create(shared_hub *h, int32_t rank)
{
    shared_rank *r = calloc(1, sizeof *r);
    if (r == NULL) abort();
    *r = (shared_rank){.base.ops = &shared_ops, .hub = h, .rank = rank};
    if (ps_device_create(&ps_device_cpu_ops, "shared", 0, &r->ram) != PS_OK ||
        ps_queue_create(r->ram, "shared", PS_QUEUE_COPY, &r->queue) != PS_OK)
        abort();
    return &r->base;
}

#endif
