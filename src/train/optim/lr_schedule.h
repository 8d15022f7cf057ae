/* lr_schedule.h - the learning rate as a pure function of the step; nothing to save in a checkpoint but the step.
 *
 * s is the optimizer step, counted from 0; skipped steps (overflow) do not count. N = total_num_steps,
 * W = warmup_num_steps.
 *
 * As Hugging Face's transformers/optimization.py: s / W lr for s < W, then, with p = min(1, (s - W) / max(1, N - W)),
 *   constant              lr (no warm-up)
 *   constant_with_warmup  lr
 *   linear                lr (r + (1 - r) (1 - p)), r = min_lr_ratio; 0 is Hugging Face's "linear"
 *   cosine                lr (r + (1 - r) (1 + cos(pi p)) / 2); 0 is "cosine", more is "cosine_with_min_lr"
 *
 * As DeepSpeed's deepspeed/runtime/lr_schedules.py, W at least 2, with the ramp g(s) for s < W
 *   log     g = ln(s + 1) / ln(W)
 *   linear  g = s / W
 * and a = warmup_min_lr, b = warmup_max_lr, m = warmup_min_ratio, c = cos_min_ratio,
 * q = min(1, (s - W + 1) / max(1, N - W)):
 *                   s < W               s >= W
 *   WarmupLR        a + (b - a) g       b
 *   WarmupDecayLR   a + (b - a) g       a + (b - a) max(0, (N - s) / max(1, N - W))
 *   WarmupCosineLR  lr (m + (1 - m) g)  lr (c + (1 - c) (1 + cos(pi q)) / 2)
 * DeepSpeed gives its first step the value for "not started" and only then s = 0, 1, ..; here the first step has s = 0.
 *
 * After the decay the rate stays constant: the cosine does not rise again. N < W is allowed, as in both sources: the
 * run ends inside the warm-up. */
#ifndef PS_OPTIM_LR_SCHEDULE_H
#define PS_OPTIM_LR_SCHEDULE_H

#include "base/base.h"
#include "base/status.h"

/* config/ has the names of the types in configurations. */
typedef enum ps_lr_type {
    PS_LR_CONSTANT,
    PS_LR_CONSTANT_WITH_WARMUP,
    PS_LR_LINEAR,
    PS_LR_COSINE,
    PS_LR_WARMUP_LR,
    PS_LR_WARMUP_DECAY_LR,
    PS_LR_WARMUP_COSINE_LR,
} ps_lr_type;

typedef enum ps_lr_ramp {
    PS_LR_RAMP_LOG, /* DeepSpeed's default */
    PS_LR_RAMP_LINEAR,
} ps_lr_ramp;

typedef struct ps_lr_schedule {
    ps_lr_type type;
    double lr;                /* the optimizer's rate, >= 0; not read by WarmupLR and WarmupDecayLR */
    int64_t warmup_num_steps; /* W >= 0; not read by constant */
    int64_t total_num_steps;  /* N >= 1; read by linear, cosine, WarmupDecayLR and WarmupCosineLR */
    double min_lr_ratio;      /* linear, cosine: within 0 and 1 */
    ps_lr_ramp warmup_type;   /* the DeepSpeed types */
    double warmup_min_lr;     /* WarmupLR, WarmupDecayLR: >= 0 */
    double warmup_max_lr;     /* WarmupLR, WarmupDecayLR: >= warmup_min_lr */
    double warmup_min_ratio;  /* WarmupCosineLR: within 0 and 1 */
    double cos_min_ratio;     /* WarmupCosineLR: within 0 and 1 */
} ps_lr_schedule;

/* PS_EINVAL naming the first field outside its range above; fields that the type does not use are ignored. */
PS_NODISCARD ps_status ps_lr_schedule_check(const ps_lr_schedule *schedule);

/* The rate of step >= 0 under a schedule that passed the check. */
double ps_lr_schedule_get(const ps_lr_schedule *schedule, int64_t step);

#endif
