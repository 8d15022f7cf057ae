/* adam.c - Adam and AdamW: means of the gradient and of its square. */
#include "base/same_math.h"
#include "train/optim/optimizer.h"

static ps_status read_options(const ps_options *o, ps_optimizer_setup *out)
{
    (void)o; /* all options have been read already */
    out->n_states = 2;
    return PS_OK;
}

/* 1 - beta is computed here, in double: for a float beta, 1 - 0.999 is off by 1.3e-5. */
static ps_status update_piece(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                              const ps_optimizer_piece *p)
{
    const double beta1 = o->betas[0], beta2 = o->betas[1], t = (double)s->t;
    return ps_run_adam(b, queue,
                       &(ps_adam_args){.param = p->param,
                                       .grad = p->grad,
                                       .master = p->master,
                                       .low = p->low,
                                       .m = p->state[0],
                                       .v = p->state[1],
                                       .n = p->n,
                                       .first = p->first,
                                       .key = p->rounding,
                                       .lr = s->lr,
                                       .beta1 = (float)beta1,
                                       .beta2 = (float)beta2,
                                       .eps = (float)o->eps,
                                       .weight_decay = p->weight_decay,
                                       .one_minus_beta1 = (float)(1 - beta1),
                                       .one_minus_beta2 = (float)(1 - beta2),
                                       .bias1 = (float)(1 - ps_same_pow(beta1, t)),
                                       .bias2 = (float)(1 - ps_same_pow(beta2, t)),
                                       .grad_scale = s->grad_scale,
                                       .is_compact = o->is_compact,
                                       .is_stochastic = o->is_stochastic,
                                       .decoupled_decay = o->optimizer == &ps_optimizer_adamw,
                                       .param_dtype = p->param_dtype,
                                       .grad_dtype = p->grad_dtype},
                       0);
}

#define STATES                                                                                                         \
    {                                                                                                                  \
        {.list = "MOMENTUM", .suffix = ".exp_avg", .compact = PS_FORMAT_SIGNED},                                       \
            {.list = "VARIANCE", .suffix = ".exp_avg_sq", .compact = PS_FORMAT_ROOT},                                  \
    }

const ps_optimizer ps_optimizer_adam = {.name = "Adam", .states = STATES, .read = read_options, .update = update_piece};
const ps_optimizer ps_optimizer_adamw = {
    .name = "AdamW", .states = STATES, .read = read_options, .update = update_piece};
