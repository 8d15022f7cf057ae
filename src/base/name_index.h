/* name_index.h - from names to numbers, for files and models with many tensors: open addressing. */
#ifndef PS_BASE_NAME_INDEX_H
#define PS_BASE_NAME_INDEX_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ps_name_index {
    const char **names; /* [n_slots], NULL: free */
    int32_t *numbers;   /* [n_slots] */
    uint64_t n_slots;   /* a power of two, more than the names */
} ps_name_index;

/* Room for n_names names. Deinit also after a failure, and of a zero-filled index. */
PS_NODISCARD ps_status ps_name_index_init(ps_name_index *x, int64_t n_names);
/* Of an index with names, or a zero-filled one: room for n_names together. After a failure it is as before. */
PS_NODISCARD ps_status ps_name_index_reserve(ps_name_index *x, int64_t n_names);
void ps_name_index_deinit(ps_name_index *x);

/* The name is not copied and must stay as long as it is there. False, and no change, when it is there already. */
bool ps_name_index_add(ps_name_index *x, const char *name, int32_t number);
int32_t ps_name_index_find(const ps_name_index *x, const char *name); /* -1: not there */
void ps_name_index_remove(ps_name_index *x, const char *name);        /* nothing when it is not there */

#endif
