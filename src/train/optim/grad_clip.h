/* grad_clip.h - clipping gradients by their global norm, and which parameters decay. */
#ifndef PS_OPTIM_GRAD_CLIP_H
#define PS_OPTIM_GRAD_CLIP_H

#include "base/base.h"
#include "base/exact_sum.h"

/* sqrt(sum_squares) / loss_scale: the norm of all gradients as one vector, without the loss scale. The sum, a carried
 * one, is that of gradients that contain loss_scale (> 0; 1 when there is none). */
double ps_grad_norm(ps_exact_sum *sum_squares, double loss_scale);

/* The factor of every gradient so that their norm is at most max_norm: min(1, max_norm / (norm + 1e-6)), as
 * torch.nn.utils.clip_grad_norm_. max_norm <= 0: no clipping, 1. A norm that is NaN yields NaN, an infinite one 0: the
 * caller has to skip such a step. */
double ps_grad_clip_factor(double norm, double max_norm);

/* Whether weight decay applies to the parameter: not to norms and biases, that is, not to parameters of fewer than two
 * dimensions, nor to one named "bias" or "<...>.bias" whatever its shape. */
bool ps_weight_decay_applies(const char *name, int n_dims);

#endif
