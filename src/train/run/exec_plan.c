#include "train/run/exec_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "train/optim/grad_clip.h"
#include "train/state/chunk_size.h"
#include "train/state/results.h"

/* States of the optimizer that a trained tensor has. */
static uint32_t states_of(const ps_exec_plan *b, int32_t tensor)
{
    return ps_optimizer_states_of(&b->settings->optimizer, b->program->params[tensor].is_whole);
}

/* ---- pieces ---- */

static ps_status cut_pieces(ps_exec_plan *b)
{
    PS_TRY(ps_pieces_cut(b->layout, NULL, &b->pieces));
    for (int32_t i = 0; i < b->pieces.n; i++) {
        ps_piece *p = &b->pieces.all[i];
        if (b->program->params[p->tensor].quant != PS_QUANT_NONE) p->n = b->program->params[p->tensor].elements;
    }
    PS_TRY(ps_mem_alloc((size_t)b->program->n_params, sizeof *b->decays, &b->decays));
    for (int32_t t = 0; t < b->program->n_params; t++) {
        const ps_param *p = &b->program->params[t];
        b->decays[t] = b->settings->groups[p->group].decays_all || ps_weight_decay_applies(p->name, p->n_dims);
    }
    for (int32_t i = 0; i < b->pieces.n; i++) {
        const ps_piece *p = &b->pieces.all[i];
        if (b->program->params[p->tensor].is_frozen) continue;
        b->chunk_states[p->chunk] |= states_of(b, p->tensor);
        *(b->code->grad_overwrites_param[p->tensor] ? &b->overwrites[p->chunk] : &b->uses_grad_list[p->chunk]) = true;
    }
    return PS_OK;
}

/* Of the quantized ones; a record is not cut. */
static const ps_param *largest_quantized(const ps_settings *s, const ps_program *program)
{
    const ps_param *most = NULL;
    for (int32_t t = 0; t < program->n_params; t++) {
        const ps_param *p = &program->params[t];
        if (p->quant == PS_QUANT_NONE) continue;
        if (most == NULL || ps_param_stored_elements(p, s->dtype) > ps_param_stored_elements(most, s->dtype)) most = p;
    }
    return most;
}

static ps_status describe_stored(ps_exec_plan *b)
{
    const ps_program *p = b->program;
    if (largest_quantized(b->settings, p) == NULL) return PS_OK;
    PS_TRY(ps_mem_alloc((size_t)p->n_params, sizeof *b->stored, &b->stored));
    for (int32_t t = 0; t < p->n_params; t++)
        b->stored[t] = (ps_stored_tensor){.quant = p->params[t].quant, .elements = p->params[t].elements};
    return PS_OK;
}

static void find_updated_with(ps_exec_plan *b)
{
    for (int32_t c = 0; c < b->layout->n_chunks; c++) b->updated_with[c] = (ps_run){.first = c, .n_chunks = 1};
    for (int32_t t = 0; t < b->program->n_params; t++) {
        const ps_place *p = &b->layout->places[t];
        for (int32_t c = p->chunk; b->program->params[t].is_whole && c < p->chunk + p->n_chunks && p->n_chunks > 1; c++)
            b->updated_with[c] = (ps_run){.first = p->chunk, .n_chunks = p->n_chunks};
    }
}

/* ---- where updates run ---- */

static int64_t bytes_in(const ps_exec_plan *b, ps_list list, int64_t n_elements)
{
    return ps_item_bytes(b->lists.list[list].item, n_elements);
}

/* Device memory of a window's group: of its chunks of all ranks, or of other ranks only. */
static int64_t span_bytes(const ps_exec_plan *b, const ps_gather_window *window, bool others_only)
{
    int64_t bytes = 0;
    for (int32_t c = window->chunk; c < window->chunk + window->n_chunks; c++) {
        if (others_only && ps_exec_plan_owns(b, c)) continue;
        bytes += ps_exec_plan_chunk_bytes(b, PS_LIST_PARAM16);
        if (window->reduces && ps_exec_plan_has_grad16(b, c))
            bytes += ps_exec_plan_chunk_bytes(b, ps_exec_plan_narrow_grad(b));
        if (!window->reduces || !b->uses_grad_list[c]) continue;
        bytes += ps_exec_plan_chunk_bytes(b, ps_lists_grad(&b->lists));
        if (ps_exec_plan_owns(b, c)) bytes += ps_exec_plan_chunk_bytes(b, ps_lists_grad_sum(&b->lists));
    }
    return bytes;
}

/* The largest memory of gathered chunks of other ranks at any time. */
static int64_t gathered_peak_bytes(const ps_exec_plan *b)
{
    int64_t now = 0, most = 0;
    for (int32_t e = 0; e < b->windows.n_events; e++) {
        const ps_gather_event *event = &b->windows.events[e];
        const int64_t others = span_bytes(b, &b->windows.windows[event->window], true);
        if (event->kind == PS_GATHER_BEGIN) now += others;
        if (event->kind == PS_GATHER_RELEASE) now -= others;
        most = ps_max_i64(most, now);
    }
    return most;
}

/* Is the i-th of n one of m evenly spaced ones? */
static bool is_one_of_evenly(int64_t i, int64_t n, int64_t m)
{
    return (i + 1) * m / n > i * m / n;
}

/* On the device: sums of kernels, where the host cannot access it. */
static int64_t results_bytes(const ps_settings *s)
{
    if (ps_backend_space(s->backend)->device->host_can_touch) return 0;
    return ps_round_up(ps_results_bytes(s->accumulation), ps_settings_page_bytes(s));
}

/* Copies of a step's micro-batches: where updates may be speculative. */
static int64_t copies_bytes(const ps_exec_plan *b)
{
    return b->n_keeping > 0 ? b->settings->batch_copies_bytes : 0;
}

/* This rank's chunks, among the first n_chunks of the layout. */
static int64_t count_own(const ps_exec_plan *b, int32_t n_chunks)
{
    const ps_ranks *r = &b->settings->ranks;
    return ps_max_i64(0, (n_chunks - r->rank + r->n - 1) / r->n);
}

/* Host memory for the optimizer's data next to so many bytes: with room for one 16-bit chunk and its gradient lists. */
static int64_t host_room(const ps_exec_plan *b, const ps_budgets *budgets, int64_t other_bytes)
{
    const int64_t cs = b->layout->chunk_elements;
    int64_t transit_bytes = bytes_in(b, PS_LIST_PARAM16, cs);
    for (ps_list l = ps_lists_grad(&b->lists); l < b->lists.n; l++) transit_bytes += bytes_in(b, l, cs);
    return budgets->bytes[PS_TIER_HOST] - other_bytes - 2 * transit_bytes;
}

/* May updates run on the tier? Standalone chunks are left out, as they are of one shape: so the answer is the same for
 * all execution plans over the same chunks. */
