/* work_time.h - when something was computed, for a profile: by the host's clock, and on asynchronous devices also by
 * marks of the queue that computed it. */
#ifndef PS_STATE_WORK_TIME_H
#define PS_STATE_WORK_TIME_H

#include "train/state/tiers.h"

typedef struct ps_work_time {
    int64_t issued_ns;
    ps_event mark; /* nothing: computed when issued, or not recorded */
} ps_work_time;

/* The name under which marks of the tier's compute queue are recorded. */
static inline uint8_t ps_work_link(ps_tier tier)
{
    return (uint8_t)(PS_LINK_COUNT + tier);
}

/* Now, in the order of the tier's compute queue. */
ps_work_time ps_work_now(const ps_tiers *t, ps_tier tier);

/* Add the record with its times: work of the tier from `begin` until now. */
void ps_work_record(const ps_tiers *t, ps_tier tier, const ps_work_time *begin, ps_profile_record *r);

#endif
