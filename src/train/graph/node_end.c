/* node_end.c - ends of programs: a loss, or hidden states. */
#include "train/graph/end.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/sized.h"

/* Rows of the output in inference: all, or one. */
static int64_t output_rows(const ps_node_run *r)
{
    return r->output_row < 0 ? r->node->rows : 1;
}

/* The corresponding input rows. */
static const void *output_input(const ps_node_run *r)
{
    const size_t row_bytes = (size_t)r->node->n_in * ps_dtype_bytes(r->dtype);
    if (r->x[0] == NULL || r->output_row < 0) return r->x[0];
    return (const char *)r->x[0] + (size_t)r->output_row * row_bytes;
}

ps_status ps_end_logits(ps_node_run *r, float *y, const void *x, int64_t rows)
{
    const ps_node *n = r->node;
    return ps_node_call(r, linear_fwd,
                        (&(ps_linear_fwd_args){.y = y,
                                               .x = x,
                                               .w = r->w[0],
                                               .b = r->w[1],
                                               .rows = rows,
                                               .n_in = n->n_in,
                                               .n_out = n->attr.loss.n,
                                               .layout = PS_WEIGHT_OUT_IN,
                                               .dtype = r->dtype,
                                               .y_dtype = PS_DTYPE_F32,
                                               .workspace = r->workspace}));
}

ps_status ps_end_output(ps_node_run *r)
{
    return ps_end_logits(r, r->output, output_input(r), output_rows(r));
}

/* ---- loss: saved log-sum-exp, loss and predicted class of each row ---- */

static ps_loss_terms terms_of(const ps_node_run *r)
{
    const ps_node *n = r->node;
    ps_loss_terms terms = n->attr.loss.terms;
    terms.class_weights = n->n_constants > 0 ? r->constants : NULL;
    return terms;
}

static ps_status loss_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    if (r->output != NULL || r->mode == PS_RUN_MEASURE) PS_TRY(ps_end_output(r));
    if (r->output != NULL) return PS_OK;
    return ps_node_call(r, lm_loss_fwd,
                        (&(ps_lm_loss_fwd_args){.row_loss = r->saved[1],
                                                .lse = r->saved[0],
                                                .predicted = (int32_t *)(void *)r->saved[2],
                                                .logits = r->logits,
                                                .x = r->x[0],
                                                .w = r->w[0],
                                                .b = r->w[1],
                                                .targets = r->batch[PS_BATCH_TARGETS],
                                                .rows = n->rows,
                                                .C = n->n_in,
                                                .V = n->attr.loss.n,
                                                .terms = terms_of(r),
                                                .dtype = r->dtype,
                                                .keeps_logits = r->keeps_logits,
                                                .workspace = r->workspace}));
}

static ps_status loss_backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, lm_loss_bwd,
                        (&(ps_lm_loss_bwd_args){.dx = r->dx[0],
                                                .dw = r->dw[0],
                                                .db = r->dw[1],
                                                .x = r->x[0],
                                                .w = r->w[0],
                                                .b = r->w[1],
                                                .lse = r->saved[0],
                                                .logits = r->logits,
                                                .targets = r->batch[PS_BATCH_TARGETS],
                                                .rows = n->rows,
                                                .C = n->n_in,
                                                .V = n->attr.loss.n,
                                                .scale = r->loss_scale,
                                                .terms = terms_of(r),
                                                .dtype = r->dtype,
                                                .grad_dtype = r->grad_dtype,
                                                .accumulate_grad = r->accumulate_dw,
                                                .skips_dx = !r->wants_dx[0],
                                                .skips_dw = !r->wants_dw[0],
                                                .keeps_logits = r->keeps_logits,
                                                .workspace = r->workspace}));
}

static int64_t loss_saved_cols(const ps_node *n, int i)
{
    (void)n, (void)i;
    return 1;
}

static int64_t loss_logits_count(const ps_node *n)
{
    return ps_lm_logits_count(n->rows, n->attr.loss.n);
}

static const ps_node_type loss_type = {
    .name = "loss",
    .forward = loss_forward,
    .backward = loss_backward,
    .saved_cols = loss_saved_cols,
    .logits_count = loss_logits_count,
    .backward_reads_x = true,
    .backward_reads_w = {true, true},
    .leaves_out = true,
};

int32_t ps_end_param(ps_builder *b, const char *name, int n_dims, int64_t rows, int64_t cols, double std)
{
    ps_program *p = b->program;
    const int32_t w = ps_builder_find_param(b, name);
    if (w < 0) return ps_builder_add_param(b, name, "", n_dims, rows, cols, 0, std);
    const int64_t *have = p->params[w].shape;
    const bool same = p->params[w].n_dims == n_dims && p->params[w].elements == rows * cols &&
                      (n_dims == 1 || (have[0] == rows && have[1] == cols));
    if (same) return w;
    return ps_builder_refuse(b, "loss: weight %s is [%lld, %lld], wanted [%lld, %lld]", name, (long long)have[0],
                             (long long)have[1], (long long)rows, (long long)cols);
}

