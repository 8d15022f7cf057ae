/* lists.h - the chunk lists of a run, by number.
 *
 *     0   PARAM16    parameters as operators read them; their gradients overwrite them
 *     1   MASTER     fp32 parameters
 *     2   ...        the optimizer's states, as many as it has: MOMENTUM and VARIANCE of Adam
 *     n-2 GRAD       fp32 gradients that may not overwrite: accumulation, parameters read again
 *     n-1 GRAD_SUM   sums of them over micro-batches, where GRAD has those of one: with several ranks
 *
 *   n   INPUTS     apart: what entered a checkpoint segment, until it is computed again (graph/code.h)
 *
 * Parameters that are not trained are in chunks of their own, of PARAM16 alone (ps_layout.n_mirrored).
 *
 * Those from MASTER up to GRAD are the optimizer's data: what an update reads and writes, and what a checkpoint
 * holds. */
#ifndef PS_STATE_LISTS_H
#define PS_STATE_LISTS_H

#include "chunk/store.h"
#include "settings/settings.h"

enum { PS_LIST_PARAM16, PS_LIST_MASTER, PS_LIST_STATES };

/* Those that do not exist with these settings have 0 bytes an element: for inference all but PARAM16. Of INPUTS there are
 * n_apart chunks, each for at most apart_bytes. */
ps_lists ps_lists_of(const ps_settings *s, int32_t n_apart, int64_t apart_bytes);

static inline ps_list ps_lists_grad(const ps_lists *l)
{
    return l->n - 2;
}

static inline ps_list ps_lists_grad_sum(const ps_lists *l)
{
    return l->n - 1;
}

#endif
