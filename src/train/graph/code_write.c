/* code_write.c - the instructions of a micro-batch: forward, then backward, with recomputation before it. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/graph/code_impl.h"
#include "train/graph/fuse.h"

/* ---- forward and recomputation ---- */

/* Is this value read by any backward? */
static bool backward_needs(const ps_code_writer *g, int32_t value)
{
    const ps_program *p = g->program;
    const int32_t maker = p->values[value].maker;
    if (!g->o.training) return false;
    return (g->goes_back[maker] && p->nodes[maker].type->backward_reads_y) || g->is_read_back[value];
}

/* The input that the output may overwrite, or -1. */
static int reusable_input(const ps_code_writer *g, int32_t node)
{
    const ps_node *n = &g->program->nodes[node];
    if (!n->type->forward_in_place) return -1;
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        const int32_t v = n->inputs[i];
        if (v < 0 || g->program->values[v].n_readers > 1 || backward_needs(g, v)) continue;
        /* inputs of a segment are read again by its recomputation */
        if (g->segment[node] >= 0 && g->segment[g->program->values[v].maker] != g->segment[node]) continue;
        return i;
    }
    return -1;
}

/* How nodes `first` and first + 1 run as one. */
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

/* The node and the next one. The value between them is written only where backward reads it (never for a pair), and not
 * by a forward pass that is run again before backward. */
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

/* ---- backward ---- */

/* Does the buffer hold the gradient of the value, to be read by a backward still to come? */
static bool waits_for(const ps_code_writer *g, int32_t value, int32_t buffer)
{
    return value >= 0 && g->grad_buffer[value] == buffer && !g->grad_consumed[value];
}

/* The value's gradient is in the buffer from now on. */
static void set_grad(ps_code_writer *g, int32_t value, int32_t buffer)
{
    const int32_t before = g->grad_buffer[value];
    if (before >= 0 && waits_for(g, value, before)) g->n_waiting[before]--;
    g->grad_buffer[value] = buffer;
    if (buffer >= 0 && waits_for(g, value, buffer)) g->n_waiting[buffer]++;
}

/* Backward of the node that computes the value has been written. */
static void consume_grad(ps_code_writer *g, int32_t value)
{
    const int32_t buffer = g->grad_buffer[value];
    if (buffer >= 0 && waits_for(g, value, buffer)) g->n_waiting[buffer]--;
    g->grad_consumed[value] = true;
}

/* Does the buffer hold the gradient of a value other than `except`, to be read by a backward still to come? For no
 * buffer, as at the end of the program: yes, as there is always a value without a gradient. */
static bool others_wait_for(const ps_code_writer *g, int32_t buffer, int32_t except)
{
    return buffer < 0 || g->n_waiting[buffer] > (waits_for(g, except, buffer) ? 1 : 0);
}

/* value's gradient += the gradient in `other`. The sum needs another buffer when value's is also the gradient of
 * another value. other_is_free: the node itself no longer needs `other`. */
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
        /* `other` may be used by this join alone: then the sum overwrites it */
        if (!other_is_free || others_wait_for(g, other, value))
            PS_TRY(ps_code_new_buffer(g, ps_code_value_bytes(g, value), &instr.y));
        else
            instr.y = other;
    }
    set_grad(g, value, instr.y);
    return ps_code_append(g, instr);
}

/* Choose the buffer of the node's gradient for input i: dx and accumulate_dx of the instruction. *joined: the value
 * whose gradient so far must be added afterwards, or -1. */
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

/* For an operator that cannot skip a gradient: the buffer of one that is not needed. */
static ps_status place_unwanted_dw(ps_code_writer *g, const ps_node *n, ps_instr *instr)
{
    for (int k = 0; k < PS_NODE_PARAMS && !n->type->leaves_out; k++) {
        if (n->params[k] < 0 || ps_program_trains(g->program, n->params[k])) continue;
        const int64_t bytes = g->program->params[n->params[k]].elements * (int64_t)sizeof(float);
        PS_TRY(ps_code_new_buffer(g, bytes, &instr->unwanted_dw[k]));
    }
    return PS_OK;
}

/* The same for the gradient of input i: over dy, where permitted. */
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

/* Backward of the node, a linear layer, and of the one before it, whose input has no gradient yet. */
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

/* Inputs of the segment that are read again. */
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

/* Forward again, for the nodes needed in [begin, end). */
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
