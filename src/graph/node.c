/* node.c - the operators. Each pair of functions only fills kernel arguments. */
#include "graph/node.h"

#include <math.h>

#include "graph/program.h"

ps_status ps_node_measure(ps_node_run *r, ps_op op, const void *args)
{
    size_t bytes;
    PS_TRY(ps_kernel_measure(r->backend, op, args, &bytes));
    if (bytes > r->workspace_bytes) r->workspace_bytes = bytes;
    const ps_cost c = ps_op_cost(op, args);
    r->flops += c.flops;
    r->cost_ns += (int64_t)(ps_cost_seconds(&c, r->rates) * 1e9);
    return PS_OK;
}

bool ps_node_is_embedding(const ps_node *n)
{
    return n->type == &ps_node_token_embedding || n->type == &ps_node_position_embedding;
}

static int64_t rows_of(const ps_node_run *r)
{
    return r->cache_positions > 0 ? r->T : r->node->rows;
}

/* ---- token embedding ---- */

static ps_status token_embedding_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, embedding_fwd,
                        (&(ps_embedding_fwd_args){.y = r->y,
                                                  .w = r->w[0],
                                                  .ids = r->batch[n->attr.table.ids],
                                                  .rows = rows_of(r),
                                                  .cols = n->n_out,
                                                  .V = n->attr.table.n,
                                                  .dtype = r->dtype}));
}

static ps_status token_embedding_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, embedding_bwd,
                        (&(ps_embedding_bwd_args){.dw = r->dw[0],
                                                  .dy = r->dy,
                                                  .ids = r->batch[n->attr.table.ids],
                                                  .rows = rows_of(r),
                                                  .cols = n->n_out,
                                                  .V = n->attr.table.n,
                                                  .dtype = r->dtype,
                                                  .grad_dtype = r->grad_dtype,
                                                  .accumulate_grad = r->accumulate_dw,
                                                  .workspace = r->workspace}));
}

const ps_node_type ps_node_token_embedding = {
    .name = "token_embedding",
    .forward = token_embedding_forward,
    .backward = token_embedding_backward,
};

/* ---- position embedding ---- */

static ps_status position_embedding_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, position_fwd,
                        (&(ps_position_fwd_args){.y = r->y,
                                                 .x = r->x[0],
                                                 .w = r->w[0],
                                                 .B = r->B,
                                                 .T = r->T,
                                                 .cols = n->n_out,
                                                 .n_positions = n->attr.table.n,
                                                 .first = r->first,
                                                 .dtype = r->dtype}));
}

static ps_status position_embedding_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, position_bwd,
                        (&(ps_position_bwd_args){.dw = r->dw[0],
                                                 .dy = r->dy,
                                                 .B = r->B,
                                                 .T = r->T,
                                                 .cols = n->n_out,
                                                 .n_positions = n->attr.table.n,
                                                 .dtype = r->dtype,
                                                 .grad_dtype = r->grad_dtype,
                                                 .accumulate_grad = r->accumulate_dw}));
}

const ps_node_type ps_node_position_embedding = {
    .name = "position_embedding",
    .forward = position_embedding_forward,
    .backward = position_embedding_backward,
    .forward_in_place = true,
    .passes_gradient = true,
};

/* ---- layer norm: saved mean, rstd ---- */

static ps_status layer_norm_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, layernorm_fwd,
                        (&(ps_layernorm_fwd_args){.y = r->y,
                                                  .mean = r->saved[0],
                                                  .rstd = r->saved[1],
                                                  .x = r->x[0],
                                                  .w = r->w[0],
                                                  .b = r->w[1],
                                                  .rows = rows_of(r),
                                                  .cols = n->n_out,
                                                  .eps = n->attr.norm.eps,
                                                  .dtype = r->dtype}));
}

static ps_status layer_norm_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, layernorm_bwd,
                        (&(ps_layernorm_bwd_args){.dx = r->dx[0],
                                                  .dw = r->dw[0],
                                                  .db = r->dw[1],
                                                  .dy = r->dy,
                                                  .x = r->x[0],
                                                  .w = r->w[0],
                                                  .mean = r->saved[0],
                                                  .rstd = r->saved[1],
                                                  .rows = rows_of(r),
                                                  .cols = n->n_out,
                                                  .dtype = r->dtype,
                                                  .grad_dtype = r->grad_dtype,
                                                  .accumulate_dx = r->accumulate_dx[0],
                                                  .accumulate_grad = r->accumulate_dw,
                                                  .workspace = r->workspace}));
}

static int64_t layer_norm_saved_cols(const ps_node *n, int i)
{
    (void)n;
    return i < 2;
}

