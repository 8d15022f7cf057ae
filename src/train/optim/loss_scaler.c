/* loss_scaler.c - the loss scale's state machine, whose rules are in the header. */
#include "train/optim/loss_scaler.h"

#include <math.h>

static bool has_static_scale(const ps_loss_scaler *s)
{
    return s->options.loss_scale > 0.0f;
}

/* Written as "not inside" so that a NaN is refused too. */
static ps_status check_options(const ps_loss_scaler_options *o)
{
    if (!(o->loss_scale >= 0.0f) || isinf(o->loss_scale))
        return PS_FAIL(PS_EINVAL, "loss_scale %g must be 0 (dynamic) or positive and finite", (double)o->loss_scale);
    if (o->loss_scale > 0.0f) return PS_OK;
    if (o->loss_scale_window < 1)
        return PS_FAIL(PS_EINVAL, "loss_scale_window %lld must be at least 1", (long long)o->loss_scale_window);
    if (o->hysteresis < 1) return PS_FAIL(PS_EINVAL, "hysteresis %d must be at least 1", o->hysteresis);
    if (!(o->min_loss_scale > 0.0f))
        return PS_FAIL(PS_EINVAL, "min_loss_scale %g must be positive", (double)o->min_loss_scale);
    if (!(o->max_loss_scale >= o->min_loss_scale) || isinf(o->max_loss_scale))
        return PS_FAIL(PS_EINVAL, "max_loss_scale %g must be finite and at least min_loss_scale %g",
                       (double)o->max_loss_scale, (double)o->min_loss_scale);
    if (!(o->growth_factor > 1.0f) || isinf(o->growth_factor))
        return PS_FAIL(PS_EINVAL, "growth_factor %g must be finite and above 1", (double)o->growth_factor);
    if (!(o->backoff_factor > 0.0f && o->backoff_factor < 1.0f))
        return PS_FAIL(PS_EINVAL, "backoff_factor %g must be above 0 and below 1", (double)o->backoff_factor);
    if (!(o->initial_scale >= o->min_loss_scale && o->initial_scale <= o->max_loss_scale))
        return PS_FAIL(PS_EINVAL, "initial_scale %g is not within min_loss_scale %g and max_loss_scale %g",
                       (double)o->initial_scale, (double)o->min_loss_scale, (double)o->max_loss_scale);
    return PS_OK;
}

ps_status ps_loss_scaler_init(ps_loss_scaler *s, const ps_loss_scaler_options *options)
{
    PS_TRY(check_options(options));
    const bool is_static = options->loss_scale > 0.0f;
    *s = (ps_loss_scaler){
        .options = *options,
        .scale = is_static ? options->loss_scale : options->initial_scale,
        .hysteresis_left = is_static ? 1 : options->hysteresis,
        .event = PS_LOSS_SCALE_KEPT,
    };
    return PS_OK;
}

ps_status ps_loss_scaler_set(ps_loss_scaler *s, float scale)
{
    ps_loss_scaler_options *o = &s->options;
    if (!(scale > 0.0f) || isinf(scale))
        return PS_FAIL(PS_EINVAL, "loss scale %g must be positive and finite", (double)scale);
    if (!has_static_scale(s) && !(scale >= o->min_loss_scale && scale <= o->max_loss_scale))
        return PS_FAIL(PS_EINVAL, "loss scale %g is not within min_loss_scale %g and max_loss_scale %g", (double)scale,
                       (double)o->min_loss_scale, (double)o->max_loss_scale);
    s->scale = scale;
    if (has_static_scale(s))
        o->loss_scale = scale;
    else
        s->n_clean_steps = 0, s->hysteresis_left = o->hysteresis;
    return PS_OK;
}

ps_status ps_loss_scaler_check(const ps_loss_scaler *s)
{
    const ps_loss_scaler_options *o = &s->options;
    PS_TRY(check_options(o));
    const bool is_static = has_static_scale(s);
    const float min = is_static ? o->loss_scale : o->min_loss_scale;
    const float max = is_static ? o->loss_scale : o->max_loss_scale;
    if (!(s->scale >= min && s->scale <= max))
        return PS_FAIL(PS_EINVAL, "loss scale %g is not within %g and %g", (double)s->scale, (double)min, (double)max);
    const int64_t window = is_static ? 1 : o->loss_scale_window;
    if (s->n_clean_steps < 0 || s->n_clean_steps >= window)
        return PS_FAIL(PS_EINVAL, "%lld clean steps are not within a window of %lld", (long long)s->n_clean_steps,
                       (long long)window);
    const int hysteresis = is_static ? 1 : o->hysteresis;
    if (s->hysteresis_left < 1 || s->hysteresis_left > hysteresis)
        return PS_FAIL(PS_EINVAL, "remaining hysteresis %d is not within 1 and %d", s->hysteresis_left, hysteresis);
    if (s->n_skipped_steps < 0)
        return PS_FAIL(PS_EINVAL, "number of skipped steps %lld is negative", (long long)s->n_skipped_steps);
    if (s->event < PS_LOSS_SCALE_KEPT || s->event > PS_LOSS_SCALE_AT_MIN)
        return PS_FAIL(PS_EINVAL, "unknown loss scale event %d", (int)s->event);
    return PS_OK;
}

static ps_loss_scale_event after_overflow(ps_loss_scaler *s)
{
    s->n_clean_steps = 0;
    if (s->hysteresis_left > 1) {
        s->hysteresis_left--;
        return PS_LOSS_SCALE_HYSTERESIS;
    }
    if (s->scale <= s->options.min_loss_scale) return PS_LOSS_SCALE_AT_MIN;
    s->scale = fmaxf(s->scale * s->options.backoff_factor, s->options.min_loss_scale);
    return PS_LOSS_SCALE_SHRANK;
}

/* DeepSpeed grows when (iteration - iteration of the last overflow) is a multiple of the window: the same as counting
 * clean steps from 0 after each overflow and each growth. */
static ps_loss_scale_event after_clean_step(ps_loss_scaler *s)
{
    const bool is_window_full = ++s->n_clean_steps == s->options.loss_scale_window;
    if (is_window_full || s->options.consecutive_hysteresis) s->hysteresis_left = s->options.hysteresis;
    if (!is_window_full) return PS_LOSS_SCALE_KEPT;
    s->n_clean_steps = 0;
    if (s->scale >= s->options.max_loss_scale) return PS_LOSS_SCALE_AT_MAX;
    s->scale = fminf(s->scale * s->options.growth_factor, s->options.max_loss_scale);
    return PS_LOSS_SCALE_GREW;
}

bool ps_loss_scaler_update(ps_loss_scaler *s, bool overflow)
{
    if (overflow) s->n_skipped_steps++;
    if (has_static_scale(s)) return overflow;
    s->event = overflow ? after_overflow(s) : after_clean_step(s);
    return overflow;
}
