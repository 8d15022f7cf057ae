/* node_linear.c - linear layers, and the epilogues of the same call (fuse.h). */
#include "train/graph/builder.h"

static ps_linear_epilogue linear_forward_epilogue(const ps_node_run *r)
{
    if (r->fused == NULL) return (ps_linear_epilogue){.kind = PS_EPILOGUE_NONE};
    const ps_epilogue_kind kind = r->fused->type->epilogue;
    if (kind == PS_EPILOGUE_ADD) return (ps_linear_epilogue){.kind = kind, .other = r->x[1]};
    return (ps_linear_epilogue){.kind = kind, .gelu = r->fused->attr.gelu.kind, .other = r->between};
}

static ps_linear_epilogue linear_backward_epilogue(const ps_node_run *r)
{
    if (r->fused == NULL) return (ps_linear_epilogue){.kind = PS_EPILOGUE_NONE};
    return (ps_linear_epilogue){
        .kind = r->fused->type->backward_epilogue, .gelu = r->fused->attr.gelu.kind, .other = r->x[1]};
}

/* The values of a quantized weight are at the beginning of the workspace while the gemm with them runs. */
typedef struct gemm_run {
    ps_node_run run; /* the node's, without them */
    int64_t values_bytes;
} gemm_run;

static ps_status begin_gemm(ps_node_run *r, gemm_run *p)
{
    const ps_node *n = r->node;
    const int64_t elements = n->n_in * n->n_out;
    *p = (gemm_run){.run = *r};
    if (n->attr.linear.quant == PS_QUANT_NONE) return PS_OK;
    PS_TRY(ps_node_call(
        r, dequantize,
        (&(ps_dequantize_args){
            .y = r->workspace, .x = r->w[0], .n = elements, .quant = n->attr.linear.quant, .dtype = r->dtype})));
    p->values_bytes = ps_round_up(elements * (int64_t)ps_dtype_bytes(r->dtype), 64);
    p->run = *r;
    p->run.w[0] = r->workspace;
    if (r->mode == PS_RUN_MEASURE) {
        p->run.workspace_bytes = 0;
        return PS_OK;
    }
    p->run.workspace = (char *)r->workspace + p->values_bytes;
    p->run.workspace_bytes -= (size_t)p->values_bytes;
    return PS_OK;
}

static ps_status end_gemm(ps_node_run *r, const gemm_run *p, ps_status st)
{
    if (r->mode != PS_RUN_MEASURE) return st;
    const size_t bytes = (size_t)p->values_bytes + p->run.workspace_bytes;
    if (bytes > r->workspace_bytes) r->workspace_bytes = bytes;
    r->flops = p->run.flops;
    r->cost_ns = p->run.cost_ns;
    return st;
}

static ps_status multiply(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, linear_fwd,
                        (&(ps_linear_fwd_args){.y = r->y,
                                               .x = r->x[0],
                                               .w = r->w[0],
                                               .b = r->w[1],
                                               .rows = ps_node_rows(r),
                                               .n_in = n->n_in,
                                               .n_out = n->n_out,
                                               .layout = n->attr.linear.layout,
                                               .dtype = r->dtype,
                                               .y_dtype = r->dtype,
                                               .epilogue = linear_forward_epilogue(r),
                                               .workspace = r->workspace}));
}

static ps_status linear_forward(ps_node_run *r)
{
    gemm_run p;
    PS_TRY(begin_gemm(r, &p));
    return end_gemm(r, &p, multiply(&p.run));
}

static ps_status multiply_gradient(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, linear_bwd_input,
                        (&(ps_linear_bwd_input_args){.dx = r->dx[0],
                                                     .dy = r->dy,
                                                     .w = r->w[0],
                                                     .rows = ps_node_rows(r),
                                                     .n_in = n->n_in,
                                                     .n_out = n->n_out,
                                                     .layout = n->attr.linear.layout,
                                                     .dtype = r->dtype,
                                                     .accumulate_dx = r->accumulate_dx[0],
                                                     .epilogue = linear_backward_epilogue(r),
                                                     .workspace = r->workspace}));
}

