/* advise.h - what to change: so that a plan fits, or so that it is faster. Every piece of advice was simulated. */
#ifndef PS_PLAN_ADVISE_H
#define PS_PLAN_ADVISE_H

#include "train/plan/simulate.h"

enum { PS_ADVICE_MAX = 16, PS_ADVICE_TEXT_MAX = 160 };

typedef struct ps_advice {
    char change[PS_ADVICE_TEXT_MAX]; /* "activation_checkpointing.enabled=true train_micro_batch_size_per_gpu=8" */
    double tokens_per_s;             /* with it, of all ranks */
    double gain;                     /* tokens_per_s over those of the plan; 0 when the plan does not fit */
    int64_t saved_bytes;             /* model data of all ranks is so much smaller with it */
    const char *price;               /* what else changes, where that is not memory or time; NULL: nothing */
    int cost;                        /* of what makes a plan fit: 0 memory alone, 1 the numbers stay, 2 they change */
} ps_advice;

/* At most PS_ADVICE_MAX, each simulated as it is written, and within what the machine has. base: ps_simulate's answer
 * for the same arguments. A plan that fits is given what makes it at least 2 % faster, the fastest first; one that does
 * not, what fits, the cheapest first, and of equal cost the fastest. Where nothing is found, and `deadline` says that
 * nothing was left out, no change of the list in advise.c helps. */
PS_NODISCARD ps_status ps_advise(const ps_config *config, const ps_site *site, const ps_simulation *base,
                                 ps_deadline *deadline, ps_advice advice[PS_ADVICE_MAX], int *n);

#endif
