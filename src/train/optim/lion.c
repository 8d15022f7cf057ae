/* lion.c - Lion: a step of the same length for each element, in the direction of a mean of gradients. */
#include "train/optim/optimizer.h"

static ps_status read_options(const ps_options *o, ps_optimizer_setup *out)
{
    (void)o; /* all options have been read already */
    out->n_states = 1;
    return PS_OK;
}

/* 1 - beta in double, as in adam.c. */
static ps_status update_piece(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                              const ps_optimizer_piece *p)
{
    return ps_run_lion(b, queue,
                       &(ps_lion_args){.param = p->param,
                                       .grad = p->grad,
                                       .master = p->master,
                                       .m = p->state[0],
                                       .n = p->n,
                                       .lr = s->lr,
                                       .beta1 = (float)o->betas[0],
                                       .beta2 = (float)o->betas[1],
                                       .weight_decay = p->weight_decay,
                                       .one_minus_beta1 = (float)(1 - o->betas[0]),
                                       .one_minus_beta2 = (float)(1 - o->betas[1]),
                                       .grad_scale = s->grad_scale,
                                       .is_compact = o->is_compact,
                                       .param_dtype = p->param_dtype,
                                       .grad_dtype = p->grad_dtype},
                       0);
}

const ps_optimizer ps_optimizer_lion = {
    .name = "Lion",
    .states = {{.list = "MOMENTUM", .suffix = ".exp_avg", .compact = PS_FORMAT_SIGNED}},
    .read = read_options,
    .update = update_piece,
};