/* dx before dw: the gradient may overwrite the weight. */
static ps_status linear_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    if (r->wants_dx[0]) {
        gemm_run p;
        PS_TRY(begin_gemm(r, &p));
        PS_TRY(end_gemm(r, &p, multiply_gradient(&p.run)));
    }
    if (!r->wants_dw[0] && !r->wants_dw[1]) return PS_OK;
    return ps_node_call(r, linear_bwd_weight,
                        (&(ps_linear_bwd_weight_args){.dw = r->dw[0],
                                                      .db = r->dw[1],
                                                      .dy = r->dy,
                                                      .x = r->x[0],
                                                      .rows = ps_node_rows(r),
                                                      .n_in = n->n_in,
                                                      .n_out = n->n_out,
                                                      .layout = n->attr.linear.layout,
                                                      .dtype = r->dtype,
                                                      .grad_dtype = r->grad_dtype,
                                                      .accumulate_grad = r->accumulate_dw,
                                                      .skips_dw = !r->wants_dw[0],
                                                      .workspace = r->workspace}));
}

static const ps_node_type linear_type = {
    .name = "linear",
    .forward = linear_forward,
    .backward = linear_backward,
    .takes_epilogue = true,
    .backward_accumulates = true,
    .backward_reads_x = true,
    .reads_x_for_weight = true,
    .leaves_out = true,
    .backward_reads_w = {true, false},
    .takes_quantized = true,
};

static ps_value append(ps_builder *b, ps_value x, const char *name, int64_t n_out, int32_t w, int32_t bias,
                       ps_weight_layout layout)
{
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &linear_type,
                                         .inputs = {x, -1, -1},
                                         .params = {w, bias},
                                         .n_in = ps_builder_cols(b, x),
                                         .n_out = n_out,
                                         .attr.linear.layout = layout},
                               n_out);
}

ps_value ps_builder_plain_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, const ps_param *begin)
{
    if (!ps_builder_is_value(b, x, name)) return -1;
    const double mean = begin != NULL ? begin->init_mean : 0, std = begin != NULL ? begin->init_std : 0;
    const int32_t w = ps_builder_add_param(b, name, ".weight", 2, n_out, ps_builder_cols(b, x), mean, std);
    if (w < 0) return -1;
    b->program->params[w].init_is_uniform = begin != NULL && begin->init_is_uniform;
    b->program->params[w].is_frozen = false;
    return append(b, x, name, n_out, w, -1, PS_WEIGHT_OUT_IN);
}

/* The sum is an epilogue of the layer's multiplication. */
static ps_value add_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias,
                           ps_weight_layout layout)
{
    if (!ps_builder_is_value(b, x, name)) return -1;
    const int64_t n_in = ps_builder_cols(b, x);
    const bool out_in = layout == PS_WEIGHT_OUT_IN;
    const int32_t w =
        ps_builder_add_param(b, name, ".weight", 2, out_in ? n_out : n_in, out_in ? n_in : n_out, 0, b->init_std);
    const int32_t bias = has_bias ? ps_builder_add_param(b, name, ".bias", 1, 1, n_out, 0, 0) : -1;
    const ps_value adapted = ps_builder_adapt(b, x, name, n_out, w, bias);
    const ps_value y = append(b, x, name, n_out, w, bias, layout);
    return adapted == 0 ? y : ps_add(b, y, adapted);
}

ps_value ps_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias)
{
    if (!PS_BUILDER_NEEDS(b, name)) return -1;
    return add_linear(b, x, name, n_out, has_bias, PS_WEIGHT_OUT_IN);
}

ps_value ps_conv1d(ps_builder *b, ps_value x, const char *name, int64_t n_out, int has_bias)
{
    if (!PS_BUILDER_NEEDS(b, name)) return -1;
    return add_linear(b, x, name, n_out, has_bias, PS_WEIGHT_IN_OUT);
}
