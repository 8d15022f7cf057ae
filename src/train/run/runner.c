/* runner.c - creation and passes of a runner: instructions and gradients. Its beginning is in runner_create.c, updates
 * are in runner_update.c, groups of several ranks in window_collectives.c. */
#include "train/run/runner.h"

#include <math.h>

#include "base/mem.h"
#include "device/blocking.h"
#include "device/stall.h"
#include "train/graph/batch_arrays.h"
#include "train/run/moment.h"
#include "train/run/on_host.h"
#include "train/run/window_collectives.h"

ps_status ps_runner_create(const ps_exec_plan *plan, ps_tiers *tiers, const ps_runner_options *o, ps_runner **out)
{
    *out = NULL;
    ps_status st = PS_OK;
    ps_runner *r = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    *r = (ps_runner){.plan = plan, .tiers = tiers, .state = ps_exec_plan_state(plan, tiers), .o = *o};
    PS_TRY_GOTO(ps_mem_alloc((size_t)plan->layout->n_chunks, sizeof *r->chunk_pending, &r->chunk_pending));
    PS_TRY_GOTO(ps_mem_alloc((size_t)plan->layout->n_chunks, sizeof *r->is_unvalidated, &r->is_unvalidated));
    PS_TRY_GOTO(ps_mem_alloc((size_t)plan->layout->n_chunks, sizeof *r->is_grad_kept, &r->is_grad_kept));
    r->max_wrong_share = INFINITY;
    PS_TRY_GOTO(ps_mem_alloc((size_t)plan->program->n_params, sizeof *r->is_overwritten, &r->is_overwritten));
    PS_TRY_GOTO(ps_window_collectives_open(r));
    PS_TRY_GOTO(ps_store_reserve_non_model(tiers->store, plan->code->non_model_bytes, &r->non_model));
    if (o->compute) PS_TRY_GOTO(ps_results_init(&r->results, tiers, plan->settings->accumulation));
    *out = r;
    r = NULL;
out:
    ps_runner_destroy(r);
    return st;
}

ps_status ps_runner_join(ps_runner *r)
{
    return ps_group_collectives_join(&r->between_ranks);
}

void ps_runner_destroy(ps_runner *r)
{
    if (r == NULL) return;
    ps_window_collectives_close(r);
    ps_snapshot_drop(&r->snapshot);
    ps_mem_free(r->chunk_pending);
    ps_mem_free(r->is_unvalidated);
    ps_mem_free(r->is_grad_kept);
    ps_mem_free(r->is_overwritten);
    ps_results_deinit(&r->results);
    ps_mem_free(r);
}

/* ---- state ---- */

const ps_exec_plan *ps_runner_exec_plan(const ps_runner *r)
{
    return r->plan->usual != NULL ? r->plan->usual : r->plan;
}

int64_t ps_runner_steps(const ps_runner *r)
{
    return r->step;
}

int64_t ps_runner_micro(const ps_runner *r)
{
    return r->micro;
}

void ps_runner_resume(ps_runner *r, int64_t steps)
{
    r->step = steps;
}

static ps_status read_losses(ps_runner *r, int64_t index, ps_loss_sums *out)
{
    const ps_step_sums *sums;
    *out = (ps_loss_sums){0};
    PS_TRY(ps_results_read(&r->results, &sums));
    *out = sums->losses[index];
    return PS_OK;
}

ps_status ps_runner_eval(ps_runner *r, ps_eval_info *out)
{
    ps_loss_sums l;
    *out = (ps_eval_info){.struct_size = sizeof *out};
    PS_TRY(read_losses(r, r->last_losses, &l));
    out->n_targets = l.n_targets;
    out->n_correct = l.n_correct;
    out->weight = l.weight;
    out->loss = ps_loss_sums_mean(&l);
    return PS_OK;
}

ps_status ps_runner_loss_sums(ps_runner *r, int64_t micro, ps_loss_sums *out)
{
    return read_losses(r, micro, out);
}

ps_status ps_runner_grad_sums(ps_runner *r, ps_grad_sums *out)
{
    const ps_step_sums *sums;
    *out = (ps_grad_sums){0};
    PS_TRY(ps_results_read(&r->results, &sums));
    *out = sums->grads;
    return PS_OK;
}

