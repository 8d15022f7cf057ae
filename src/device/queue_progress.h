/* queue_progress.h - the progress of a queue: one thread reports it, any thread waits for it. */
#ifndef PS_DEVICE_QUEUE_PROGRESS_H
#define PS_DEVICE_QUEUE_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/queue_impl.h"

typedef struct ps_queue_progress {
    pthread_mutex_t lock;
    pthread_cond_t has_changed;
    _Atomic ps_ticket done; /* lock to write */
    ps_ticket failed_at;    /* lock: the first failed item; 0: none */
    ps_status failure;
    char why[512];
} ps_queue_progress;

void ps_queue_progress_init(ps_queue_progress *p); /* of zeros */
void ps_queue_progress_deinit(ps_queue_progress *p);

/* All up to t are done. st: the result of t; its message is the calling thread's last error. The lock is held. */
void ps_queue_progress_reach(ps_queue_progress *p, ps_ticket t, ps_status st);
/* False: t is not done within ns. The lock is not held. */
bool ps_queue_progress_reaches(ps_queue_progress *p, ps_ticket t, int64_t ns);
/* Wait until t is done; returns the first failure up to t, every time. The lock is not held. */
PS_NODISCARD ps_status ps_queue_progress_wait(ps_queue_progress *p, ps_ticket t);

#endif
