/* lr_schedule.c - learning rate schedules; formulas and their sources are in the header. */
#include "train/optim/lr_schedule.h"

#include <math.h>

#include "base/same_math.h"

static const double pi = 3.14159265358979323846;

/* ---- check ---- */

/* The comparisons are written so that a NaN fails them. */
static ps_status check_rate(const char *field, double x, double min)
{
    if (x >= min && !isinf(x)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s %g must be finite and at least %g", field, x, min);
}

static ps_status check_ratio(const char *field, double x)
{
    if (x >= 0.0 && x <= 1.0) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s %g must be within 0 and 1", field, x);
}

static ps_status check_steps(const char *field, int64_t n, int64_t min)
{
    if (n >= min) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s %lld must be at least %lld", field, (long long)n, (long long)min);
}

ps_status ps_lr_schedule_check(const ps_lr_schedule *s)
{
    switch (s->type) {
    case PS_LR_CONSTANT: return check_rate("lr", s->lr, 0.0);
    case PS_LR_CONSTANT_WITH_WARMUP:
        PS_TRY(check_rate("lr", s->lr, 0.0));
        return check_steps("warmup_num_steps", s->warmup_num_steps, 0);
    case PS_LR_LINEAR:
    case PS_LR_COSINE:
        PS_TRY(check_rate("lr", s->lr, 0.0));
        PS_TRY(check_steps("warmup_num_steps", s->warmup_num_steps, 0));
        PS_TRY(check_steps("total_num_steps", s->total_num_steps, 1));
        return check_ratio("min_lr_ratio", s->min_lr_ratio);
    case PS_LR_WARMUP_LR:
    case PS_LR_WARMUP_DECAY_LR:
        PS_TRY(check_rate("warmup_min_lr", s->warmup_min_lr, 0.0));
        PS_TRY(check_rate("warmup_max_lr", s->warmup_max_lr, s->warmup_min_lr));
        PS_TRY(check_steps("warmup_num_steps", s->warmup_num_steps, 0));
        return s->type == PS_LR_WARMUP_LR ? PS_OK : check_steps("total_num_steps", s->total_num_steps, 1);
    case PS_LR_WARMUP_COSINE_LR:
        PS_TRY(check_rate("lr", s->lr, 0.0));
        PS_TRY(check_steps("warmup_num_steps", s->warmup_num_steps, 0));
        PS_TRY(check_steps("total_num_steps", s->total_num_steps, 1));
        PS_TRY(check_ratio("warmup_min_ratio", s->warmup_min_ratio));
        return check_ratio("cos_min_ratio", s->cos_min_ratio);
    }
    return PS_FAIL(PS_EINVAL, "unknown learning rate schedule %d", (int)s->type);
}

/* ---- formulas ---- */

/* From `from` at x = 0 to `to` at x = 1; exactly `to` there. */
static double blend(double from, double to, double x)
{
    return from * (1.0 - x) + to * x;
}

/* 1 at progress 0, 0 at progress 1: half a cosine wave. */
static double half_cosine(double progress)
{
    return 0.5 * (1.0 + ps_same_cos(pi * progress));
}

/* n_done / max(1, n), at most 1. */
static double share_of(int64_t n_done, int64_t n)
{
    return fmin(1.0, (double)n_done / (double)ps_max_i64(1, n));
}

/* The fraction of the warm-up before step < n_warmup: g in the header. */
static double ramp_up(const ps_lr_schedule *s, int64_t n_warmup, int64_t step)
{
    if (s->warmup_type == PS_LR_RAMP_LINEAR) return (double)step / (double)n_warmup;
    return ps_same_log((double)step + 1.0) / ps_same_log((double)n_warmup);
}

static double hugging_face_rate(const ps_lr_schedule *s, int64_t step)
{
    const int64_t n_warmup = s->warmup_num_steps;
    if (step < n_warmup) return s->lr * ((double)step / (double)n_warmup);
    if (s->type == PS_LR_CONSTANT_WITH_WARMUP) return s->lr;
    const double progress = share_of(step - n_warmup, s->total_num_steps - n_warmup);
    const double left = s->type == PS_LR_LINEAR ? 1.0 - progress : half_cosine(progress);
    return s->lr * blend(s->min_lr_ratio, 1.0, left);
}

static double deepspeed_rate(const ps_lr_schedule *s, int64_t step)
{
    const int64_t n_warmup = ps_max_i64(2, s->warmup_num_steps); /* ln(W) is a divisor */
    const int64_t n_decay = s->total_num_steps - n_warmup;
    if (s->type == PS_LR_WARMUP_COSINE_LR) {
        if (step < n_warmup) return s->lr * blend(s->warmup_min_ratio, 1.0, ramp_up(s, n_warmup, step));
        return s->lr * blend(s->cos_min_ratio, 1.0, half_cosine(share_of(step - n_warmup + 1, n_decay)));
    }
    double ratio = 1.0;
    if (step < n_warmup)
        ratio = ramp_up(s, n_warmup, step);
    else if (s->type == PS_LR_WARMUP_DECAY_LR)
        ratio = fmax(0.0, (double)(s->total_num_steps - step) / (double)ps_max_i64(1, n_decay));
    return blend(s->warmup_min_lr, s->warmup_max_lr, ratio);
}

double ps_lr_schedule_get(const ps_lr_schedule *s, int64_t step)
{
    PS_ASSERT(step >= 0);
    switch (s->type) {
    case PS_LR_CONSTANT: return s->lr;
    case PS_LR_CONSTANT_WITH_WARMUP:
    case PS_LR_LINEAR:
    case PS_LR_COSINE: return hugging_face_rate(s, step);
    case PS_LR_WARMUP_LR:
    case PS_LR_WARMUP_DECAY_LR:
    case PS_LR_WARMUP_COSINE_LR: return deepspeed_rate(s, step);
    }
    PS_ASSERT(false);
    return s->lr;
}
