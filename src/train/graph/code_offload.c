/* code_offload.c - activation offload: inputs of a checkpoint segment wait for its recomputation outside of the region.
 *
 *     region   |== value, read by the segment ==| offload             fetch |== the value again ==|
 *     chunk                                     |=========================|
 *
 * The value has two buffers, one before and one after, so that the memory is free in between. */
#include "train/graph/code_impl.h"

static void number_inputs(ps_code_writer *g, int32_t begin, int32_t end)
{
    const ps_program *p = g->program;
    ps_code_mark_again(g, begin, end);
    for (int32_t n = begin; n < end; n++)
        for (int i = 0; i < PS_NODE_INPUTS; i++) {
            const int32_t v = p->nodes[n].inputs[i];
            if (v < 0 || g->offload_index[v] >= 0 || !ps_code_reads_again(g, begin, n, v)) continue;
            g->offload_index[v] = g->code->n_offloaded++;
            g->code->offload_bytes = ps_max_i64(g->code->offload_bytes, ps_code_value_bytes(g, v));
        }
}

void ps_code_choose_offloads(ps_code_writer *g)
{
    const int32_t n_nodes = g->program->n_nodes;
    for (int32_t v = 0; v < g->program->n_values; v++) g->offload_index[v] = -1;
    for (int32_t n = 0, end; n < n_nodes && g->o.offloads_inputs; n = end) {
        for (end = n + 1; end < n_nodes && g->segment[end] == g->segment[n]; end++) continue;
        if (g->segment[n] >= 0) number_inputs(g, n, end);
    }
}

static ps_instr copy_of(const ps_code_writer *g, ps_instr_kind kind, int32_t value)
{
    ps_instr instr = ps_instr_no_buffers;
    instr.kind = kind;
    instr.node = g->program->values[value].maker;
    instr.offload_index = g->offload_index[value];
    instr.offload_bytes = ps_code_value_bytes(g, value);
    return instr;
}

ps_status ps_code_offload_after(ps_code_writer *g, int32_t node)
{
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        const int32_t v = g->program->nodes[node].inputs[i];
        if (v < 0 || g->offload_index[v] < 0 || g->is_away[v] || g->last_reader[v] > node) continue;
        ps_instr instr = copy_of(g, PS_INSTR_OFFLOAD, v);
        instr.x[0] = g->value_buffer[v];
        g->is_away[v] = true;
        PS_TRY(ps_code_append(g, instr));
    }
    return PS_OK;
}

ps_status ps_code_fetch(ps_code_writer *g, int32_t value)
{
    if (!g->is_away[value]) return PS_OK;
    ps_instr instr = copy_of(g, PS_INSTR_FETCH, value);
    PS_TRY(ps_code_new_buffer(g, ps_code_value_bytes(g, value), &instr.y));
    g->value_buffer[value] = instr.y;
    g->is_away[value] = false;
    return ps_code_append(g, instr);
}
