/* resident.h - memory of this process that is nobody's file: what a framework that says nothing of its own has in use.
 * One thread at a time. */
#ifndef PS_EXTERNAL_RESIDENT_H
#define PS_EXTERNAL_RESIDENT_H

#include "base/status.h"

typedef struct ps_resident {
    int fd; /* of /proc/self/statm; -1: not open */
} ps_resident;

/* PS_EIO when the system does not say. */
PS_NODISCARD ps_status ps_resident_open(ps_resident *r);
void ps_resident_close(ps_resident *r);
/* Private pages in memory, in bytes; a few microseconds. PS_EIO. */
PS_NODISCARD ps_status ps_resident_measure(const ps_resident *r, int64_t *bytes);

/* Ask the C library to give back to the system what was freed. */
void ps_resident_trim(void);

#endif
