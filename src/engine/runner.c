#include "engine/runner.h"

#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "engine/exchange.h"
#include "engine/memory_dump.h"

/* Streams of random numbers: parameters have those below 2^63, dropout those above. */
#define DROPOUT_STREAMS ((uint64_t)1 << 63)

ps_status ps_runner_init(ps_runner *r, const ps_blueprint *bp, ps_tiers *tiers, bool compute)
{
    *r = (ps_runner){.bp = bp, .tiers = tiers, .compute = compute, .loss_scale = 1};
    PS_TRY(ps_mem_alloc((size_t)bp->layout->n_chunks, sizeof *r->chunk_pending, &r->chunk_pending));
    PS_TRY(ps_exchange_fit(r, bp));
    return ps_store_reserve_non_model(tiers->store, bp->plan->non_model_bytes, &r->non_model);
}

void ps_runner_deinit(ps_runner *r)
{
    ps_snapshot_drop(r);
    ps_mem_free(r->chunk_pending);
    r->chunk_pending = NULL;
    ps_exchange_deinit(r);
}

/* ---- addresses ---- */

static char *element(const ps_runner *r, ps_list list, int32_t chunk, int64_t offset)
{
    char *payload = ps_store_payload(r->tiers->store, ps_store_chunk(r->bp->layout, list, chunk));
    return payload + offset * r->bp->item_bytes[list];
}

static char *tensor_address(const ps_runner *r, ps_list list, int32_t tensor)
{
    const ps_place *p = &r->bp->layout->places[tensor];
    return element(r, list, p->chunk, p->offset);
}

/* ---- pins ---- */

static const ps_access *accesses_of(const ps_blueprint *b, int32_t moment, int32_t *n)
{
    *n = b->trace->moments[moment].n_accesses;
    return &b->trace->accesses[b->trace->moments[moment].first_access];
}

static void unpin_first(ps_runner *r, int32_t moment, int32_t n)
{
    int32_t all;
    const ps_access *a = accesses_of(r->bp, moment, &all);
    for (int32_t i = 0; i < n; i++) ps_store_unpin(r->tiers->store, a[i].chunk);
}

/* A look at the memory as it is when a moment (-1: before the first) fails, before anything is given back. */
static ps_status take_dump(const ps_runner *r, int32_t moment, ps_status st)
{
    if (r->keeps_dump) ps_memory_dump_keep(r->bp, r->tiers, moment, st);
    return st;
}

static ps_status begin_moment(ps_runner *r, int32_t moment)
{
    ps_store_go_to(r->tiers->store, moment);
    ps_status st = ps_store_begin_moment(r->tiers->store, r->bp->trace->moments[moment].non_model_bytes);
    if (st != PS_OK) return take_dump(r, moment, st);
    int32_t n;
    const ps_access *a = accesses_of(r->bp, moment, &n);
    for (int32_t i = 0; i < n; i++) {
        st = ps_store_pin(r->tiers->store, a[i].chunk, a[i].tier, a[i].mode, NULL);
        if (st == PS_OK) continue;
        (void)take_dump(r, moment, st);
        unpin_first(r, moment, i);
        return st;
    }
    return PS_OK;
}

static void end_moment(ps_runner *r, int32_t moment)
{
    int32_t n;
    (void)accesses_of(r->bp, moment, &n);
    unpin_first(r, moment, n);
}

/* The moment has been computed. chunk: the one updated, or -1. */
static void end_op(const ps_runner *r, int32_t moment, ps_chunk_id chunk, int64_t begin_ns)
{
    ps_profile *p = r->tiers->profile;
    const ps_moment *m = &r->bp->trace->moments[moment];
    ps_store_end_moment(r->tiers->store);
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_OP,
                                           .chunk = chunk,
                                           .begin_ns = begin_ns,
                                           .end_ns = ps_profile_now(p),
                                           .op = {.label = m->label,
                                                  .step = r->step + 1,
                                                  .non_model_bytes = m->non_model_bytes,
                                                  .moment = moment,
                                                  .phase = (int32_t)m->phase}});
}

/* ---- states of the 16-bit tensors ---- */

