/* node_head_loss.c - ends with few outputs, whose logits are stored whole: values (regression, several labels at once)
 * and spans. Saved are the logits, and the loss and the prediction of each target.
 *
 * Backward computes the gradient of the logits in its workspace, before the workspace of the matrix multiplications. */
#include "train/graph/end.h"

#define GRADIENT_ALIGN 256

static const float *values_of(const ps_node_run *r)
{
    return (const float *)(const void *)r->batch[PS_BATCH_VALUES];
}

/* The logits; *is_done: as the result of inference, and nothing else is requested. */
static ps_status head_logits(ps_node_run *r, bool *is_done)
{
    *is_done = r->output != NULL;
    if (r->output != NULL || r->mode == PS_RUN_MEASURE) PS_TRY(ps_end_output(r));
    return *is_done ? PS_OK : ps_end_logits(r, r->saved[0], r->x[0], r->node->rows);
}

static ps_status values_forward(ps_node_run *r)
{
    bool is_done;
    PS_TRY(head_logits(r, &is_done));
    if (is_done) return PS_OK;
    return ps_node_call(r, values_loss_fwd,
                        (&(ps_values_loss_fwd_args){.loss = r->saved[1],
                                                    .predicted = (int32_t *)(void *)r->saved[2],
                                                    .z = r->saved[0],
                                                    .values = values_of(r),
                                                    .n = r->node->rows * r->node->attr.loss.n,
                                                    .kind = r->node->attr.loss.kind}));
}

static ps_status values_gradient(ps_node_run *r, void *dz)
{
    return ps_node_call(r, values_loss_bwd,
                        (&(ps_values_loss_bwd_args){.dz = dz,
                                                    .z = r->saved[0],
                                                    .values = values_of(r),
                                                    .n = r->node->rows * r->node->attr.loss.n,
                                                    .scale = r->loss_scale,
                                                    .kind = r->node->attr.loss.kind,
                                                    .dtype = r->dtype}));
}

/* Mean of two means: the weight of a target of column k, where the weights of all targets sum to their number. 1 where
 * as many sequences have a beginning as an end. */
static float column_weight(const ps_node_run *r, int k)
{
    const int64_t n = r->targets.n, of_column = k == 0 ? r->targets.n_even : n - r->targets.n_even;
    return of_column > 0 ? (float)((double)n / (2.0 * (double)of_column)) : 0.0f;
}

static ps_status span_forward(ps_node_run *r)
{
    bool is_done;
    PS_TRY(head_logits(r, &is_done));
    if (is_done) return PS_OK;
    return ps_node_call(r, span_loss_fwd,
                        (&(ps_span_loss_fwd_args){.loss = r->saved[1],
                                                  .predicted = (int32_t *)(void *)r->saved[2],
                                                  .z = r->saved[0],
                                                  .targets = r->batch[PS_BATCH_TARGETS],
                                                  .B = r->B,
                                                  .T = r->T,
                                                  .weight = {column_weight(r, 0), column_weight(r, 1)}}));
}

static ps_status span_gradient(ps_node_run *r, void *dz)
{
    return ps_node_call(
        r, span_loss_bwd,
        (&(ps_span_loss_bwd_args){.dz = dz,
                                  .z = r->saved[0],
                                  .targets = r->batch[PS_BATCH_TARGETS],
                                  .B = r->B,
                                  .T = r->T,
                                  .scale = {r->loss_scale * column_weight(r, 0), r->loss_scale * column_weight(r, 1)},
                                  .dtype = r->dtype}));
}