static bool may_update_on(const ps_exec_plan *b, const ps_budgets *budgets, ps_tier tier, int64_t host_block_bytes)
{
    if (tier == PS_TIER_DEVICE) return true;
    return budgets->bytes[PS_TIER_HOST] > 0 &&
           (!b->settings->hybrid_updates || host_room(b, budgets, host_block_bytes) >=
                                                ps_optimizer_payload_bytes(b->settings, b->layout->chunk_elements));
}

/* Number of chunks for whose optimizer data each tier has room: on the device next to activations and 16-bit chunks. */
static void count_sets(const ps_exec_plan *b, const ps_budgets *budgets, int64_t n_local, int64_t n[PS_RAM_TIER_COUNT])
{
    const ps_settings *s = b->settings;
    const int64_t cs = b->layout->chunk_elements;
    /* in addition to this rank's chunks, those of the others while they are gathered */
    const int64_t param_bytes =
        count_own(b, b->layout->n_chunks) * bytes_in(b, PS_LIST_PARAM16, cs) + gathered_peak_bytes(b);
    const ps_tiers_desc tiers = ps_exec_plan_tiers(b, budgets);
    int64_t blocks[PS_RAM_TIER_COUNT];
    ps_tiers_count_blocks(&tiers, blocks);
    n[PS_TIER_DEVICE] = ps_margin_chunks(
        s, b->layout, budgets->bytes[PS_TIER_DEVICE] - blocks[PS_TIER_DEVICE] - b->code->non_model_bytes - param_bytes);
    n[PS_TIER_HOST] = n_local;
    if (!s->hybrid_updates) return;
    const int64_t standalone_bytes = b->lists.n_standalone * ps_exec_plan_chunk_bytes(b, b->lists.n);
    n[PS_TIER_HOST] =
        host_room(b, budgets, blocks[PS_TIER_HOST] + standalone_bytes) / ps_optimizer_payload_bytes(s, cs);
    if (tiers.update_scratch_bytes[PS_TIER_HOST] < b->update_scratch.bytes) n[PS_TIER_HOST] = 0;
}

/* Hybrid placement. The first chunks, as many as fit the device margin with their optimizer data, keep it there and are
 * updated there. Of the others, as many as fit are kept on the host, and updated there: the 16-bit parameter is copied
 * there and back, 4 bytes, instead of Adam's data, 24. Where the link is faster than computing on the host, a candidate
 * updates some of them on the device, while the host updates the others. The rest is read from disk, and updated on the
 * device, the tier with the most room for it. */
static void place_updates(ps_exec_plan *b, const ps_budgets *budgets)
{
    const ps_settings *s = b->settings;
    const int64_t n_local = count_own(b, b->layout->n_mirrored);
    int64_t n[PS_RAM_TIER_COUNT], i = 0;
    count_sets(b, budgets, n_local, n);
    b->n_resident_updates = (int32_t)ps_min_i64(n[PS_TIER_DEVICE], n_local);
    b->n_kept_on_host = (int32_t)ps_max_i64(0, ps_min_i64(n[PS_TIER_HOST], n_local - b->n_resident_updates));
    for (int32_t c = 0; c < b->layout->n_chunks; c++) {
        b->update_tier[c] = PS_TIER_DEVICE;
        if (!ps_exec_plan_owns(b, c) || !ps_exec_plan_trains(b, c)) continue;
        if (c / s->ranks.n < b->n_resident_updates || i == b->n_kept_on_host) continue;
        if (!is_one_of_evenly(i++, b->n_kept_on_host, b->candidate.n_streamed)) b->update_tier[c] = PS_TIER_HOST;
    }
    for (int32_t c = 0; c < b->layout->n_chunks; c++) b->update_tier[c] = b->update_tier[b->updated_with[c].first];
}

/* ---- trace ---- */

static ps_status access_tensor(ps_exec_plan *b, ps_list list, int32_t tensor, ps_tier tier, ps_access_mode mode)
{
    const ps_place *p = &b->layout->places[tensor];
    for (int32_t k = 0; k < p->n_chunks; k++)
        PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(b->layout, list, p->chunk + k), tier, mode));
    return PS_OK;
}

/* Has the step touched the chunk of the list that gets the tensor's gradient, GRAD or GRAD16? */
static bool *touch_of(const ps_exec_plan *b, bool *touched, int32_t tensor)
{
    return b->code->grad_overwrites_param[tensor] ? touched + b->layout->n_chunks : touched;
}

/* Are gradients read after what the trace has as their last use? By updates that were taken back, and by those after
 * second passes. Content that an access overwrites would be dead by then. */
static bool reads_late(const ps_exec_plan *b)
{
    return b->speculates || b->is_recompute;
}

/* A chunk of a list of gradients is empty at the start of a step: its first writer need not copy it in. */
static ps_status access_grad_list(ps_exec_plan *b, int32_t tensor, ps_tier tier, bool *touched)
{
    const ps_place *p = &b->layout->places[tensor];
    for (int32_t k = 0; k < p->n_chunks; k++) {
        const int32_t c = p->chunk + k;
        PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(b->layout, ps_exec_plan_grad_list(b, tensor), c), tier,
                                   touch_of(b, touched, tensor)[c] || reads_late(b) ? PS_ACCESS_WRITE
                                                                                    : PS_ACCESS_OVERWRITE));
    }
    return PS_OK;
}

ps_tier ps_exec_plan_param_tier(const ps_exec_plan *b, const ps_node *n)
{
    return n->type->is_embedding && b->settings->embedding_on_host ? PS_TIER_HOST : PS_TIER_DEVICE;
}

static ps_status trace_instr(ps_exec_plan *b, const ps_instr *instr, bool *touched)
{
    const ps_node *n = &b->program->nodes[instr->node];
    const bool backward = instr->kind == PS_INSTR_BACKWARD;
    const ps_tier tier = ps_exec_plan_param_tier(b, n);
    const bool is_forward = instr < b->code->instrs + b->code->n_forward;
    PS_TRY(ps_trace_add_moment(b->trace, is_forward ? PS_PHASE_FORWARD : PS_PHASE_BACKWARD, instr->label,
                               instr->non_model_bytes, instr->cost_ns));
    if (instr->offload_bytes > 0)
        return ps_trace_add_access(b->trace, ps_exec_plan_offload_chunk(b, instr), PS_TIER_DEVICE,
                                   instr->kind == PS_INSTR_OFFLOAD ? PS_ACCESS_OVERWRITE : PS_ACCESS_READ);
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        const bool makes_grad = ps_instr_makes_grad(b->program, instr, k);
        if (!ps_instr_touches(b->program, instr, k)) continue;
        if (!backward || (n->type->backward_reads_w[k] && !ps_exec_plan_overwrites(b, w)))
            PS_TRY(access_tensor(b, PS_LIST_PARAM16, w, tier, PS_ACCESS_READ));
        else if (ps_exec_plan_overwrites(b, w))
            PS_TRY(access_tensor(b, PS_LIST_PARAM16, w, tier, PS_ACCESS_WRITE));
        if (makes_grad && !ps_exec_plan_overwrites(b, w)) PS_TRY(access_grad_list(b, w, tier, touched));
    }
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (!ps_instr_makes_grad(b->program, instr, k) || ps_exec_plan_overwrites(b, w)) continue;
        for (int32_t c = 0; c < b->layout->places[w].n_chunks; c++)
            touch_of(b, touched, w)[b->layout->places[w].chunk + c] = true;
    }
    return PS_OK;
}