static ps_status begin_tensors(ps_runner *r, const ps_instr *instr)
{
    const ps_node *n = &r->bp->program->nodes[instr->node];
    ps_store *s = r->tiers->store;
    if (instr->kind == PS_INSTR_JOIN) return PS_OK; /* touches no parameter of its node */
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (w < 0) continue;
        const bool reads = instr->kind != PS_INSTR_BACKWARD || n->type->backward_reads_w[k];
        if (reads && ps_store_tensor_state(s, w) == PS_STATE_HOLD_AFTER_BWD)
            return PS_FAIL(PS_ESTATE, "%s reads %s, which its gradient has overwritten: call ps_step first",
                           instr->label, r->bp->program->params[w].name);
        PS_TRY(ps_store_tensor_begin(s, w));
    }
    return PS_OK;
}

static ps_status end_tensors(ps_runner *r, const ps_instr *instr)
{
    const ps_node *n = &r->bp->program->nodes[instr->node];
    if (instr->kind == PS_INSTR_JOIN) return PS_OK;
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (w < 0) continue;
        ps_state after = r->pass == PS_PASS_TRAIN ? PS_STATE_HOLD_AFTER_FWD : PS_STATE_HOLD;
        if (instr->kind == PS_INSTR_BACKWARD && r->bp->plan->grad_overwrites_param[w]) after = PS_STATE_HOLD_AFTER_BWD;
        PS_TRY(ps_store_tensor_end(r->tiers->store, w, after));
    }
    return PS_OK;
}

/* ---- computing one instruction ---- */

static ps_dtype grad_dtype(const ps_runner *r, int32_t tensor)
{
    return r->bp->plan->grad_overwrites_param[tensor] ? r->bp->settings->dtype : PS_DTYPE_F32;
}

static char *grad_address(const ps_runner *r, int32_t tensor)
{
    return tensor_address(r, r->bp->plan->grad_overwrites_param[tensor] ? PS_LIST_PARAM16 : PS_LIST_GRAD, tensor);
}

static void bind_params(const ps_runner *r, const ps_instr *instr, ps_node_run *run)
{
    const ps_node *n = run->node;
    const bool backward = instr->kind == PS_INSTR_BACKWARD;
    run->grad_dtype = run->dtype;
    run->accumulate_dw = instr->accumulate_dw || r->micro > 0;
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (w < 0) continue;
        if (!backward || n->type->backward_reads_w[k]) run->w[k] = tensor_address(r, PS_LIST_PARAM16, w);
        if (!backward) continue;
        run->dw[k] = grad_address(r, w);
        run->grad_dtype = grad_dtype(r, w);
    }
}

/* Adds x[n], scaled gradients, to the step's sums. x begins at a multiple of PS_GRAD_STATS_BLOCK of its tensor. */
static ps_status add_grad_stats(ps_runner *r, const char *x, int64_t n, ps_dtype dtype)
{
    enum { N_BLOCKS = 512, AT_ONCE = N_BLOCKS * PS_GRAD_STATS_BLOCK };
    double sums[N_BLOCKS];
    for (int64_t done = 0; done < n; done += AT_ONCE) {
        const int64_t n_now = ps_min_i64(n - done, AT_ONCE);
        int64_t nonfinite = 0;
        PS_TRY(r->bp->settings->kernels.grad_stats(NULL,
                                                   &(ps_grad_stats_args){.sum_squares = sums,
                                                                         .n_nonfinite = &nonfinite,
                                                                         .x = x + done * (int64_t)ps_dtype_bytes(dtype),
                                                                         .n = n_now,
                                                                         .dtype = dtype}));
        for (int64_t b = 0; b < ps_ceil_div(n_now, PS_GRAD_STATS_BLOCK); b++)
            ps_exact_sum_add(&r->sum_squares, sums[b]);
        r->n_nonfinite += nonfinite;
    }
    return PS_OK;
}

static bool is_last_micro(const ps_runner *r)
{
    return r->micro + 1 == r->bp->settings->accumulation;
}

/* Of each gradient as soon as its last part is there. With several ranks it is complete only when it has been reduced. */
static ps_status take_grad_stats(ps_runner *r, const ps_instr *instr)
{
    if (!is_last_micro(r) || r->bp->settings->ranks.n > 1) return PS_OK;
    const ps_node *n = &r->bp->program->nodes[instr->node];
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (instr->completes_grad[k])
            PS_TRY(add_grad_stats(r, grad_address(r, w), r->bp->program->params[w].elements, grad_dtype(r, w)));
    }
    return PS_OK;
}

