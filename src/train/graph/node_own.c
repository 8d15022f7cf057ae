/* node_own.c - operators and losses of the user (ps_own_operator). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "kernel/own.h"
#include "train/graph/end.h"

_Static_assert(PS_OWN_INPUTS_MAX == PS_NODE_INPUTS && PS_OWN_PARAMETERS_MAX == PS_NODE_PARAMS &&
                   PS_OWN_SAVED_MAX == PS_NODE_SAVED,
               "a call has what a node has");

/* For a loss, the arrays that the runner reads (runner.c): losses, and predicted classes. */
enum { SAVED_LOSS = 1, SAVED_CLASS = 2 };

static bool is_loss(const ps_node *n)
{
    return n->output < 0;
}

/* ---- checks ---- */

static const char *const dtype_remedies[PS_DTYPE_COUNT] = {[PS_DTYPE_F32] = "set bf16.enabled or fp16.enabled",
                                                           [PS_DTYPE_BF16] = "do without bf16.enabled",
                                                           [PS_DTYPE_F16] = "do without fp16.enabled"};

static ps_status check_call(const ps_node_run *r, const ps_own_args *a, bool is_backward)
{
    const ps_own_operator *op = &r->node->attr.own.op;
    const ps_device_type device = ps_backend_own_device(r->backend);
    if (!(op->dtypes >> r->dtype & 1))
        return PS_FAIL(PS_ENOSYS, "%s: operator %s does not compute in %s (its dtypes are 0x%x): %s", r->node->label,
                       op->name, ps_dtype_name(r->dtype), op->dtypes, dtype_remedies[r->dtype]);
    if (device == PS_DEVICE_CUDA && op->cuda_forward == NULL)
        return PS_FAIL(PS_ENOSYS, "%s: operator %s has no functions for a GPU (cuda_forward): use train.backend = cpu",
                       r->node->label, op->name);
    if (device == PS_DEVICE_CPU && op->forward == NULL)
        return PS_FAIL(PS_ENOSYS, "%s: operator %s has functions for a GPU only: use train.backend = cuda",
                       r->node->label, op->name);
    return ps_own_check_scratch(a, device, is_backward);
}

/* ---- calls ---- */

static ps_own_args args_of(const ps_node_run *r, bool is_backward)
{
    const ps_node *n = r->node;
    ps_own_args a = {.op = ps_own_functions_of(&n->attr.own.op, is_backward),
                     .call = {.dtype = r->dtype,
                              .batch = r->B,
                              .sequence = r->T,
                              .rows = ps_node_rows(r),
                              .y_columns = is_loss(n) ? 0 : n->n_out},
                     .workspace = r->workspace};
    memcpy(a.options, n->attr.own.options, sizeof a.options);
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        a.call.x_columns[i] = n->attr.own.x_columns[i];
        a.call.x[i] = r->x[i];
    }
    for (int k = 0; k < PS_NODE_PARAMS; k++) a.call.w_elements[k] = n->attr.own.w_elements[k];
    for (int i = 0; i < PS_NODE_SAVED; i++) {
        a.saved_columns[i] = n->attr.own.saved_columns[i];
        if (a.saved_columns[i] > 0) a.call.saved[i] = r->saved[i];
    }
    if (is_loss(n)) a.call.targets = r->batch[PS_BATCH_TARGETS];
    return a;
}

static ps_status forward(ps_node_run *r)
{
    ps_own_args a = args_of(r, false);
    if (r->mode == PS_RUN_MEASURE) PS_TRY(check_call(r, &a, false));
    a.call.y = r->y;
    for (int k = 0; k < PS_NODE_PARAMS; k++) a.call.w[k] = r->w[k];
    if (is_loss(r->node)) {
        a.call.row_loss = r->saved[SAVED_LOSS];
        a.call.predicted = (int32_t *)(void *)r->saved[SAVED_CLASS];
    }
    return ps_node_call(r, own_fwd, &a);
}

static ps_status backward(ps_node_run *r)
{
    const ps_node *n = r->node;
    const unsigned reads = n->attr.own.op.backward_reads;
    ps_own_args a = args_of(r, true);
    if (r->mode == PS_RUN_MEASURE) PS_TRY(check_call(r, &a, true));
    a.call.y = reads & PS_READS_Y ? r->y : NULL;
    a.call.dy = r->dy;
    a.grad_dtype = r->grad_dtype;
    a.accumulate_grad = r->accumulate_dw;
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        if (!(reads & PS_READS_X)) a.call.x[i] = NULL;
        a.call.dx[i] = r->dx[i];
    }
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        a.call.w[k] = reads & PS_READS_W ? r->w[k] : NULL;
        a.dw[k] = r->dw[k];
        a.skips_dw[k] = !r->wants_dw[k];
    }
    if (is_loss(n)) a.call.scale = r->loss_scale;
    return ps_node_call(r, own_bwd, &a);
}

