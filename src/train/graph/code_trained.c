/* code_trained.c - the part of a program with a backward pass: operators with a trained parameter, and all after the
 * first of these. Nothing is kept or recomputed for the others. Also the readers of each value. */
#include "train/graph/code_impl.h"

void ps_code_find_trained(ps_code_writer *g)
{
    const ps_program *p = g->program;
    for (int32_t n = 0; n < p->n_nodes && g->o.training; n++) {
        const ps_node *node = &p->nodes[n];
        bool is_wanted = false;
        for (int i = 0; i < PS_NODE_INPUTS; i++) is_wanted |= node->inputs[i] >= 0 && g->wants_grad[node->inputs[i]];
        for (int k = 0; k < PS_NODE_PARAMS; k++) is_wanted |= ps_program_trains(p, node->params[k]);
        g->goes_back[n] = is_wanted;
        if (node->output >= 0) g->wants_grad[node->output] = is_wanted;
    }
}

bool ps_code_backward_reads_x(const ps_code_writer *g, int32_t node)
{
    const ps_node *n = &g->program->nodes[node];
    if (!g->goes_back[node] || !n->type->backward_reads_x) return false;
    return !n->type->reads_x_for_weight || ps_program_trains(g->program, n->params[0]);
}

void ps_code_find_readers(ps_code_writer *g)
{
    const ps_program *p = g->program;
    for (int32_t v = 0; v < p->n_values; v++) g->last_reader[v] = -1;
    for (int32_t n = 0; n < p->n_nodes; n++)
        for (int i = 0; i < PS_NODE_INPUTS; i++) {
            const int32_t v = p->nodes[n].inputs[i];
            if (v < 0) continue;
            g->last_reader[v] = n;
            g->is_read_back[v] |= ps_code_backward_reads_x(g, n);
        }
}
