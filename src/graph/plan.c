#include "graph/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "graph/fuse.h"

/* State while the instructions are written. */
typedef struct planner {
    ps_plan *plan;
    const ps_program *program;
    ps_plan_options o;
    int32_t *value_buffer; /* [n_values] where the value lies now (recomputation moves it) */
    int32_t *grad_buffer;  /* [n_values] -1: no gradient yet. Several values may share one buffer */
    bool *grad_consumed;   /* [n_values] the maker's backward has been written */
    int32_t *saved;        /* [n_nodes][PS_NODE_SAVED] */
    int32_t logits;        /* of the loss, where they are kept; -1 */
    int32_t *segment;      /* [n_nodes] after merging; -1: none */
    bool *again;           /* [n_nodes] needed in the recomputation under way */
} planner;

const char *ps_instr_kind_name(ps_instr_kind k)
{
    static const char *const names[] = {[PS_INSTR_FORWARD] = "forward",
                                        [PS_INSTR_RECOMPUTE] = "recompute",
                                        [PS_INSTR_BACKWARD] = "backward",
                                        [PS_INSTR_JOIN] = "join"};
    return names[k];
}

/* ---- appending ---- */

static ps_status new_buffer(planner *g, int64_t bytes, int32_t *out)
{
    ps_plan *p = g->plan;
    *out = -1;
    if (p->n_buffers == p->buffer_capacity) {
        const int32_t capacity = p->buffer_capacity ? 2 * p->buffer_capacity : 256;
        PS_TRY(ps_mem_grow(&p->buffers, (size_t)p->n_buffers, (size_t)capacity, sizeof *p->buffers));
        p->buffer_capacity = capacity;
    }
    p->buffers[p->n_buffers] = (ps_buffer){.bytes = bytes, .first = INT32_MAX, .last = -1};
    *out = p->n_buffers++;
    return PS_OK;
}

static int64_t value_bytes(const planner *g, int32_t value)
{
    const ps_value_info *v = &g->program->values[value];
    return v->rows * v->cols * (int64_t)ps_dtype_bytes(g->o.dtype);
}

static const ps_instr no_buffers = {.fused = -1,
                                    .x = {-1, -1, -1},
                                    .y = -1,
                                    .saved = {-1, -1, -1},
                                    .logits = -1,
                                    .between = -1,
                                    .dx = {-1, -1, -1},
                                    .dy = -1,
                                    .workspace = -1};

static ps_status append(planner *g, ps_instr instr)
{
    ps_plan *p = g->plan;
    if (p->n_instrs == p->instr_capacity) {
        const int32_t capacity = p->instr_capacity ? 2 * p->instr_capacity : 256;
        PS_TRY(ps_mem_grow(&p->instrs, (size_t)p->n_instrs, (size_t)capacity, sizeof *p->instrs));
        p->instr_capacity = capacity;
    }
    const ps_node *nodes = g->program->nodes;
    const char *name = nodes[instr.node].label, *kind = ps_instr_kind_name(instr.kind);
    const char *plus = instr.fused >= 0 ? "+" : "", *fused = instr.fused >= 0 ? nodes[instr.fused].type->name : "";
    const size_t bytes = strlen(name) + strlen(plus) + strlen(fused) + strlen(kind) + 2;
    PS_TRY(ps_mem_alloc(bytes, 1, &instr.label));
    snprintf(instr.label, bytes, "%s%s%s %s", name, plus, fused, kind);
    p->instrs[p->n_instrs++] = instr;
    return PS_OK;
}

/* ---- forward and recomputation ---- */

/* Does any backward read this value? */
static bool backward_needs(const planner *g, int32_t value)
{
    const ps_program *p = g->program;
    if (!g->o.training) return false;
    if (p->nodes[p->values[value].maker].type->backward_reads_y) return true;
    for (int32_t n = 0; n < p->n_nodes; n++)
        for (int i = 0; i < PS_NODE_INPUTS; i++)
            if (p->nodes[n].inputs[i] == value && p->nodes[n].type->backward_reads_x) return true;
    return false;
}

