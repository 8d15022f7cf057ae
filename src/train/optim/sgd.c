/* sgd.c - gradient descent with momentum, as torch.optim.SGD. Without momentum it has no state. */
#include "train/optim/optimizer.h"

enum { MOMENTUM, DAMPENING, NESTEROV };

static ps_status read_options(const ps_options *o, ps_optimizer_setup *out)
{
    const double momentum = o->optimizer_params_momentum, dampening = o->optimizer_params_dampening;
    if (o->optimizer_params_nesterov && (momentum == 0 || dampening != 0))
        return PS_FAIL(PS_EINVAL,
                       "optimizer.params.nesterov needs optimizer.params.momentum above 0 and "
                       "optimizer.params.dampening 0, but they are %g and %g",
                       momentum, dampening);
    if (dampening != 0 && momentum == 0)
        return PS_FAIL(PS_EINVAL, "optimizer.params.dampening has no effect without optimizer.params.momentum; "
                                  "remove it");
    if (out->is_compact && momentum == 0)
        return PS_FAIL(PS_EINVAL, "optimizer.params.state_format = compact has no effect without "
                                  "optimizer.params.momentum, as there is no state; remove it");
    out->n_states = momentum > 0 ? 1 : 0;
    out->number[MOMENTUM] = momentum;
    out->number[DAMPENING] = dampening;
    out->number[NESTEROV] = o->optimizer_params_nesterov;
    return PS_OK;
}

/* The first gradient is the first momentum: it is not dampened. */
static ps_status update_piece(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                              const ps_optimizer_piece *p)
{
    return ps_run_sgd(b, queue,
                      &(ps_sgd_args){.param = p->param,
                                     .grad = p->grad,
                                     .master = p->master,
                                     .buffer = p->state[0],
                                     .n = p->n,
                                     .lr = s->lr,
                                     .momentum = (float)o->number[MOMENTUM],
                                     .one_minus_dampening = s->t == 1 ? 1.0f : (float)(1 - o->number[DAMPENING]),
                                     .weight_decay = p->weight_decay,
                                     .grad_scale = s->grad_scale,
                                     .nesterov = o->number[NESTEROV] != 0,
                                     .is_compact = o->is_compact,
                                     .param_dtype = p->param_dtype,
                                     .grad_dtype = p->grad_dtype},
                      0);
}

const ps_optimizer ps_optimizer_sgd = {
    .name = "SGD",
    .states = {{.list = "MOMENTUM", .suffix = ".momentum_buffer", .compact = PS_FORMAT_SIGNED}},
    .read = read_options,
    .update = update_piece,
};