void ps_end_with_loss(ps_builder *b, const char *name, ps_node node, const char *weight, const char *bias)
{
    ps_program *p = b->program;
    const int64_t n = node.attr.loss.n;
    node.n_in = ps_builder_cols(b, node.inputs[0]);
    node.params[0] = ps_end_param(b, weight, 2, n, node.n_in, b->init_std);
    node.params[1] = bias == NULL ? -1 : ps_end_param(b, bias, 1, 1, n, 0);
    node.reads_batch = 1u << node.attr.loss.targets;
    ps_builder_add_node(b, name, node, 0);
    if (b->failure != PS_OK) {
        ps_mem_free(node.constants);
        return;
    }
    p->has_loss = true;
    p->n_outputs = n;
    p->n_rows = p->nodes[p->n_nodes - 1].rows;
    p->target_array = node.attr.loss.targets;
    p->n_targets = p->n_rows;
    p->n_target_classes = n;
    b->ended = true;
}

/* Copies the weights, and computes their mean. */
static ps_status take_class_weights(ps_builder *b, const float *weights, int64_t n_classes, ps_node *node)
{
    double sum = 0;
    for (int64_t i = 0; i < n_classes; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i])) {
            ps_builder_refuse(b, "loss: the weight of class %lld is %g, expected a number from 0 on", (long long)i,
                              (double)weights[i]);
            return PS_OK;
        }
        sum += (double)weights[i];
    }
    if (sum == 0) {
        ps_builder_refuse(b, "loss: the weights of all %lld classes are 0", (long long)n_classes);
        return PS_OK;
    }
    PS_TRY(ps_mem_alloc((size_t)n_classes, sizeof *node->constants, &node->constants));
    memcpy(node->constants, weights, (size_t)n_classes * sizeof *weights);
    node->n_constants = n_classes;
    node->attr.loss.terms.mean_weight = (float)(sum / (double)n_classes);
    return PS_OK;
}

void ps_cross_entropy(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n_classes,
                      const ps_cross_entropy_options *options)
{
    if (!PS_BUILDER_NEEDS(b, weight)) return;
    ps_cross_entropy_options o = {0};
    if (!ps_builder_is_value(b, x, weight)) return;
    if (options != NULL && PS_SIZED_TAKE(ps_cross_entropy_options, options, &o) != PS_OK) {
        ps_builder_refuse(b, "%s", ps_last_error());
        return;
    }
    if (!(o.label_smoothing >= 0 && o.label_smoothing < 1) || !(o.z_loss >= 0) || isinf(o.z_loss)) {
        ps_builder_refuse(b, "loss: label_smoothing %g, expected 0 to below 1; z_loss %g, expected a number from 0 on",
                          (double)o.label_smoothing, (double)o.z_loss);
        return;
    }
    ps_node node = {.type = &loss_type,
                    .inputs = {x, -1, -1},
                    .attr.loss = {.n = n_classes,
                                  .targets = PS_BATCH_TARGETS,
                                  .terms = {.mean_weight = 1, .smoothing = o.label_smoothing, .z_loss = o.z_loss}}};
    if (o.class_weights != NULL && n_classes > 0) {
        const ps_status st = take_class_weights(b, o.class_weights, n_classes, &node);
        if (b->failure == PS_OK) b->failure = st;
    }
    ps_end_with_loss(b, "loss", node, weight, bias);
}

ps_target_counts ps_program_count_targets(const ps_program *p, const ps_batch *batch)
{
    const ps_node *end = &p->nodes[p->n_nodes - 1];
    const bool are_values = p->target_array == PS_BATCH_VALUES;
    ps_target_counts c = {0};
    if (are_values ? batch->values == NULL : batch->targets == NULL) return c;
    for (int64_t i = 0; i < p->n_targets; i++) {
        if (are_values ? isnan(batch->values[i]) : batch->targets[i] == PS_IGNORE_INDEX) continue;
        c.n++;
        c.n_even += i % 2 == 0;
        c.weight += end->n_constants > 0 ? (double)end->constants[batch->targets[i]] : 1;
    }
    return c;
}

/* ---- hidden states: inference only ---- */

ps_status ps_node_output(ps_node_run *r)
{
    return ps_node_call(r, cast,
                        (&(ps_cast_args){.dst = r->output,
                                         .src = output_input(r),
                                         .n = output_rows(r) * r->node->n_in,
                                         .dst_dtype = PS_DTYPE_F32,
                                         .src_dtype = r->dtype}));
}

static ps_status hidden_states_backward(ps_node_run *r)
{
    (void)r;
    return PS_FAIL(PS_ESTATE, "hidden states have no gradient");
}

static const ps_node_type hidden_states_type = {
    .name = "hidden_states",
    .forward = ps_node_output,
    .backward = hidden_states_backward,
};

void ps_hidden_states(ps_builder *b, ps_value x)
{
    if (!ps_builder_is_value(b, x, "hidden_states")) return;
    ps_program *p = b->program;
    p->n_outputs = ps_builder_cols(b, x);
    p->n_rows = p->values[x].rows;
    ps_builder_add_node(
        b, "hidden_states",
        (ps_node){
            .type = &hidden_states_type, .inputs = {x, -1, -1}, .params = {-1, -1}, .n_in = ps_builder_cols(b, x)},
        0);
    b->ended = true;
}
