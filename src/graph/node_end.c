/* node_end.c - what a program ends with: a loss, or hidden states. */
#include "graph/builder.h"

/* Rows of the output that inference wants: all, or one. */
static int64_t output_rows(const ps_node_run *r)
{
    return r->output_row < 0 ? r->node->rows : 1;
}

/* The input rows that they are made of. */
static const void *output_input(const ps_node_run *r)
{
    const size_t row_bytes = (size_t)r->node->n_in * ps_dtype_bytes(r->dtype);
    if (r->x[0] == NULL || r->output_row < 0) return r->x[0];
    return (const char *)r->x[0] + (size_t)r->output_row * row_bytes;
}

/* ---- loss: saved log-sum-exp, loss and predicted class of each row ---- */

/* Rows that count; at least 1, so that a batch without targets has loss and gradients zero. */
static int64_t counted_rows(const ps_node_run *r)
{
    return r->n_targets > 0 ? r->n_targets : 1;
}

/* Logits as a result of inference, or for its scratch to be measured. */
static ps_status logits(ps_node_run *r)
{
    const ps_node *n = r->node;
    return ps_node_call(r, linear_fwd,
                        (&(ps_linear_fwd_args){.y = r->output,
                                               .x = output_input(r),
                                               .w = r->w[0],
                                               .b = r->w[1],
                                               .rows = output_rows(r),
                                               .n_in = n->n_in,
                                               .n_out = n->attr.table.n,
                                               .layout = PS_WEIGHT_OUT_IN,
                                               .dtype = r->dtype,
                                               .y_dtype = PS_DTYPE_F32,
                                               .workspace = r->workspace}));
}

static ps_status loss_forward(ps_node_run *r)
{
    const ps_node *n = r->node;
    if (r->output != NULL || r->mode == PS_RUN_MEASURE) PS_TRY(logits(r));
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
                                                .V = n->attr.table.n,
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
                                                .V = n->attr.table.n,
                                                .scale = r->loss_scale / (float)counted_rows(r),
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
    return ps_lm_logits_count(n->rows, n->attr.table.n);
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

/* The parameter `name` if it is declared, else a new one; -1 when its shape is another. */
static int32_t find_or_add(ps_builder *b, const char *name, int n_dims, int64_t rows, int64_t cols, double std)
{
    ps_program *p = b->program;
    const int32_t w = ps_builder_find_param(p, name);
    if (w < 0) return ps_builder_add_param(b, name, "", n_dims, rows, cols, 0, std);
    const int64_t *have = p->params[w].shape;
    const bool same = p->params[w].n_dims == n_dims && p->params[w].elements == rows * cols &&
                      (n_dims == 1 || (have[0] == rows && have[1] == cols));
    if (same) return w;
    return ps_builder_refuse(b, "loss: weight %s is [%lld, %lld], wanted [%lld, %lld]", name, (long long)have[0],
                             (long long)have[1], (long long)rows, (long long)cols);
}

void ps_cross_entropy(ps_builder *b, ps_value x, const char *weight, const char *bias, int64_t n_classes)
{
    if (!ps_builder_is_value(b, x, weight)) return;
    ps_program *p = b->program;
    const int64_t cols = ps_builder_cols(b, x), rows = p->values[x].rows;
    const int32_t w = find_or_add(b, weight, 2, n_classes, cols, b->init_std);
    const int32_t bias_param = bias == NULL ? -1 : find_or_add(b, bias, 1, 1, n_classes, 0);
    ps_builder_add_node(b, "loss",
                        (ps_node){.type = &loss_type,
                                  .inputs = {x, -1, -1},
                                  .params = {w, bias_param},
                                  .reads_batch = 1u << PS_BATCH_TARGETS,
                                  .n_in = cols,
                                  .attr.table = {.n = n_classes, .ids = PS_BATCH_TARGETS}},
                        0);
    p->has_loss = true;
    p->n_outputs = n_classes;
    p->n_targets = rows;
    b->ended = true;
}

void ps_lm_loss(ps_builder *b, ps_value x, const char *weight, int64_t n_tokens)
{
    ps_cross_entropy(b, x, weight, NULL, n_tokens);
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
    ps_builder_add_node(
        b, "hidden_states",
        (ps_node){
            .type = &hidden_states_type, .inputs = {x, -1, -1}, .params = {-1, -1}, .n_in = ps_builder_cols(b, x)},
        0);
    b->ended = true;
}