/* Of matrix products of the chunk's updates of whole tensors, on either tier by the device's throughput: with a
 * processor both are the same. */
static int64_t whole_updates_ns(const ps_exec_plan *b, int32_t c)
{
    double flops = 0;
    for (int32_t i = b->pieces.first[c]; i < b->pieces.first[c + 1]; i++) {
        const ps_param *p = &b->program->params[b->pieces.all[i].tensor];
        if (p->is_whole && b->pieces.all[i].tensor_offset == 0)
            flops += ps_optimizer_whole_flops(&b->settings->optimizer, p->shape[0], p->shape[1]);
    }
    return (int64_t)(flops * 1e9 / b->settings->throughput.compute.flops_per_s);
}

static int64_t update_ns(const ps_exec_plan *b, int32_t c, bool is_early)
{
    const int64_t n = b->layout->used_elements[c];
    if (b->is_recompute)
        return (int64_t)((double)(bytes_in(b, PS_LIST_PARAM16, n) + bytes_in(b, PS_LIST_MASTER, n)) * 1e9 /
                         ps_settings_update_bytes_per_s(b->settings, b->update_tier[c]));
    const int64_t bytes =
        ps_optimizer_traffic_bytes(&b->settings->optimizer, b->chunk_states[c], n, bytes_in(b, PS_LIST_PARAM16, n)) +
        (ps_exec_plan_keeps_grad(b, c) && is_early ? 2 * bytes_in(b, ps_lists_kept_grad(&b->lists), n) : 0);
    return (int64_t)((double)bytes * 1e9 / ps_settings_update_bytes_per_s(b->settings, b->update_tier[c])) +
           whole_updates_ns(b, c);
}

/* Of an update that rounds parameters again; PARAM16 is WRITE for reads_late. */
static ps_status access_rounded(ps_exec_plan *b, int32_t c)
{
    const ps_tier tier = b->update_tier[c];
    PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(b->layout, PS_LIST_PARAM16, c), tier, PS_ACCESS_WRITE));
    return ps_trace_add_access(b->trace, ps_store_chunk(b->layout, PS_LIST_MASTER, c), tier, PS_ACCESS_READ);
}

static ps_status access_updated(ps_exec_plan *b, int32_t c, bool is_early)
{
    const ps_layout *l = b->layout;
    const ps_tier tier = b->update_tier[c];
    if (b->is_recompute) return access_rounded(b, c);
    PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(l, PS_LIST_PARAM16, c), tier,
                               b->overwrites[c] || ps_settings_separates_gradients(b->settings) ? PS_ACCESS_WRITE
                                                                                                : PS_ACCESS_OVERWRITE));
    const ps_list sums = ps_exec_plan_sums(b);
    if (b->uses_grad_list[c]) PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(l, sums, c), tier, PS_ACCESS_READ));
    if (ps_exec_plan_has_grad16(b, c))
        PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(l, ps_exec_plan_narrow_grad(b), c), tier, PS_ACCESS_READ));
    if (ps_exec_plan_keeps_grad(b, c))
        PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(l, ps_lists_kept_grad(&b->lists), c), tier,
                                   is_early ? PS_ACCESS_WRITE : PS_ACCESS_READ));
    for (ps_list list = PS_LIST_MASTER; list < ps_lists_grad(&b->lists); list++)
        if (ps_exec_plan_has_chunk(b, list, c))
            PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(l, list, c), tier, PS_ACCESS_WRITE));
    return PS_OK;
}

/* Second passes begin with updates that only round parameters from masters. Without whole masters there is nothing to
 * round: the parameters themselves have been restored. */
static bool has_updates(const ps_exec_plan *b)
{
    return b->settings->training && !(b->is_recompute && ps_settings_separates_gradients(b->settings));
}

/* The update of a chunk, and of those that are updated with it; is_early: within the backward pass. An early one that
 * may be taken back keeps the gradient that it overwrites; it is WRITE, not OVERWRITE, for the reason above. When it is
 * taken back PARAM16 is empty, but if it could not be made the gradient is there. */
static ps_status trace_update(ps_exec_plan *b, int32_t chunk, bool is_early, int64_t non_model_bytes)
{
    const ps_run all = b->updated_with[chunk];
    int64_t cost_ns = b->settings->throughput.update_latency_ns[b->update_tier[chunk]];
    for (int32_t c = all.first; c < all.first + all.n_chunks; c++) {
        if (!is_early || b->update_moment[c] < 0) b->update_moment[c] = b->trace->n_moments;
        if (is_early) b->early_moment[c] = b->trace->n_moments;
        b->update_order[b->n_ordered++] = c;
        cost_ns += update_ns(b, c, is_early);
    }
    PS_TRY(ps_trace_add_moment(b->trace, PS_PHASE_UPDATE, "update", non_model_bytes, cost_ns));
    for (int32_t c = all.first; c < all.first + all.n_chunks; c++) PS_TRY(access_updated(b, c, is_early));
    return PS_OK;
}

/* A chunk used by both neighbours of the boundary before instruction m. */
static int64_t non_model_before(const ps_exec_plan *b, int32_t m)
{
    const ps_instr *instrs = b->code->instrs;
    return m == 0 ? 0 : ps_min_i64(instrs[m - 1].non_model_bytes, instrs[m].non_model_bytes);
}

/* The deferred updates that must come before instruction m uses these chunks and are not in the trace yet: their own,
 * those of all chunks used before them, and those of the `lead` chunks used next. *next: index in use_order at which
 * the next call continues. */
static ps_status trace_updates_of(ps_exec_plan *b, int32_t chunk, int32_t n_chunks, int32_t m, int32_t *next)
{
    int32_t last = -1;
    for (int32_t c = chunk; c < chunk + n_chunks; c++)
        if (b->use_position[c] >= 0)
            last = (int32_t)ps_max_i64(last, b->use_position[c] + b->candidate.update_lead_chunks);
    for (; *next <= last && *next < b->n_used; (*next)++)
        if (b->update_moment[b->use_order[*next]] < 0 && (!b->is_early[b->use_order[*next]] || b->usual != NULL))
            PS_TRY(trace_update(b, b->use_order[*next], false, non_model_before(b, m)));
    b->n_deferred = b->n_ordered;
    return PS_OK;
}

/* The updates that must come before instruction m of the first forward pass. */
static ps_status trace_updates_before(ps_exec_plan *b, int32_t m, int32_t *next)
{
    const ps_node *n = &b->program->nodes[b->code->instrs[m].node];
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        if (n->params[k] < 0) continue;
        const ps_place *p = &b->layout->places[n->params[k]];
        PS_TRY(trace_updates_of(b, p->chunk, p->n_chunks, m, next));
    }
    return PS_OK;
}

