/* trial.h - runs a blueprint on simulated tiers before any memory is taken: does it fit, and how long does a step take? */
#ifndef PS_ENGINE_TRIAL_H
#define PS_ENGINE_TRIAL_H

#include "engine/runner.h"

/* Estimated time of one step. all = compute + lost + waits. */
typedef struct ps_step_time {
    int64_t all_ns, compute_ns;
    int64_t lost_ns; /* computing was slower while copies ran */
    int64_t busy_ns[PS_LINK_COUNT], wait_ns[PS_LINK_COUNT];
} ps_step_time;

/* The resource that bounds the step: "compute", or the link that computing waits for longest, when waits are more than a tenth. */
const char *ps_step_time_critical(const ps_step_time *t);

typedef struct ps_forecast {
    int64_t peak_bytes[PS_TIER_COUNT];  /* from the creation of parameters through steady steps */
    int64_t moved_bytes[PS_LINK_COUNT]; /* of the last step tried, number `steps` */
    ps_step_time step;                  /* average of the last `cycle` steps tried: from then on it goes on like that */
    ps_use peak[PS_RAM_TIER_COUNT];     /* what the bytes at the peak were */
    int64_t steps;                      /* tried; later ones repeat what these did */
    int64_t
        cycle; /* the last so many go round in a circle; of a run that does not settle, the second half of those tried */
} ps_forecast;

/* Run steps of the blueprint on simulated tiers of these budgets. keeps_dump: where it fails, ps_last_memory_dump says what it had
 * there. PS_EBUDGET when it does not fit. */
PS_NODISCARD ps_status ps_trial_run(const ps_blueprint *b, const ps_budgets *budgets, bool keeps_dump, ps_forecast *f);

/* Does b, which fits a run that begins with it, also fit one that goes on with it where `from` stands between steps? Chunks lie
 * elsewhere then, and in memory that is full to the last chunk two may not find the room to change places. PS_EBUDGET when not.
 * Its store is settled; *from stays as it is. */
PS_NODISCARD ps_status ps_trial_change(const ps_runner *from, const ps_blueprint *b);

/* Run a blueprint that fits once more, and record what happens in steps first to last, counted from 1, in estimated time. */
PS_NODISCARD ps_status ps_trial_record(const ps_blueprint *b, const ps_budgets *budgets, int64_t first, int64_t last,
                                       ps_profile *profile);

#endif
