/* chunk_size.h - the default range of chunk sizes: limits for the search of ps_layout_search. */
#ifndef PS_STATE_CHUNK_SIZE_H
#define PS_STATE_CHUNK_SIZE_H

#include "train/settings/settings.h"

/* In elements. */
typedef struct ps_chunk_limits {
    int64_t unit;  /* sizes are multiples of it */
    int64_t least; /* limits the number of chunks: each costs time, in transfers and in searches for a victim */
    int64_t most;  /* by budgets; it may be below `least` */
} ps_chunk_limits;

/* total_elements: of the model; device_bytes: budget of the device; update_bytes: budget of the tier that updates
 * chunks. */
ps_chunk_limits ps_chunk_limits_of(const ps_settings *s, int64_t total_elements, int64_t device_bytes,
                                   int64_t update_bytes);

#endif
