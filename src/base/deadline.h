/* deadline.h - a time limit for searches: one object for all searches of one `pstar plan`, those for a faster plan,
 * advice, the batch that hides the disk, and what a refusal names. A trial checks it before each micro-batch, a
 * blueprint before each that it records.
 *
 * NULL is no limit. That is how a run searches for its own plan: what it does never depends on how fast the machine
 * was. */
#ifndef PS_BASE_DEADLINE_H
#define PS_BASE_DEADLINE_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_deadline {
    int64_t at_ns;  /* as ps_clock_ns counts */
    bool timed_out; /* something was left out: without a deadline there might be more, or better */
} ps_deadline;

ps_deadline ps_deadline_in(int64_t ns);

/* Is time up? It then notes that something was left out (timed_out), as the caller must stop searching. */
bool ps_deadline_stops(ps_deadline *d);

/* PS_EBUDGET when time is up: whether it fits is not known. */
PS_NODISCARD ps_status ps_deadline_check(ps_deadline *d);

/* Did a search with this deadline leave something out? */
static inline bool ps_deadline_timed_out(const ps_deadline *d)
{
    return d != NULL && d->timed_out;
}

#endif
