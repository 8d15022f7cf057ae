/* disk_gate.h - holds back transfers of the disk until the events that they come after are done: a thread waits for
 * these and admits one transfer after the other, in issue order. A transfer without events is admitted at once.
 *
 * All events of the first transfer were issued before it, so each wait ends. */
#ifndef PS_DEVICE_DISK_GATE_H
#define PS_DEVICE_DISK_GATE_H

#include <pthread.h>

#include "device/disk_backend.h"

typedef struct ps_disk_gated ps_disk_gated;

typedef struct ps_disk_gate {
    ps_disk *disk;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t has_work;
    pthread_t thread;
    bool is_open, stops; /* is_open: the thread runs */
    ps_disk_gated *first, *last;
} ps_disk_gate;

void ps_disk_gate_init(ps_disk_gate *g, ps_disk *d);
/* When all events are done ps_disk_admit is called, here or by the thread. After a failure it is never called. */
PS_NODISCARD ps_status ps_disk_gate_pass(ps_disk_gate *g, ps_disk_transfer *t, const ps_events *after);
/* Returns when all have been admitted; no transfer may be added meanwhile or later. */
void ps_disk_gate_drain(ps_disk_gate *g);
void ps_disk_gate_deinit(ps_disk_gate *g); /* drained */

#endif
