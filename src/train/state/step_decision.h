/* step_decision.h - decisions from a step's gradients once they are summed over all ranks: their norm, the factor for
 * updates, and when skipped steps end training. */
#ifndef PS_STATE_STEP_DECISION_H
#define PS_STATE_STEP_DECISION_H

#include "kernel/kernel.h"
#include "train/optim/loss_scaler.h"

typedef struct ps_step_decision {
    double norm;      /* of the step's gradients as one vector */
    bool overflow;    /* they are not finite: updates must not use them */
    float grad_scale; /* as in ps_optimizer_step */
} ps_step_decision;

/* The factor for gradients whose stored values are scale times the step's: the clip factor over scale. clip_norm <= 0:
 * no clipping. */
float ps_step_grad_scale(double norm, double clip_norm, double scale);

/* sums: of gradients whose stored values are scale times the step's; the sum of squares is carried. */
ps_step_decision ps_step_decide(ps_grad_sums *sums, double clip_norm, double scale);

enum { PS_NONFINITE_TEXT_MAX = 300 };

/* Consecutive steps that were skipped without remedy. */
typedef struct ps_nonfinite {
    int64_t n_steps, first_step;
    char seen[PS_NONFINITE_TEXT_MAX]; /* what this rank found in the first of them */
} ps_nonfinite;

/* Record the end of a step. It counts if it was skipped and the loss scale neither fell nor waits to: then the next
 * step will hardly be better. Any other step resets the count. */
void ps_nonfinite_count(ps_nonfinite *n, const ps_loss_scaler *scaler, bool skipped, int64_t step, const char *seen);

/* PS_ENUMERIC after `most` of them (0: never). The same on all ranks, except for what each has found. */
PS_NODISCARD ps_status ps_nonfinite_check(const ps_nonfinite *n, int64_t most);

#endif
