/* blocking.h - calls that block the calling thread, or would if what they wait for were not done yet. Each call is
 * counted by what it waits for, so a test can assert that issuing a step does not block.
 *
 * Work that is done within the call that issues it needs no wait. A wait is counted even when everything was done
 * already, so the numbers follow from the calls; only PS_BLOCK_FULL is counted when a queue had no room. */
#ifndef PS_DEVICE_BLOCKING_H
#define PS_DEVICE_BLOCKING_H

#include "device/queue.h"

#define PS_BLOCKS(XX)                                                                                                  \
    XX(EVENT, "event", "any event")                                                                                    \
    XX(READ, "read", "a result of a device is read")                                                                   \
    XX(DISK, "disk", "a transfer of the disk is due")                                                                  \
    XX(FREE, "free", "memory is freed, and the device cannot wait asynchronously")                                     \
    XX(PAGE, "page", "pages of a GPU are mapped elsewhere, or go back to the system, before their last use is over")   \
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

/* Counts of the calling thread since it began. */
ps_blocked ps_blocked_so_far(void);

/* The calling thread is about to wait. */
void ps_block_note(ps_block why);

/* ps_event_wait, counted as `block`. */
PS_NODISCARD ps_status ps_event_wait_as(ps_event e, ps_block why);

#endif
