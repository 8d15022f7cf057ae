/* blocking.h - calls in which a thread stands still, or would if what it waits for were not done yet: each is counted,
 * by what it waits for. So a test can tell that a step is issued without one.
 *
 * What is done within the call that issues it is not waited for; nor does it count whether a wait found everything
 * done: numbers follow from the calls, but for PS_BLOCK_FULL, which is counted when there was no room. */
#ifndef PS_DEVICE_BLOCKING_H
#define PS_DEVICE_BLOCKING_H

#include "device/queue.h"

#define PS_BLOCKS(XX)                                                                                                  \
    XX(EVENT, "event", "whatever an event stands for")                                                                 \
    XX(READ, "read", "what a device has computed is read")                                                             \
    XX(DISK, "disk", "a transfer of the disk is due")                                                                  \
    XX(FREE, "free", "memory is given back, and the device cannot wait by itself")                                     \
    XX(FULL, "full", "a queue has no room for another item, or for the bytes of one")

typedef enum ps_block {
#define XX(block, name, text) PS_BLOCK_##block,
    PS_BLOCKS(XX)
#undef XX
        PS_BLOCK_COUNT,
} ps_block;

const char *ps_block_name(ps_block why);

typedef struct ps_blocked {
    int64_t n[PS_BLOCK_COUNT];
} ps_blocked;

/* Of the calling thread, since it began. */
ps_blocked ps_blocked_so_far(void);

/* The calling thread is about to wait. */
void ps_block_note(ps_block why);

/* ps_event_wait, counted as that. */
PS_NODISCARD ps_status ps_event_wait_as(ps_event e, ps_block why);

#endif
