/* name_index.h - a hash table from names to numbers, with open addressing, for files and models with many tensors. */
#ifndef PS_BASE_NAME_INDEX_H
#define PS_BASE_NAME_INDEX_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ps_name_index {
    const char **names; /* [n_slots], NULL: free */
    int32_t *numbers;   /* [n_slots] */
    uint64_t n_slots;   /* a power of two, above the number of names */
} ps_name_index;

/* Allocate room for n_names names. Call deinit also after a failure; it accepts a zero-filled index. */
PS_NODISCARD ps_status ps_name_index_init(ps_name_index *x, int64_t n_names);
/* Grow an index with names, or a zero-filled one, to n_names names in all. After a failure it is unchanged. */
PS_NODISCARD ps_status ps_name_index_reserve(ps_name_index *x, int64_t n_names);
void ps_name_index_deinit(ps_name_index *x);

/* The name is not copied, and must stay valid while it is in the index. False, and no change, when it is in the index
 * already. */
bool ps_name_index_add(ps_name_index *x, const char *name, int32_t number);
int32_t ps_name_index_find(const ps_name_index *x, const char *name); /* -1: not found */
void ps_name_index_remove(ps_name_index *x, const char *name);        /* does nothing when it is not found */

#endif
