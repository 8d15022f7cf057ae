#include "kernel/softmax_cost.h"

double ps_softmax_scores(ps_op op, const void *args)
{
    const double flops = ps_op_cost(op, args).flops;
    if (op == PS_OP_attention_fwd) return flops / (4.0 * (double)((const ps_attention_fwd_args *)args)->D);
    if (op == PS_OP_attention_bwd) return flops / (4.0 * (double)((const ps_attention_bwd_args *)args)->D);
    return 0;
}

double ps_softmax_logits(ps_op op, const void *args)
{
    if (op == PS_OP_lm_loss_fwd) {
        const ps_lm_loss_fwd_args *const a = args;
        return (double)a->rows * (double)a->V;
    }
    if (op == PS_OP_lm_loss_bwd) {
        const ps_lm_loss_bwd_args *const a = args;
        return (double)a->rows * (double)a->V;
    }
    return 0;
}

double ps_softmax_gelus(ps_op op, const void *args)
{
    if (op == PS_OP_gelu_fwd) return (double)((const ps_gelu_fwd_args *)args)->n;
    if (op == PS_OP_gelu_bwd) return (double)((const ps_gelu_bwd_args *)args)->n;
    if (op == PS_OP_linear_fwd) {
        const ps_linear_fwd_args *const a = args;
        return a->epilogue.kind == PS_EPILOGUE_GELU ? (double)a->rows * (double)a->n_out : 0;
    }
    if (op == PS_OP_linear_bwd_input) {
        const ps_linear_bwd_input_args *const a = args;
        return a->epilogue.kind == PS_EPILOGUE_GELU_BWD ? (double)a->rows * (double)a->n_in : 0;
    }
    return 0;
}

double ps_softmax_ns(ps_op op, const void *args, const ps_softmax_throughput *r)
{
    return r->score_ns * ps_softmax_scores(op, args) + r->logit_ns * ps_softmax_logits(op, args) +
           r->gelu_ns * ps_softmax_gelus(op, args);
}
