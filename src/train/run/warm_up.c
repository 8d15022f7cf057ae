/* warm_up.c - each kind of instruction is computed once before there are parameters, on zeros.
 *
 * Libraries choose algorithms, make plans and load kernels when they first meet a shape, and loading waits until the GPU
 * is idle. After this no step does, unless ps_engine_set_shape has changed the sizes. Instructions of one kind and the
 * same sizes and attributes, as those of layers, count as one.
 *
 *     block    | activations of the instruction | one parameter, for all |      no more than its moment will have
 *
 * Functions of the program are not called. */
#include <string.h>

#include "base/mem.h"
#include "train/run/runner_impl.h"

/* What an algorithm may depend on. */
typedef struct kind {
    const ps_node_type *type, *fused;
    int64_t elements[PS_NODE_PARAMS], x_bytes[PS_NODE_INPUTS], y_bytes, dy_bytes;
    int64_t kind, flags;
    char attributes[sizeof(((ps_node *)NULL)->attr.attention)]; /* the beginning of attr: all that libraries look at */
} kind;

static int64_t buffer_bytes(const ps_code *c, int32_t buffer)
{
    return buffer >= 0 ? c->buffers[buffer].bytes : 0;
}

static kind kind_of(const ps_runner *r, const ps_instr *instr)
{
    const ps_program *p = r->plan->program;
    const ps_node *n = &p->nodes[instr->node];
    kind k;
    memset(&k, 0, sizeof k);
    k.type = n->type;
    k.fused = instr->fused >= 0 ? p->nodes[instr->fused].type : NULL;
    memcpy(k.attributes, &n->attr, sizeof k.attributes);
    k.kind = instr->kind;
    k.flags = instr->accumulate_dw;
    for (int i = 0; i < PS_NODE_INPUTS; i++)
        k.flags = k.flags << 2 | (instr->dx[i] >= 0 ? 2 : 0) | (instr->accumulate_dx[i] ? 1 : 0);
    for (int i = 0; i < PS_NODE_PARAMS; i++)
        if (ps_instr_touches(p, instr, i))
            k.elements[i] = p->params[n->params[i]].elements * (ps_instr_makes_grad(p, instr, i) ? 2 : 1);
    for (int i = 0; i < PS_NODE_INPUTS; i++) k.x_bytes[i] = buffer_bytes(r->plan->code, instr->x[i]);
    k.y_bytes = buffer_bytes(r->plan->code, instr->y);
    k.dy_bytes = buffer_bytes(r->plan->code, instr->dy);
    return k;
}

static bool is_wanted(const ps_runner *r, const ps_instr *instr)
{
    return ps_instr_computes_node(instr) && !instr->on_host && !r->plan->program->nodes[instr->node].type->is_users;
}

/* Of the largest parameter or gradient. */
static int64_t parameter_bytes(const ps_runner *r, const ps_instr *instr)
{
    const ps_program *p = r->plan->program;
    int64_t most = 0;
    for (int i = 0; i < PS_NODE_PARAMS; i++) {
        const int32_t w = p->nodes[instr->node].params[i];
        if (!ps_instr_touches(p, instr, i)) continue;
        const ps_dtype grad = ps_instr_makes_grad(p, instr, i) ? ps_runner_grad_dtype(r, w) : r->plan->settings->dtype;
        most = ps_max_i64(most, p->params[w].elements * (int64_t)ps_dtype_bytes(grad));
    }
    return most;
}

static int64_t needed_bytes(const ps_runner *r, const ps_instr *instr)
{
    return ps_round_up(instr->non_model_bytes, PS_PAGE_BYTES) + parameter_bytes(r, instr);
}

static ps_status compute_once(ps_runner *r, const ps_instr *instr, char *block, bool accumulates)
{
    const ps_program *p = r->plan->program;
    ps_node_run run = ps_runner_bind(r, instr, block);
    char *const parameter = block + ps_round_up(instr->non_model_bytes, PS_PAGE_BYTES);
    run.grad_dtype = run.dtype;
    run.accumulate_dw = accumulates;
    for (int i = 0; i < PS_NODE_PARAMS; i++) {
        if (!ps_instr_touches(p, instr, i)) continue;
        run.w[i] = parameter;
        if (!ps_instr_makes_grad(p, instr, i)) continue;
        run.dw[i] = parameter;
        run.grad_dtype = ps_runner_grad_dtype(r, run.node->params[i]);
    }
    PS_TRY(ps_queue_fill(run.queue, block, 0, needed_bytes(r, instr))); /* indices are valid */
    return instr->kind == PS_INSTR_BACKWARD ? run.node->type->backward(&run) : run.node->type->forward(&run);
}

/* Sums of gradients over micro-batches may be another case. */
static ps_status compute(ps_runner *r, const ps_instr *instr, char *block)
{
    const bool adds_up = r->plan->settings->accumulation > 1 && !ps_exec_plan_has_separate_sums(r->plan);
    PS_TRY(compute_once(r, instr, block, instr->accumulate_dw));
    if (instr->kind != PS_INSTR_BACKWARD || instr->accumulate_dw || !adds_up) return PS_OK;
    return compute_once(r, instr, block, true);
}

/* kinds[n_instrs] */
static ps_status compute_kinds(ps_runner *r, char *block, int64_t bytes, kind *kinds)
{
    const ps_code *c = r->plan->code;
    int32_t n = 0;
    for (int32_t m = 0; m < c->n_instrs; m++) {
        if (!is_wanted(r, &c->instrs[m]) || needed_bytes(r, &c->instrs[m]) > bytes) continue;
        int32_t i = 0;
        kinds[n] = kind_of(r, &c->instrs[m]);
        while (memcmp(&kinds[i], &kinds[n], sizeof kinds[n]) != 0) i++;
        if (i < n) continue;
        n++;
        PS_TRY(compute(r, &c->instrs[m], block));
    }
    return ps_event_wait(ps_queue_event(ps_runner_device_queue(r)));
}

ps_status ps_runner_warm_up(ps_runner *r)
{
    const ps_code *c = r->plan->code;
    ps_device *dev = r->tiers->ram[PS_TIER_DEVICE];
    ps_queue *q = ps_runner_device_queue(r);
    int64_t bytes = 0;
    kind *kinds = NULL;
    void *block;
    for (int32_t m = 0; m < c->n_instrs; m++)
        if (is_wanted(r, &c->instrs[m])) bytes = ps_max_i64(bytes, needed_bytes(r, &c->instrs[m]));
    bytes = ps_min_i64(bytes, ps_device_free_bytes(dev));
    if (bytes == 0) return PS_OK;
    PS_TRY(ps_mem_alloc((size_t)c->n_instrs, sizeof *kinds, &kinds));
    ps_status st = ps_device_alloc(dev, bytes, &block);
    if (st == PS_OK) {
        r->pass = (ps_pass){.kind = PS_PASS_TRAIN, .loss_scale = 1};
        st = ps_queue_wait(q, ps_device_gave_after(dev));
        if (st == PS_OK) st = compute_kinds(r, block, bytes, kinds);
        ps_device_free(dev, block, bytes, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
        ps_device_reset_peak(dev);
    }
    ps_mem_free(kinds);
    return st;
}
