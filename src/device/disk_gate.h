/* disk_gate.h - transfers of the disk that are to begin after events: a thread waits for these, and lets one go after
 * the other, in the order in which they came. Who has nothing to wait for passes by.
 *
 * All that the first of them waits for was issued before it, so each wait ends. */
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
/* When all events are done ps_disk_admit is called, here or by the thread. On failure it never is. */
PS_NODISCARD ps_status ps_disk_gate_pass(ps_disk_gate *g, ps_disk_transfer *t, const ps_events *after);
/* Returns when all have been let go; then none may come. */
void ps_disk_gate_drain(ps_disk_gate *g);
void ps_disk_gate_deinit(ps_disk_gate *g); /* drained */

#endif
