/* sameness.h - what must be the same on all ranks. */
#ifndef PS_ENGINE_SAMENESS_H
#define PS_ENGINE_SAMENESS_H

#include "base/status.h"

typedef struct ps_trait {
    const char *what; /* "configuration" */
    uint64_t value;
    const char *remedy;
} ps_trait;

/* All call, with the same n <= 8 traits. PS_EINVAL on all, naming the first rank whose value is not that of rank 0, its
 * machine and the trait. */
PS_NODISCARD ps_status ps_sameness_compare(ps_comm *c, const ps_trait *traits, int n);

#endif