/* The same for gathered groups: a chunk of this rank is updated before the others get it. */
static ps_status trace_updates_before_gathers(ps_exec_plan *b, int32_t first_event, int32_t end_event, int32_t *next)
{
    for (int32_t i = first_event; i < end_event; i++) {
        const ps_gather_event *e = &b->windows.events[i];
        const ps_gather_window *window = &b->windows.windows[e->window];
        if (e->kind == PS_GATHER_BEGIN) PS_TRY(trace_updates_of(b, window->chunk, window->n_chunks, e->instr, next));
    }
    return PS_OK;
}

/* Gathering is a separate moment, at which the group is allocated; in the backward pass also its gradients that may not
 * overwrite. These are freed when the group is released; their sums, of this rank's chunks, stay. */
static ps_status trace_gather(ps_exec_plan *b, int64_t micro, int32_t i, bool *touched)
{
    const ps_gather_window *window = &b->windows.windows[i];
    b->window_moment[micro * b->windows.n + i] = b->trace->n_moments;
    PS_TRY(ps_trace_add_moment(b->trace, window->reduces ? PS_PHASE_BACKWARD : PS_PHASE_FORWARD, "gather",
                               non_model_before(b, window->gather_at), 0));
    for (int32_t c = window->chunk; c < window->chunk + window->n_chunks; c++) {
        PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(b->layout, PS_LIST_PARAM16, c), PS_TIER_DEVICE,
                                   ps_exec_plan_owns(b, c) ? PS_ACCESS_READ : PS_ACCESS_OVERWRITE));
        if (window->reduces && ps_exec_plan_has_grad16(b, c)) {
            const bool is_late = reads_late(b) && ps_exec_plan_owns(b, c);
            PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(b->layout, ps_exec_plan_narrow_grad(b), c),
                                       PS_TIER_DEVICE, is_late ? PS_ACCESS_WRITE : PS_ACCESS_OVERWRITE));
            touched[b->layout->n_chunks + c] = true;
        }
        if (!window->reduces || !b->uses_grad_list[c]) continue;
        const bool is_sum = reads_late(b) && ps_exec_plan_owns(b, c) && !ps_exec_plan_has_separate_sums(b);
        PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(b->layout, ps_lists_grad(&b->lists), c), PS_TIER_DEVICE,
                                   is_sum ? PS_ACCESS_WRITE : PS_ACCESS_OVERWRITE)); /* as in access_grad_list */
        touched[c] = true;
        if (ps_exec_plan_has_separate_sums(b) && ps_exec_plan_owns(b, c))
            PS_TRY(ps_trace_add_access(b->trace, ps_store_chunk(b->layout, ps_lists_grad_sum(&b->lists), c),
                                       PS_TIER_DEVICE, PS_ACCESS_WRITE)); /* zeros at first */
    }
    return PS_OK;
}

/* The early updates of those among these chunks that instruction m was the last to use. */
static ps_status trace_updates_after(ps_exec_plan *b, int32_t chunk, int32_t n_chunks, int32_t m)
{
    const int64_t non_model_bytes = m + 1 < b->code->n_instrs ? non_model_before(b, m + 1) : 0;
    for (int32_t c = chunk; c < chunk + n_chunks; c++)
        if (b->is_early[c] && b->ready_after[c] == m && b->early_moment[c] < 0)
            PS_TRY(trace_update(b, c, true, non_model_bytes));
    return PS_OK;
}

/* The updates right after instruction m of the last backward pass; with several ranks those of the groups that it
 * releases, events [first_event, end_event) among others. */
static ps_status trace_early_updates(ps_exec_plan *b, int32_t m, int32_t first_event, int32_t end_event)
{
    const ps_node *n = &b->program->nodes[b->code->instrs[m].node];
    for (int k = 0; k < PS_NODE_PARAMS && b->settings->ranks.n == 1; k++) {
        if (n->params[k] < 0) continue;
        const ps_place *p = &b->layout->places[n->params[k]];
        PS_TRY(trace_updates_after(b, p->chunk, p->n_chunks, m));
    }
    for (int32_t i = first_event; i < end_event; i++) {
        const ps_gather_window *window = &b->windows.windows[b->windows.events[i].window];
        if (b->windows.events[i].kind == PS_GATHER_RELEASE)
            PS_TRY(trace_updates_after(b, window->chunk, window->n_chunks, m));
    }
    return PS_OK;
}

/* Micro-batches of a step. */
static int64_t micro_batches(const ps_exec_plan *b)
{
    return b->settings->training ? b->settings->accumulation : 1;
}

static ps_status trace_moments(ps_exec_plan *b, bool *touched, ps_deadline *deadline)
{
    const ps_code *p = b->code;
    const int64_t repeats = micro_batches(b);
    int32_t next_use = 0;
    for (int64_t k = 0; k < repeats; k++) {
        int32_t event = 0;
        const bool deferred = b->candidate.update_time == PS_UPDATE_DEFERRED && has_updates(b) && k == 0;
        const bool early = b->candidate.n_early > 0 && k == repeats - 1;
        PS_TRY(ps_deadline_check(deadline));
        for (int32_t m = 0; m < p->n_instrs; m++) {
            const int32_t first_event = event;
            while (event < b->windows.n_events && b->windows.events[event].instr <= m) event++;
            if (deferred && m < p->n_forward) PS_TRY(trace_updates_before_gathers(b, first_event, event, &next_use));
            for (int32_t i = first_event; i < event; i++)
                if (b->windows.events[i].kind == PS_GATHER_BEGIN)
                    PS_TRY(trace_gather(b, k, b->windows.events[i].window, touched));
            if (deferred && m < p->n_forward) PS_TRY(trace_updates_before(b, m, &next_use));
            b->instr_moment[k * p->n_instrs + m] = b->trace->n_moments;
            PS_TRY(trace_instr(b, &p->instrs[m], touched));
            if (early && m >= p->n_forward) PS_TRY(trace_early_updates(b, m, first_event, event));
        }
    }
    for (int32_t c = 0; has_updates(b) && c < b->layout->n_mirrored; c++)
        if (ps_exec_plan_owns(b, c) && b->update_moment[c] < 0) PS_TRY(trace_update(b, c, false, 0));
    return PS_OK;
}

static void find_use_order(ps_exec_plan *b)
{
    for (int32_t c = 0; c < b->layout->n_chunks; c++) b->use_position[c] = -1;
    for (int32_t m = 0; m < b->code->n_forward; m++) {
        const ps_node *n = &b->program->nodes[b->code->instrs[m].node];
        for (int k = 0; k < PS_NODE_PARAMS; k++) {
            if (n->params[k] < 0) continue;
            const ps_place *p = &b->layout->places[n->params[k]];
            for (int32_t c = p->chunk; c < p->chunk + p->n_chunks; c++) {
                if (!ps_exec_plan_owns(b, c) || !ps_exec_plan_trains(b, c) || b->use_position[c] >= 0) continue;
                b->use_position[c] = b->n_used;
                b->use_order[b->n_used++] = c;
            }
        }
    }
}

