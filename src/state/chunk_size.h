/* chunk_size.h - how large chunks may be, where nobody says it: limits for the search of ps_layout_search. */
#ifndef PS_STATE_CHUNK_SIZE_H
#define PS_STATE_CHUNK_SIZE_H

#include "settings/settings.h"

/* In elements. */
typedef struct ps_chunk_limits {
    int64_t unit;  /* sizes are multiples of it */
    int64_t least; /* bounds the number of chunks: each has a price, in moves and in looks for a victim */
    int64_t most;  /* by budgets; it may be below `least` */
} ps_chunk_limits;

/* For a model of so many elements, on a device with such a budget, and updates where there is such a one. */
ps_chunk_limits ps_chunk_limits_of(const ps_settings *s, int64_t total_elements, int64_t device_bytes,
                                   int64_t update_bytes);

#endif