static void take_loss(ps_runner *r, const ps_node_run *run)
{
    const int32_t *targets = run->batch[PS_BATCH_TARGETS], *predicted = (const int32_t *)(const void *)run->saved[2];
    double sum = 0;
    r->eval = (ps_eval_info){0};
    for (int64_t i = 0; i < run->node->rows; i++) {
        if (targets[i] == PS_IGNORE_INDEX) continue;
        sum += (double)run->saved[1][i];
        r->eval.n_targets++;
        r->eval.n_correct += predicted[i] == targets[i];
    }
    if (r->eval.n_targets > 0) r->eval.loss = sum / (double)r->eval.n_targets;
}

static ps_status compute(ps_runner *r, const ps_instr *instr)
{
    const ps_settings *s = r->bp->settings;
    const ps_node *n = &r->bp->program->nodes[instr->node];
    ps_node_run run = {.mode = PS_RUN_COMPUTE,
                       .kernels = &s->kernels,
                       .dtype = s->dtype,
                       .B = r->bp->program->B,
                       .T = r->bp->program->T,
                       .node = n,
                       .training = r->pass == PS_PASS_TRAIN,
                       .loss_scale = (float)(r->loss_scale / (double)s->accumulation),
                       .output = r->pass == PS_PASS_INFER ? r->output : NULL,
                       .output_row = r->output_row};
    /* as if one rank had all micro-batches, this rank's one after those of the ranks before it */
    const uint64_t n_micro = (uint64_t)((r->step * s->accumulation + r->micro) * s->ranks.n + s->ranks.rank);
    run.dropout_key.seed = s->seed;
    run.dropout_key.stream = DROPOUT_STREAMS + n_micro * (uint64_t)r->bp->program->n_nodes + (uint64_t)instr->node;
    ps_plan_bind(r->bp->plan, instr, r->non_model, &run);
    if (r->batch.attention_mask == NULL) run.batch[PS_BATCH_MASK] = NULL;
    switch (instr->kind) {
    case PS_INSTR_FORWARD:
    case PS_INSTR_RECOMPUTE:
        bind_params(r, instr, &run);
        PS_TRY(n->type->forward(&run));
        if (n->output < 0 && r->pass != PS_PASS_INFER) take_loss(r, &run);
        return PS_OK;
    case PS_INSTR_BACKWARD:
        bind_params(r, instr, &run);
        PS_TRY(n->type->backward(&run));
        return take_grad_stats(r, instr);
    case PS_INSTR_JOIN:
        return s->kernels.add(
            NULL,
            &(ps_add_args){.y = run.y, .a = run.x[0], .b = run.x[1], .n = instr->join_elements, .dtype = s->dtype});
    }
    return PS_OK;
}

/* The batch has buffers from the first moment on. Token types that are not given are all 0. */
static void put_batch(ps_runner *r)
{
    const ps_plan *p = r->bp->plan;
    const int32_t *const given[PS_BATCH_ARRAY_COUNT] = {[PS_BATCH_TOKENS] = r->batch.tokens,
                                                        [PS_BATCH_TARGETS] = r->batch.targets,
                                                        [PS_BATCH_MASK] = r->batch.attention_mask,
                                                        [PS_BATCH_TOKEN_TYPES] = r->batch.token_type_ids};
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) {
        if (p->batch[i] < 0) continue;
        const ps_buffer *b = &p->buffers[p->batch[i]];
        char *dst = (char *)r->non_model + b->offset;
        if (given[i] != NULL)
            memcpy(dst, given[i], (size_t)b->bytes);
        else
            memset(dst, 0, (size_t)b->bytes);
    }
}

static ps_status run_instr(ps_runner *r, int32_t index)
{
    const ps_instr *instr = &r->bp->plan->instrs[index];
    const int32_t moment = r->bp->instr_moment[(int32_t)r->micro * r->bp->plan->n_instrs + index];
    PS_TRY(begin_moment(r, moment));
    const int64_t begin_ns = ps_profile_now(r->tiers->profile);
    if (index == 0 && r->compute) put_batch(r);
    ps_status st = begin_tensors(r, instr);
    if (st == PS_OK && r->compute) st = compute(r, instr);
    if (st == PS_OK) st = end_tensors(r, instr);
    end_op(r, moment, -1, begin_ns);
    end_moment(r, moment);
    return st;
}

