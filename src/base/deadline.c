#include "base/deadline.h"

#include "base/machine.h"

ps_deadline ps_deadline_in(int64_t ns)
{
    return (ps_deadline){.at_ns = ps_clock_ns() + ns};
}

bool ps_deadline_stops(ps_deadline *d)
{
    if (d == NULL) return false;
    d->timed_out = d->timed_out || ps_clock_ns() >= d->at_ns;
    return d->timed_out;
}

ps_status ps_deadline_check(ps_deadline *d)
{
    return ps_deadline_stops(d) ? PS_FAIL(PS_EBUDGET, "time is up, and it is not known whether it fits") : PS_OK;
}
