/* hall.h - a collective of a program's own among threads: who calls waits for all, and what is sent can take its time. */
#ifndef COMM_HALL_H
#define COMM_HALL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "patrickstar_comm.h"

enum { HALL_SIZE_MAX = 3 };

typedef struct hall {
    pthread_mutex_t lock;
    pthread_cond_t all_are_here;
    int size, n_here;
    int64_t n_meetings;
    int64_t delay_ns; /* of what is sent */
    bool is_broken;
    const char *send[HALL_SIZE_MAX];
    const int64_t *send_bytes[HALL_SIZE_MAX];
} hall;

typedef struct visitor {
    hall *hall;
    int32_t rank;
    int n_calls, fails_at; /* 0: never */
    int n_closed, was_orderly;
    int64_t n_bytes;
} visitor;

static inline bool meet(hall *h)
{
    pthread_mutex_lock(&h->lock);
    const int64_t meeting = h->n_meetings;
    if (++h->n_here == h->size) {
        h->n_here = 0;
        h->n_meetings++;
        pthread_cond_broadcast(&h->all_are_here);
    }
    while (h->n_meetings == meeting && !h->is_broken) pthread_cond_wait(&h->all_are_here, &h->lock);
    const bool is_broken = h->is_broken;
    pthread_mutex_unlock(&h->lock);
    return !is_broken;
}

static inline void break_hall(hall *h)
{
    pthread_mutex_lock(&h->lock);
    h->is_broken = true;
    pthread_cond_broadcast(&h->all_are_here);
    pthread_mutex_unlock(&h->lock);
}

/* Does this call carry more than the header of a round, which says how much follows (comm/rounds.h)? */
static inline bool has_any(const hall *h)
{
    for (int from = 0; from < h->size; from++)
        for (int to = 0; to < h->size; to++)
            if (from != to && h->send_bytes[from][to] > 64) return true;
    return false;
}

static inline int all_to_all(void *user, const void *send, const int64_t *send_bytes, void *receive,
                             const int64_t *receive_bytes, char *error)
{
    visitor *v = user;
    hall *h = v->hall;
    char *to = receive;
    if (++v->n_calls == v->fails_at) {
        break_hall(h);
        snprintf(error, PS_MESSAGE_ERROR_BYTES, "the roof falls in");
        return 7;
    }
    h->send[v->rank] = send;
    h->send_bytes[v->rank] = send_bytes;
    if (!meet(h)) return 8;
    for (int r = 0; r < h->size; r++) {
        int64_t at = 0;
        for (int k = 0; k < v->rank; k++) at += h->send_bytes[r][k];
        if (h->send_bytes[r][v->rank] != receive_bytes[r]) break_hall(h);
        memcpy(to, h->send[r] + at, (size_t)receive_bytes[r]);
        to += receive_bytes[r];
        v->n_bytes += receive_bytes[r];
    }
    const struct timespec delay = {.tv_nsec = h->delay_ns};
    if (has_any(h) && h->delay_ns > 0) nanosleep(&delay, NULL);
    return meet(h) ? 0 : 8;
}

static inline void close_visitor(void *user, int32_t is_orderly)
{
    visitor *v = user;
    v->n_closed++;
    v->was_orderly = is_orderly;
}

static inline ps_process_group group_of(visitor *v)
{
    return (ps_process_group){.struct_size = sizeof(ps_process_group),
                              .user = v,
                              .rank = v->rank,
                              .size = v->hall != NULL ? v->hall->size : 1,
                              .name = "hall",
                              .all_to_all = all_to_all,
                              .close = close_visitor};
}

static inline void hall_init(hall *h, int size, int64_t delay_ns)
{
    *h = (hall){.size = size, .delay_ns = delay_ns};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->all_are_here, NULL);
}

static inline void hall_deinit(hall *h)
{
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->all_are_here);
}

#endif
