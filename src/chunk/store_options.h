/* store_options.h - options of the configuration that the store acts on, and where they are read. */
#ifndef PS_CHUNK_STORE_OPTIONS_H
#define PS_CHUNK_STORE_OPTIONS_H

#include "config/option/options.h"

typedef struct ps_store_options {
    int32_t prefetch; /* memory.prefetch: chunk loads kept in flight ahead of use; 0: no prefetching */
    /* Not an option: a plan clears it (ps_exec_plan_store_options). Loads for the next step do not evict chunks that
     * would have to be written to disk first. */
    bool spares_writes;
    /* Not an option either. Loads begin at most so many moments ahead of use; 0: as soon as there is room. */
    int32_t moments_ahead;
} ps_store_options;

static inline ps_store_options ps_store_options_read(const ps_options *o)
{
    return (ps_store_options){.prefetch = (int32_t)o->memory_prefetch, .spares_writes = true};
}

#endif
