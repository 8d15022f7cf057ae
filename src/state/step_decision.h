/* step_decision.h - what comes of a step's gradients once they are summed over all ranks: their norm, what updates
 * multiply them by, and when skipped steps end training. */
#ifndef PS_STATE_STEP_DECISION_H
#define PS_STATE_STEP_DECISION_H

#include "kernel/kernel.h"
#include "optim/loss_scaler.h"

typedef struct ps_step_decision {
    double norm;      /* of the step's gradients as one vector */
    bool overflow;    /* it is not finite: updates must not use them */
    float grad_scale; /* as in ps_optimizer_step */
} ps_step_decision;

/* What updates multiply gradients by that are, as they lie there, scale times the step's: the clip factor over scale.
 * clip_norm <= 0: no clipping. */
float ps_step_grad_scale(double norm, double clip_norm, double scale);

/* sums: of gradients that are, as they lie there, scale times the step's; the sum of squares is carried. */
ps_step_decision ps_step_decide(ps_grad_sums *sums, double clip_norm, double scale);

enum { PS_NONFINITE_TEXT_MAX = 300 };

/* Steps in a row that were skipped without remedy. */
typedef struct ps_nonfinite {
    int64_t n_steps, first_step;
    char seen[PS_NONFINITE_TEXT_MAX]; /* what this rank saw in the first of them */
} ps_nonfinite;

/* Count a step that ends. It counts when it was skipped and the loss scale did not answer by falling, or by waiting to:
 * then the next step will hardly be better. Any other step begins the count anew. */
void ps_nonfinite_count(ps_nonfinite *n, const ps_loss_scaler *scaler, bool skipped, int64_t step, const char *seen);

/* PS_ENUMERIC after `most` of them (0: never). The same on all ranks, but for what each has seen. */
PS_NODISCARD ps_status ps_nonfinite_check(const ps_nonfinite *n, int64_t most);

#endif
