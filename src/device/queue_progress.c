#include "device/queue_progress.h"

#include <string.h>
#include <time.h>

#include "device/stall.h"

void ps_queue_progress_init(ps_queue_progress *p)
{
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->has_changed, &clock);
    pthread_condattr_destroy(&clock);
}

void ps_queue_progress_deinit(ps_queue_progress *p)
{
    pthread_cond_destroy(&p->has_changed);
    pthread_mutex_destroy(&p->lock);
}

void ps_queue_progress_reach(ps_queue_progress *p, ps_ticket t, ps_status st)
{
    if (st != PS_OK && p->failed_at == 0) {
        p->failed_at = t;
        p->failure = st;
        strncpy(p->why, ps_last_error(), sizeof p->why - 1);
    }
    if (t > p->done) p->done = t;
    ps_stall_progress();
    pthread_cond_broadcast(&p->has_changed);
}

bool ps_queue_progress_reaches(ps_queue_progress *p, ps_ticket t, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until = (struct timespec){.tv_sec = until.tv_sec + ns / 1000000000, .tv_nsec = ns % 1000000000};
    pthread_mutex_lock(&p->lock);
    while (p->done < t && pthread_cond_timedwait(&p->has_changed, &p->lock, &until) == 0) continue;
    const bool is_done = p->done >= t;
    pthread_mutex_unlock(&p->lock);
    return is_done;
}

ps_status ps_queue_progress_wait(ps_queue_progress *p, ps_ticket t)
{
    ps_status st = PS_OK;
    pthread_mutex_lock(&p->lock);
    while (p->done < t) pthread_cond_wait(&p->has_changed, &p->lock);
    if (p->failed_at != 0 && p->failed_at <= t) st = PS_FAIL(p->failure, "%s", p->why);
    pthread_mutex_unlock(&p->lock);
    return st;
}
