/* code_on_host.c - instructions of embeddings whose parameters stay on the host, where the device's kernels cannot
 * access them: the host's kernels compute them, in a block of host memory.
 *
 *     forward     |= input, then output over it =|= token numbers =|            one block, shared by all of them
 *     backward    |= gradient of the output =====|= token numbers =|= scratch =|
 *
 * Input, gradient and numbers are copied in from the device's buffers, and the output is copied back. */
#include "train/graph/code_impl.h"

#define PART_ALIGN 64

static const ps_value_info *output_of(const ps_code *p, const ps_instr *instr)
{
    return &p->program->values[p->program->nodes[instr->node].output];
}

static int64_t value_part(const ps_code *p, const ps_instr *instr, ps_dtype dtype)
{
    const ps_value_info *v = output_of(p, instr);
    return ps_round_up(v->rows * v->cols * (int64_t)ps_dtype_bytes(dtype), PART_ALIGN);
}

static int64_t batch_part(const ps_code *p)
{
    return ps_round_up(p->program->B * p->program->T * (int64_t)sizeof(int32_t), PART_ALIGN);
}

static int n_batch_arrays(const ps_node *n)
{
    int count = 0;
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) count += (n->reads_batch >> i & 1) != 0;
    return count;
}

int64_t ps_code_host_bytes(const ps_code *p, const ps_instr *instr, ps_dtype dtype)
{
    const ps_node *n = &p->program->nodes[instr->node];
    return value_part(p, instr, dtype) + n_batch_arrays(n) * batch_part(p) + instr->host_workspace_bytes;
}

static void bring(ps_host_copies *c, const void *device, void *host, int64_t bytes)
{
    c->in[c->n_in++] = (ps_host_copy){(void *)(uintptr_t)device, host, bytes};
}

void ps_code_bind_host(const ps_code *p, const ps_instr *instr, void *block, ps_node_run *run, ps_host_copies *out)
{
    const ps_node *n = run->node;
    char *at = block;
    const int64_t bytes = ps_node_rows(run) * output_of(p, instr)->cols * (int64_t)ps_dtype_bytes(run->dtype);
    PS_ASSERT(instr->on_host && (run->x[0] == NULL || n->type->forward_in_place) && run->x[1] == NULL);
    *out = (ps_host_copies){.n_in = 0};
    if (instr->kind == PS_INSTR_BACKWARD) {
        bring(out, run->dy, at, bytes);
        run->dy = at;
    } else {
        if (run->x[0] != NULL) bring(out, run->x[0], at, bytes);
        if (run->x[0] != NULL) run->x[0] = at;
        out->out = (ps_host_copy){run->y, at, bytes};
        run->y = at;
    }
    at += value_part(p, instr, run->dtype);
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) {
        if (!(n->reads_batch >> i & 1)) continue;
        bring(out, run->batch[i], at, ps_node_rows(run) * (int64_t)sizeof(int32_t));
        run->batch[i] = (const int32_t *)(const void *)at;
        at += batch_part(p);
    }
    run->workspace = at;
    run->workspace_bytes = (size_t)instr->host_workspace_bytes;
}
