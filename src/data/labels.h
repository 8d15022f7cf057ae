/* labels.h - the classes of a classifier: ids 0 .. n - 1, and names where the data have them.
 *
 * Classes come from a list of the user or of the model's folder ("negative,positive" are 0 and 1); from names in the
 * data, numbered in byte order, so that the order of the lines does not matter; or from integer labels without
 * names. */
#ifndef PS_DATA_LABELS_H
#define PS_DATA_LABELS_H

#include <stdbool.h>

#include "config/label_list.h"

typedef struct ps_labels {
    int32_t n_max;      /* classes that the model has */
    bool is_fixed;      /* ids are final: no name can be added */
    ps_label_list list; /* name of class i; before is_fixed, the i-th name found */
} ps_labels;

/* list: data.labels (label_list.h), "" or NULL: no names yet. PS_EINVAL as ps_label_list_parse, and for more than n_max
 * names. On failure *l is empty. */
PS_NODISCARD ps_status ps_labels_init(ps_labels *l, const char *list, int32_t n_max);
void ps_labels_deinit(ps_labels *l); /* an empty one is accepted */

/* The id of a name, or -1. */
int32_t ps_labels_find(const ps_labels *l, const char *name, int64_t n_bytes);

/* Add a new name; only before ids are fixed, and while there are fewer than n_max. */
PS_NODISCARD ps_status ps_labels_add(ps_labels *l, const char *name, int64_t n_bytes);

/* Sort the names and fix the ids; new_id[old] is the new id. */
void ps_labels_fix(ps_labels *l, int32_t *new_id);

#endif
