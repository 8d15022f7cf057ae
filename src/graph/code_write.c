/* code_write.c - the instructions of a micro-batch: forward, then backward with what is computed again before it. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "graph/code_impl.h"
#include "graph/fuse.h"

int64_t ps_code_value_bytes(const ps_code_writer *g, int32_t value)
{
    const ps_value_info *v = &g->program->values[value];
    return v->rows * v->cols * (int64_t)ps_dtype_bytes(g->o.dtype);
}

const ps_instr ps_instr_no_buffers = {.fused = -1,
                                      .x = {-1, -1, -1},
                                      .y = -1,
                                      .saved = {-1, -1, -1},
                                      .logits = -1,
                                      .constants = -1,
                                      .output = -1,
                                      .between = -1,
                                      .dx = {-1, -1, -1},
                                      .dy = -1,
                                      .unwanted_dw = {-1, -1},
                                      .workspace = -1};

/* One buffer for all nodes with the same constants, as the layers of a model have. */
static ps_status place_constants(ps_code_writer *g, const ps_node *n, int32_t *buffer)
{
    ps_code *p = g->code;
    const int64_t bytes = n->n_constants * (int64_t)sizeof *n->constants;
    if (!g->is_apart || bytes == 0) return PS_OK;
    for (int32_t i = 0; i < p->n_constants; i++) {
        const ps_constants *c = &p->constants[i];
        if (p->buffers[c->buffer].bytes != bytes || memcmp(c->values, n->constants, (size_t)bytes) != 0) continue;
        *buffer = c->buffer;
        return PS_OK;
    }
    PS_TRY(ps_mem_reserve(&p->constants, (size_t)p->n_constants + 1, sizeof *p->constants));
    PS_TRY(ps_code_new_buffer(g, bytes, buffer));
    p->constants[p->n_constants++] = (ps_constants){.buffer = *buffer, .values = n->constants};
    return PS_OK;
}

/* Of a text that grows, one row at a time is wanted. */
static ps_status place_output(ps_code_writer *g, const ps_node *n, int32_t *buffer)
{
    if (!g->is_apart || g->o.training || n->output >= 0) return PS_OK;
    const int64_t rows = g->code->cache_positions > 0 ? 1 : n->rows;
    return ps_code_new_buffer(g, rows * g->program->n_outputs * (int64_t)sizeof(float), buffer);
}

