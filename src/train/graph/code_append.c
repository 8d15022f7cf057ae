/* code_append.c - shared by the files that write code: bytes of values, appending an instruction, recomputation. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/graph/code_impl.h"

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

/* One buffer for all nodes with the same constants, as in the layers of a model. */
static ps_status place_constants(ps_code_writer *g, const ps_node *n, int32_t *buffer)
{
    ps_code *p = g->code;
    const int64_t bytes = n->n_constants * (int64_t)sizeof *n->constants;
    if (!g->is_discrete || bytes == 0) return PS_OK;
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

/* In incremental decoding, and of an engine for training, one row at a time is requested. */
static ps_status place_output(ps_code_writer *g, const ps_node *n, int32_t *buffer)
{
    if (!g->is_discrete || n->output >= 0) return PS_OK;
    const int64_t rows = g->code->cache_positions > 0 || g->o.training ? 1 : n->rows;
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
