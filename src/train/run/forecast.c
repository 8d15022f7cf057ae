#include "train/run/forecast.h"

/* A step whose computing waits for more than this share is bound by what it waits for. */
#define CRITICAL_WAIT_SHARE 0.1

const char *ps_step_time_critical(const ps_step_time *t)
{
    const char *name = "host updates";
    int64_t longest = t->host_wait_ns, waits = t->host_wait_ns + t->idle_ns;
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        waits += t->wait_ns[l];
        if (t->wait_ns[l] <= longest) continue;
        longest = t->wait_ns[l];
        name = ps_link_name((ps_link)l);
    }
    if (t->idle_ns > longest) name = "host";
    return (double)waits > CRITICAL_WAIT_SHARE * (double)t->all_ns ? name : "compute";
}
