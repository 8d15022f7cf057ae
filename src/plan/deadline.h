/* deadline.h - until when answers are searched for: one object for all that one question asks, the search for a faster
 * way, advice, the batch that hides the disk, what a refusal names. A trial looks at it before each of its steps.
 *
 * NULL stands for "as long as it takes". That is how a run searches for its own plan: what it does never depends on how
 * fast the machine was. */
#ifndef PS_PLAN_DEADLINE_H
#define PS_PLAN_DEADLINE_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_deadline {
    int64_t at_ns;   /* as ps_clock_ns counts */
    bool has_passed; /* something was left out: without a deadline there might be more, or better */
} ps_deadline;

ps_deadline ps_deadline_in(int64_t ns);

/* Is time up? If so the caller leaves something out. */
bool ps_deadline_is_over(ps_deadline *d);

/* PS_EBUDGET when time is up: whether it fits is not known. */
PS_NODISCARD ps_status ps_deadline_check(ps_deadline *d);

/* Did a search with this deadline leave something out? */
static inline bool ps_deadline_has_cut(const ps_deadline *d)
{
    return d != NULL && d->has_passed;
}

#endif