/* The input whose memory the output may take, or -1. */
static int reusable_input(const planner *g, int32_t node)
{
    const ps_node *n = &g->program->nodes[node];
    if (!n->type->forward_in_place) return -1;
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        const int32_t v = n->inputs[i];
        if (v < 0 || g->program->values[v].n_readers > 1 || backward_needs(g, v)) continue;
        /* what enters a segment is read again by its recomputation */
        if (g->segment[node] >= 0 && g->segment[g->program->values[v].maker] != g->segment[node]) continue;
        return i;
    }
    return -1;
}

/* Do the two nodes from `first` on run as one? */
static bool fuses(const planner *g, ps_fuse_direction direction, int32_t first)
{
    return ps_fuse(g->program, g->o.backend, direction, first) && g->segment[first] == g->segment[first + 1];
}

/* The node and the next one. What lies between is kept when backward reads it, and this is not run again before. */
static ps_status append_fused_forward(planner *g, int32_t node, ps_instr_kind kind)
{
    const ps_program *p = g->program;
    const ps_node *n = &p->nodes[node], *next = n + 1;
    ps_instr instr = no_buffers;
    instr.kind = kind;
    instr.node = node;
    instr.fused = node + 1;
    instr.x[0] = g->value_buffer[n->inputs[0]];
    for (int i = 0; i < PS_NODE_INPUTS; i++)
        if (next->inputs[i] >= 0 && next->inputs[i] != n->output) instr.x[1] = g->value_buffer[next->inputs[i]];
    if (backward_needs(g, n->output) && (kind == PS_INSTR_RECOMPUTE || g->segment[node] < 0))
        PS_TRY(new_buffer(g, value_bytes(g, n->output), &instr.between));
    g->value_buffer[n->output] = instr.between;
    PS_TRY(new_buffer(g, value_bytes(g, next->output), &instr.y));
    g->value_buffer[next->output] = instr.y;
    return append(g, instr);
}

static ps_status append_forward(planner *g, int32_t node, ps_instr_kind kind)
{
    const ps_program *p = g->program;
    const ps_node *n = &p->nodes[node];
    ps_instr instr = no_buffers;
    instr.kind = kind;
    instr.node = node;
    for (int i = 0; i < PS_NODE_INPUTS; i++)
        if (n->inputs[i] >= 0) instr.x[i] = g->value_buffer[n->inputs[i]];
    if (n->output >= 0) {
        const int reuse = reusable_input(g, node);
        if (reuse >= 0)
            instr.y = instr.x[reuse];
        else
            PS_TRY(new_buffer(g, value_bytes(g, n->output), &instr.y));
        g->value_buffer[n->output] = instr.y;
    }
    for (int i = 0; i < PS_NODE_SAVED; i++) {
        const int64_t cols = n->type->saved_cols == NULL ? 0 : n->type->saved_cols(n, i);
        if (cols > 0) PS_TRY(new_buffer(g, n->rows * cols * (int64_t)sizeof(float), &instr.saved[i]));
        g->saved[node * PS_NODE_SAVED + i] = instr.saved[i];
    }
    if (g->plan->keeps_logits && n->type->logits_count != NULL) {
        PS_TRY(new_buffer(g, n->type->logits_count(n) * (int64_t)sizeof(float), &instr.logits));
        g->logits = instr.logits;
    }
    return append(g, instr);
}

/* Mark which nodes of the segment must run again so that the backward of all its nodes finds what it reads. */
static void mark_again(planner *g, int32_t begin, int32_t end)
{
    const ps_program *p = g->program;
    for (int32_t n = begin; n < end; n++) g->again[n] = false;
    for (int32_t n = end - 1; n >= begin; n--) {
        const ps_node *node = &p->nodes[n];
        if (node->type->backward_reads_y || node->type->saved_cols != NULL) g->again[n] = true;
        for (int i = 0; i < PS_NODE_INPUTS; i++) {
            const int32_t v = node->inputs[i];
            if (v < 0 || p->values[v].maker < begin) continue;
            if (node->type->backward_reads_x || g->again[n]) g->again[p->values[v].maker] = true;
        }
    }
}

/* ---- backward ---- */

/* Is the buffer the gradient of a value other than `except` whose maker's backward is still to come? */
static bool others_wait_for(const planner *g, int32_t buffer, int32_t except)
{
    for (int32_t v = 0; v < g->program->n_values; v++)
        if (v != except && g->grad_buffer[v] == buffer && !g->grad_consumed[v]) return true;
    return false;
}

