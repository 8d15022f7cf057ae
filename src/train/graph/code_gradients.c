/* code_gradients.c - the instruction that completes a parameter's gradient, and whether the gradient may overwrite the
 * parameter. */
#include "base/mem.h"
#include "train/graph/code_impl.h"

static bool reads_param_value(const ps_instr *instr, const ps_node *n, int k)
{
    switch (instr->kind) {
    case PS_INSTR_FORWARD:
    case PS_INSTR_RECOMPUTE: return true;
    case PS_INSTR_BACKWARD: return n->type->backward_reads_w[k];
    case PS_INSTR_JOIN:
    case PS_INSTR_OFFLOAD:
    case PS_INSTR_FETCH: return false;
    }
    return false;
}

/* An operator adds to all its gradients or to none. If one of its two was written before, the other begins as zeros,
 * which may not overwrite its parameter: the operator still reads that. */
static void note_clearing(ps_code_writer *g, const int32_t *first)
{
    ps_code *p = g->code;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        ps_instr *instr = &p->instrs[m];
        const int32_t *params = g->program->nodes[instr->node].params;
        for (int k = 0; k < PS_NODE_PARAMS && instr->accumulate_dw; k++) {
            if (!ps_instr_makes_grad(g->program, instr, k) || first[params[k]] != m) continue;
            instr->clears_grad[k] = true;
            p->grad_overwrites_param[params[k]] = false;
        }
    }
}

/* The gradients of one node share their type and their accumulation: both overwrite, or neither. */
static void align_within_nodes(ps_code_writer *g)
{
    bool *overwrites = g->code->grad_overwrites_param;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < g->program->n_nodes; i++) {
            const int32_t *w = g->program->nodes[i].params;
            if (!ps_program_trains(g->program, w[0]) || !ps_program_trains(g->program, w[1])) continue;
            if (overwrites[w[0]] == overwrites[w[1]]) continue;
            overwrites[w[0]] = overwrites[w[1]] = false;
            changed = true;
        }
    }
}

ps_status ps_code_place_gradients(ps_code_writer *g)
{
    ps_code *p = g->code;
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
            if (!ps_instr_makes_grad(g->program, instr, k)) continue;
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
    note_clearing(g, first);
    align_within_nodes(g);
out:
    ps_mem_free(first);
    ps_mem_free(last_read);
    ps_mem_free(last_write);
    return st;
}