/* ---- parameters that their gradients overwrite ---- */

static ps_status check_params(const ps_runner *r, const ps_instr *instr)
{
    const ps_node *n = &r->plan->program->nodes[instr->node];
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (!ps_instr_touches(r->plan->program, instr, k)) continue;
        const bool reads = instr->kind != PS_INSTR_BACKWARD || n->type->backward_reads_w[k];
        if (reads && r->is_overwritten[w])
            return PS_FAIL(PS_ESTATE, "%s reads %s, which its gradient has overwritten: call ps_step first",
                           instr->label, r->plan->program->params[w].name);
    }
    return PS_OK;
}

static void note_overwritten(ps_runner *r, const ps_instr *instr)
{
    const ps_node *n = &r->plan->program->nodes[instr->node];
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (!ps_instr_touches(r->plan->program, instr, k)) continue;
        r->is_overwritten[w] = instr->kind == PS_INSTR_BACKWARD && ps_exec_plan_overwrites(r->plan, w);
    }
}

/* ---- computing one instruction ---- */

/* The backend that computes it. */
static ps_tier computing_tier(const ps_instr *instr)
{
    return instr->on_host ? PS_TIER_HOST : PS_TIER_DEVICE;
}

static char *tensor_address(const ps_runner *r, ps_list list, int32_t tensor)
{
    const ps_place *p = &r->plan->layout->places[tensor];
    return ps_state_element(&r->state, list, p->chunk, p->offset);
}

static char *grad_address(const ps_runner *r, int32_t tensor)
{
    return tensor_address(r, ps_exec_plan_grad_list(r->plan, tensor), tensor);
}

static void bind_params(const ps_runner *r, const ps_instr *instr, ps_node_run *run)
{
    const ps_node *n = run->node;
    const bool backward = instr->kind == PS_INSTR_BACKWARD;
    run->grad_dtype = run->dtype;
    run->accumulate_dw = instr->accumulate_dw || (r->micro > 0 && !ps_exec_plan_has_separate_sums(r->plan));
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (!ps_instr_touches(r->plan->program, instr, k)) continue;
        if (!backward || n->type->backward_reads_w[k]) run->w[k] = tensor_address(r, PS_LIST_PARAM16, w);
        if (!ps_instr_makes_grad(r->plan->program, instr, k)) continue;
        run->dw[k] = grad_address(r, w);
        run->grad_dtype = ps_runner_grad_dtype(r, w);
    }
}

/* Operators that add to gradients need zeros at first: in the step's first micro-batch, or in each one when sums are
 * separate. */
static ps_status clear_grads(const ps_runner *r, const ps_instr *instr, const ps_node_run *run)
{
    if (r->micro > 0 && !ps_exec_plan_has_separate_sums(r->plan)) return PS_OK;
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        if (!instr->clears_grad[k]) continue;
        const int64_t elements = r->plan->program->params[run->node->params[k]].elements;
        PS_TRY(ps_queue_fill(run->queue, run->dw[k], 0, elements * (int64_t)ps_dtype_bytes(run->grad_dtype)));
    }
    return PS_OK;
}

/* Statistics of the gradients that the instruction completes. With several ranks they are complete only after the
 * reduction: window_collectives.c. */
static ps_status take_grad_stats(ps_runner *r, const ps_instr *instr)
{
    if (!ps_runner_is_last_micro(r) || r->plan->settings->ranks.n > 1) return PS_OK;
    const ps_node *n = &r->plan->program->nodes[instr->node];
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (instr->completes_grad[k])
            PS_TRY(ps_runner_add_grad_stats(r, computing_tier(instr), w, grad_address(r, w),
                                            r->plan->program->params[w].elements));
    }
    return PS_OK;
}

static const float *values_of(const ps_node_run *run)
{
    return (const float *)(const void *)run->batch[PS_BATCH_VALUES];
}

/* From the arrays that loss operators save (node_end.c, node_head_loss.c): the loss and the prediction of each
 * target. */
