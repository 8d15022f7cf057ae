/* consistency.h - checks that a value is the same on all ranks. */
#ifndef PS_COMM_CONSISTENCY_H
#define PS_COMM_CONSISTENCY_H

#include "base/status.h"

typedef struct ps_consistency_item {
    const char *what; /* "configuration" */
    uint64_t value;
    const char *remedy;
} ps_consistency_item;

#define PS_CONSISTENCY_ITEMS_MAX 8

/* All ranks call, with the same n <= PS_CONSISTENCY_ITEMS_MAX items. PS_EINVAL on all, naming the first rank whose
 * value differs from that of rank 0, its machine and the item; PS_ECOMM. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_comm_check_consistency(ps_comm *c, const ps_consistency_item *items, int n);

#endif
