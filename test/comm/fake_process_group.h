/* fake_process_group.h - a ps_process_group among threads: a call of its collective waits for all, and what is sent can
 * take its time. */
#ifndef COMM_FAKE_PROCESS_GROUP_H
#define COMM_FAKE_PROCESS_GROUP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "patrickstar_comm.h"

enum { FAKE_SIZE_MAX = 3 };

typedef struct fake_process_group {
    pthread_mutex_t lock;
    pthread_cond_t all_have_come;
    int size, n_waiting;
    int64_t n_barriers;
    int64_t delay_ns; /* of what is sent */
    bool is_broken;
    const char *send[FAKE_SIZE_MAX];
    const int64_t *send_bytes[FAKE_SIZE_MAX];
} fake_process_group;

typedef struct fake_rank {
    fake_process_group *group;
    int32_t rank;
    int n_calls, fails_at; /* 0: never */
    int n_closed, was_orderly;
    int64_t n_bytes;
} fake_rank;

static inline void break_fake_process_group(fake_process_group *g)
{
    pthread_mutex_lock(&g->lock);
    g->is_broken = true;
    pthread_cond_broadcast(&g->all_have_come);
    pthread_mutex_unlock(&g->lock);
}

/* A longer wait breaks the group. */
static inline bool fake_barrier_within(fake_process_group *g, int seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&g->lock);
    const int64_t barrier = g->n_barriers;
    if (++g->n_waiting == g->size) {
        g->n_waiting = 0;
        g->n_barriers++;
        pthread_cond_broadcast(&g->all_have_come);
    }
    int rc = 0;
    while (g->n_barriers == barrier && !g->is_broken && rc == 0)
        rc = pthread_cond_timedwait(&g->all_have_come, &g->lock, &until);
    const bool is_complete = g->n_barriers != barrier && !g->is_broken;
    pthread_mutex_unlock(&g->lock);
    if (!is_complete) break_fake_process_group(g);
    return is_complete;
}

static inline bool fake_barrier(fake_process_group *g)
{
    enum { LONG_S = 600 };
    return fake_barrier_within(g, LONG_S);
}

/* Does this call carry more than the header of a round, which says how much follows (chunk/comm/rounds.h)? */
static inline bool moves_payload(const fake_process_group *g)
{
    for (int from = 0; from < g->size; from++)
        for (int to = 0; to < g->size; to++)
            if (from != to && g->send_bytes[from][to] > 64) return true;
    return false;
}

static inline int all_to_all(void *user, const void *send, const int64_t *send_bytes, void *receive,
                             const int64_t *receive_bytes, char *error)
{
    fake_rank *v = user;
    fake_process_group *g = v->group;
    char *to = receive;
    if (++v->n_calls == v->fails_at) {
        break_fake_process_group(g);
        snprintf(error, PS_MESSAGE_ERROR_BYTES, "the link is cut");
        return 7;
    }
    g->send[v->rank] = send;
    g->send_bytes[v->rank] = send_bytes;
    if (!fake_barrier(g)) return 8;
    for (int r = 0; r < g->size; r++) {
        int64_t at = 0;
        for (int k = 0; k < v->rank; k++) at += g->send_bytes[r][k];
        if (g->send_bytes[r][v->rank] != receive_bytes[r]) break_fake_process_group(g);
        memcpy(to, g->send[r] + at, (size_t)receive_bytes[r]);
        to += receive_bytes[r];
        v->n_bytes += receive_bytes[r];
    }
    const struct timespec delay = {.tv_nsec = g->delay_ns};
    if (moves_payload(g) && g->delay_ns > 0) nanosleep(&delay, NULL);
    return fake_barrier(g) ? 0 : 8;
}

static inline void close_fake_rank(void *user, int32_t is_orderly)
{
    fake_rank *v = user;
    v->n_closed++;
    v->was_orderly = is_orderly;
}

static inline ps_process_group process_group_of(fake_rank *v)
{
    return (ps_process_group){.struct_size = sizeof(ps_process_group),
                              .user = v,
                              .rank = v->rank,
                              .size = v->group != NULL ? v->group->size : 1,
                              .name = "fake",
                              .all_to_all = all_to_all,
                              .close = close_fake_rank};
}

static inline void fake_process_group_init(fake_process_group *g, int size, int64_t delay_ns)
{
    *g = (fake_process_group){.size = size, .delay_ns = delay_ns};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->all_have_come, NULL);
}

static inline void fake_process_group_deinit(fake_process_group *g)
{
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->all_have_come);
}

#endif
