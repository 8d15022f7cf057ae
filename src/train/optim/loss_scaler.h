/* loss_scaler.h - the factor of the loss before backward, so that 16-bit gradients do not underflow.
 *
 * The rules are those of DeepSpeed (deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler), with a maximum in
 * addition. A step whose gradients hold an infinity or a NaN is an *overflow*: it is always skipped, under a static
 * scale too.
 *
 *   dynamic, one ps_loss_scaler_update a step; h = hysteresis_left, c = n_clean_steps:
 *
 *   overflow, h > 1   h -= 1           c = 0   event HYSTERESIS   the scale is kept: one bad batch is forgiven
 *   overflow, h == 1  scale *= backoff c = 0   event SHRANK       never below min_scale
 *                     scale == min     c = 0   event AT_MIN       cannot shrink; the caller may stop
 *   clean             c += 1
 *     c == window     scale *= growth  c = 0   event GREW         never above max_scale; h refilled
 *                     scale == max     c = 0   event AT_MAX       h refilled
 *     c <  window                              event KEPT         h refilled only with consecutive_hysteresis
 *
 * h stays 1 once used up: until it is refilled every further overflow lowers the scale at once.
 *
 * The scale is a float, and so is every change of it. Where it is a power of two, as with factors 2 and 1/2 and such a
 * start, a scaled gradient has the bits of an unscaled one except for its exponent, and dividing by it is exact; else
 * both are rounded once more, relative 2^-24 in fp32, the same in every memory and on every rank. A pure state machine:
 * no clock, no memory, no devices. The struct is plain, so that a checkpoint can hold it. */
#ifndef PS_OPTIM_LOSS_SCALER_H
#define PS_OPTIM_LOSS_SCALER_H

#include "base/base.h"
#include "base/status.h"

/* Names as in DeepSpeed's "fp16" section; the factors, which are 2 and 1/2 there, as in ColossalAI's
 * DynamicGradScaler. */
typedef struct ps_loss_scaler_options {
    float loss_scale;            /* > 0: this scale for ever (static); 0: dynamic, by the fields below */
    float initial_scale;         /* starts here */
    float growth_factor;         /* > 1 */
    float backoff_factor;        /* in (0, 1) */
    int64_t loss_scale_window;   /* >= 1, clean steps in a row before the scale grows */
    int hysteresis;              /* >= 1, overflows until the scale shrinks */
    bool consecutive_hysteresis; /* every clean step refills the hysteresis; otherwise only a full window does */
    float min_loss_scale;        /* > 0 */
    float max_loss_scale;        /* >= min_loss_scale */
} ps_loss_scaler_options;

typedef enum ps_loss_scale_event {
    PS_LOSS_SCALE_KEPT,
    PS_LOSS_SCALE_GREW,
    PS_LOSS_SCALE_AT_MAX,     /* would have grown */
    PS_LOSS_SCALE_HYSTERESIS, /* overflow, forgiven */
    PS_LOSS_SCALE_SHRANK,     /* overflow */
    PS_LOSS_SCALE_AT_MIN,     /* overflow, would have shrunk */
} ps_loss_scale_event;

typedef struct ps_loss_scaler {
    ps_loss_scaler_options options;
    float scale;               /* multiply the loss by this */
    int64_t n_clean_steps;     /* since the last overflow or the last full window; < loss_scale_window */
    int hysteresis_left;       /* 1 .. options.hysteresis */
    int64_t n_skipped_steps;   /* since init */
    ps_loss_scale_event event; /* what the last update did */
} ps_loss_scaler;

/* PS_EINVAL naming the option for values outside the ranges above, or a start outside [min, max]; *s is then unchanged.
 * A static scale ignores the dynamic options. */
PS_NODISCARD ps_status ps_loss_scaler_init(ps_loss_scaler *s, const ps_loss_scaler_options *options);

/* PS_EINVAL when init and update cannot reach the state: to be called on a state read from a checkpoint. */
PS_NODISCARD ps_status ps_loss_scaler_check(const ps_loss_scaler *s);

/* Continue with this scale; the counters of a dynamic one are reset. PS_EINVAL when it is not positive, or outside
 * [min, max]; *s is then unchanged. */
PS_NODISCARD ps_status ps_loss_scaler_set(ps_loss_scaler *s, float scale);

/* One step has ended; `overflow`: a gradient was not finite. True: skip the update of the weights. */
bool ps_loss_scaler_update(ps_loss_scaler *s, bool overflow);

#endif
