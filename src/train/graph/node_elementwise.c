/* node_elementwise.c - elementwise operators. */
#include "train/graph/builder.h"

static ps_value append(ps_builder *b, ps_value x, ps_value y, ps_node node)
{
    node.inputs[0] = x, node.inputs[1] = y, node.inputs[2] = -1;
    node.params[0] = node.params[1] = -1;
    node.n_in = node.n_out = ps_builder_cols(b, x);
    return ps_builder_add_node(b, node.type->name, node, node.n_out);
}

/* A node of one input. */
static ps_value append_unary(ps_builder *b, ps_value x, ps_node node)
{
    return ps_builder_is_value(b, x, node.type->name) ? append(b, x, -1, node) : -1;
}

/* A node of two inputs of equal shape. */
static ps_value append_binary(ps_builder *b, ps_value x, ps_value y, ps_node node)
{
    return ps_builder_are_alike(b, x, y, node.type->name) ? append(b, x, y, node) : -1;
}

/* ---- gelu ---- */

static ps_status gelu_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(
        r, gelu_fwd,
        (&(ps_gelu_fwd_args){
            .y = r->y, .x = r->x[0], .n = ps_node_rows(r) * n->n_out, .kind = n->attr.gelu.kind, .dtype = r->dtype}));
}

static ps_status gelu_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, gelu_bwd,
                        (&(ps_gelu_bwd_args){.dx = r->dx[0],
                                             .dy = r->dy,
                                             .x = r->x[0],
                                             .n = ps_node_rows(r) * n->n_out,
                                             .kind = n->attr.gelu.kind,
                                             .dtype = r->dtype,
                                             .accumulate_dx = r->accumulate_dx[0]}));
}