/* value's gradient += the gradient in `other`; into a buffer of its own when the present one is also somebody else's.
 * other_is_free: nobody needs what is in `other` afterwards, as far as the node itself goes. */
static ps_status join(planner *g, int32_t node, int32_t value, int32_t other, bool other_is_free)
{
    ps_instr instr = no_buffers;
    instr.kind = PS_INSTR_JOIN;
    instr.node = node;
    instr.x[0] = g->grad_buffer[value];
    instr.x[1] = other;
    instr.join_elements = g->program->values[value].rows * g->program->values[value].cols;
    instr.y = instr.x[0];
    const bool is_needed = instr.x[0] == other && !other_is_free;
    if (is_needed || others_wait_for(g, instr.x[0], value)) {
        /* `other` may be private to this join: then it takes the sum */
        if (!other_is_free || others_wait_for(g, other, value))
            PS_TRY(new_buffer(g, value_bytes(g, value), &instr.y));
        else
            instr.y = other;
    }
    g->grad_buffer[value] = instr.y;
    return append(g, instr);
}

/* Where the node's gradient for input i goes: writes dx and accumulate_dx of the instruction. *joined: the value whose older
 * gradient must be added afterwards, or -1. */
static ps_status choose_dx(planner *g, int32_t node, int i, ps_instr *instr, int32_t *joined)
{
    const ps_node *n = &g->program->nodes[node];
    const int32_t v = n->inputs[i];
    *joined = -1;
    if (g->grad_buffer[v] >= 0) {
        if (n->type->backward_accumulates && !others_wait_for(g, g->grad_buffer[v], v)) {
            instr->dx[i] = g->grad_buffer[v];
            instr->accumulate_dx[i] = true;
            return PS_OK;
        }
        *joined = v;
        return new_buffer(g, value_bytes(g, v), &instr->dx[i]);
    }
    const bool in_place = i == 0 && n->type->backward_in_place && !others_wait_for(g, instr->dy, n->output);
    if (in_place)
        instr->dx[i] = instr->dy;
    else
        PS_TRY(new_buffer(g, value_bytes(g, v), &instr->dx[i]));
    g->grad_buffer[v] = instr->dx[i];
    return PS_OK;
}

static bool has_params(const ps_node *n)
{
    return n->params[0] >= 0 || n->params[1] >= 0;
}

static ps_status append_backward(planner *g, int32_t node)
{
    const ps_node *n = &g->program->nodes[node];
    ps_instr instr = no_buffers;
    instr.kind = PS_INSTR_BACKWARD;
    instr.node = node;
    instr.dy = n->output >= 0 ? g->grad_buffer[n->output] : -1;
    instr.y = n->type->backward_reads_y ? g->value_buffer[n->output] : -1;
    int32_t joined[PS_NODE_INPUTS] = {-1, -1, -1};
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        if (n->inputs[i] < 0) continue;
        if (n->type->backward_reads_x) instr.x[i] = g->value_buffer[n->inputs[i]];
        if (!n->type->passes_gradient) PS_TRY(choose_dx(g, node, i, &instr, &joined[i]));
    }
    for (int i = 0; i < PS_NODE_SAVED; i++) instr.saved[i] = g->saved[node * PS_NODE_SAVED + i];
    if (n->type->logits_count != NULL) instr.logits = g->logits;
    if (!n->type->passes_gradient || has_params(n)) PS_TRY(append(g, instr));
    if (n->output >= 0) g->grad_consumed[n->output] = true;
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        const int32_t v = n->inputs[i];
        if (v < 0) continue;
        if (joined[i] >= 0) {
            PS_TRY(join(g, node, v, instr.dx[i], true));
        } else if (n->type->passes_gradient) {
            if (g->grad_buffer[v] >= 0)
                PS_TRY(join(g, node, v, instr.dy, i + 1 == PS_NODE_INPUTS || n->inputs[i + 1] < 0));
            else
                g->grad_buffer[v] = instr.dy;
        }
    }
    return PS_OK;
}