/* Recomputation reads chunks too, and tied tables are used twice: the last instruction counts. With several ranks
 * gradients are summed when the chunk's group is released. */
static void find_ready(ps_exec_plan *b)
{
    for (int32_t c = 0; c < b->layout->n_chunks; c++) b->ready_after[c] = -1;
    for (int32_t m = b->code->n_forward; m < b->code->n_instrs && b->settings->ranks.n == 1; m++) {
        const ps_node *n = &b->program->nodes[b->code->instrs[m].node];
        for (int k = 0; k < PS_NODE_PARAMS && ps_instr_computes_node(&b->code->instrs[m]); k++) {
            if (!ps_program_trains(b->program, n->params[k])) continue;
            const ps_place *p = &b->layout->places[n->params[k]];
            for (int32_t c = p->chunk; c < p->chunk + p->n_chunks; c++) b->ready_after[c] = m;
        }
    }
    for (int32_t i = 0; i < b->windows.n; i++) {
        const ps_gather_window *window = &b->windows.windows[i];
        for (int32_t c = window->chunk; c < window->chunk + window->n_chunks && window->reduces; c++)
            if (ps_exec_plan_owns(b, c)) b->ready_after[c] = window->release_at;
    }
}

/* Can the chunk be updated early? Of a run that is updated as a whole, chunks would wait for the last one's gradient. */
static bool can_be_early(const ps_exec_plan *b, int32_t chunk)
{
    return b->ready_after[chunk] >= 0 && b->updated_with[chunk].n_chunks == 1;
}

/* Evenly spread, so that both passes move optimizer data all the time. */
static void choose_early(ps_exec_plan *b)
{
    int32_t n = 0, i = 0;
    for (int32_t k = 0; k < b->n_used; k++) n += can_be_early(b, b->use_order[k]);
    b->candidate.n_early = (int32_t)ps_min_i64(b->candidate.n_early, b->speculates ? ps_min_i64(n, b->n_keeping) : n);
    for (int32_t k = 0; k < b->n_used; k++) {
        const int32_t c = b->use_order[k];
        if (can_be_early(b, c)) b->is_early[c] = is_one_of_evenly(i++, n, b->candidate.n_early);
    }
}

/* ---- chunks that moments use ---- */

/* The allocated groups, while the moments are processed in order. */
typedef struct held_groups {
    int64_t bytes;
    int32_t *reads;            /* [n_chunks] held groups with the chunk */
    int32_t *reduces;          /* [n_chunks] those of them that hold its gradients too */
    int64_t gathers, releases; /* events of these kinds up to here are counted, in all micro-batches */
} held_groups;

static void hold(const ps_exec_plan *b, held_groups *h, const ps_gather_window *window, int32_t sign)
{
    h->bytes += sign * span_bytes(b, window, false);
    for (int32_t c = window->chunk; c < window->chunk + window->n_chunks; c++) {
        h->reads[c] += sign;
        if (window->reduces) h->reduces[c] += sign;
    }
}

/* The first moment at which event i of all micro-batches takes effect: a group is held from its gathering to the
 * instruction after which it is released. */
static int32_t moment_of_event(const ps_exec_plan *b, int64_t i)
{
    const int64_t micro = i / b->windows.n_events;
    const ps_gather_event *e = &b->windows.events[i % b->windows.n_events];
    return e->kind == PS_GATHER_BEGIN
               ? b->window_moment[micro * b->windows.n + e->window]
               : b->instr_moment[micro * b->code->n_instrs + b->windows.windows[e->window].release_at] + 1;
}

/* Count the events of one kind up to this moment. Events of a kind are in the order of their moments. */
static void count_events(const ps_exec_plan *b, held_groups *h, ps_gather_event_kind kind, int64_t *next,
                         int32_t moment)
{
    const int64_t n = micro_batches(b) * b->windows.n_events;
    for (; *next < n; ++*next) {
        const ps_gather_event *e = &b->windows.events[*next % b->windows.n_events];
        if (e->kind != kind) continue;
        if (moment_of_event(b, *next) > moment) return;
        hold(b, h, &b->windows.windows[e->window], kind == PS_GATHER_BEGIN ? 1 : -1);
    }
}

/* Is this a chunk of a held group, of a list that is held with it? */
static bool is_gathered(const ps_exec_plan *b, const held_groups *h, ps_chunk_id id)
{
    const ps_list list = ps_lists_list_of(&b->lists, b->layout, id);
    if (b->windows.n == 0 || ps_lists_is_standalone(&b->lists, list)) return false;
    const int32_t chunk = ps_lists_index_of(&b->lists, b->layout, id);
    const bool is_grad16 = ps_settings_separates_gradients(b->settings) && list == ps_exec_plan_narrow_grad(b);
    const bool is_reduced = is_grad16 || list == ps_lists_grad(&b->lists) || list == ps_lists_grad_sum(&b->lists);
    return list == PS_LIST_PARAM16 ? h->reads[chunk] > 0 : is_reduced && h->reduces[chunk] > 0;
}

static void count_moment(ps_exec_plan *b, held_groups *h, int32_t moment)
{
    const ps_moment *m = &b->trace->moments[moment];
    int64_t *wanted = &b->wanted_bytes[(int64_t)moment * PS_RAM_TIER_COUNT];
    count_events(b, h, PS_GATHER_BEGIN, &h->gathers, moment);
    count_events(b, h, PS_GATHER_RELEASE, &h->releases, moment);
    wanted[PS_TIER_DEVICE] = h->bytes;
    for (int32_t i = 0; i < m->n_accesses; i++) {
        const ps_access *a = &b->trace->accesses[m->first_access + i];
        if (is_gathered(b, h, a->chunk)) continue;
        wanted[a->tier] += ps_exec_plan_chunk_bytes(b, ps_lists_list_of(&b->lists, b->layout, a->chunk));
    }
}

/* All moments in one pass: its cost is that of making the trace, however many groups and micro-batches there are. */
static ps_status count_wanted(ps_exec_plan *b)
{
    ps_status st = PS_OK;
    held_groups h = {.bytes = 0};
    const size_t n_moments = (size_t)b->trace->n_moments, n_chunks = (size_t)b->layout->n_chunks;
    PS_TRY_GOTO(ps_mem_alloc(n_moments * PS_RAM_TIER_COUNT, sizeof *b->wanted_bytes, &b->wanted_bytes));
    PS_TRY_GOTO(ps_mem_alloc(n_chunks, sizeof *h.reads, &h.reads));
    PS_TRY_GOTO(ps_mem_alloc(n_chunks, sizeof *h.reduces, &h.reduces));
    for (int32_t m = 0; m < b->trace->n_moments; m++) count_moment(b, &h, m);
out:
    ps_mem_free(h.reads);
    ps_mem_free(h.reduces);
    return st;
}

/* ---- the recorded step ---- */

