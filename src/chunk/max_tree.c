#include "chunk/max_tree.h"

#include "base/base.h"
#include "base/mem.h"

ps_status ps_max_tree_init(ps_max_tree *t, int32_t n)
{
    *t = (ps_max_tree){.n_leaves = 1};
    while (t->n_leaves < n) t->n_leaves *= 2;
    return ps_mem_alloc(2 * (size_t)t->n_leaves, sizeof *t->nodes, &t->nodes);
}

void ps_max_tree_deinit(ps_max_tree *t)
{
    ps_mem_free(t->nodes);
    *t = (ps_max_tree){.nodes = NULL};
}

void ps_max_tree_set(ps_max_tree *t, int32_t i, int64_t value)
{
    PS_ASSERT(i >= 0 && i < t->n_leaves && value >= 0);
    int32_t k = t->n_leaves + i;
    while (t->nodes[k] != value) {
        t->nodes[k] = value;
        if (k == 1) return;
        value = ps_max_i64(value, t->nodes[k ^ 1]);
        k /= 2;
    }
}

/* The leftmost leaf below node k whose number is above the bound; that of k is. */
static int32_t descend(const ps_max_tree *t, int32_t k, int64_t bound)
{
    while (k < t->n_leaves) {
        k *= 2;
        if (t->nodes[k] <= bound) k++;
    }
    return k - t->n_leaves;
}

int32_t ps_max_tree_most(const ps_max_tree *t)
{
    return t->nodes[1] == 0 ? -1 : descend(t, 1, t->nodes[1] - 1);
}

int64_t ps_max_tree_greatest(const ps_max_tree *t, int32_t begin, int32_t end)
{
    int64_t most = 0;
    /* nodes [k, last) of a level; nodes at its ends whose parents extend beyond it are handled here */
    for (int32_t k = t->n_leaves + begin, last = t->n_leaves + end; k < last; k /= 2, last /= 2) {
        if (k % 2 == 1) most = ps_max_i64(most, t->nodes[k++]);
        if (last % 2 == 1) most = ps_max_i64(most, t->nodes[--last]);
    }
    return most;
}

int32_t ps_max_tree_next_above(const ps_max_tree *t, int32_t begin, int64_t bound)
{
    if (begin >= t->n_leaves) return -1;
    int32_t k = t->n_leaves + begin;
    for (;;) {
        while (k % 2 == 0) k /= 2; /* the largest subtree that begins here */
        if (t->nodes[k] > bound) return descend(t, k, bound);
        if ((k & (k + 1)) == 0) return -1; /* the last of its level */
        k++;
    }
}