/* The node and the one before it, whose input has no gradient yet. */
static ps_status append_fused_backward(planner *g, int32_t node)
{
    const ps_node *n = &g->program->nodes[node], *before = n - 1;
    const int32_t v = before->inputs[0];
    ps_instr instr = no_buffers;
    instr.kind = PS_INSTR_BACKWARD;
    instr.node = node;
    instr.fused = node - 1;
    instr.dy = g->grad_buffer[n->output];
    instr.x[0] = g->value_buffer[n->inputs[0]];
    instr.x[1] = g->value_buffer[v];
    PS_TRY(new_buffer(g, value_bytes(g, v), &instr.dx[0]));
    g->grad_buffer[v] = instr.dx[0];
    g->grad_consumed[n->output] = g->grad_consumed[before->output] = true;
    return append(g, instr);
}

/* Forward again, of what is needed in [begin, end). */
static ps_status write_recomputation(planner *g, int32_t begin, int32_t end)
{
    mark_again(g, begin, end);
    for (int32_t n = begin; n < end; n++) {
        if (!g->again[n]) continue;
        if (n + 1 < end && g->again[n + 1] && fuses(g, PS_FUSE_FORWARD, n))
            PS_TRY(append_fused_forward(g, n++, PS_INSTR_RECOMPUTE));
        else
            PS_TRY(append_forward(g, n, PS_INSTR_RECOMPUTE));
    }
    return PS_OK;
}

static ps_status write_forward(planner *g)
{
    for (int32_t n = 0; n < g->program->n_nodes; n++) {
        if (fuses(g, PS_FUSE_FORWARD, n))
            PS_TRY(append_fused_forward(g, n++, PS_INSTR_FORWARD));
        else
            PS_TRY(append_forward(g, n, PS_INSTR_FORWARD));
    }
    return PS_OK;
}

static bool fuses_backward(const planner *g, int32_t node)
{
    return fuses(g, PS_FUSE_BACKWARD, node - 1) && g->grad_buffer[g->program->nodes[node - 1].inputs[0]] < 0;
}

static ps_status write_backward(planner *g)
{
    const int32_t n_nodes = g->program->n_nodes;
    int32_t open_segment = -1;
    for (int32_t node = n_nodes - 1; node >= 0; node--) {
        if (g->segment[node] >= 0 && g->segment[node] != open_segment) {
            open_segment = g->segment[node];
            int32_t begin = node;
            while (begin > 0 && g->segment[begin - 1] == open_segment) begin--;
            PS_TRY(write_recomputation(g, begin, node + 1));
        }
        if (fuses_backward(g, node))
            PS_TRY(append_fused_backward(g, node--));
        else
            PS_TRY(append_backward(g, node));
    }
    return PS_OK;
}

/* ---- parameters' gradients ---- */

static bool reads_param_value(const ps_instr *instr, const ps_node *n, int k)
{
    switch (instr->kind) {
    case PS_INSTR_FORWARD:
    case PS_INSTR_RECOMPUTE: return true;
    case PS_INSTR_BACKWARD: return n->type->backward_reads_w[k];
    case PS_INSTR_JOIN: return false;
    }
    return false;
}

/* An operator adds to all its gradients or to none. Where one of two was written before, the other begins with zeros; they would
 * overwrite a parameter that the operator still reads. */
static void plan_clearing(planner *g, const int32_t *first)
{
    ps_plan *p = g->plan;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        ps_instr *instr = &p->instrs[m];
        const int32_t *params = g->program->nodes[instr->node].params;
        for (int k = 0; k < PS_NODE_PARAMS && instr->accumulate_dw; k++) {
            if (params[k] < 0 || first[params[k]] != m) continue;
            instr->clears_grad[k] = true;
            p->grad_overwrites_param[params[k]] = false;
        }
    }
}