static ps_status record_trace(ps_exec_plan *b, ps_deadline *deadline)
{
    ps_status st = PS_OK;
    bool *touched = NULL;
    const size_t n_chunks = (size_t)b->layout->n_chunks;
    PS_TRY(ps_mem_alloc(2 * n_chunks, sizeof *touched, &touched));
    PS_TRY_GOTO(ps_mem_alloc(n_chunks, sizeof *b->update_moment, &b->update_moment));
    PS_TRY_GOTO(ps_mem_alloc(n_chunks, sizeof *b->early_moment, &b->early_moment));
    PS_TRY_GOTO(ps_mem_alloc(2 * n_chunks, sizeof *b->update_order, &b->update_order));
    PS_TRY_GOTO(ps_mem_alloc((size_t)(b->settings->accumulation * b->code->n_instrs), sizeof *b->instr_moment,
                             &b->instr_moment));
    PS_TRY_GOTO(
        ps_mem_alloc((size_t)(b->settings->accumulation * b->windows.n), sizeof *b->window_moment, &b->window_moment));
    PS_TRY_GOTO(ps_mem_alloc(n_chunks, sizeof *b->use_order, &b->use_order));
    PS_TRY_GOTO(ps_mem_alloc(n_chunks, sizeof *b->use_position, &b->use_position));
    PS_TRY_GOTO(ps_mem_alloc(n_chunks, sizeof *b->ready_after, &b->ready_after));
    PS_TRY_GOTO(ps_mem_alloc(n_chunks, sizeof *b->is_early, &b->is_early));
    find_use_order(b);
    find_ready(b);
    choose_early(b);
    for (size_t c = 0; c < n_chunks; c++) b->update_moment[c] = b->early_moment[c] = -1;
    PS_TRY_GOTO(ps_trace_create(&b->trace));
    PS_TRY_GOTO(trace_moments(b, touched, deadline));
    PS_TRY_GOTO(count_wanted(b));
    PS_TRY_GOTO(ps_schedule_create(b->trace, ps_lists_n_ids(&b->lists, b->layout), &b->schedule));
out:
    ps_mem_free(touched);
    return st;
}

/* ---- create, destroy ---- */

int64_t ps_exec_plan_wanted_bytes(const ps_exec_plan *b, int32_t moment, ps_tier tier)
{
    PS_ASSERT(tier < PS_RAM_TIER_COUNT);
    return b->wanted_bytes[(int64_t)moment * PS_RAM_TIER_COUNT + tier];
}

int64_t ps_exec_plan_model_data_bytes(const ps_exec_plan *b)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < b->program->n_params; t++) {
        const int64_t n = b->program->params[t].elements;
        bytes += bytes_in(b, PS_LIST_PARAM16, ps_param_stored_elements(&b->program->params[t], b->settings->dtype));
        if (!b->settings->training || b->program->params[t].is_frozen) continue;
        bytes += ps_optimizer_bytes_of(&b->settings->optimizer, states_of(b, t), n);
        bytes += b->code->grad_overwrites_param[t] ? n * ps_settings_separate_gradient_bytes(b->settings)
                                                   : bytes_in(b, ps_lists_grad(&b->lists), n);
    }
    return bytes;
}

/* Of the tensors that are updated as a whole; one of no elements: there is none. */
static const ps_param *largest_whole(const ps_program *program)
{
    static const ps_param none = {0};
    const ps_param *most = &none;
    for (int32_t t = 0; t < program->n_params; t++)
        if (program->params[t].is_whole && program->params[t].elements > most->elements) most = &program->params[t];
    return most;
}

static ps_chunk_limits limits_of(const ps_settings *s, const ps_program *program, int64_t device_bytes)
{
    int64_t total = 0;
    for (int32_t t = 0; t < program->n_params; t++) total += ps_param_stored_elements(&program->params[t], s->dtype);
    const ps_param *quantized = largest_quantized(s, program);
    ps_chunk_limits limits = ps_chunk_limits_of(s, total, device_bytes, device_bytes);
    if (s->ranks.n > 1) limits.least = ps_max_i64(limits.least, largest_whole(program)->elements);
    if (quantized != NULL) limits.least = ps_max_i64(limits.least, ps_param_stored_elements(quantized, s->dtype));
    return limits;
}

int64_t ps_exec_plan_min_chunk_elements(const ps_settings *s, const ps_program *program)
{
    return limits_of(s, program, 0).least;
}

int64_t ps_exec_plan_max_chunk_elements(const ps_settings *s, const ps_program *program, const ps_budgets *budgets)
{
    const ps_chunk_limits l = limits_of(s, program, budgets->bytes[PS_TIER_DEVICE]);
    return ps_max_i64(l.least, l.most);
}

/* Tensors in the order in which they are placed: those that are updated as a whole last, so that at most one chunk has
 * tensors of both kinds, and thus states of both. */
typedef struct placing {
    int32_t *tensors; /* [n] */
    int64_t *sizes;   /* [n] */
    bool *in_first_list_only;
    int32_t n;
} placing;

static void placing_deinit(placing *p)
{
    ps_mem_free(p->tensors);
    ps_mem_free(p->sizes);
    ps_mem_free(p->in_first_list_only);
}

static ps_status placing_init(placing *p, const ps_settings *s, const ps_program *program)
{
    const size_t n = (size_t)program->n_params;
    *p = (placing){0};
    PS_TRY(ps_mem_alloc(n, sizeof *p->tensors, &p->tensors));
    PS_TRY(ps_mem_alloc(n, sizeof *p->sizes, &p->sizes));
    PS_TRY(ps_mem_alloc(n, sizeof *p->in_first_list_only, &p->in_first_list_only));
    for (int is_whole = 0; is_whole < 2; is_whole++)
        for (int32_t t = 0; t < program->n_params; t++) {
            if (program->params[t].is_whole != (is_whole == 1)) continue;
            p->tensors[p->n] = t;
            p->sizes[p->n] = ps_param_stored_elements(&program->params[t], s->dtype);
            p->in_first_list_only[p->n++] = program->params[t].is_frozen; /* for inference there is no other list */
        }
    return PS_OK;
}

static ps_status renumber_places(const placing *p, ps_layout *l)
{
    ps_place *places;
    PS_TRY(ps_mem_alloc((size_t)p->n, sizeof *places, &places));
    for (int32_t i = 0; i < p->n; i++) places[p->tensors[i]] = l->places[i];
    ps_mem_free(l->places);
    l->places = places;
    return PS_OK;
}

/* PS_EINVAL: a chunk is too small for a tensor that is updated as a whole. Chunks of a run would be those of several
 * ranks. */
static ps_status check_chunk_size(const ps_settings *s, const ps_program *program, int64_t chunk_elements)
{
    const ps_param *p = largest_whole(program), *quantized = largest_quantized(s, program);
    if (quantized != NULL && ps_param_stored_elements(quantized, s->dtype) > chunk_elements)
        return PS_FAIL(
            PS_EINVAL,
            "model.frozen_format: a quantized matrix is in one chunk, but %.200s takes the bytes of %lld "
            "%s elements, and default_chunk_size is %lld: set it to at least %lld, or 0 for a size that suits",
            quantized->name, (long long)ps_param_stored_elements(quantized, s->dtype), ps_dtype_precision(s->dtype),
            (long long)chunk_elements, (long long)ps_param_stored_elements(quantized, s->dtype));
    if (s->ranks.n == 1 || p->elements <= chunk_elements) return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "optimizer.type = %s updates %.200s, a matrix of %lld elements, as a whole, on the rank that has its "
        "chunk, but chunks have %lld elements: with several ranks set default_chunk_size to at least %lld, "
        "or 0 for a size that suits; or add the name to optimizer.params.adamw_names",
        s->optimizer.optimizer->name, p->name, (long long)p->elements, (long long)chunk_elements,
        (long long)p->elements);
}

