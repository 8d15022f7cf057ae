#include "device/queue_progress.h"

#include <string.h>

void ps_queue_progress_init(ps_queue_progress *p)
{
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->has_changed, NULL);
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
    pthread_cond_broadcast(&p->has_changed);
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