/* First and last contribution to each gradient, and whether it may overwrite its parameter. */
static ps_status plan_param_gradients(planner *g)
{
    ps_plan *p = g->plan;
    const int32_t n_params = g->program->n_params;
    int32_t *first = NULL, *last_read = NULL;
    bool **last_write = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_params, sizeof *first, &first));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_params, sizeof *last_write, &last_write));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_params, sizeof *last_read, &last_read));
    for (int32_t i = 0; i < n_params; i++) first[i] = last_read[i] = -1;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        ps_instr *instr = &p->instrs[m];
        const ps_node *n = &g->program->nodes[instr->node];
        for (int k = 0; k < PS_NODE_PARAMS; k++) {
            const int32_t w = n->params[k];
            if (w < 0) continue;
            if (reads_param_value(instr, n, k)) last_read[w] = m;
            if (instr->kind != PS_INSTR_BACKWARD) continue;
            if (first[w] < 0)
                first[w] = m;
            else
                instr->accumulate_dw = true;
            last_write[w] = &instr->completes_grad[k];
        }
    }
    for (int32_t w = 0; w < n_params; w++) {
        if (last_write[w] != NULL) *last_write[w] = true;
        p->grad_overwrites_param[w] = g->o.may_overwrite_params && first[w] >= 0 && last_read[w] <= first[w];
    }
    plan_clearing(g, first);
    /* the gradients of one node share their type and their accumulation */
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < g->program->n_nodes; i++) {
            const int32_t *w = g->program->nodes[i].params;
            if (w[0] < 0 || w[1] < 0 || p->grad_overwrites_param[w[0]] == p->grad_overwrites_param[w[1]]) continue;
            p->grad_overwrites_param[w[0]] = p->grad_overwrites_param[w[1]] = false;
            changed = true;
        }
    }
out:
    ps_mem_free(first);
    ps_mem_free(last_read);
    ps_mem_free(last_write);
    return st;
}

/* ---- workspace, lives ---- */

void ps_plan_bind(const ps_plan *p, const ps_instr *instr, void *base, ps_node_run *run)
{
#define ADDRESS(buffer) ((buffer) < 0 || base == NULL ? NULL : (void *)((char *)base + p->buffers[buffer].offset))
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        run->x[i] = ADDRESS(instr->x[i]);
        run->dx[i] = ADDRESS(instr->dx[i]);
        run->accumulate_dx[i] = instr->accumulate_dx[i];
    }
    for (int i = 0; i < PS_NODE_SAVED; i++) run->saved[i] = ADDRESS(instr->saved[i]);
    run->fused = instr->fused < 0 ? NULL : &p->program->nodes[instr->fused];
    run->between = ADDRESS(instr->between);
    run->keeps_logits = instr->logits >= 0;
    run->logits = ADDRESS(instr->logits);
    run->y = ADDRESS(instr->y);
    run->dy = ADDRESS(instr->dy);
    run->workspace = ADDRESS(instr->workspace);
    run->workspace_bytes = instr->workspace < 0 ? 0 : (size_t)p->buffers[instr->workspace].bytes;
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) run->batch[i] = ADDRESS(p->batch[i]);
#undef ADDRESS
}

/* The engine looks at each gradient once, when its last part has been added. */
static ps_status measure_grad_stats(const planner *g, const ps_instr *instr, ps_node_run *r)
{
    const ps_node *n = &g->program->nodes[instr->node];
    if (instr->kind != PS_INSTR_BACKWARD) return PS_OK;
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        if (n->params[k] < 0 || !instr->completes_grad[k]) continue;
        const int64_t elements = g->program->params[n->params[k]].elements;
        PS_TRY(ps_node_call(r, grad_stats, (&(ps_grad_stats_args){.n = elements, .dtype = r->grad_dtype})));
    }
    return PS_OK;
}

static const ps_compute_rates *rates_of(const planner *g, const ps_node *n)
{
    if (ps_node_is_embedding(n) && g->o.embedding_rates != NULL) return g->o.embedding_rates;
    return g->o.rates != NULL ? g->o.rates : &ps_compute_rates_default;
}

static ps_status measure_once(const ps_instr *instr, ps_node_run *r)
{
    if (instr->kind == PS_INSTR_JOIN)
        return ps_node_call(r, add, (&(ps_add_args){.n = instr->join_elements, .dtype = r->dtype}));
    return instr->kind == PS_INSTR_BACKWARD ? r->node->type->backward(r) : r->node->type->forward(r);
}

/* An instruction may be run in other ways than the one that its cost is taken of: it adds to the gradients of an earlier
 * micro-batch, or makes one row of logits instead of all. Scratch is for the way that wants most. */
static ps_status measure_other_ways(const planner *g, const ps_instr *instr, ps_node_run *r)
{
    ps_node_run other = *r;
    other.accumulate_dw = r->accumulate_dw || g->o.adds_up_micro_batches;
    other.output_row = 0;
    PS_TRY(measure_once(instr, &other));
    r->workspace_bytes = other.workspace_bytes;
    return PS_OK;
}

