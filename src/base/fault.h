/* fault.h - make the n-th fallible call fail, so that tests can walk every error path.
 *
 * Each wrapper of a call that can fail for an external reason calls ps_fault_hit() once: mem.c, file.c, folder*.c,
 * checkpoint_folder.c, staging_file.c, device*.c, queue.c, disk.c, cuda/. The code above the wrappers never does. Cost
 * when idle: one relaxed load. CONTRIBUTING.md, Errors, lists the other global variables. */
#ifndef PS_BASE_FAULT_H
#define PS_BASE_FAULT_H

#include <stdbool.h>

typedef enum ps_fault_kind {
    PS_FAULT_ALLOC,  /* ps_mem_alloc, device payload allocation */
    PS_FAULT_COPY,   /* device copy */
    PS_FAULT_READ,   /* read of the disk tier or of a file */
    PS_FAULT_WRITE,  /* write of the disk tier, change of a file or folder */
    PS_FAULT_DEVICE, /* call into an asynchronous device: memory, queues, items, waits */
    PS_FAULT_LOST,   /* item of such a device that makes the device fail permanently */
    PS_FAULT_COUNT,
} ps_fault_kind;

/* Make call number `nth` (0 = the next) of this kind fail; with `persistent`, all later ones, too. nth < 0 disarms. */
void ps_fault_arm(ps_fault_kind kind, long nth, bool persistent);

/* Number of calls of this kind since ps_fault_arm. */
long ps_fault_calls(ps_fault_kind kind);

/* True when a call has failed since ps_fault_arm. */
bool ps_fault_has_struck(ps_fault_kind kind);

/* For the wrappers: true when this call must fail. Thread-safe. */
bool ps_fault_hit(ps_fault_kind kind);

/* The same, with errno as of a broken disk: EIO. */
bool ps_fault_hit_io(ps_fault_kind kind);

#endif