static const ps_node_type gelu_type = {
    .name = "gelu",
    .forward = gelu_forward,
    .backward = gelu_backward,
    .epilogue = PS_EPILOGUE_GELU,
    .backward_epilogue = PS_EPILOGUE_GELU_BWD,
    .backward_reads_x = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_gelu(ps_builder *b, ps_value x, ps_activation kind)
{
    if (kind != PS_ACTIVATION_GELU_TANH && kind != PS_ACTIVATION_GELU_ERF)
        return ps_builder_refuse(b, "%sgelu: %d is no ps_activation", b->prefix, (int)kind);
    const ps_gelu_kind own = kind == PS_ACTIVATION_GELU_ERF ? PS_GELU_ERF : PS_GELU_TANH;
    return append_unary(b, x, (ps_node){.type = &gelu_type, .attr.gelu.kind = own});
}

/* ---- swiglu: inputs gate, up ---- */

static ps_status swiglu_forward(ps_node_run *r)
{
    return ps_node_call(
        r, swiglu_fwd,
        (&(ps_swiglu_fwd_args){
            .y = r->y, .gate = r->x[0], .up = r->x[1], .n = ps_node_rows(r) * r->node->n_out, .dtype = r->dtype}));
}

static ps_status swiglu_backward(ps_node_run *r)
{
    return ps_node_call(r, swiglu_bwd,
                        (&(ps_swiglu_bwd_args){.dgate = r->dx[0],
                                               .dup = r->dx[1],
                                               .dy = r->dy,
                                               .gate = r->x[0],
                                               .up = r->x[1],
                                               .n = ps_node_rows(r) * r->node->n_out,
                                               .dtype = r->dtype,
                                               .accumulate_dgate = r->accumulate_dx[0],
                                               .accumulate_dup = r->accumulate_dx[1]}));
}

static const ps_node_type swiglu_type = {
    .name = "swiglu",
    .forward = swiglu_forward,
    .backward = swiglu_backward,
    .backward_reads_x = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_swiglu(ps_builder *b, ps_value gate, ps_value up)
{
    return append_binary(b, gate, up, (ps_node){.type = &swiglu_type});
}

/* ---- tanh ---- */

static ps_status tanh_forward(ps_node_run *r)
{
    return ps_node_call(
        r, tanh_fwd,
        (&(ps_tanh_fwd_args){.y = r->y, .x = r->x[0], .n = ps_node_rows(r) * r->node->n_out, .dtype = r->dtype}));
}

static ps_status tanh_backward(ps_node_run *r)
{
    return ps_node_call(r, tanh_bwd,
                        (&(ps_tanh_bwd_args){.dx = r->dx[0],
                                             .dy = r->dy,
                                             .y = r->y,
                                             .n = ps_node_rows(r) * r->node->n_out,
                                             .dtype = r->dtype,
                                             .accumulate_dx = r->accumulate_dx[0]}));
}

static const ps_node_type tanh_type = {
    .name = "tanh",
    .forward = tanh_forward,
    .backward = tanh_backward,
    .backward_reads_y = true,
    .forward_in_place = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_tanh(ps_builder *b, ps_value x)
{
    return append_unary(b, x, (ps_node){.type = &tanh_type});
}

/* ---- relu ---- */

static ps_status relu_forward(ps_node_run *r)
{
    return ps_node_call(
        r, relu_fwd,
        (&(ps_relu_fwd_args){.y = r->y, .x = r->x[0], .n = ps_node_rows(r) * r->node->n_out, .dtype = r->dtype}));
}

static ps_status relu_backward(ps_node_run *r)
{
    return ps_node_call(r, relu_bwd,
                        (&(ps_relu_bwd_args){.dx = r->dx[0],
                                             .dy = r->dy,
                                             .y = r->y,
                                             .n = ps_node_rows(r) * r->node->n_out,
                                             .dtype = r->dtype,
                                             .accumulate_dx = r->accumulate_dx[0]}));
}

static const ps_node_type relu_type = {
    .name = "relu",
    .forward = relu_forward,
    .backward = relu_backward,
    .backward_reads_y = true,
    .forward_in_place = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_relu(ps_builder *b, ps_value x)
{
    return append_unary(b, x, (ps_node){.type = &relu_type});
}

/* ---- add ---- */

static ps_status add_forward(ps_node_run *r)
{
    return ps_node_call(
        r, add,
        (&(ps_add_args){
            .y = r->y, .a = r->x[0], .b = r->x[1], .n = ps_node_rows(r) * r->node->n_out, .dtype = r->dtype}));
}

static ps_status nothing_to_do(ps_node_run *r)
{
    (void)r;
    return PS_OK;
}

static const ps_node_type add_type = {
    .name = "add",
    .forward = add_forward,
    .backward = nothing_to_do,
    .epilogue = PS_EPILOGUE_ADD,
    .ends_pair = PS_PAIR_DROPOUT_ADD,
    .forward_in_place = true,
    .passes_gradient = true,
};

ps_value ps_add(ps_builder *b, ps_value x, ps_value y)
{
    return append_binary(b, x, y, (ps_node){.type = &add_type});
}

/* ---- dropout; as a pair: then the residual is added ---- */

static ps_status dropout_call(ps_node_run *r, void *y, const void *x, const void *residual, bool accumulate)
{
    return ps_node_call(r, dropout,
                        (&(ps_dropout_args){.y = y,
                                            .x = x,
                                            .residual = residual,
                                            .n = ps_node_rows(r) * r->node->n_out,
                                            .p = r->training ? r->node->attr.dropout.p : 0.0f,
                                            .scale = 1,
                                            .key = r->dropout_key,
                                            .dtype = r->dtype,
                                            .accumulate = accumulate,
                                            .has_residual = r->fused != NULL}));
}

static ps_status dropout_forward(ps_node_run *r)
{
    return dropout_call(r, r->y, r->x[0], r->x[1], false);
}

static ps_status dropout_backward(ps_node_run *r)
{
    return dropout_call(r, r->dx[0], r->dy, NULL, r->accumulate_dx[0]);
}

static const ps_node_type dropout_type = {
    .name = "dropout",
    .forward = dropout_forward,
    .backward = dropout_backward,
    .begins_pair = PS_PAIR_DROPOUT_ADD,
    .forward_in_place = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_dropout(ps_builder *b, ps_value x, float p)
{
    if (!ps_builder_is_value(b, x, "dropout")) return -1;
    if (!(p >= 0 && p < 1))
        return ps_builder_refuse(b, "%sdropout: probability %g is not in [0, 1)", b->prefix, (double)p);
    return p == 0 ? x : append_unary(b, x, (ps_node){.type = &dropout_type, .attr.dropout.p = p});
}

/* ---- scale: dropout that drops nothing ---- */

static ps_status scale_call(ps_node_run *r, void *y, const void *x, bool accumulate)
{
    return ps_node_call(r, dropout,
                        (&(ps_dropout_args){.y = y,
                                            .x = x,
                                            .n = ps_node_rows(r) * r->node->n_out,
                                            .scale = r->node->attr.scale.by,
                                            .dtype = r->dtype,
                                            .accumulate = accumulate}));
}

static ps_status scale_forward(ps_node_run *r)
{
    return scale_call(r, r->y, r->x[0], false);
}

static ps_status scale_backward(ps_node_run *r)
{
    return scale_call(r, r->dx[0], r->dy, r->accumulate_dx[0]);
}

static const ps_node_type scale_type = {
    .name = "scale",
    .forward = scale_forward,
    .backward = scale_backward,
    .forward_in_place = true,
    .backward_in_place = true,
    .backward_accumulates = true,
};

ps_value ps_builder_scale(ps_builder *b, ps_value x, const char *name, float by)
{
    if (!ps_builder_is_value(b, x, name)) return -1;
    if (by == 1.0f) return x;
    const int64_t cols = ps_builder_cols(b, x);
    return ps_builder_add_node(b, name,
                               (ps_node){.type = &scale_type,
                                         .inputs = {x, -1, -1},
                                         .params = {-1, -1},
                                         .n_in = cols,
                                         .n_out = cols,
                                         .attr.scale.by = by},
                               cols);
}
