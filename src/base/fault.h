/* fault.h - make the n-th fallible call fail, so that tests can walk every error path.
 *
 * What can fail for an outside reason asks ps_fault_hit() once, in the thin wrapper where the outside call is made
 * (mem.c, file.c, folder.c, device*.c, disk.c), never in the code above it. Cost when idle: one relaxed load.
 * What else is global: CONTRIBUTING.md, Errors. */
#ifndef PS_BASE_FAULT_H
#define PS_BASE_FAULT_H

#include <stdbool.h>

typedef enum ps_fault_kind {
    PS_FAULT_ALLOC,  /* ps_mem_alloc, device payload allocation */
    PS_FAULT_COPY,   /* device copy */
    PS_FAULT_READ,   /* read of the disk tier or of a file */
    PS_FAULT_WRITE,  /* write of the disk tier, change of a file or folder */
    PS_FAULT_DEVICE, /* call into a device that works later: memory, queues, items, waits */
    PS_FAULT_LOST,   /* item of such a device, at which it is lost */
    PS_FAULT_COUNT,
} ps_fault_kind;

/* The call number `nth` (0 = the next) of this kind fails; with `persistent`, all after it too. nth < 0 disarms. */
void ps_fault_arm(ps_fault_kind kind, long nth, bool persistent);

/* True when an armed fault has struck since ps_fault_arm. */
bool ps_fault_has_struck(ps_fault_kind kind);

/* Asked by the wrappers: must this call fail? Thread-safe. */
bool ps_fault_hit(ps_fault_kind kind);

#endif