/* ---- update ---- */

static ps_status update_piece(ps_runner *r, const ps_update *u, int32_t chunk, const ps_piece *piece)
{
    const ps_settings *s = r->bp->settings;
    const bool over = r->bp->plan->grad_overwrites_param[piece->tensor];
    void *param = element(r, PS_LIST_PARAM16, chunk, piece->chunk_offset);
    float *master = (float *)(void *)element(r, PS_LIST_MASTER, chunk, piece->chunk_offset);
    if (u->skip)
        return s->kernels.cast(
            NULL, &(ps_cast_args){
                      .dst = param, .src = master, .n = piece->n, .dst_dtype = s->dtype, .src_dtype = PS_DTYPE_F32});
    return s->kernels.adam(
        NULL, &(ps_adam_args){.param = param,
                              .grad = over ? param : element(r, PS_LIST_GRAD, chunk, piece->chunk_offset),
                              .master = master,
                              .m = (float *)(void *)element(r, PS_LIST_MOMENTUM, chunk, piece->chunk_offset),
                              .v = (float *)(void *)element(r, PS_LIST_VARIANCE, chunk, piece->chunk_offset),
                              .n = piece->n,
                              .lr = u->lr,
                              .beta1 = (float)s->beta1,
                              .beta2 = (float)s->beta2,
                              .eps = (float)s->eps,
                              .weight_decay = piece->decays ? (float)s->weight_decay : 0.0f,
                              .bias1 = u->bias1,
                              .bias2 = u->bias2,
                              .grad_scale = u->grad_scale,
                              .decoupled_decay = s->decoupled_decay,
                              .param_dtype = s->dtype,
                              .grad_dtype = over ? s->dtype : PS_DTYPE_F32});
}

static ps_status update_chunk(ps_runner *r, const ps_update *u, int32_t chunk)
{
    const ps_blueprint *b = r->bp;
    const int32_t moment = b->adam_moment[chunk];
    ps_status st = PS_OK;
    PS_TRY(begin_moment(r, moment));
    const int64_t begin_ns = ps_profile_now(r->tiers->profile);
    ps_snapshot_visit(r, chunk, PS_SNAPSHOT_BEFORE);
    for (int32_t i = b->first_piece[chunk]; i < b->first_piece[chunk + 1] && st == PS_OK; i++) {
        const ps_piece *piece = &b->pieces[i];
        st = ps_store_tensor_begin(r->tiers->store, piece->tensor);
        if (st == PS_OK && r->compute) st = update_piece(r, u, chunk, piece);
        const bool whole = piece->tensor_offset + piece->n == b->layout->places[piece->tensor].elements;
        if (st == PS_OK)
            st = ps_store_tensor_end(r->tiers->store, piece->tensor, whole ? PS_STATE_HOLD : PS_STATE_HOLD_AFTER_BWD);
    }
    if (st == PS_OK) ps_snapshot_visit(r, chunk, PS_SNAPSHOT_AFTER);
    end_op(r, moment, ps_store_chunk(b->layout, PS_LIST_PARAM16, chunk), begin_ns);
    end_moment(r, moment);
    if (b->uses_grad_list[chunk]) ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, PS_LIST_GRAD, chunk));
    return st;
}

ps_status ps_runner_flush(ps_runner *r)
{
    if (!r->update_pending) return PS_OK;
    for (int32_t i = 0; i < r->bp->n_ordered; i++) {
        const int32_t c = r->bp->adam_order[i];
        if (!r->chunk_pending[c]) continue;
        PS_TRY(update_chunk(r, &r->update, c));
        r->chunk_pending[c] = false;
    }
    r->update_pending = false;
    return PS_OK;
}

ps_status ps_runner_update(ps_runner *r, const ps_update *u)
{
    r->update = *u;
    r->update_pending = true;
    for (int32_t c = 0; c < r->bp->layout->n_chunks; c++) r->chunk_pending[c] = true;
    return r->bp->variant.deferred ? PS_OK : ps_runner_flush(r);
}

