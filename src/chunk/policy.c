#include "chunk/policy.h"

#include <string.h>

static int64_t lru_rank(const ps_policy_query *q)
{
    return (int64_t)(q->tick - q->last_use_tick);
}

static int64_t opt_rank(const ps_policy_query *q)
{
    return q->schedule == NULL ? lru_rank(q) : ps_schedule_next_use(q->schedule, q->chunk, q->tier, q->now);
}

static int64_t patrickstar_rank(const ps_policy_query *q)
{
    if (q->schedule == NULL) return 0;
    const ps_trace *t = ps_schedule_trace(q->schedule);
    const int32_t n = t->n_moments;
    const int32_t distance = ps_schedule_next_use(q->schedule, q->chunk, q->tier, q->now);
    if (distance == PS_NEVER) return 2 * (int64_t)n;
    /* all uses in the update phase count as its first moment */
    int32_t use = (q->now + distance) % n;
    int32_t back = 0;
    while (use > 0 && t->moments[use].phase == PS_PHASE_ADAM && t->moments[use - 1].phase == PS_PHASE_ADAM)
        use--, back++;
    return distance > back ? distance - back : 0;
}

const ps_policy ps_policy_opt = {.name = "opt", .rank = opt_rank};
const ps_policy ps_policy_lru = {.name = "lru", .rank = lru_rank};
const ps_policy ps_policy_patrickstar = {.name = "patrickstar", .rank = patrickstar_rank};

const ps_policy *ps_policy_find(const char *name)
{
    static const ps_policy *const all[] = {&ps_policy_opt, &ps_policy_lru, &ps_policy_patrickstar};
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
        if (strcmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}
