#include "chunk/policy.h"

#include <string.h>

static int64_t lru_order(const ps_policy_query *q)
{
    return PS_ORDER_MOST - (int64_t)q->last_use_tick;
}

static int64_t opt_order(const ps_policy_query *q)
{
    if (q->schedule == NULL) return lru_order(q);
    const int32_t distance = ps_schedule_next_use(q->schedule, q->chunk, q->tier, q->now);
    return distance == PS_NEVER ? PS_ORDER_MOST : q->turn + distance;
}

static int64_t patrickstar_order(const ps_policy_query *q)
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

const ps_policy ps_policy_opt = {.name = "opt", .order = opt_order};
const ps_policy ps_policy_lru = {.name = "lru", .order = lru_order};
const ps_policy ps_policy_patrickstar = {.name = "patrickstar", .order = patrickstar_order};

const ps_policy *ps_policy_find(const char *name)
{
    static const ps_policy *const all[] = {&ps_policy_opt, &ps_policy_lru, &ps_policy_patrickstar};
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
        if (strcmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}