/* The deferred updates that stand before instruction `index` of the forward pass. */
static ps_status update_before(ps_runner *r, int32_t index, int32_t *next)
{
    const ps_blueprint *b = r->bp;
    for (; *next < b->n_ordered && b->adam_moment[b->adam_order[*next]] < b->instr_moment[index]; (*next)++) {
        const int32_t c = b->adam_order[*next];
        if (!r->chunk_pending[c]) continue;
        PS_TRY(update_chunk(r, &r->update, c));
        r->chunk_pending[c] = false;
    }
    return PS_OK;
}

/* ---- groups of chunks of several ranks ---- */

/* The group's tensors have values again, those of other ranks too. */
static ps_status gather(ps_runner *r, int32_t i)
{
    const ps_span *span = &r->bp->spans.spans[i];
    PS_TRY(begin_moment(r, ps_exchange_moment(r, i)));
    PS_TRY(ps_exchange_begin_gather(r, i));
    if (span->reduces) return PS_OK;
    for (int32_t c = span->chunk; c < span->chunk + span->n_chunks; c++)
        for (int32_t k = r->bp->first_piece[c]; k < r->bp->first_piece[c + 1]; k++) {
            PS_TRY(ps_store_tensor_begin(r->tiers->store, r->bp->pieces[k].tensor));
            PS_TRY(ps_store_tensor_end(r->tiers->store, r->bp->pieces[k].tensor, PS_STATE_HOLD));
        }
    return PS_OK;
}

/* Of the gradients that have been reduced to this rank. */
static ps_status take_reduced_stats(ps_runner *r, const ps_span *span)
{
    const ps_blueprint *b = r->bp;
    if (!r->compute || !is_last_micro(r)) return PS_OK;
    for (int32_t c = span->chunk; c < span->chunk + span->n_chunks; c++)
        for (int32_t k = b->first_piece[c]; ps_blueprint_owns(b, c) && k < b->first_piece[c + 1]; k++) {
            const ps_piece *p = &b->pieces[k];
            const ps_list list = b->plan->grad_overwrites_param[p->tensor] ? PS_LIST_PARAM16 : PS_LIST_GRAD;
            PS_TRY(add_grad_stats(r, element(r, list, c, p->chunk_offset), p->n, grad_dtype(r, p->tensor)));
        }
    return PS_OK;
}

static ps_status release(ps_runner *r, int32_t i)
{
    const ps_blueprint *b = r->bp;
    const ps_span *span = &b->spans.spans[i];
    ps_status st = PS_OK;
    if (span->reduces) st = ps_exchange_await(r, i);
    if (span->reduces && st == PS_OK) st = take_reduced_stats(r, span);
    end_moment(r, ps_exchange_moment(r, i));
    for (int32_t c = span->chunk; c < span->chunk + span->n_chunks; c++) {
        if (ps_blueprint_owns(b, c)) continue;
        ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, PS_LIST_PARAM16, c));
        if (span->reduces && b->uses_grad_list[c])
            ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, PS_LIST_GRAD, c));
    }
    return st;
}

/* What happens to groups before the instruction (kinds up to AWAIT), or after it. */
static ps_status run_events(ps_runner *r, int32_t index, ps_span_event_kind last_kind)
{
    const ps_spans *s = &r->bp->spans;
    for (; r->next_event < s->n_events; r->next_event++) {
        const ps_span_event *e = &s->events[r->next_event];
        if (e->instr != index || e->kind > last_kind) break;
        /* the end of a forward pass gathers ahead for the backward pass, which evaluation has not */
        if (s->spans[e->span].reduces && r->pass != PS_PASS_TRAIN) continue;
        switch (e->kind) {
        case PS_SPAN_GATHER: PS_TRY(gather(r, e->span)); break;
        case PS_SPAN_AWAIT: PS_TRY(ps_exchange_await(r, e->span)); break;
        case PS_SPAN_REDUCE: PS_TRY(ps_exchange_begin_reduction(r, e->span)); break;
        case PS_SPAN_RELEASE: PS_TRY(release(r, e->span)); break;
        }
    }
    return PS_OK;
}

/* ---- passes ---- */

