/* groups.h - groups of parameters: what their updates compute with, as configured or as the program sets it while
 * training goes on.
 *
 * What the updates of a step compute with is decided once, so when and where they run makes no difference:
 *
 *     configured --set--> numbers of the next step --decide--> numbers of its updates */
#ifndef PS_STATE_GROUPS_H
#define PS_STATE_GROUPS_H

#include "state/state.h"

typedef struct ps_group {
    const ps_settings_group *configured;
    ps_optimizer_setup optimizer; /* with weight decay, betas and eps as they are set */
    double lr;                    /* as it is set; NaN: by the schedule */
    ps_optimizer_setup decided;
    float decided_lr;
} ps_group;

typedef struct ps_groups {
    ps_group *all; /* [n] */
    int32_t n;
    /* as decided, of all groups: */
    bool skips;
    float grad_scale; /* as in ps_optimizer_step */
    int64_t t;        /* count of updates, for bias correction; a client has one for each tensor instead */
} ps_groups;

/* Those of the settings, which must outlive them. PS_ENOMEM_HOST; *g is to be deinitialised then, too. */
PS_NODISCARD ps_status ps_groups_init(ps_groups *g, const ps_settings *s);
void ps_groups_deinit(ps_groups *g); /* an empty one is accepted */
/* One more, which has all that the first one has now. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_groups_add(ps_groups *g);

/* Learning rate of the group's next update; n_updates: made so far. */
double ps_groups_learning_rate(const ps_groups *g, int32_t group, int64_t n_updates);

/* A number that the program sets: below 0, or NaN, it is as configured. */
static inline double ps_group_number(double set, double configured)
{
    return set >= 0 ? set : configured;
}

/* What is set now is what this step's updates compute with; n_updates: made before it. */
void ps_groups_decide(ps_groups *g, int64_t n_updates, bool skips, float grad_scale);
/* The first group in which that would not be what has been decided; -1: none. */
int32_t ps_groups_find_changed(const ps_groups *g, int64_t n_updates);
/* What the update of a piece of the group computes with as decided, but for the list of its gradients. decays: weight
 * decay applies. */
ps_piece_update ps_groups_update(const ps_groups *g, int32_t group, bool decays);

#endif