static ps_status take_loss(ps_runner *r, const ps_node_run *run)
{
    const bool training = r->pass.kind == PS_PASS_TRAIN;
    const ps_program *p = r->plan->program;
    const bool are_values = p->target_array == PS_BATCH_VALUES;
    r->last_losses = training ? r->micro : r->plan->settings->accumulation;
    return ps_run_loss_sums(run->backend, run->queue,
                            &(ps_loss_sums_args){.sums = &ps_results_write(&r->results)->losses[r->last_losses],
                                                 .row_loss = run->saved[1],
                                                 .targets = are_values ? NULL : run->batch[PS_BATCH_TARGETS],
                                                 .values = are_values ? values_of(run) : NULL,
                                                 .predicted = (const int32_t *)(const void *)run->saved[2],
                                                 .class_weights = run->node->n_constants > 0 ? run->constants : NULL,
                                                 .rows = p->n_targets,
                                                 .n_classes = p->n_outputs},
                            0);
}

ps_node_run ps_runner_bind(const ps_runner *r, const ps_instr *instr, void *region)
{
    const ps_settings *s = r->plan->settings;
    ps_node_run run = {.mode = PS_RUN_COMPUTE,
                       .backend = ps_state_backend(&r->state, computing_tier(instr)),
                       .queue = r->tiers->compute[computing_tier(instr)],
                       .dtype = s->dtype,
                       .B = r->plan->program->B,
                       .T = r->plan->program->T,
                       .node = &r->plan->program->nodes[instr->node],
                       .training = r->pass.kind == PS_PASS_TRAIN,
                       .targets = r->targets,
                       .loss_scale = r->pass.loss_scale,
                       .output_row = r->pass.output_row};
    /* as if one rank had all micro-batches, this rank's after those of lower ranks */
    const uint64_t n_micro = (uint64_t)((r->step * s->accumulation + r->micro) * s->ranks.n + s->ranks.rank);
    run.dropout_key.seed = s->seed;
    run.dropout_key.stream = PS_STREAMS_DROPOUT + n_micro * (uint64_t)r->plan->program->n_nodes + (uint64_t)instr->node;
    ps_code_bind(r->plan->code, instr, region, &run);
    if (r->pass.kind != PS_PASS_INFER)
        run.output = NULL;
    else if (run.output == NULL)
        run.output = r->pass.output;
    if (r->plan->code->cache_positions > 0) {
        ps_code_bind_cache(r->plan->code, instr, r->tiers->cache, &run);
        run.first = r->pass.first;
        run.T = r->pass.rows;
    }
    if (r->pass.batch.attention_mask == NULL) run.batch[PS_BATCH_MASK] = NULL;
    return run;
}

static ps_node_run bind_instr(const ps_runner *r, const ps_instr *instr)
{
    ps_node_run run = ps_runner_bind(r, instr, r->non_model);
    if (ps_instr_computes_node(instr)) bind_params(r, instr, &run);
    return run;
}

/* Results of the program's end for the host: sums of its losses, or the output where it is not written in place. */
static ps_status take_end(ps_runner *r, const ps_instr *instr, const ps_node_run *run)
{
    if (run->node->output >= 0) return PS_OK;
    if (r->pass.kind != PS_PASS_INFER) return take_loss(r, run);
    if (instr->output < 0) return PS_OK;
    const int64_t rows = run->output_row < 0 ? run->node->rows : 1;
    return ps_queue_get(run->queue, r->pass.output, run->output,
                        rows * r->plan->program->n_outputs * (int64_t)sizeof *run->output);
}

static void *offload_address(const ps_runner *r, const ps_instr *instr)
{
    return ps_store_payload(r->tiers->store, ps_exec_plan_offload_chunk(r->plan, instr));
}

static ps_status compute_bound(ps_runner *r, const ps_instr *instr, ps_node_run *run)
{
    switch (instr->kind) {
    case PS_INSTR_FORWARD:
    case PS_INSTR_RECOMPUTE: PS_TRY(run->node->type->forward(run)); return take_end(r, instr, run);
    case PS_INSTR_BACKWARD:
        PS_TRY(clear_grads(r, instr, run));
        PS_TRY(run->node->type->backward(run));
        return take_grad_stats(r, instr);
    case PS_INSTR_JOIN:
        return ps_run_add(
            run->backend, run->queue,
            &(ps_add_args){.y = run->y, .a = run->x[0], .b = run->x[1], .n = instr->join_elements, .dtype = run->dtype},
            0);
    case PS_INSTR_OFFLOAD:
        if (r->pass.kind != PS_PASS_TRAIN) return PS_OK; /* it will not be read */
        return ps_queue_copy(run->queue, offload_address(r, instr), run->x[0], instr->offload_bytes);
    case PS_INSTR_FETCH: return ps_queue_copy(run->queue, run->y, offload_address(r, instr), instr->offload_bytes);
    }
    return PS_OK;
}