static ps_status place_tensors(const ps_settings *s, const ps_program *program, int64_t chunk_elements, ps_layout **out)
{
    placing p;
    PS_TRY(check_chunk_size(s, program, chunk_elements));
    ps_status st = placing_init(&p, s, program);
    if (st == PS_OK) st = ps_layout_create(p.sizes, p.in_first_list_only, p.n, chunk_elements, out);
    if (st == PS_OK) st = renumber_places(&p, *out); /* on failure the caller destroys the layout */
    placing_deinit(&p);
    return st;
}

ps_status ps_exec_plan_search_chunk_elements(const ps_settings *s, const ps_program *program, int64_t min_elements,
                                             int64_t max_elements, int64_t *chunk_elements)
{
    placing p;
    ps_status st = placing_init(&p, s, program);
    if (st == PS_OK)
        st = ps_layout_search(p.sizes, p.in_first_list_only, p.n, limits_of(s, program, 0).unit, min_elements,
                              max_elements, chunk_elements);
    placing_deinit(&p);
    return st;
}

/* Scratch for updates of whole tensors, the same for all of them: where a tier of RAM is there, updates may run. */
static ps_status measure_update_scratch(const ps_settings *s, const ps_program *program, ps_update_scratch *out)
{
    for (int32_t t = 0; t < program->n_params; t++) {
        const ps_param *p = &program->params[t];
        if (p->is_whole) PS_TRY(ps_settings_count_scratch(s, p->name, p->shape, out));
    }
    return PS_OK;
}

/* Of all chunks; has_kept: with those of KEPT_GRAD. */
static int64_t bytes_of_lists(const ps_exec_plan *b, bool has_kept)
{
    int64_t bytes = b->lists.n_standalone * ps_exec_plan_chunk_bytes(b, b->lists.n);
    for (ps_list list = 0; list < b->lists.n; list++)
        if (has_kept || ps_settings_separates_gradients(b->settings) || list != ps_lists_kept_grad(&b->lists))
            bytes += ps_lists_length(&b->lists, b->layout, list) * ps_exec_plan_chunk_bytes(b, list);
    return bytes;
}

static int64_t keeping_bytes(const ps_exec_plan *b, int32_t n, bool has_kept)
{
    return bytes_of_lists(b, has_kept) + n * ps_kept_payload_bytes(b->settings, b->layout->chunk_elements);
}

/* Chunks of optimizer data for which the disk has second places, next to all chunks: ps_store_desc.n_keeping. */
static int32_t count_keeping(const ps_exec_plan *b, const ps_budgets *budgets, bool has_kept)
{
    const int64_t left_bytes = budgets->bytes[PS_TIER_DISK] - keeping_bytes(b, 0, has_kept);
    if (!b->settings->may_speculate || left_bytes <= 0) return 0;
    return (int32_t)ps_min_i64(count_own(b, b->layout->n_mirrored),
                               left_bytes / ps_kept_payload_bytes(b->settings, b->layout->chunk_elements));
}

int64_t ps_exec_plan_keeping_bytes(const ps_exec_plan *b, int32_t n)
{
    return keeping_bytes(b, n, true);
}

/* Must speculative updates keep gradients, as no passes can be made again? */
static bool must_keep_grads(const ps_settings *s)
{
    return s->batch_copies_bytes == 0 || s->wrong_steps == PS_WRONG_STEPS_KEEP_GRADS;
}

bool ps_exec_plan_may_speculate(const ps_exec_plan *b, const ps_budgets *budgets)
{
    return count_keeping(b, budgets, must_keep_grads(b->settings)) > 0;
}

const char *ps_exec_plan_why_not_speculating(const ps_exec_plan *b, const ps_budgets *budgets,
                                             char text[PS_SPECULATION_TEXT_MAX])
{
    const bool keeps_grads = must_keep_grads(b->settings);
    text[0] = '\0';
    if (!b->settings->may_speculate || !b->settings->wants_speculation || ps_exec_plan_may_speculate(b, budgets))
        return text;
    const int32_t n = (int32_t)count_own(b, b->layout->n_mirrored);
    return ps_speculation_why_no_room(budgets->bytes[PS_TIER_DISK], keeping_bytes(b, 1, keeps_grads),
                                      keeping_bytes(b, n, keeps_grads), text);
}

/* Without KEPT_GRAD where passes are made again: in this execution plan, or in that of the tiers. */
static ps_lists lists_of(const ps_exec_plan *b)
{
    const ps_settings *s = b->settings;
    ps_lists l = ps_lists_of(s, b->code->n_offloaded, b->code->offload_bytes);
    const bool recomputes = b->candidate.recomputes || s->wrong_steps == PS_WRONG_STEPS_RECOMPUTE;
    if (s->may_speculate && recomputes && !ps_settings_separates_gradients(s))
        l.list[ps_lists_kept_grad(&l)].item = (ps_item){0, 1};
    return l;
}

/* May its early updates be speculative: is there room for what they need in a wrong step? */
static bool can_speculate(const ps_exec_plan *b)
{
    const ps_settings *s = b->settings;
    const bool has_copies = s->batch_copies_bytes >= s->accumulation * ps_code_batch_bytes(b->code);
    return s->may_speculate && b->n_keeping > 0 &&
           (b->candidate.recomputes ? has_copies : s->wrong_steps != PS_WRONG_STEPS_RECOMPUTE);
}