const ps_node_type ps_node_layer_norm = {
    .name = "layer_norm",
    .forward = layer_norm_forward,
    .backward = layer_norm_backward,
    .saved_cols = layer_norm_saved_cols,
    .backward_reads_x = true,
    .backward_reads_w = {true, false},
    .backward_in_place = true,
    .backward_accumulates = true,
};

/* ---- RMS norm, of whole rows or of each group of columns: saved rstd ---- */

static ps_status rms_norm_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, rmsnorm_fwd,
                        (&(ps_rmsnorm_fwd_args){.y = r->y,
                                                .rstd = r->saved[0],
                                                .x = r->x[0],
                                                .w = r->w[0],
                                                .rows = rows_of(r) * (n->n_out / n->attr.norm.group),
                                                .cols = n->attr.norm.group,
                                                .eps = n->attr.norm.eps,
                                                .dtype = r->dtype}));
}

static ps_status rms_norm_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, rmsnorm_bwd,
                        (&(ps_rmsnorm_bwd_args){.dx = r->dx[0],
                                                .dw = r->dw[0],
                                                .dy = r->dy,
                                                .x = r->x[0],
                                                .w = r->w[0],
                                                .rstd = r->saved[0],
                                                .rows = rows_of(r) * (n->n_out / n->attr.norm.group),
                                                .cols = n->attr.norm.group,
                                                .dtype = r->dtype,
                                                .grad_dtype = r->grad_dtype,
                                                .accumulate_dx = r->accumulate_dx[0],
                                                .accumulate_grad = r->accumulate_dw,
                                                .workspace = r->workspace}));
}

static int64_t rms_norm_saved_cols(const ps_node *n, int i)
{
    return i == 0 ? n->n_out / n->attr.norm.group : 0;
}

const ps_node_type ps_node_rms_norm = {
    .name = "rms_norm",
    .forward = rms_norm_forward,
    .backward = rms_norm_backward,
    .saved_cols = rms_norm_saved_cols,
    .backward_reads_x = true,
    .backward_reads_w = {true, false},
    .backward_in_place = true,
    .backward_accumulates = true,
};

/* ---- linear ---- */

static ps_linear_epilogue linear_forward_epilogue(const ps_node_run *r)
{
    if (r->fused == NULL) return (ps_linear_epilogue){.kind = PS_EPILOGUE_NONE};
    if (r->fused->type == &ps_node_add) return (ps_linear_epilogue){.kind = PS_EPILOGUE_ADD, .other = r->x[1]};
    return (ps_linear_epilogue){.kind = PS_EPILOGUE_GELU, .gelu = r->fused->attr.gelu.kind, .other = r->between};
}

static ps_linear_epilogue linear_backward_epilogue(const ps_node_run *r)
{
    if (r->fused == NULL) return (ps_linear_epilogue){.kind = PS_EPILOGUE_NONE};
    return (ps_linear_epilogue){.kind = PS_EPILOGUE_GELU_BWD, .gelu = r->fused->attr.gelu.kind, .other = r->x[1]};
}

static ps_status linear_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, linear_fwd,
                        (&(ps_linear_fwd_args){.y = r->y,
                                               .x = r->x[0],
                                               .w = r->w[0],
                                               .b = r->w[1],
                                               .rows = rows_of(r),
                                               .n_in = n->n_in,
                                               .n_out = n->n_out,
                                               .layout = n->attr.linear.layout,
                                               .dtype = r->dtype,
                                               .y_dtype = r->dtype,
                                               .epilogue = linear_forward_epilogue(r),
                                               .workspace = r->workspace}));
}

/* dx before dw: the gradient may overwrite the weight. */
static ps_status linear_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    if (r->dx[0] != NULL || r->mode == PS_RUN_MEASURE)
        PS_TRY(ps_node_call(r, linear_bwd_input,
                            (&(ps_linear_bwd_input_args){.dx = r->dx[0],
                                                         .dy = r->dy,
                                                         .w = r->w[0],
                                                         .rows = rows_of(r),
                                                         .n_in = n->n_in,
                                                         .n_out = n->n_out,
                                                         .layout = n->attr.linear.layout,
                                                         .dtype = r->dtype,
                                                         .accumulate_dx = r->accumulate_dx[0],
                                                         .epilogue = linear_backward_epilogue(r),
                                                         .workspace = r->workspace})));
    return ps_node_call(r, linear_bwd_weight,
                        (&(ps_linear_bwd_weight_args){.dw = r->dw[0],
                                                      .db = r->dw[1],
                                                      .dy = r->dy,
                                                      .x = r->x[0],
                                                      .rows = rows_of(r),
                                                      .n_in = n->n_in,
                                                      .n_out = n->n_out,
                                                      .layout = n->attr.linear.layout,
                                                      .dtype = r->dtype,
                                                      .grad_dtype = r->grad_dtype,
                                                      .accumulate_grad = r->accumulate_dw,
                                                      .workspace = r->workspace}));
}

