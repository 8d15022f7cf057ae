/* patrickstar_policy.h - PatrickStar's rule of who leaves, to compare with: farthest next use, but the whole update
 * phase is one moment, and chunks are equal (so the smallest id leaves) until the schedule exists. */
#ifndef PATRICKSTAR_POLICY_H
#define PATRICKSTAR_POLICY_H

#include "chunk/policy.h"

static inline int64_t patrickstar_order(const ps_policy_query *q)
{
    if (q->schedule == NULL) return 0;
    const ps_trace *t = ps_schedule_trace(q->schedule);
    const int32_t distance = ps_schedule_next_use(q->schedule, q->chunk, q->tier, q->now);
    if (distance == PS_NEVER) return PS_ORDER_MOST;
    /* all uses in the update phase count as its first moment, which may be over */
    int32_t use = (q->now + distance) % t->n_moments;
    int32_t back = 0;
    while (use > 0 && t->moments[use].phase == PS_PHASE_UPDATE && t->moments[use - 1].phase == PS_PHASE_UPDATE)
        use--, back++;
    return q->turn + distance - back;
}

static const ps_policy patrickstar_policy = {.name = "patrickstar", .order = patrickstar_order};

#endif