/* The forward passes of all numbers of rows: the largest workspace, and the cost of one row, as most passes have. The output is one
 * row, and never a loss. */
static ps_status measure_rows(const ps_plan *p, const ps_instr *instr, ps_node_run *r)
{
    float not_looked_at;
    r->output = &not_looked_at;
    r->output_row = 0;
    ps_plan_bind_cache(p, instr, NULL, r);
    for (int i = p->n_row_counts - 1; i >= 0; i--) {
        r->T = p->row_counts[i];
        r->cost_ns = 0, r->flops = 0;
        PS_TRY(r->node->type->forward(r));
    }
    return PS_OK;
}

static ps_status measure(planner *g)
{
    ps_plan *p = g->plan;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        ps_instr *instr = &p->instrs[m];
        const ps_node *n = &g->program->nodes[instr->node];
        ps_node_run r = {.mode = PS_RUN_MEASURE,
                         .backend = g->o.backend,
                         .rates = rates_of(g, n),
                         .dtype = g->o.dtype,
                         .B = g->program->B,
                         .T = g->program->T,
                         .node = n,
                         .training = true,
                         .output_row = g->o.training ? 0 : -1,
                         .accumulate_dw = instr->accumulate_dw,
                         .grad_dtype = g->o.dtype};
        ps_plan_bind(p, instr, NULL, &r);
        for (int k = 0; instr->kind == PS_INSTR_BACKWARD && k < PS_NODE_PARAMS; k++)
            if (n->params[k] >= 0 && !p->grad_overwrites_param[n->params[k]]) r.grad_dtype = PS_DTYPE_F32;
        if (p->cache_positions > 0) {
            PS_TRY(measure_rows(p, instr, &r));
        } else {
            PS_TRY(measure_once(instr, &r));
            PS_TRY(measure_other_ways(g, instr, &r));
        }
        if (r.workspace_bytes > 0) PS_TRY(new_buffer(g, (int64_t)r.workspace_bytes, &instr->workspace));
        PS_TRY(measure_grad_stats(g, instr, &r));
        instr->cost_ns = r.cost_ns;
        instr->flops = r.flops;
    }
    return PS_OK;
}

static void use(ps_plan *p, int32_t buffer, int32_t m)
{
    if (buffer < 0) return;
    ps_buffer *b = &p->buffers[buffer];
    if (m < b->first) b->first = m;
    if (m > b->last) b->last = m;
}

static void find_lives(ps_plan *p)
{
    for (int32_t m = 0; m < p->n_instrs; m++) {
        const ps_instr *instr = &p->instrs[m];
        const ps_node *node = &p->program->nodes[instr->node];
        for (int i = 0; i < PS_NODE_INPUTS; i++) use(p, instr->x[i], m), use(p, instr->dx[i], m);
        for (int i = 0; i < PS_NODE_SAVED; i++) use(p, instr->saved[i], m);
        use(p, instr->logits, m);
        use(p, instr->y, m);
        use(p, instr->between, m);
        use(p, instr->dy, m);
        use(p, instr->workspace, m);
        for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++)
            if (node->reads_batch >> i & 1) use(p, p->batch[i], m);
    }
    /* the batch is put in place before the first instruction */
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++)
        if (p->batch[i] >= 0) p->buffers[p->batch[i]].first = 0;
}

/* ---- whole ---- */

static ps_status make_batch_buffers(planner *g)
{
    const ps_program *p = g->program;
    unsigned read = 0;
    for (int32_t n = 0; n < p->n_nodes; n++) read |= p->nodes[n].reads_batch;
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) {
        const int64_t n = i == PS_BATCH_TARGETS ? p->n_targets : p->B * p->T;
        g->plan->batch[i] = -1;
        if (read >> i & 1) PS_TRY(new_buffer(g, n * (int64_t)sizeof(int32_t), &g->plan->batch[i]));
    }
    return PS_OK;
}

/* Merge the declared segments into n_checkpoints runs of equal length (DeepSpeed's number_checkpoints). Nodes outside keep
 * segments apart: a segment is a stretch of nodes. */
