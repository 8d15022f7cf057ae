/* hiding.h - which batch would hide the disk. Model data moves once a step, whatever its number of tokens; computing
 * takes longer with each token. So from some micro-batch on computing does not wait for the disk. */
#ifndef PS_PLAN_HIDING_H
#define PS_PLAN_HIDING_H

#include "train/plan/simulate.h"

typedef struct ps_hiding {
    int64_t B;           /* 0: the step does not wait for the disk. Else the micro-batch with which it would not */
    bool fits;           /* B was simulated; otherwise an estimate, as memory does not suffice for it */
    int64_t largest_B;   /* fits false: the largest that was simulated and fits; it waits for the disk too */
    double tokens_per_s; /* with B if it fits, else with largest_B; of all ranks */
} ps_hiding;

/* Does computing wait for the disk more than a tenth of the step? */
bool ps_simulation_waits_for_disk(const ps_simulation *s);

/* base: ps_simulate's answer for the same arguments. B is found by some ten simulations at most, to an eighth; 0 when
 * the deadline passes before. */
PS_NODISCARD ps_status ps_find_hiding(const ps_config *config, const ps_site *site, const ps_simulation *base,
                                      ps_deadline *deadline, ps_hiding *out);

#endif
