/* grad_clip.c - global gradient norm, clip factor, weight decay's exclusion rule. */
#include "train/optim/grad_clip.h"

#include <math.h>
#include <string.h>

double ps_grad_norm(ps_exact_sum *sum_squares, double loss_scale)
{
    PS_ASSERT(loss_scale > 0.0);
    return sqrt(ps_exact_sum_value(sum_squares)) / loss_scale;
}

double ps_grad_clip_factor(double norm, double max_norm)
{
    if (max_norm <= 0.0) return 1.0;
    const double factor = max_norm / (norm + 1e-6);
    return factor > 1.0 ? 1.0 : factor; /* in this order NaN is returned */
}

bool ps_weight_decay_applies(const char *name, int n_dims)
{
    const char *dot = strrchr(name, '.');
    return n_dims >= 2 && strcmp(dot ? dot + 1 : name, "bias") != 0;
}