static int64_t saved_cols(const ps_node *n, int i)
{
    return is_loss(n) && i > 0 ? 1 : n->attr.own.saved_columns[i];
}

/* Inference: the input of the loss. */
static ps_status loss_forward(ps_node_run *r)
{
    if (r->output != NULL || r->mode == PS_RUN_MEASURE) PS_TRY(ps_node_output(r));
    return r->output != NULL ? PS_OK : forward(r);
}

static ps_status continues(const ps_program *p, const ps_node *n, int64_t positions)
{
    (void)p, (void)positions;
    if (n->attr.own.op.is_by_row) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: operator %s does not support incremental decoding: it does not set is_by_row",
                   n->label, n->attr.own.op.name);
}

/* ---- types: one for each set of values that backward reads ---- */

#define READS(set, what) (((set) & (what)) != 0)
#define TYPE(set, type_name, forward_function)                                                                         \
    {                                                                                                                  \
        .name = type_name, .is_users = true, .forward = forward_function, .backward = backward,                        \
        .saved_cols = saved_cols, .backward_reads_x = READS(set, PS_READS_X),                                          \
        .backward_reads_y = READS(set, PS_READS_Y), .leaves_out = true,                                                \
        .backward_reads_w = {READS(set, PS_READS_W), READS(set, PS_READS_W)}, .continues = continues                   \
    }
#define TYPES(name, f)                                                                                                 \
    {                                                                                                                  \
        TYPE(0, name, f), TYPE(1, name, f), TYPE(2, name, f), TYPE(3, name, f), TYPE(4, name, f), TYPE(5, name, f),    \
            TYPE(6, name, f), TYPE(7, name, f)                                                                         \
    }

static const ps_node_type operator_types[] = TYPES("own", forward);
static const ps_node_type loss_types[] = TYPES("own loss", loss_forward);

/* ---- the builder's calls ---- */

static bool check_operator(ps_builder *b, const char *name, const ps_own_use *use, const ps_own_operator *op)
{
    const char *wrong = NULL;
    if (op->name == NULL)
        wrong = "is without a name";
    else if (op->n_inputs < 1 || op->n_inputs > PS_OWN_INPUTS_MAX)
        wrong = "has not 1 to 3 inputs";
    else if (op->n_parameters < 0 || op->n_parameters > PS_OWN_PARAMETERS_MAX)
        wrong = "has not 0 to 2 parameters";
    else if ((op->forward == NULL) != (op->backward == NULL) ||
             (op->cuda_forward == NULL) != (op->cuda_backward == NULL))
        wrong = "has forward without backward, or the other way round";
    else if (op->forward == NULL && op->cuda_forward == NULL)
        wrong = "has no functions";
    else if (op->dtypes == 0 || op->dtypes >> PS_DTYPE_COUNT != 0)
        wrong = "has no dtypes, or unknown ones";
    else if (op->backward_reads > (PS_READS_X | PS_READS_Y | PS_READS_W))
        wrong = "has unknown flags in backward_reads";
    else if (use->options_bytes > PS_OWN_OPTIONS_BYTES_MAX || (use->options_bytes > 0 && use->options == NULL))
        wrong = "has options that are NULL or longer than 64 bytes";
    else if (use->y_columns < 0 || use->saved_columns[0] < 0 || use->saved_columns[1] < 0 || use->saved_columns[2] < 0)
        wrong = "has negative columns";
    if (wrong == NULL) return true;
    ps_builder_refuse(b, "%s%s: own operator %s %s", b->prefix, name, op->name != NULL ? op->name : "(none)", wrong);
    return false;
}

static bool check_inputs(ps_builder *b, const char *name, const ps_own_use *use, int n_inputs)
{
    const ps_program *p = b->program;
    if (!ps_builder_is_value(b, use->x[0], name)) return false;
    for (int i = 1; i < n_inputs; i++) {
        if (!ps_builder_is_value(b, use->x[i], name)) return false;
        for (int j = 0; j < i; j++)
            if (use->x[i] == use->x[j]) {
                ps_builder_refuse(b, "%s%s: inputs %d and %d are both value %d", b->prefix, name, j, i, (int)use->x[i]);
                return false;
            }
        if (p->values[use->x[i]].rows != p->values[use->x[0]].rows) {
            ps_builder_refuse(b, "%s%s: input 0 has %lld rows, input %d %lld", b->prefix, name,
                              (long long)p->values[use->x[0]].rows, i, (long long)p->values[use->x[i]].rows);
            return false;
        }
    }
    return true;
}