static ps_status run_in_group(ps_runner *r, int32_t m)
{
    PS_TRY(run_events(r, m, PS_SPAN_AWAIT));
    PS_TRY(run_instr(r, m));
    return run_events(r, m, PS_SPAN_RELEASE);
}

ps_status ps_runner_forward(ps_runner *r, const ps_batch *batch)
{
    const ps_plan *p = r->bp->plan;
    r->batch = batch != NULL ? *batch : (ps_batch){0};
    int32_t next_update = 0;
    r->next_event = 0;
    for (int32_t m = 0; m < p->n_forward; m++) {
        if (r->update_pending && r->pass == PS_PASS_TRAIN) PS_TRY(update_before(r, m, &next_update));
        PS_TRY(run_in_group(r, m));
    }
    if (r->pass == PS_PASS_TRAIN) PS_TRY(ps_runner_flush(r)); /* chunks that no forward operator uses */
    return PS_OK;
}

ps_status ps_runner_backward(ps_runner *r)
{
    const ps_plan *p = r->bp->plan;
    for (int32_t m = p->n_forward; m < p->n_instrs; m++) PS_TRY(run_in_group(r, m));
    return PS_OK;
}

/* ---- creation of parameters ---- */

/* Values of a piece, a function of seed, name and position alone. */
static ps_status draw(const ps_runner *r, const ps_piece *piece, float *out)
{
    const ps_param *p = &r->bp->program->params[piece->tensor];
    const ps_rng_key key = {.seed = r->bp->settings->seed, .stream = XXH3_64bits(p->name, strlen(p->name)) >> 1};
    return r->bp->settings->kernels.fill(NULL, &(ps_fill_args){.dst = out,
                                                               .n = piece->n,
                                                               .first_index = piece->tensor_offset,
                                                               .mean = (float)p->init_mean,
                                                               .std = (float)p->init_std,
                                                               .key = key});
}

/* Inference has no masters: a small buffer stands in, so that both draw the same numbers. */
static ps_status create_without_master(ps_runner *r, int32_t chunk, const ps_piece *piece)
{
    enum { AT_ONCE = 4096 };
    float values[AT_ONCE];
    const ps_settings *s = r->bp->settings;
    for (int64_t done = 0; done < piece->n; done += AT_ONCE) {
        const ps_piece part = {.tensor = piece->tensor,
                               .tensor_offset = piece->tensor_offset + done,
                               .n = ps_min_i64(AT_ONCE, piece->n - done)};
        PS_TRY(draw(r, &part, values));
        PS_TRY(
            s->kernels.cast(NULL, &(ps_cast_args){.dst = element(r, PS_LIST_PARAM16, chunk, piece->chunk_offset + done),
                                                  .src = values,
                                                  .n = part.n,
                                                  .dst_dtype = s->dtype,
                                                  .src_dtype = PS_DTYPE_F32}));
    }
    return PS_OK;
}

static ps_status create_piece(ps_runner *r, int32_t chunk, const ps_piece *piece)
{
    const ps_settings *s = r->bp->settings;
    if (!s->training) return create_without_master(r, chunk, piece);
    float *master = (float *)(void *)element(r, PS_LIST_MASTER, chunk, piece->chunk_offset);
    PS_TRY(draw(r, piece, master));
    return s->kernels.cast(NULL, &(ps_cast_args){.dst = element(r, PS_LIST_PARAM16, chunk, piece->chunk_offset),
                                                 .src = master,
                                                 .n = piece->n,
                                                 .dst_dtype = s->dtype,
                                                 .src_dtype = PS_DTYPE_F32});
}

static ps_status create_chunk(ps_runner *r, int32_t c)
{
    const ps_blueprint *b = r->bp;
    ps_store *s = r->tiers->store;
    const ps_chunk_id param = ps_store_chunk(b->layout, PS_LIST_PARAM16, c);
    const ps_chunk_id master = ps_store_chunk(b->layout, PS_LIST_MASTER, c);
    const ps_tier tier = b->adam_tier[c];
    ps_status st = PS_OK;
    if (b->settings->training) PS_TRY(ps_store_pin(s, master, tier, PS_ACCESS_WRITE, NULL));
    st = ps_store_pin(s, param, tier, PS_ACCESS_WRITE, NULL);
    if (st == PS_OK) {
        for (int32_t i = b->first_piece[c]; i < b->first_piece[c + 1] && st == PS_OK; i++) {
            const ps_piece *piece = &b->pieces[i];
            st = ps_store_tensor_begin(s, piece->tensor);
            if (st == PS_OK && r->compute) st = create_piece(r, c, piece);
            if (st == PS_OK) st = ps_store_tensor_end(s, piece->tensor, PS_STATE_HOLD);
        }
        ps_store_unpin(s, param);
    }
    if (b->settings->training) ps_store_unpin(s, master);
    return st;
}