ps_status ps_code_append(ps_code_writer *g, ps_instr instr)
{
    ps_code *p = g->code;
    PS_TRY(ps_mem_reserve(&p->instrs, (size_t)p->n_instrs + 1, sizeof *p->instrs));
    const ps_node *nodes = g->program->nodes;
    if (ps_instr_computes_node(&instr))
        PS_TRY(place_constants(g, ps_instr_constants(g->program, &instr), &instr.constants));
    if (instr.kind == PS_INSTR_FORWARD) PS_TRY(place_output(g, &nodes[instr.node], &instr.output));
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
static bool backward_needs(const ps_code_writer *g, int32_t value)
{
    const ps_program *p = g->program;
    const int32_t maker = p->values[value].maker;
    if (!g->o.training) return false;
    return (g->goes_back[maker] && p->nodes[maker].type->backward_reads_y) || g->is_read_back[value];
}

/* The input whose memory the output may take, or -1. */
static int reusable_input(const ps_code_writer *g, int32_t node)
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

/* How the two nodes from `first` on run as one. */
static ps_fusion fuses(const ps_code_writer *g, ps_fuse_direction direction, int32_t first)
{
    const ps_fusion fusion = ps_fuse(g->program, g->o.backend, direction, first);
    return fusion != PS_FUSION_NONE && g->segment[first] == g->segment[first + 1] ? fusion : PS_FUSION_NONE;
}

static ps_status place_output_of(ps_code_writer *g, int32_t node, int32_t reused, ps_instr *instr)
{
    const int32_t output = g->program->nodes[node].output;
    if (reused >= 0)
        instr->y = reused;
    else
        PS_TRY(ps_code_new_buffer(g, ps_code_value_bytes(g, output), &instr->y));
    g->value_buffer[output] = instr->y;
    g->is_away[output] = false;
    return PS_OK;
}

static ps_status place_saved(ps_code_writer *g, int32_t node, ps_instr *instr)
{
    const ps_node *n = &g->program->nodes[node];
    for (int i = 0; i < PS_NODE_SAVED; i++) {
        const int64_t cols = n->type->saved_cols == NULL ? 0 : n->type->saved_cols(n, i);
        if (cols > 0) PS_TRY(ps_code_new_buffer(g, n->rows * cols * (int64_t)sizeof(float), &instr->saved[i]));
        g->saved[node * PS_NODE_SAVED + i] = instr->saved[i];
    }
    return PS_OK;
}

/* The node and the next one. The value between them is written only where backward reads it (which it does of no pair),
 * and not yet by a forward pass that is run again before backward. */
static ps_status append_fused_forward(ps_code_writer *g, int32_t node, ps_instr_kind kind)
{
    const ps_program *p = g->program;
    const ps_node *n = &p->nodes[node], *next = n + 1;
    ps_instr instr = ps_instr_no_buffers;
    instr.kind = kind;
    instr.node = node;
    instr.fused = node + 1;
    instr.x[0] = g->value_buffer[n->inputs[0]];
    for (int i = 0; i < PS_NODE_INPUTS; i++)
        if (next->inputs[i] >= 0 && next->inputs[i] != n->output) instr.x[1] = g->value_buffer[next->inputs[i]];
    if (backward_needs(g, n->output) && (kind == PS_INSTR_RECOMPUTE || g->segment[node] < 0))
        PS_TRY(ps_code_new_buffer(g, ps_code_value_bytes(g, n->output), &instr.between));
    g->value_buffer[n->output] = instr.between;
    const int reuse = reusable_input(g, node);
    PS_TRY(place_output_of(g, node + 1, reuse >= 0 ? instr.x[reuse] : -1, &instr));
    PS_TRY(place_saved(g, node, &instr));
    return ps_code_append(g, instr);
}

static ps_status append_forward(ps_code_writer *g, int32_t node, ps_instr_kind kind)
{
    const ps_program *p = g->program;
    const ps_node *n = &p->nodes[node];
    ps_instr instr = ps_instr_no_buffers;
    instr.kind = kind;
    instr.node = node;
    for (int i = 0; i < PS_NODE_INPUTS; i++)
        if (n->inputs[i] >= 0) instr.x[i] = g->value_buffer[n->inputs[i]];
    if (n->output >= 0) {
        const int reuse = reusable_input(g, node);
        PS_TRY(place_output_of(g, node, reuse >= 0 ? instr.x[reuse] : -1, &instr));
    }
    PS_TRY(place_saved(g, node, &instr));
    if (g->code->keeps_logits && n->type->logits_count != NULL) {
        PS_TRY(ps_code_new_buffer(g, n->type->logits_count(n) * (int64_t)sizeof(float), &instr.logits));
        g->logits = instr.logits;
    }
    return ps_code_append(g, instr);
}

void ps_code_mark_again(ps_code_writer *g, int32_t begin, int32_t end)
{
    const ps_program *p = g->program;
    for (int32_t n = begin; n < end; n++) g->again[n] = false;
    for (int32_t n = end - 1; n >= begin; n--) {
        const ps_node *node = &p->nodes[n];
        const bool is_read = node->type->backward_reads_y || node->type->saved_cols != NULL;
        if (g->goes_back[n] && is_read) g->again[n] = true;
        for (int i = 0; i < PS_NODE_INPUTS; i++) {
            const int32_t v = node->inputs[i];
            if (v < 0 || p->values[v].maker < begin) continue;
            if (ps_code_backward_reads_x(g, n) || g->again[n]) g->again[p->values[v].maker] = true;
        }
    }
}

bool ps_code_reads_again(const ps_code_writer *g, int32_t begin, int32_t node, int32_t value)
{
    return g->program->values[value].maker < begin && (g->again[node] || ps_code_backward_reads_x(g, node));
}

/* ---- backward ---- */

/* Is the buffer the gradient of the value, whose maker's backward is still to come? */
static bool waits_for(const ps_code_writer *g, int32_t value, int32_t buffer)
{
    return value >= 0 && g->grad_buffer[value] == buffer && !g->grad_consumed[value];
}

/* The value's gradient lies in the buffer from now on. */
static void set_grad(ps_code_writer *g, int32_t value, int32_t buffer)
{
    const int32_t before = g->grad_buffer[value];
    if (before >= 0 && waits_for(g, value, before)) g->n_waiting[before]--;
    g->grad_buffer[value] = buffer;
    if (buffer >= 0 && waits_for(g, value, buffer)) g->n_waiting[buffer]++;
}

/* The backward of the value's maker has been written. */
static void consume_grad(ps_code_writer *g, int32_t value)
{
    const int32_t buffer = g->grad_buffer[value];
    if (buffer >= 0 && waits_for(g, value, buffer)) g->n_waiting[buffer]--;
    g->grad_consumed[value] = true;
}

/* Is the buffer the gradient of a value other than `except` whose maker's backward is still to come? Of no buffer, as
 * of the end of the program: yes, as there is always a value without a gradient. */
static bool others_wait_for(const ps_code_writer *g, int32_t buffer, int32_t except)
{
    return buffer < 0 || g->n_waiting[buffer] > (waits_for(g, except, buffer) ? 1 : 0);
}

/* value's gradient += the gradient in `other`. The sum goes into another buffer when value's is somebody else's
 * gradient too. other_is_free: the node itself needs what is in `other` no longer. */
static ps_status join(ps_code_writer *g, int32_t node, int32_t value, int32_t other, bool other_is_free)
{
    ps_instr instr = ps_instr_no_buffers;
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
            PS_TRY(ps_code_new_buffer(g, ps_code_value_bytes(g, value), &instr.y));
        else
            instr.y = other;
    }
    set_grad(g, value, instr.y);
    return ps_code_append(g, instr);
}

