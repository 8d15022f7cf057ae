/* trial.h - does it fit? Runs a blueprint on simulated tiers before any memory is taken. */
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
    int64_t moved_bytes[PS_LINK_COUNT]; /* of the last step tried */
    ps_step_time step;                  /* the same step's */
    ps_use peak[PS_RAM_TIER_COUNT];     /* what the bytes at the peak were */
    int64_t steps;                      /* tried; later ones repeat what these did */
} ps_forecast;

/* The blueprint with which this program runs in `budgets`: chunk size as set, or searched (smaller ones are tried when a
 * larger one does not fit). PS_EBUDGET with the moment that needs most when none fits; then *out is NULL. */
PS_NODISCARD ps_status ps_trial_find_blueprint(const ps_settings *s, const ps_program *program, const ps_plan *plan,
                                               const ps_budgets *budgets, ps_blueprint **out, ps_forecast *forecast);

/* Does b, which fits a run that begins with it, also fit one that goes on with it where `from` stands between steps? Chunks lie
 * elsewhere then, and in memory that is full to the last chunk two may not find the room to change places. PS_EBUDGET when not.
 * Its store is settled; *from stays as it is. */
PS_NODISCARD ps_status ps_trial_change(const ps_runner *from, const ps_blueprint *b);

/* Run a blueprint that fits once more, and record what happens in steps first to last, counted from 1, in estimated time. */
PS_NODISCARD ps_status ps_trial_record(const ps_blueprint *b, const ps_budgets *budgets, int64_t first, int64_t last,
                                       ps_profile *profile);

/* After a refusal: the same with the smallest changes that fit added to the last error's text: a larger device budget (exact
 * to the byte), a smaller micro-batch, checkpointing, a disk tier; each was tried. Returns PS_EBUDGET. */
PS_NODISCARD ps_status ps_trial_explain(const ps_settings *s, ps_model_func model, void *user,
                                        const ps_program *program, const ps_plan *plan);

#endif