/* usual, is_recompute: as in ps_exec_plan. */
static ps_status create(const ps_settings *settings, const ps_program *program, const ps_code *code,
                        const ps_budgets *budgets, int64_t chunk_elements, ps_candidate candidate,
                        const ps_exec_plan *usual, bool is_recompute, ps_deadline *deadline, ps_exec_plan **out)
{
    *out = NULL;
    ps_status st = PS_OK;
    ps_exec_plan *b = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *b, &b));
    b->settings = settings;
    b->program = program;
    b->code = code = candidate.keeps_logits && code->keeping != NULL ? code->keeping : code;
    b->candidate = candidate;
    b->usual = usual;
    b->is_recompute = is_recompute;
    if (!settings->training) b->candidate.update_time = PS_UPDATE_AFTER;
    if (!settings->training) b->candidate.n_early = 0;
    PS_ASSERT(b->candidate.n_early == 0 || settings->may_update_early || settings->may_speculate);
    b->lists = lists_of(b);
    chunk_elements = ps_round_up(chunk_elements, limits_of(settings, program, 0).unit);
    PS_TRY_GOTO(place_tensors(settings, program, chunk_elements, &b->layout));
    PS_TRY_GOTO(measure_update_scratch(settings, program, &b->update_scratch));
    b->n_keeping = count_keeping(b, budgets, true);
    b->speculates = b->candidate.n_early > 0 && can_speculate(b);
    PS_ASSERT(!b->speculates || candidate.update_time == PS_UPDATE_DEFERRED);
    if (settings->may_speculate && !b->speculates) b->candidate.n_early = 0;
    PS_TRY_GOTO(ps_mem_alloc((size_t)b->layout->n_chunks, sizeof *b->update_tier, &b->update_tier));
    PS_TRY_GOTO(ps_mem_alloc((size_t)b->layout->n_chunks, sizeof *b->uses_grad_list, &b->uses_grad_list));
    PS_TRY_GOTO(ps_mem_alloc((size_t)b->layout->n_chunks, sizeof *b->overwrites, &b->overwrites));
    PS_TRY_GOTO(ps_mem_alloc((size_t)b->layout->n_chunks, sizeof *b->chunk_states, &b->chunk_states));
    PS_TRY_GOTO(ps_mem_alloc((size_t)b->layout->n_chunks, sizeof *b->updated_with, &b->updated_with));
    find_updated_with(b);
    PS_TRY_GOTO(describe_stored(b));
    PS_TRY_GOTO(cut_pieces(b));
    PS_TRY_GOTO(
        ps_gather_windows_find(program, code, b->layout, &settings->ranks, candidate.groups_ahead, &b->windows));
    place_updates(b, budgets);
    PS_TRY_GOTO(record_trace(b, deadline));
    if (b->speculates && usual == NULL)
        PS_TRY_GOTO(
            create(settings, program, code, budgets, chunk_elements, candidate, b, false, deadline, &b->taking_back));
    if (b->speculates && usual == NULL && candidate.recomputes) {
        candidate.n_early = 0;
        PS_TRY_GOTO(
            create(settings, program, code, budgets, chunk_elements, candidate, b, true, deadline, &b->recompute));
    }
    *out = b;
    b = NULL;
out:
    ps_exec_plan_destroy(b);
    return st;
}

ps_status ps_exec_plan_create(const ps_settings *settings, const ps_program *program, const ps_code *code,
                              const ps_budgets *budgets, int64_t chunk_elements, ps_candidate candidate,
                              ps_deadline *deadline, ps_exec_plan **out)
{
    return create(settings, program, code, budgets, chunk_elements, candidate, NULL, false, deadline, out);
}

ps_status ps_exec_plan_add_paused(ps_exec_plan *b, const ps_budgets *budgets, ps_candidate candidate,
                                  ps_deadline *deadline)
{
    PS_ASSERT(b->speculates && b->paused == NULL);
    candidate.n_early = 0;
    candidate.update_time = PS_UPDATE_DEFERRED;
    candidate.groups_ahead = b->candidate.groups_ahead; /* the ranks' collectives are in one order */
    candidate.keeps_logits = b->candidate.keeps_logits; /* the same activations: ps_runner_set_plan */
    candidate.recomputes = b->candidate.recomputes;
    return create(b->settings, b->program, b->code, budgets, b->layout->chunk_elements, candidate, b, false, deadline,
                  &b->paused);
}

void ps_exec_plan_drop_paused(ps_exec_plan *b)
{
    ps_exec_plan_destroy(b->paused);
    b->paused = NULL;
}

void ps_exec_plan_destroy(ps_exec_plan *b)
{
    if (b == NULL) return;
    ps_exec_plan_destroy(b->taking_back);
    ps_exec_plan_destroy(b->paused);
    ps_exec_plan_destroy(b->recompute);
    ps_gather_windows_deinit(&b->windows);
    ps_schedule_destroy(b->schedule);
    ps_trace_destroy(b->trace);
    ps_mem_free(b->wanted_bytes);
    ps_mem_free(b->instr_moment);
    ps_mem_free(b->window_moment);
    ps_mem_free(b->update_moment);
    ps_mem_free(b->early_moment);
    ps_mem_free(b->update_order);
    ps_mem_free(b->ready_after);
    ps_mem_free(b->is_early);
    ps_mem_free(b->use_order);
    ps_mem_free(b->use_position);
    ps_mem_free(b->chunk_states);
    ps_mem_free(b->updated_with);
    ps_mem_free(b->update_tier);
    ps_mem_free(b->uses_grad_list);
    ps_mem_free(b->overwrites);
    ps_mem_free(b->decays);
    ps_mem_free(b->stored);
    ps_pieces_deinit(&b->pieces);
    ps_layout_destroy(b->layout);
    ps_mem_free(b);
}

int64_t ps_exec_plan_all_chunk_bytes(const ps_exec_plan *b)
{
    return bytes_of_lists(b, b->speculates || ps_settings_separates_gradients(b->settings));
}

bool ps_exec_plan_fits_from_anywhere(const ps_exec_plan *b, const ps_budgets *budgets)
{
    const int64_t other_bytes = b->settings->staging_bytes + ps_settings_comm_bytes(b->settings) +
                                b->code->non_model_bytes + b->code->cache_bytes + results_bytes(b->settings) +
                                b->update_scratch.bytes + copies_bytes(b);
    const int64_t chunks = ps_exec_plan_all_chunk_bytes(b);
    return budgets->bytes[PS_TIER_DISK] >= chunks ||
           budgets->bytes[PS_TIER_HOST] - b->code->host_bytes - b->update_scratch.bytes >= chunks ||
           budgets->bytes[PS_TIER_DEVICE] - other_bytes >= chunks;
}

ps_store_options ps_exec_plan_store_options(const ps_exec_plan *b)
{
    ps_store_options o = b->settings->tiers.store;
    const int32_t usual = o.prefetch, depth = b->candidate.prefetch_doublings;
    if (usual > 0) o.prefetch = depth > 0 ? usual << depth : (int32_t)ps_max_i64(1, usual >> -depth);
    o.spares_writes = !b->candidate.evicts_dirty;
    if (b->candidate.ahead_halvings > 0)
        o.moments_ahead = (int32_t)ps_max_i64(1, b->trace->n_moments >> b->candidate.ahead_halvings);
    return o;
}

ps_tiers_desc ps_exec_plan_tiers(const ps_exec_plan *b, const ps_budgets *budgets)
{
    ps_tiers_desc o = ps_tiers_desc_of(b->settings, budgets, b->layout, &b->lists);
    o.cache_bytes = b->code->cache_bytes;
    o.host_block_bytes = b->code->host_bytes;
    o.results_bytes = results_bytes(b->settings);
    o.n_keeping = b->n_keeping;
    o.batch_copies_bytes = copies_bytes(b);
    int64_t blocks[PS_RAM_TIER_COUNT];
    ps_tiers_count_blocks(&o, blocks);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (may_update_on(b, budgets, (ps_tier)t, blocks[PS_TIER_HOST] + b->update_scratch.bytes))
            o.update_scratch_bytes[t] = b->update_scratch.bytes;
    return o;
}
