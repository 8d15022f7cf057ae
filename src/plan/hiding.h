/* hiding.h - which batch would hide the disk. Model data moves once a step, however many tokens it has; computing takes
 * longer with each. So from some micro-batch on computing does not wait for the disk any more. */
#ifndef PS_PLAN_HIDING_H
#define PS_PLAN_HIDING_H

#include "plan/simulate.h"

typedef struct ps_hiding {
    int64_t B; /* 0: the step does not wait for the disk. Else sequences of a micro-batch with which it would not */
    bool fits; /* B was simulated; otherwise it is an estimate, as memory does not hold so many */
    int64_t largest_B;   /* fits false: so many were simulated, and fit; the step waits for the disk with them too */
    double tokens_per_s; /* with B if it fits, else with largest_B; of all ranks */
} ps_hiding;

/* Does computing wait for the disk more than a tenth of the step? */
bool ps_simulation_waits_for_disk(const ps_simulation *s);

/* base: ps_simulate's answer for the same arguments. B is found by some ten simulations at most, to an eighth; when
 * time is up before it is, it is 0. */
PS_NODISCARD ps_status ps_find_hiding(const ps_config *config, const ps_site *site, const ps_simulation *base,
                                      ps_deadline *deadline, ps_hiding *out);

#endif