static ps_status compute_bare(ps_runner *r, const ps_instr *instr)
{
    ps_node_run run = bind_instr(r, instr);
    ps_host_copies copies;
    if (!instr->on_host) return compute_bound(r, instr, &run);
    PS_TRY(ps_on_host_begin(r, instr, &run, &copies));
    PS_TRY(compute_bound(r, instr, &run));
    return ps_on_host_end(r, &copies);
}

/* In a trial with observers: what an instruction on the host issues, except its kernels. Accesses of other instructions
 * are issued with their moment. */
static ps_status simulate_on_host(ps_runner *r, const ps_instr *instr, int32_t moment)
{
    const ps_use block = {
        .address = r->tiers->host_block, .bytes = r->plan->code->host_bytes, .is_write = true, .name = "block"};
    ps_host_copies copies;
    if (!instr->on_host || ps_device_order(r->tiers->ram[PS_TIER_DEVICE]) == NULL) return PS_OK;
    ps_node_run run = bind_instr(r, instr);
    PS_TRY(ps_on_host_begin(r, instr, &run, &copies));
    PS_TRY(ps_queue_issue_use(r->tiers->compute[PS_TIER_HOST], r->plan->trace->moments[moment].label, &block));
    return ps_on_host_end(r, &copies);
}

/* compute_bare; in debug builds (PS_CODE_GUARD_BYTES) also checks guard bytes, if the host can access them and it has
 * been computed. */
static ps_status compute(ps_runner *r, const ps_instr *instr)
{
    const ps_device *dev = r->tiers->ram[PS_TIER_DEVICE];
    const bool can_look = ps_device_host_can_touch(dev) && !ps_device_is_asynchronous(dev);
    if (PS_CODE_GUARD_BYTES == 0 || !can_look) return compute_bare(r, instr);
    ps_code_guard_set(r->plan->code, instr, r->non_model);
    PS_TRY(compute_bare(r, instr));
    return ps_code_guard_check(r->plan->code, instr, r->non_model);
}

/* Copies batch and constants into their buffers, which exist from the first moment on. Missing token types are all
 * 0. */
static ps_status put_batch(ps_runner *r)
{
    const ps_code *p = r->plan->code;
    const void *given[PS_BATCH_ARRAY_COUNT];
    ps_batch_list_arrays(&r->pass.batch, given);
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) {
        if (p->batch[i] < 0) continue;
        const ps_buffer *b = &p->buffers[p->batch[i]];
        char *dst = (char *)r->non_model + b->offset;
        if (given[i] != NULL)
            PS_TRY(ps_queue_put(ps_runner_device_queue(r), dst, given[i], b->bytes));
        else
            PS_TRY(ps_queue_fill(ps_runner_device_queue(r), dst, 0, b->bytes));
    }
    for (int32_t i = 0; i < p->n_constants; i++) {
        const ps_buffer *b = &p->buffers[p->constants[i].buffer];
        PS_TRY(ps_queue_put(ps_runner_device_queue(r), (char *)r->non_model + b->offset, p->constants[i].values,
                            b->bytes));
    }
    return PS_OK;
}

/* The chunks that the instruction only reads. */
static ps_status show_frozen(ps_runner *r, const ps_instr *instr)
{
    const ps_program *p = r->plan->program;
    if (!ps_snapshot_is_under_way(&r->snapshot) || r->pass.kind != PS_PASS_TRAIN || instr->kind != PS_INSTR_FORWARD)
        return PS_OK;
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = p->nodes[instr->node].params[k];
        if (w < 0 || !p->params[w].is_frozen) continue;
        const ps_place *place = &r->plan->layout->places[w];
        const ps_tier tier = ps_exec_plan_param_tier(r->plan, &p->nodes[instr->node]);
        for (int32_t c = place->chunk; c < place->chunk + place->n_chunks; c++)
            if (ps_exec_plan_owns(r->plan, c)) PS_TRY(ps_snapshot_visit_frozen(&r->snapshot, &r->state, c, tier));
    }
    return PS_OK;
}