/* Device bytes that chunks may take while there is no schedule: the configured share, but room to work in any case. */
static int64_t unscheduled_limit(const ps_runner *r, int32_t n_lists)
{
    const ps_blueprint *b = r->bp;
    const int64_t budget = ps_device_get_stats(r->tiers->ram[PS_TIER_DEVICE]).budget_bytes;
    int64_t working_set = 0;
    for (int list = 0; list < n_lists; list++)
        working_set += ps_round_up(b->layout->chunk_elements * b->item_bytes[list], PS_PAGE_BYTES);
    return ps_max_i64(working_set, (int64_t)((double)budget * b->settings->unscheduled_share));
}

/* The largest that one moment wants on the device at once, as chunks. */
static int64_t largest_moment(const ps_runner *r)
{
    const ps_blueprint *b = r->bp;
    int64_t most = 0;
    for (int32_t m = 0; m < b->trace->n_moments; m++)
        most = ps_max_i64(most, ps_blueprint_wanted_bytes(b, m, PS_TIER_DEVICE));
    return most;
}

static void install_schedule(ps_runner *r)
{
    int64_t limit = INT64_MAX;
    if (r->bp->settings->static_partition) limit = ps_max_i64(largest_moment(r), unscheduled_limit(r, PS_LIST_COUNT));
    ps_store_limit_chunks(r->tiers->store, PS_TIER_DEVICE, limit);
    ps_store_set_schedule(r->tiers->store, r->bp->schedule);
}

ps_status ps_runner_create_params(ps_runner *r)
{
    ps_store *s = r->tiers->store;
    ps_store_limit_chunks(s, PS_TIER_DEVICE, unscheduled_limit(r, PS_LIST_MASTER + 1));
    for (int32_t c = 0; c < r->bp->layout->n_chunks; c++) {
        if (!ps_blueprint_owns(r->bp, c)) continue;
        const ps_status st = create_chunk(r, c);
        if (st != PS_OK) return take_dump(r, -1, st);
    }
    if (r->bp->settings->release_after_init) PS_TRY(ps_store_evict_all(s, PS_TIER_DEVICE));
    install_schedule(r);
    return PS_OK;
}

/* ---- another shape ---- */

bool ps_runner_carries(const ps_runner *r, const ps_blueprint *bp)
{
    const size_t n = (size_t)bp->program->n_params;
    return bp->variant.deferred && r->bp->variant.deferred &&
           memcmp(bp->plan->grad_overwrites_param, r->bp->plan->grad_overwrites_param, n * sizeof(bool)) == 0;
}

ps_status ps_runner_change(ps_runner *r, const ps_blueprint *bp)
{
    PS_ASSERT(r->micro == 0 && bp->layout->n_chunks == r->bp->layout->n_chunks);
    PS_ASSERT(!r->update_pending || ps_runner_carries(r, bp));
    PS_TRY(ps_exchange_fit(r, bp));
    PS_TRY(ps_store_reserve_non_model(r->tiers->store, bp->plan->non_model_bytes, &r->non_model));
    r->bp = bp;
    install_schedule(r);
    return PS_OK;
}

ps_status ps_runner_imitate(ps_runner *r, const ps_runner *from)
{
    PS_ASSERT(r->bp == from->bp && from->micro == 0);
    PS_TRY(ps_store_take_places(r->tiers->store, from->tiers->store));
    memcpy(r->chunk_pending, from->chunk_pending, (size_t)r->bp->layout->n_chunks * sizeof *r->chunk_pending);
    r->update_pending = from->update_pending;
    r->update = from->update;
    install_schedule(r);
    return PS_OK;
}
