#include "run/forecast.h"

/* Computing that stands still for more than this share of a step is bound by what it waits for. */
#define CRITICAL_WAIT_SHARE 0.1

const char *ps_step_time_critical(const ps_step_time *t)
{
    int longest = 0;
    int64_t waits = 0;
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        waits += t->wait_ns[l];
        if (t->wait_ns[l] > t->wait_ns[longest]) longest = l;
    }
    return (double)waits > CRITICAL_WAIT_SHARE * (double)t->all_ns ? ps_link_name((ps_link)longest) : "compute";
}
