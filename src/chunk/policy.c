#include "chunk/policy.h"

#include <string.h>

static int64_t lru_order(const ps_policy_query *q)
{
    return PS_ORDER_MOST - (int64_t)q->last_use_tick;
}

static int64_t opt_order(const ps_policy_query *q)
{
    if (q->schedule == NULL) return lru_order(q);
    const int32_t distance = q->is_one_memory ? ps_schedule_next_use_anywhere(q->schedule, q->chunk, q->now)
                                              : ps_schedule_next_use(q->schedule, q->chunk, q->tier, q->now);
    return distance == PS_NEVER ? PS_ORDER_MOST : q->turn + distance;
}

const ps_policy ps_policy_opt = {.name = "opt", .order = opt_order};
const ps_policy ps_policy_lru = {.name = "lru", .order = lru_order};

const ps_policy *ps_policy_find(const char *name)
{
    static const ps_policy *const all[] = {&ps_policy_opt, &ps_policy_lru};
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
        if (strcmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}