const ps_node_type ps_node_linear = {
    .name = "linear",
    .forward = linear_forward,
    .backward = linear_backward,
    .backward_accumulates = true,
    .backward_reads_x = true,
    .backward_reads_w = {true, false},
};

/* ---- gelu ---- */

static ps_status gelu_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(
        r, gelu_fwd,
        (&(ps_gelu_fwd_args){
            .y = r->y, .x = r->x[0], .n = rows_of(r) * n->n_out, .kind = n->attr.gelu.kind, .dtype = r->dtype}));
}

static ps_status gelu_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, gelu_bwd,
                        (&(ps_gelu_bwd_args){.dx = r->dx[0],
                                             .dy = r->dy,
                                             .x = r->x[0],
                                             .n = rows_of(r) * n->n_out,
                                             .kind = n->attr.gelu.kind,
                                             .dtype = r->dtype,
                                             .accumulate_dx = r->accumulate_dx[0]}));
}

const ps_node_type ps_node_gelu = {
    .name = "gelu",
    .forward = gelu_forward,
    .backward = gelu_backward,
    .backward_reads_x = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

/* ---- swiglu: inputs gate, up ---- */

static ps_status swiglu_forward(ps_node_run *r)
{
    return ps_node_call(
        r, swiglu_fwd,
        (&(ps_swiglu_fwd_args){
            .y = r->y, .gate = r->x[0], .up = r->x[1], .n = rows_of(r) * r->node->n_out, .dtype = r->dtype}));
}

static ps_status swiglu_backward(ps_node_run *r)
{
    return ps_node_call(r, swiglu_bwd,
                        (&(ps_swiglu_bwd_args){.dgate = r->dx[0],
                                               .dup = r->dx[1],
                                               .dy = r->dy,
                                               .gate = r->x[0],
                                               .up = r->x[1],
                                               .n = rows_of(r) * r->node->n_out,
                                               .dtype = r->dtype,
                                               .accumulate_dgate = r->accumulate_dx[0],
                                               .accumulate_dup = r->accumulate_dx[1]}));
}

const ps_node_type ps_node_swiglu = {
    .name = "swiglu",
    .forward = swiglu_forward,
    .backward = swiglu_backward,
    .backward_reads_x = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

/* ---- tanh ---- */

static ps_status tanh_forward(ps_node_run *r)
{
    return ps_node_call(
        r, tanh_fwd,
        (&(ps_tanh_fwd_args){.y = r->y, .x = r->x[0], .n = rows_of(r) * r->node->n_out, .dtype = r->dtype}));
}

static ps_status tanh_backward(ps_node_run *r)
{
    return ps_node_call(r, tanh_bwd,
                        (&(ps_tanh_bwd_args){.dx = r->dx[0],
                                             .dy = r->dy,
                                             .y = r->y,
                                             .n = rows_of(r) * r->node->n_out,
                                             .dtype = r->dtype,
                                             .accumulate_dx = r->accumulate_dx[0]}));
}

const ps_node_type ps_node_tanh = {
    .name = "tanh",
    .forward = tanh_forward,
    .backward = tanh_backward,
    .backward_reads_y = true,
    .forward_in_place = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

/* ---- add ---- */

static ps_status add_forward(ps_node_run *r)
{
    return ps_node_call(
        r, add,
        (&(ps_add_args){.y = r->y, .a = r->x[0], .b = r->x[1], .n = rows_of(r) * r->node->n_out, .dtype = r->dtype}));
}

static ps_status nothing_to_do(ps_node_run *r)
{
    (void)r;
    return PS_OK;
}

const ps_node_type ps_node_add = {
    .name = "add",
    .forward = add_forward,
    .backward = nothing_to_do,
    .forward_in_place = true,
    .passes_gradient = true,
};

/* ---- dropout ---- */

static ps_status dropout_call(ps_node_run *r, void *y, const void *x, bool accumulate)
{
    return ps_node_call(r, dropout,
                        (&(ps_dropout_args){.y = y,
                                            .x = x,
                                            .n = rows_of(r) * r->node->n_out,
                                            .p = r->training ? r->node->attr.dropout.p : 0.0f,
                                            .key = r->dropout_key,
                                            .dtype = r->dtype,
                                            .accumulate = accumulate}));
}

static ps_status dropout_forward(ps_node_run *r)
{
    return dropout_call(r, r->y, r->x[0], false);
}

static ps_status dropout_backward(ps_node_run *r)
{
    return dropout_call(r, r->dx[0], r->dy, r->accumulate_dx[0]);
}

const ps_node_type ps_node_dropout = {
    .name = "dropout",
    .forward = dropout_forward,
    .backward = dropout_backward,
    .forward_in_place = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};
