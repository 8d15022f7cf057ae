/* node.c - the operators. Each pair of functions only fills kernel arguments. */
#include "graph/node.h"

#include <math.h>

#include "graph/program.h"
#include "kernel/cost.h"

ps_status ps_node_measure(ps_node_run *r, ps_op op, const void *args)
{
    const size_t bytes = r->kernels->workspace_bytes(op, args);
    if (bytes > r->workspace_bytes) r->workspace_bytes = bytes;
    const ps_cost c = ps_kernel_cost(op, args);
    r->flops += c.flops;
    r->bytes += c.bytes;
    return PS_OK;
}

static int64_t rows_of(const ps_node_run *r)
{
    return r->B * r->T;
}

/* ---- token embedding ---- */

static ps_status token_embedding_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, embedding_fwd,
                        (&(ps_embedding_fwd_args){.y = r->y,
                                                  .w = r->w[0],
                                                  .ids = r->tokens,
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
                                                  .ids = r->tokens,
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
    .reads_tokens = true,
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
                                                  .eps = n->attr.layer_norm.eps,
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

static int64_t one_per_row(const ps_node *n, int i)
{
    (void)n, (void)i;
    return 1;
}

const ps_node_type ps_node_layer_norm = {
    .name = "layer_norm",
    .forward = layer_norm_forward,
    .backward = layer_norm_backward,
    .saved_cols = one_per_row,
    .backward_reads_x = true,
    .backward_reads_w = {true, false},
    .backward_in_place = true,
    .backward_accumulates = true,
};

/* ---- linear ---- */

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

/* ---- attention: saved log-sum-exp per head and row ---- */

static ps_status attention_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    const int64_t H = n->attr.attention.n_heads, D = n->n_out / H;
    return ps_node_call(r, attention_fwd,
                        (&(ps_attention_fwd_args){.y = r->y,
                                                  .lse = r->saved[0],
                                                  .qkv = r->x[0],
                                                  .B = r->B,
                                                  .T = r->T,
                                                  .H = H,
                                                  .D = D,
                                                  .scale = 1.0f / sqrtf((float)D),
                                                  .causal = n->attr.attention.causal,
                                                  .dropout_p = r->training ? n->attr.attention.dropout_p : 0.0f,
                                                  .dropout_key = r->dropout_key,
                                                  .dtype = r->dtype,
                                                  .workspace = r->workspace}));
}

static ps_status attention_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    const int64_t H = n->attr.attention.n_heads, D = n->n_out / H;
    return ps_node_call(r, attention_bwd,
                        (&(ps_attention_bwd_args){.dqkv = r->dx[0],
                                                  .dy = r->dy,
                                                  .y = r->y,
                                                  .qkv = r->x[0],
                                                  .lse = r->saved[0],
                                                  .B = r->B,
                                                  .T = r->T,
                                                  .H = H,
                                                  .D = D,
                                                  .scale = 1.0f / sqrtf((float)D),
                                                  .causal = n->attr.attention.causal,
                                                  .dropout_p = r->training ? n->attr.attention.dropout_p : 0.0f,
                                                  .dropout_key = r->dropout_key,
                                                  .dtype = r->dtype,
                                                  .workspace = r->workspace}));
}

static int64_t attention_saved_cols(const ps_node *n, int i)
{
    return i == 0 ? n->attr.attention.n_heads : 0;
}

const ps_node_type ps_node_attention = {
    .name = "attention",
    .forward = attention_forward,
    .backward = attention_backward,
    .saved_cols = attention_saved_cols,
    .backward_reads_x = true,
    .backward_reads_y = true,
};

/* ---- loss: saved log-sum-exp and the loss of each row ---- */

/* Rows that count; at least 1, so that a batch without targets has loss and gradients zero. */
static int64_t counted_rows(const ps_node_run *r)
{
    if (r->mode == PS_RUN_MEASURE) return rows_of(r);
    int64_t n = 0;
    for (int64_t i = 0; i < rows_of(r); i++) n += r->targets[i] != PS_IGNORE_INDEX;
    return n > 0 ? n : 1;
}

/* Logits of one row for inference; its result goes to the workspace's caller as f32. */
static ps_status lm_logits(ps_node_run *r)
{
    const ps_node *n = r->node;
    const size_t row_bytes = (size_t)n->n_in * ps_dtype_bytes(r->dtype);
    return ps_node_call(
        r, linear_fwd,
        (&(ps_linear_fwd_args){.y = r->logits,
                               .x = r->x[0] ? (const char *)r->x[0] + (size_t)r->logits_row * row_bytes : NULL,
                               .w = r->w[0],
                               .rows = 1,
                               .n_in = n->n_in,
                               .n_out = n->attr.table.n,
                               .layout = PS_WEIGHT_OUT_IN,
                               .dtype = r->dtype,
                               .y_dtype = PS_DTYPE_F32,
                               .workspace = r->workspace}));
}

static ps_status lm_loss_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    if (r->logits != NULL || r->mode == PS_RUN_MEASURE) PS_TRY(lm_logits(r));
    if (r->logits != NULL) return PS_OK;
    return ps_node_call(r, lm_loss_fwd,
                        (&(ps_lm_loss_fwd_args){.row_loss = r->saved[1],
                                                .lse = r->saved[0],
                                                .x = r->x[0],
                                                .w = r->w[0],
                                                .targets = r->targets,
                                                .rows = rows_of(r),
                                                .C = n->n_in,
                                                .V = n->attr.table.n,
                                                .dtype = r->dtype,
                                                .workspace = r->workspace}));
}

static ps_status lm_loss_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, lm_loss_bwd,
                        (&(ps_lm_loss_bwd_args){.dx = r->dx[0],
                                                .dw = r->dw[0],
                                                .x = r->x[0],
                                                .w = r->w[0],
                                                .lse = r->saved[0],
                                                .targets = r->targets,
                                                .rows = rows_of(r),
                                                .C = n->n_in,
                                                .V = n->attr.table.n,
                                                .scale = r->loss_scale / (float)counted_rows(r),
                                                .dtype = r->dtype,
                                                .grad_dtype = r->grad_dtype,
                                                .accumulate_grad = r->accumulate_dw,
                                                .workspace = r->workspace}));
}

const ps_node_type ps_node_lm_loss = {
    .name = "lm_loss",
    .forward = lm_loss_forward,
    .backward = lm_loss_backward,
    .saved_cols = one_per_row,
    .backward_reads_x = true,
    .backward_reads_w = {true, false},
    .reads_targets = true,
};