/* Choose where the node's gradient for input i goes: dx and accumulate_dx of the instruction. *joined: the value whose
 * gradient so far must be added afterwards, or -1. */
static ps_status choose_dx(ps_code_writer *g, int32_t node, int i, ps_instr *instr, int32_t *joined)
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
        return ps_code_new_buffer(g, ps_code_value_bytes(g, v), &instr->dx[i]);
    }
    const bool in_place = i == 0 && n->type->backward_in_place && !others_wait_for(g, instr->dy, n->output);
    if (in_place)
        instr->dx[i] = instr->dy;
    else
        PS_TRY(ps_code_new_buffer(g, ps_code_value_bytes(g, v), &instr->dx[i]));
    set_grad(g, v, instr->dx[i]);
    return PS_OK;
}

static bool has_trained_params(const ps_code_writer *g, const ps_node *n)
{
    return ps_program_trains(g->program, n->params[0]) || ps_program_trains(g->program, n->params[1]);
}

/* Of an operator that cannot leave a gradient out: where it goes when nobody wants it. */
static ps_status place_unwanted_dw(ps_code_writer *g, const ps_node *n, ps_instr *instr)
{
    for (int k = 0; k < PS_NODE_PARAMS && !n->type->leaves_out; k++) {
        if (n->params[k] < 0 || ps_program_trains(g->program, n->params[k])) continue;
        const int64_t bytes = g->program->params[n->params[k]].elements * (int64_t)sizeof(float);
        PS_TRY(ps_code_new_buffer(g, bytes, &instr->unwanted_dw[k]));
    }
    return PS_OK;
}

