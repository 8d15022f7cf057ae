#include "train/state/step_decision.h"

#include <math.h>
#include <stdio.h>

#include "train/optim/grad_clip.h"

float ps_step_grad_scale(double norm, double clip_norm, double scale)
{
    return (float)(ps_grad_clip_factor(norm, clip_norm) / scale);
}

ps_step_decision ps_step_decide(ps_grad_sums *sums, double clip_norm, double scale)
{
    const double norm = ps_grad_norm(&sums->sum_squares, scale);
    return (ps_step_decision){.norm = norm,
                              .overflow = sums->n_nonfinite > 0 || !isfinite(norm),
                              .grad_scale = ps_step_grad_scale(norm, clip_norm, scale)};
}

void ps_nonfinite_count(ps_nonfinite *n, const ps_loss_scaler *scaler, bool skipped, int64_t step, const char *seen)
{
    const ps_loss_scale_event event = scaler->event;
    if (!skipped || event == PS_LOSS_SCALE_HYSTERESIS || event == PS_LOSS_SCALE_SHRANK) {
        n->n_steps = 0;
        return;
    }
    if (n->n_steps++ > 0) return;
    n->first_step = step;
    snprintf(n->seen, sizeof n->seen, "%s", seen);
}

ps_status ps_nonfinite_check(const ps_nonfinite *n, int64_t most)
{
    if (most == 0 || n->n_steps < most) return PS_OK;
    return PS_FAIL(
        PS_ENUMERIC,
        "%lld steps in a row have gradients that are not finite (train.max_nonfinite_steps); first seen: %s, in step "
        "%lld. They were skipped, without effect on the weights. Try a lower learning rate, gradient_clipping, "
        "or bf16 in place of fp16, and look at the data and the weights that training began with",
        (long long)n->n_steps, n->seen, (long long)n->first_step);
}