static void choose_segments(planner *g)
{
    const ps_program *p = g->program;
    const int32_t declared = p->n_segments, wanted = g->o.n_checkpoints;
    int32_t before = -1, stretch = -1;
    for (int32_t n = 0; n < p->n_nodes; n++) {
        int32_t s = g->o.checkpointing && g->o.training ? p->nodes[n].segment : -1;
        if (s >= 0 && wanted > 0 && wanted < declared) s = (int32_t)((int64_t)s * wanted / declared);
        if (s >= 0 && s != before) stretch++;
        g->segment[n] = s >= 0 ? stretch : -1;
        before = s;
    }
}

static bool has_logits(const ps_program *program)
{
    for (int32_t n = 0; n < program->n_nodes; n++)
        if (program->nodes[n].type->logits_count != NULL) return true;
    return false;
}

static ps_status plan_once(const ps_program *program, const ps_plan_options *options, bool keeps_logits, ps_plan **out)
{
    *out = NULL;
    ps_status st = PS_OK;
    planner g = {.program = program, .o = *options, .logits = -1};
    const size_t n_values = (size_t)program->n_values, n_nodes = (size_t)program->n_nodes;
    PS_TRY(ps_mem_alloc(1, sizeof *g.plan, &g.plan));
    ps_plan *p = g.plan;
    p->program = program;
    p->keeps_logits = keeps_logits;
    PS_TRY_GOTO(ps_mem_alloc((size_t)program->n_params, sizeof(bool), &p->grad_overwrites_param));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.value_buffer, &g.value_buffer));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.grad_buffer, &g.grad_buffer));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.grad_consumed, &g.grad_consumed));
    PS_TRY_GOTO(ps_mem_alloc(n_nodes * PS_NODE_SAVED, sizeof *g.saved, &g.saved));
    PS_TRY_GOTO(ps_mem_alloc(n_nodes, sizeof *g.segment, &g.segment));
    PS_TRY_GOTO(ps_mem_alloc(n_nodes, sizeof *g.again, &g.again));
    for (size_t v = 0; v < n_values; v++) g.grad_buffer[v] = -1;
    choose_segments(&g);
    if (options->cache_positions > 0) PS_TRY_GOTO(ps_plan_place_cache(p, options->cache_positions, options->dtype));
    PS_TRY_GOTO(make_batch_buffers(&g));
    PS_TRY_GOTO(write_forward(&g));
    p->n_forward = p->n_instrs;
    if (options->training) {
        PS_TRY_GOTO(write_backward(&g));
        PS_TRY_GOTO(plan_param_gradients(&g));
    }
    PS_TRY_GOTO(measure(&g));
    find_lives(p);
    PS_TRY_GOTO(ps_plan_place_buffers(p));
    *out = p;
    g.plan = NULL;
out:
    ps_mem_free(g.value_buffer);
    ps_mem_free(g.grad_buffer);
    ps_mem_free(g.grad_consumed);
    ps_mem_free(g.saved);
    ps_mem_free(g.segment);
    ps_mem_free(g.again);
    ps_plan_destroy(g.plan);
    return st;
}

ps_status ps_plan_create(const ps_program *program, const ps_plan_options *options, ps_plan **out)
{
    const bool can_keep = options->training && has_logits(program);
    PS_TRY(plan_once(program, options, can_keep && options->keep_logits == PS_KEEP_LOGITS_ALWAYS, out));
    if (!can_keep || options->keep_logits != PS_KEEP_LOGITS_AUTO) return PS_OK;
    const ps_status st = plan_once(program, options, true, &(*out)->keeping);
    if (st == PS_OK) return PS_OK;
    ps_plan_destroy(*out);
    *out = NULL;
    return st;
}

int64_t ps_plan_kept_logits_bytes(const ps_plan *p)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->n_forward; i++)
        if (p->instrs[i].logits >= 0) bytes += p->buffers[p->instrs[i].logits].bytes;
    return bytes;
}

void ps_plan_destroy(ps_plan *p)
{
    if (p == NULL) return;
    ps_plan_destroy(p->keeping);
    for (int32_t m = 0; m < p->n_instrs; m++) ps_mem_free(p->instrs[m].label);
    ps_mem_free(p->instrs);
    ps_mem_free(p->buffers);
    ps_mem_free(p->grad_overwrites_param);
    ps_mem_free(p->cache_offset);
    ps_mem_free(p);
}