/* The same of the gradient for input i: over dy, where that may be. */
static ps_status place_unwanted_dx(ps_code_writer *g, const ps_node *n, int i, ps_instr *instr)
{
    if (n->type->leaves_out) return PS_OK;
    if (i == 0 && n->type->backward_in_place && !others_wait_for(g, instr->dy, n->output)) {
        instr->dx[i] = instr->dy;
        return PS_OK;
    }
    return ps_code_new_buffer(g, ps_code_value_bytes(g, n->inputs[i]), &instr->dx[i]);
}

static ps_status append_backward(ps_code_writer *g, int32_t node)
{
    const ps_node *n = &g->program->nodes[node];
    ps_instr instr = ps_instr_no_buffers;
    instr.kind = PS_INSTR_BACKWARD;
    instr.node = node;
    instr.dy = n->output >= 0 ? g->grad_buffer[n->output] : -1;
    if (n->type->backward_reads_y) PS_TRY(ps_code_fetch(g, n->output));
    const bool reads_x = ps_code_backward_reads_x(g, node);
    for (int i = 0; i < PS_NODE_INPUTS && reads_x; i++)
        if (n->inputs[i] >= 0) PS_TRY(ps_code_fetch(g, n->inputs[i]));
    instr.y = n->type->backward_reads_y ? g->value_buffer[n->output] : -1;
    int32_t joined[PS_NODE_INPUTS] = {-1, -1, -1};
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        if (n->inputs[i] < 0) continue;
        if (reads_x) instr.x[i] = g->value_buffer[n->inputs[i]];
        if (n->type->passes_gradient) continue;
        if (g->wants_grad[n->inputs[i]])
            PS_TRY(choose_dx(g, node, i, &instr, &joined[i]));
        else
            PS_TRY(place_unwanted_dx(g, n, i, &instr));
    }
    PS_TRY(place_unwanted_dw(g, n, &instr));
    for (int i = 0; i < PS_NODE_SAVED; i++) instr.saved[i] = g->saved[node * PS_NODE_SAVED + i];
    if (n->type->logits_count != NULL) instr.logits = g->logits;
    if (!n->type->passes_gradient || has_trained_params(g, n)) PS_TRY(ps_code_append(g, instr));
    if (n->output >= 0) consume_grad(g, n->output);
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        const int32_t v = n->inputs[i];
        if (v < 0 || !g->wants_grad[v]) continue;
        if (joined[i] >= 0) {
            PS_TRY(join(g, node, v, instr.dx[i], true));
        } else if (n->type->passes_gradient) {
            if (g->grad_buffer[v] >= 0)
                PS_TRY(join(g, node, v, instr.dy, i + 1 == PS_NODE_INPUTS || n->inputs[i + 1] < 0));
            else
                set_grad(g, v, instr.dy);
        }
    }
    return PS_OK;
}

/* Backward of a pair that ends with the node, whose input has no gradient yet. */
static ps_status append_pair_backward(ps_code_writer *g, int32_t node)
{
    const ps_node *n = &g->program->nodes[node], *before = n - 1;
    const int32_t v = before->inputs[0];
    ps_instr instr = ps_instr_no_buffers;
    instr.kind = PS_INSTR_BACKWARD;
    instr.node = node - 1;
    instr.fused = node;
    PS_TRY(ps_code_fetch(g, v));
    instr.dy = g->grad_buffer[n->output];
    instr.x[0] = g->value_buffer[v];
    for (int i = 0; i < PS_NODE_SAVED; i++) instr.saved[i] = g->saved[(node - 1) * PS_NODE_SAVED + i];
    if (others_wait_for(g, instr.dy, n->output))
        PS_TRY(ps_code_new_buffer(g, ps_code_value_bytes(g, v), &instr.dx[0]));
    else
        instr.dx[0] = instr.dy;
    if (g->wants_grad[v]) set_grad(g, v, instr.dx[0]);
    PS_TRY(place_unwanted_dw(g, before, &instr));
    consume_grad(g, n->output);
    consume_grad(g, before->output);
    return ps_code_append(g, instr);
}

