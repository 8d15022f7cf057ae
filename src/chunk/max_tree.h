/* max_tree.h - an array of numbers with a tree of maxima: the index of the greatest, or of the next one above a bound,
 * is found in logarithmic time.
 *
 * A complete binary tree of maxima: node 1 is the root, below node k are 2k and 2k + 1, index i is leaf n_leaves + i.
 * One thread at a time. */
#ifndef PS_CHUNK_MAX_TREE_H
#define PS_CHUNK_MAX_TREE_H

#include "base/status.h"

typedef struct ps_max_tree {
    int32_t n_leaves; /* a power of two */
    int64_t *nodes;   /* [2 * n_leaves] */
} ps_max_tree;

/* n numbers, all 0. */
PS_NODISCARD ps_status ps_max_tree_init(ps_max_tree *t, int32_t n);
void ps_max_tree_deinit(ps_max_tree *t); /* one that is all zeros is accepted */

/* value >= 0 */
void ps_max_tree_set(ps_max_tree *t, int32_t i, int64_t value);

static inline int64_t ps_max_tree_get(const ps_max_tree *t, int32_t i)
{
    return t->nodes[t->n_leaves + i];
}

/* The smallest index of the greatest number; -1: all are 0. */
int32_t ps_max_tree_most(const ps_max_tree *t);

/* The greatest number with an index in [begin, end); 0 when the range is empty. */
int64_t ps_max_tree_greatest(const ps_max_tree *t, int32_t begin, int32_t end);

/* The smallest index >= `begin` whose number is above `bound` (>= 0); -1: none. */
int32_t ps_max_tree_next_above(const ps_max_tree *t, int32_t begin, int64_t bound);

#endif
