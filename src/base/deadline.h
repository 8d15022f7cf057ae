/* deadline.h - a time limit for searches. One object serves all searches of one `pstar plan`: for a faster plan, for
 * advice, for the batch that hides the disk, and for the remedies of a refusal. A trial checks it before each
 * micro-batch, an execution plan before each micro-batch that it records.
 *
 * NULL is no limit. A training run searches for its own plan without a limit, so that its plan does not depend on the
 * speed of the machine. */
#ifndef PS_BASE_DEADLINE_H
#define PS_BASE_DEADLINE_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_deadline {
    int64_t at_ns;  /* in the time of ps_clock_ns */
    bool timed_out; /* a search was cut short: without a deadline it might find more, or better */
} ps_deadline;

ps_deadline ps_deadline_in(int64_t ns);

/* Whether the time is up. If so it sets timed_out, and the caller must stop searching. */
bool ps_deadline_stops(ps_deadline *d);

/* PS_EBUDGET when the time is up: whether the plan fits is unknown. */
PS_NODISCARD ps_status ps_deadline_check(ps_deadline *d);

/* Whether a search with this deadline was cut short. */
static inline bool ps_deadline_timed_out(const ps_deadline *d)
{
    return d != NULL && d->timed_out;
}

#endif
