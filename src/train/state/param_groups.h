/* param_groups.h - parameter groups: the numbers for their updates, as configured or as the program sets them during
 * training.
 *
 * The numbers for a step's updates are decided once, so when and where they run makes no difference:
 *
 *     configured --set--> numbers of the next step --decide--> numbers of its updates */
#ifndef PS_STATE_PARAM_GROUPS_H
#define PS_STATE_PARAM_GROUPS_H

#include "train/state/state.h"

typedef struct ps_param_group {
    const ps_settings_group *configured;
    ps_optimizer_setup optimizer; /* with weight decay, betas and eps as set */
    double lr;                    /* as set; NaN: by the schedule */
    ps_optimizer_setup decided;
    float decided_lr;
} ps_param_group;

typedef struct ps_param_groups {
    ps_param_group *all; /* [n] */
    int32_t n;
    /* as decided, for all groups: */
    bool skips;
    float grad_scale; /* as in ps_optimizer_step */
    int64_t t;        /* count of updates, for bias correction; a client has one for each tensor instead */
} ps_param_groups;

/* The groups of the settings, which must outlive them. PS_ENOMEM_HOST; *g is to be deinitialised then, too. */
PS_NODISCARD ps_status ps_param_groups_init(ps_param_groups *g, const ps_settings *s);
void ps_param_groups_deinit(ps_param_groups *g); /* an empty one is accepted */
/* Add a group, with the current numbers of the first one. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_param_groups_add(ps_param_groups *g);

/* Learning rate of the group's next update; n_updates: made so far. */
double ps_param_groups_learning_rate(const ps_param_groups *g, int32_t group, int64_t n_updates);

/* A number that the program sets: below 0, or NaN, resets it to the configuration. */
static inline double ps_param_group_number(double set, double configured)
{
    return set >= 0 ? set : configured;
}

/* Decide: the current numbers are those of this step's updates; n_updates: made before it. */
void ps_param_groups_decide(ps_param_groups *g, int64_t n_updates, bool skips, float grad_scale);
/* A hash of the numbers for the next updates of all groups, from this seed on: the same on all ranks. */
uint64_t ps_param_groups_hash(const ps_param_groups *g, int64_t n_updates, uint64_t seed);
/* The first group whose current numbers differ from the decided ones; -1: none. */
int32_t ps_param_groups_find_changed(const ps_param_groups *g, int64_t n_updates);
/* The arguments for the update of a piece of the group as decided, except the list of its gradients. decays: weight
 * decay applies. */
ps_piece_update ps_param_groups_update(const ps_param_groups *g, int32_t group, bool decays);

#endif