static ps_status run_moment(ps_runner *r, const ps_instr *instr, int32_t index)
{
    const int32_t moment = r->plan->instr_moment[(int32_t)r->micro * r->plan->code->n_instrs + index];
    PS_TRY(ps_moment_begin(r, moment));
    const ps_work_time begin = ps_work_now(r->tiers, PS_TIER_DEVICE);
    ps_status st = check_params(r, instr);
    if (st == PS_OK && index == 0 && r->o.compute) st = put_batch(r);
    if (st == PS_OK) st = show_frozen(r, instr);
    if (st == PS_OK) st = r->o.compute ? compute(r, instr) : simulate_on_host(r, instr, moment);
    if (st == PS_OK) note_overwritten(r, instr);
    ps_moment_record(r, moment, PS_TIER_DEVICE, -1, &begin);
    ps_moment_end(r, moment);
    /* an offloaded value is read once, and never without a backward pass */
    const bool is_used_up = instr->kind == PS_INSTR_FETCH || r->pass.kind != PS_PASS_TRAIN;
    if (instr->offload_bytes > 0 && is_used_up)
        ps_store_discard(r->tiers->store, ps_exec_plan_offload_chunk(r->plan, instr));
    return st;
}

static ps_status run_instr(ps_runner *r, int32_t index)
{
    const ps_instr *instr = &r->plan->code->instrs[index];
    ps_stall_entry s;
    if (!r->o.compute) return run_moment(r, instr, index);
    ps_stall_begin(&s, "computes", instr->label, -1);
    const ps_status st = run_moment(r, instr, index);
    ps_stall_end(&s);
    return st;
}

/* ---- passes ---- */

static ps_status run_with_groups(ps_runner *r, int32_t m)
{
    PS_TRY(ps_window_collectives_run(r, m, PS_GATHER_WAIT));
    PS_TRY(run_instr(r, m));
    return ps_window_collectives_run(r, m, PS_GATHER_RELEASE);
}

ps_status ps_runner_forward(ps_runner *r, const ps_pass *pass)
{
    const ps_code *p = r->plan->code;
    r->pass = *pass;
    r->targets = ps_program_count_targets(r->plan->program, &r->pass.batch);
    if (r->o.compute && pass->kind == PS_PASS_TRAIN && r->micro == 0) PS_TRY(ps_results_clear_grads(&r->results));
    int32_t next_update = 0;
    ps_window_collectives_begin_pass(r);
    for (int32_t m = 0; m < p->n_forward; m++) {
        if (r->update_pending && r->pass.kind == PS_PASS_TRAIN) PS_TRY(ps_runner_update_before(r, m, &next_update));
        PS_TRY(run_with_groups(r, m));
    }
    if (r->pass.kind == PS_PASS_TRAIN) PS_TRY(ps_runner_update_pending(r)); /* chunks that no forward operator uses */
    if (!r->o.compute || r->pass.kind != PS_PASS_INFER) return PS_OK;
    return ps_event_wait_as(ps_queue_event(ps_runner_device_queue(r)), PS_BLOCK_READ); /* the caller reads its output */
}

ps_status ps_runner_backward(ps_runner *r, const ps_param_groups *g)
{
    const ps_code *p = r->plan->code;
    const bool updates = r->plan->candidate.n_early > 0 && ps_runner_is_last_micro(r);
    int32_t next_update = r->plan->n_deferred;
    if (updates) ps_runner_begin_early(r, g);
    for (int32_t m = p->n_forward; m < p->n_instrs; m++) {
        PS_TRY(run_with_groups(r, m));
        if (updates) PS_TRY(ps_runner_update_after(r, m, &next_update));
    }
    return PS_OK;
}

bool ps_runner_end_micro(ps_runner *r)
{
    if (++r->micro < r->plan->settings->accumulation) return false;
    r->micro = 0;
    return true;
}