static int32_t add_parameter(ps_builder *b, const char *name, const ps_own_parameter *w)
{
    char full[256];
    const int n = snprintf(full, sizeof full, ".%s", w->suffix != NULL ? w->suffix : "");
    if (w->suffix == NULL || w->suffix[0] == '\0' || n >= (int)sizeof full)
        return ps_builder_refuse(b, "%s%s: a parameter of an own operator has no suffix, or a long one", b->prefix,
                                 name);
    if (!isfinite(w->mean) || !(w->std >= 0) || isinf(w->std))
        return ps_builder_refuse(b, "%s%s%s: mean %g and std %g, expected numbers, std from 0 on", b->prefix, name,
                                 full, w->mean, w->std);
    return ps_builder_add_param(b, name, full, w->rows != 0 ? 2 : 1, w->rows != 0 ? w->rows : 1, w->columns, w->mean,
                                w->std);
}

/* The node of a use, the part common to operators and losses; *use is a copy of the caller's. */
static bool make_node(ps_builder *b, const char *name, const ps_own_use *callers, const ps_node_type *types,
                      ps_own_use *use, ps_node *out)
{
    ps_own_operator op;
    if (b->failure != PS_OK) return false;
    if (PS_SIZED_TAKE(ps_own_use, callers, use) != PS_OK || PS_SIZED_TAKE(ps_own_operator, use->op, &op) != PS_OK) {
        ps_builder_refuse(b, "%s%s: %s", b->prefix, name, ps_last_error());
        return false;
    }
    if (!check_operator(b, name, use, &op) || !check_inputs(b, name, use, op.n_inputs)) return false;
    *out = (ps_node){.type = &types[op.backward_reads],
                     .inputs = {-1, -1, -1},
                     .params = {-1, -1},
                     .n_in = ps_builder_cols(b, use->x[0]),
                     .attr.own.op = op};
    if (use->options_bytes > 0) memcpy(out->attr.own.options, use->options, use->options_bytes);
    memcpy(out->attr.own.saved_columns, use->saved_columns, sizeof use->saved_columns);
    for (int i = 0; i < op.n_inputs; i++) {
        out->inputs[i] = use->x[i];
        out->attr.own.x_columns[i] = ps_builder_cols(b, use->x[i]);
    }
    for (int k = 0; k < op.n_parameters; k++) {
        out->params[k] = add_parameter(b, name, &use->parameters[k]);
        if (out->params[k] < 0) return false;
        out->attr.own.w_elements[k] = b->program->params[out->params[k]].elements;
    }
    return true;
}

ps_value ps_own_apply(ps_builder *b, const char *name, const ps_own_use *callers)
{
    if (!PS_BUILDER_NEEDS(b, name)) return -1;
    ps_own_use use;
    ps_node node;
    if (!make_node(b, name, callers, operator_types, &use, &node)) return -1;
    if (use.n_classes != 0) {
        ps_builder_refuse(b, "%s%s: n_classes is of losses", b->prefix, name);
        return -1;
    }
    node.n_out = use.y_columns > 0 ? use.y_columns : node.n_in;
    return ps_builder_add_node(b, name, node, node.n_out);
}

void ps_own_end(ps_builder *b, const char *name, const ps_own_use *callers)
{
    if (!PS_BUILDER_NEEDS(b, name)) return;
    ps_own_use use;
    ps_node node;
    if (!make_node(b, name, callers, loss_types, &use, &node)) return;
    if (use.saved_columns[1] > 0 || use.saved_columns[2] > 0 || use.y_columns > 0) {
        ps_builder_refuse(b, "%s%s: a loss has no y_columns, and saved_columns of saved[0] only", b->prefix, name);
        return;
    }
    if (node.attr.own.op.backward_reads & PS_READS_Y) {
        ps_builder_refuse(b, "%s%s: a loss has no y that its backward could read", b->prefix, name);
        return;
    }
    if (use.n_classes < 0 || use.n_classes > INT32_MAX) {
        ps_builder_refuse(b, "%s%s: n_classes %lld, expected 1 to %d, or 0 for the columns of x[0]", b->prefix, name,
                          (long long)use.n_classes, INT32_MAX);
        return;
    }
    node.reads_batch = 1u << PS_BATCH_TARGETS;
    const int64_t rows = b->program->values[use.x[0]].rows;
    ps_builder_add_node(b, name, node, 0);
    b->program->has_loss = true;
    b->program->n_outputs = node.n_in;
    b->program->n_rows = b->program->n_targets = rows;
    b->program->target_array = PS_BATCH_TARGETS;
    b->program->n_target_classes = use.n_classes > 0 ? use.n_classes : node.n_in;
    b->ended = true;
}
