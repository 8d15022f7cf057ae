#include "train/graph/code.h"

#include "base/mem.h"
#include "train/graph/code_impl.h"

const char *ps_instr_kind_name(ps_instr_kind k)
{
    static const char *const names[] = {
        [PS_INSTR_FORWARD] = "forward", [PS_INSTR_RECOMPUTE] = "recompute", [PS_INSTR_BACKWARD] = "backward",
        [PS_INSTR_JOIN] = "join",       [PS_INSTR_OFFLOAD] = "offload",     [PS_INSTR_FETCH] = "fetch"};
    return names[k];
}

void ps_code_bind(const ps_code *p, const ps_instr *instr, void *base, ps_node_run *run)
{
#define ADDRESS(buffer) ((buffer) < 0 || base == NULL ? NULL : (void *)((char *)base + p->buffers[buffer].offset))
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        run->x[i] = ADDRESS(instr->x[i]);
        run->dx[i] = ADDRESS(instr->dx[i]);
        run->accumulate_dx[i] = instr->accumulate_dx[i];
        run->wants_dx[i] = instr->dx[i] >= 0;
    }
    for (int i = 0; i < PS_NODE_PARAMS; i++) {
        run->dw[i] = ADDRESS(instr->unwanted_dw[i]);
        run->wants_dw[i] = ps_instr_makes_grad(p->program, instr, i);
    }
    for (int i = 0; i < PS_NODE_SAVED; i++) run->saved[i] = ADDRESS(instr->saved[i]);
    run->fused = instr->fused < 0 ? NULL : &p->program->nodes[instr->fused];
    run->between = ADDRESS(instr->between);
    run->keeps_logits = instr->logits >= 0;
    run->logits = ADDRESS(instr->logits);
    run->constants =
        instr->constants < 0 ? ps_instr_constants(p->program, instr)->constants : ADDRESS(instr->constants);
    run->output = ADDRESS(instr->output);
    run->y = ADDRESS(instr->y);
    run->dy = ADDRESS(instr->dy);
    run->workspace = ADDRESS(instr->workspace);
    run->workspace_bytes = instr->workspace < 0 ? 0 : (size_t)p->buffers[instr->workspace].bytes;
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) run->batch[i] = ADDRESS(p->batch[i]);
#undef ADDRESS
}

ps_status ps_code_new_buffer(ps_code_writer *g, int64_t bytes, int32_t *out)
{
    ps_code *p = g->code;
    *out = -1;
    PS_TRY(ps_mem_reserve(&p->buffers, (size_t)p->n_buffers + 1, sizeof *p->buffers));
    PS_TRY(ps_mem_reserve(&g->n_waiting, (size_t)p->n_buffers + 1, sizeof *g->n_waiting));
    p->buffers[p->n_buffers] = (ps_buffer){.bytes = bytes, .first = INT32_MAX, .last = -1};
    *out = p->n_buffers++;
    return PS_OK;
}

int64_t ps_code_kept_logits_bytes(const ps_code *p)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->n_forward; i++)
        if (p->instrs[i].logits >= 0) bytes += p->buffers[p->instrs[i].logits].bytes;
    return bytes;
}

int64_t ps_code_batch_bytes(const ps_code *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++)
        if (p->batch[i] >= 0) bytes += p->buffers[p->batch[i]].bytes;
    return bytes;
}

void ps_code_destroy(ps_code *p)
{
    if (p == NULL) return;
    ps_code_destroy(p->keeping);
    for (int32_t m = 0; m < p->n_instrs; m++) ps_mem_free(p->instrs[m].label);
    ps_mem_free(p->instrs);
    ps_mem_free(p->buffers);
    ps_mem_free(p->constants);
    ps_mem_free(p->grad_overwrites_param);
    ps_mem_free(p->cache_offset);
    ps_mem_free(p);
}