/* Backward of the node, a product, and of the one before it, whose input has no gradient yet. */
static ps_status append_fused_backward(ps_code_writer *g, int32_t node)
{
    const ps_node *n = &g->program->nodes[node], *before = n - 1;
    const int32_t v = before->inputs[0];
    ps_instr instr = ps_instr_no_buffers;
    instr.kind = PS_INSTR_BACKWARD;
    instr.node = node;
    instr.fused = node - 1;
    if (ps_code_backward_reads_x(g, node)) {
        PS_TRY(ps_code_fetch(g, n->inputs[0]));
        instr.x[0] = g->value_buffer[n->inputs[0]];
    }
    PS_TRY(ps_code_fetch(g, v));
    instr.dy = g->grad_buffer[n->output];
    instr.x[1] = g->value_buffer[v];
    PS_TRY(ps_code_new_buffer(g, ps_code_value_bytes(g, v), &instr.dx[0]));
    set_grad(g, v, instr.dx[0]);
    consume_grad(g, n->output);
    consume_grad(g, before->output);
    return ps_code_append(g, instr);
}

/* What enters the segment and is read again. */
static ps_status fetch_inputs(ps_code_writer *g, int32_t begin, int32_t end)
{
    for (int32_t n = begin; n < end; n++) {
        const ps_node *node = &g->program->nodes[n];
        for (int i = 0; i < PS_NODE_INPUTS; i++)
            if (node->inputs[i] >= 0 && ps_code_reads_again(g, begin, n, node->inputs[i]))
                PS_TRY(ps_code_fetch(g, node->inputs[i]));
    }
    return PS_OK;
}

/* Forward again, of what is needed in [begin, end). */
static ps_status write_recomputation(ps_code_writer *g, int32_t begin, int32_t end)
{
    ps_code_mark_again(g, begin, end);
    PS_TRY(fetch_inputs(g, begin, end));
    for (int32_t n = begin; n < end; n++) {
        if (!g->again[n]) continue;
        if (n + 1 < end && g->again[n + 1] && fuses(g, PS_FUSE_FORWARD, n))
            PS_TRY(append_fused_forward(g, n++, PS_INSTR_RECOMPUTE));
        else
            PS_TRY(append_forward(g, n, PS_INSTR_RECOMPUTE));
    }
    return PS_OK;
}

ps_status ps_code_write_forward(ps_code_writer *g)
{
    for (int32_t n = 0; n < g->program->n_nodes; n++) {
        const int32_t first = n;
        if (fuses(g, PS_FUSE_FORWARD, n))
            PS_TRY(append_fused_forward(g, n++, PS_INSTR_FORWARD));
        else
            PS_TRY(append_forward(g, n, PS_INSTR_FORWARD));
        for (int32_t i = first; i <= n; i++) PS_TRY(ps_code_offload_after(g, i));
    }
    return PS_OK;
}

static ps_fusion fuses_backward(const ps_code_writer *g, int32_t node)
{
    const ps_fusion fusion = fuses(g, PS_FUSE_BACKWARD, node - 1);
    if (fusion == PS_FUSION_NONE || !g->goes_back[node - 1]) return PS_FUSION_NONE;
    return g->grad_buffer[g->program->nodes[node - 1].inputs[0]] < 0 ? fusion : PS_FUSION_NONE;
}

ps_status ps_code_write_backward(ps_code_writer *g)
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
        if (!g->goes_back[node]) continue;
        switch (fuses_backward(g, node)) {
        case PS_FUSION_EPILOGUE: PS_TRY(append_fused_backward(g, node--)); break;
        case PS_FUSION_PAIR: PS_TRY(append_pair_backward(g, node--)); break;
        case PS_FUSION_NONE: PS_TRY(append_backward(g, node)); break;
        }
    }
    return PS_OK;
}
