/* code_measure.c - resources of instructions: scratch, operations, and an estimate of their time. */
#include "train/graph/code_impl.h"

/* The runner reads each gradient once, when its last contribution has been added; that needs no scratch. */
static ps_status measure_grad_stats(const ps_code_writer *g, const ps_instr *instr, ps_node_run *r)
{
    const ps_node *n = &g->program->nodes[instr->node];
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        if (!instr->completes_grad[k]) continue;
        const int64_t elements = g->program->params[n->params[k]].elements;
        PS_TRY(ps_node_call(r, grad_stats, (&(ps_grad_stats_args){.n = elements, .dtype = r->grad_dtype})));
    }
    return PS_OK;
}

static const ps_compute_throughput *throughput_of(const ps_code_writer *g, const ps_node *n)
{
    if (n->type->is_embedding && g->o.embedding_throughput != NULL) return g->o.embedding_throughput;
    return g->o.throughput != NULL ? g->o.throughput : &ps_compute_throughput_default;
}

static void measure_copy(const ps_code_writer *g, ps_instr *instr)
{
    const ps_compute_throughput *throughput =
        g->o.throughput != NULL ? g->o.throughput : &ps_compute_throughput_default;
    const ps_cost cost =
        ps_cost_of_stream(instr->offload_bytes / (int64_t)ps_dtype_bytes(g->o.dtype), 2, 0, g->o.dtype);
    instr->cost_ns = (int64_t)(1e9 * ps_cost_seconds(&cost, throughput));
}

static ps_status measure_once(const ps_instr *instr, ps_node_run *r)
{
    if (instr->kind == PS_INSTR_JOIN)
        return ps_node_call(r, add, (&(ps_add_args){.n = instr->join_elements, .dtype = r->dtype}));
    return instr->kind == PS_INSTR_BACKWARD ? r->node->type->backward(r) : r->node->type->forward(r);
}

/* The largest scratch over the modes of an instruction. Its cost is that of the usual mode; others add to the gradients
 * of an earlier micro-batch, or compute one row of logits instead of all. */
static ps_status measure_other_ways(const ps_code_writer *g, const ps_instr *instr, ps_node_run *r)
{
    ps_node_run other = *r;
    other.accumulate_dw = r->accumulate_dw || g->o.adds_up_micro_batches;
    other.output_row = 0;
    PS_TRY(measure_once(instr, &other));
    r->workspace_bytes = other.workspace_bytes;
    return PS_OK;
}

/* Incremental decoding: the largest workspace of the forward passes of all numbers of rows, and the cost of the last
 * measured, one row, as in most passes. The output is one row, and never a loss. */
static ps_status measure_rows(const ps_code *p, const ps_instr *instr, ps_node_run *r)
{
    float not_looked_at;
    r->output = &not_looked_at;
    r->output_row = 0;
    ps_code_bind_cache(p, instr, NULL, r);
    for (int i = p->n_row_counts - 1; i >= 0; i--) {
        r->T = p->row_counts[i];
        r->cost_ns = 0, r->flops = 0;
        PS_TRY(r->node->type->forward(r));
    }
    return PS_OK;
}

static ps_status place_workspace(ps_code_writer *g, ps_instr *instr, int64_t bytes)
{
    if (!instr->on_host) return bytes > 0 ? ps_code_new_buffer(g, bytes, &instr->workspace) : PS_OK;
    instr->host_workspace_bytes = bytes;
    g->code->host_bytes = ps_max_i64(g->code->host_bytes, ps_code_host_bytes(g->code, instr, g->o.dtype));
    return PS_OK;
}

ps_status ps_code_measure(ps_code_writer *g)
{
    ps_code *p = g->code;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        ps_instr *instr = &p->instrs[m];
        const ps_node *n = &g->program->nodes[instr->node];
        if (instr->offload_bytes > 0) {
            measure_copy(g, instr);
            continue;
        }
        instr->on_host = g->o.embedding_backend != NULL && n->type->is_embedding && ps_instr_computes_node(instr);
        ps_node_run r = {.mode = PS_RUN_MEASURE,
                         .backend = instr->on_host ? g->o.embedding_backend : g->o.backend,
                         .throughput = throughput_of(g, n),
                         .softmax_throughput = g->o.softmax_throughput,
                         .dtype = g->o.dtype,
                         .B = g->program->B,
                         .T = g->program->T,
                         .node = n,
                         .training = true,
                         .output_row = g->o.training ? 0 : -1,
                         .accumulate_dw = instr->accumulate_dw,
                         .grad_dtype = g->o.dtype};
        ps_code_bind(p, instr, NULL, &r);
        for (int k = 0; k < PS_NODE_PARAMS; k++)
            if (ps_instr_makes_grad(g->program, instr, k) && !p->grad_overwrites_param[n->params[k]])
                r.grad_dtype = PS_DTYPE_F32;
        if (p->cache_positions > 0) {
            PS_TRY(measure_rows(p, instr, &r));
        } else {
            PS_TRY(measure_once(instr, &r));
            PS_TRY(measure_other_ways(g, instr, &r));
        }
        PS_TRY(place_workspace(g, instr, (int64_t)r.workspace_bytes));
        PS_TRY(measure_grad_stats(g, instr, &r));
        instr->cost_ns = r.cost_ns;
        instr->flops = r.flops;
    }
    return PS_OK;
}