/* dx before dw: the gradient may overwrite the weight. */
static ps_status gemms(ps_node_run *r, const void *dz, void *workspace)
{
    const ps_node *n = r->node;
    if (r->wants_dx[0])
        PS_TRY(ps_node_call(r, linear_bwd_input,
                            (&(ps_linear_bwd_input_args){.dx = r->dx[0],
                                                         .dy = dz,
                                                         .w = r->w[0],
                                                         .rows = n->rows,
                                                         .n_in = n->n_in,
                                                         .n_out = n->attr.loss.n,
                                                         .layout = PS_WEIGHT_OUT_IN,
                                                         .dtype = r->dtype,
                                                         .workspace = workspace})));
    if (!r->wants_dw[0] && !r->wants_dw[1]) return PS_OK;
    return ps_node_call(r, linear_bwd_weight,
                        (&(ps_linear_bwd_weight_args){.dw = r->dw[0],
                                                      .db = r->dw[1],
                                                      .dy = dz,
                                                      .x = r->x[0],
                                                      .rows = n->rows,
                                                      .n_in = n->n_in,
                                                      .n_out = n->attr.loss.n,
                                                      .layout = PS_WEIGHT_OUT_IN,
                                                      .dtype = r->dtype,
                                                      .grad_dtype = r->grad_dtype,
                                                      .accumulate_grad = r->accumulate_dw,
                                                      .skips_dw = !r->wants_dw[0],
                                                      .workspace = workspace}));
}

/* The workspace is that of the gradient, followed by that of the matrix multiplications. */
static ps_status head_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    const size_t whole = r->workspace_bytes;
    const size_t own =
        (size_t)ps_round_up(n->rows * n->attr.loss.n * (int64_t)ps_dtype_bytes(r->dtype), GRADIENT_ALIGN);
    char *const dz = r->workspace;
    const bool computes = r->mode == PS_RUN_COMPUTE;
    PS_TRY(n->attr.loss.targets == PS_BATCH_VALUES ? values_gradient(r, dz) : span_gradient(r, dz));
    r->workspace_bytes = computes ? whole - own : 0;
    PS_TRY(gemms(r, dz, computes ? dz + own : NULL));
    if (computes)
        r->workspace_bytes = whole;
    else
        r->workspace_bytes = whole > own + r->workspace_bytes ? whole : own + r->workspace_bytes;
    return PS_OK;
}

/* Logits, losses, predictions: with spans there are two for each sequence, which has at least one row. */
static int64_t saved_cols(const ps_node *n, int i)
{
    (void)i;
    return n->attr.loss.n;
}

static const ps_node_type values_type = {
    .name = "values_loss",
    .forward = values_forward,
    .backward = head_backward,
    .saved_cols = saved_cols,
    .backward_reads_x = true,
    .leaves_out = true,
    .backward_reads_w = {true, false},
};

static const ps_node_type span_type = {
    .name = "span_loss",
    .forward = span_forward,
    .backward = head_backward,
    .saved_cols = saved_cols,
    .backward_reads_x = true,
    .leaves_out = true,
    .backward_reads_w = {true, false},
};

static void end_with_values(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n,
                            ps_values_loss_kind kind)
{
    if (!ps_builder_is_value(b, x, weight)) return;
    ps_end_with_loss(b, "loss",
                     (ps_node){.type = &values_type,
                               .inputs = {x, -1, -1},
                               .attr.loss = {.n = n, .targets = PS_BATCH_VALUES, .kind = kind}},
                     weight, bias);
    if (b->failure == PS_OK) b->program->n_targets = b->program->n_rows * n;
}

void ps_mse_loss(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n)
{
    if (!PS_BUILDER_NEEDS(b, weight)) return;
    end_with_values(b, x, weight, bias, n, PS_VALUES_SQUARED);
}

void ps_bce_with_logits_loss(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n)
{
    if (!PS_BUILDER_NEEDS(b, weight)) return;
    end_with_values(b, x, weight, bias, n, PS_VALUES_LOGISTIC);
}

void ps_span_loss(ps_builder *b, ps_value x, const char *weight, const char *bias)
{
    if (!PS_BUILDER_NEEDS(b, weight)) return;
    if (!ps_builder_is_sequence(b, x, weight)) return;
    ps_end_with_loss(
        b, "loss",
        (ps_node){.type = &span_type, .inputs = {x, -1, -1}, .attr.loss = {.n = 2, .targets = PS_BATCH_TARGETS}},
        weight, bias);
    if (b->failure != PS_OK) return;
    b->program->n_targets = b->program->B * 2;
    b->program->n_target_classes = b->program->T;
}
