/* code_create.c - from a program to its code: the steps of code_impl.h in order, and their shared state. */
#include "base/mem.h"
#include "device/device.h"
#include "train/graph/code_impl.h"

static ps_status make_batch_buffers(ps_code_writer *g)
{
    const ps_program *p = g->program;
    unsigned read = 0;
    for (int32_t n = 0; n < p->n_nodes; n++) read |= p->nodes[n].reads_batch;
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) {
        const bool are_targets = i == PS_BATCH_TARGETS || i == PS_BATCH_VALUES;
        const int64_t n = are_targets ? p->n_targets : p->B * p->T;
        g->code->batch[i] = -1;
        if (read >> i & 1) PS_TRY(ps_code_new_buffer(g, n * (int64_t)sizeof(int32_t), &g->code->batch[i]));
    }
    return PS_OK;
}

/* Merge the declared segments into n_checkpoints, of equally many each (DeepSpeed's number_checkpoints). The nodes of a
 * segment are consecutive: a node outside of segments separates those before it from those after it. */
static void choose_segments(ps_code_writer *g)
{
    const ps_program *p = g->program;
    const int32_t declared = p->n_segments, wanted = g->o.n_checkpoints;
    int32_t before = -1, n_merged = 0;
    for (int32_t n = 0; n < p->n_nodes; n++) {
        int32_t s = g->o.checkpointing && g->o.training ? p->nodes[n].segment : -1;
        if (s >= 0 && wanted > 0 && wanted < declared) s = (int32_t)((int64_t)s * wanted / declared);
        if (s >= 0 && s != before) n_merged++;
        g->segment[n] = s >= 0 ? n_merged - 1 : -1;
        before = s;
    }
}

static bool has_logits(const ps_program *program)
{
    for (int32_t n = 0; n < program->n_nodes; n++)
        if (program->nodes[n].type->logits_count != NULL) return true;
    return false;
}

static ps_status create_once(const ps_program *program, const ps_code_options *options, bool keeps_logits,
                             ps_code **out)
{
    *out = NULL;
    ps_status st = PS_OK;
    ps_code_writer g = {.program = program,
                        .o = *options,
                        .logits = -1,
                        .is_discrete = !ps_backend_space(options->backend)->device->host_can_touch};
    const size_t n_values = (size_t)program->n_values, n_nodes = (size_t)program->n_nodes;
    PS_TRY(ps_mem_alloc(1, sizeof *g.code, &g.code));
    ps_code *p = g.code;
    p->program = program;
    p->keeps_logits = keeps_logits;
    PS_TRY_GOTO(ps_mem_alloc((size_t)program->n_params, sizeof(bool), &p->grad_overwrites_param));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.value_buffer, &g.value_buffer));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.grad_buffer, &g.grad_buffer));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.grad_consumed, &g.grad_consumed));
    PS_TRY_GOTO(ps_mem_alloc(n_nodes * PS_NODE_SAVED, sizeof *g.saved, &g.saved));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.wants_grad, &g.wants_grad));
    PS_TRY_GOTO(ps_mem_alloc(n_nodes, sizeof *g.goes_back, &g.goes_back));
    PS_TRY_GOTO(ps_mem_alloc(n_nodes, sizeof *g.segment, &g.segment));
    PS_TRY_GOTO(ps_mem_alloc(n_nodes, sizeof *g.again, &g.again));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.is_read_back, &g.is_read_back));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.last_reader, &g.last_reader));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.offload_index, &g.offload_index));
    PS_TRY_GOTO(ps_mem_alloc(n_values, sizeof *g.is_away, &g.is_away));
    for (size_t v = 0; v < n_values; v++) g.grad_buffer[v] = -1;
    choose_segments(&g);
    ps_code_find_trained(&g);
    ps_code_find_readers(&g);
    ps_code_choose_offloads(&g);
    if (options->cache_positions > 0) PS_TRY_GOTO(ps_code_place_cache(p, options->cache_positions, options->dtype));
    PS_TRY_GOTO(make_batch_buffers(&g));
    PS_TRY_GOTO(ps_code_write_forward(&g));
    p->n_forward = p->n_instrs;
    if (options->training) {
        PS_TRY_GOTO(ps_code_write_backward(&g));
        PS_TRY_GOTO(ps_code_place_gradients(&g));
    }
    PS_TRY_GOTO(ps_code_measure(&g));
    PS_TRY_GOTO(ps_code_place_buffers(p));
    *out = p;
    g.code = NULL;
out:
    ps_mem_free(g.value_buffer);
    ps_mem_free(g.grad_buffer);
    ps_mem_free(g.grad_consumed);
    ps_mem_free(g.n_waiting);
    ps_mem_free(g.saved);
    ps_mem_free(g.wants_grad);
    ps_mem_free(g.goes_back);
    ps_mem_free(g.is_read_back);
    ps_mem_free(g.last_reader);
    ps_mem_free(g.segment);
    ps_mem_free(g.again);
    ps_mem_free(g.offload_index);
    ps_mem_free(g.is_away);
    ps_code_destroy(g.code);
    return st;
}

ps_status ps_code_create(const ps_program *program, const ps_code_options *options, ps_code **out)
{
    const bool can_keep = options->training && has_logits(program);
    PS_TRY(create_once(program, options, can_keep && options->keep_logits == PS_KEEP_LOGITS_ALWAYS, out));
    if (!can_keep || options->keep_logits != PS_KEEP_LOGITS_AUTO) return PS_OK;
    const ps_status st = create_once(program, options, true, &(*out)->keeping);
    if (st == PS_OK) return PS_OK;
    ps_code_destroy(*out);
    *out = NULL;
    return st;
}
