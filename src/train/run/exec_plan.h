/* exec_plan.h - the part of a step that is fixed before the first one: program, code, chunk layout, placement of
 * updates, the trace and the schedule. It holds no payload and no device, so a trial and the real run share it. */
#ifndef PS_RUN_EXEC_PLAN_H
#define PS_RUN_EXEC_PLAN_H

#include "base/deadline.h"
#include "train/graph/code.h"
#include "train/run/gather_window.h"
#include "train/settings/params.h"
#include "train/state/footprint.h"
#include "train/state/state.h"

/* When the updates of a step run that are not early: within its last backward pass, each after the last use of its
 * chunk there. */
typedef enum ps_update_time {
    PS_UPDATE_AFTER,    /* all after the backward pass */
    PS_UPDATE_DEFERRED, /* each chunk's before the next forward pass first uses it */
} ps_update_time;

enum { PS_EARLY_ALL = INT32_MAX };

/* Candidates: alternatives for the same step, which differ in memory and duration, never in bits. */
typedef struct ps_candidate {
    int32_t n_early; /* this rank's chunks updated early, evenly spread over the order of use; PS_EARLY_ALL, or any
                      * larger number: all that the backward pass uses. Of an execution plan: as many as there are */
    ps_update_time update_time; /* of the others */
    int32_t update_lead_chunks; /* deferred: updated so many chunks ahead of use, to be back in time */
    int32_t groups_ahead;       /* groups gathered ahead of use: ps_gather_windows_find */
    int32_t n_streamed;         /* chunks kept on the host, evenly spread, that are updated on the device */
    int32_t prefetch_doublings; /* doublings of memory.prefetch; negative: halvings */
    int32_t ahead_halvings; /* loads begin at most a step, halved so often, ahead of use; 0: as soon as there is room */
    bool evicts_dirty;      /* loads for the next step may evict chunks that the disk has to write first */
    bool keeps_logits;      /* where there is a choice (ps_code.keeping) */
    bool recomputes;        /* speculative updates keep no gradients: of a step in which they were wrong, the passes are
                          * made again */
} ps_candidate;

/* Program and code do not depend on budgets: created once, and shared by all execution plans that are tried. */
typedef struct ps_exec_plan {
    const ps_settings *settings;
    const ps_program *program;
    const ps_code *code; /* code of the candidate */

    ps_layout *layout;
    ps_stored_tensor *stored; /* [program->n_params] NULL: no parameter is quantized */
    ps_lists lists;
    ps_pieces pieces;     /* of quantized tensors in their own elements */
    bool *decays;         /* [program->n_params] weight decay applies */
    bool *uses_grad_list; /* [n_chunks] holds tensors whose gradients may not overwrite them */
    bool *overwrites;     /* [n_chunks] holds tensors whose gradients overwrite them, or would
                                   * without GRAD16 */
    ps_update_scratch update_scratch;
    uint32_t *chunk_states; /* [n_chunks] 1 << i for each state of the optimizer whose list has the chunk */
    ps_run *updated_with;   /* [n_chunks] the chunks that one moment updates: the chunk alone, or the run of a tensor
                                 * that is updated as a whole */
    ps_tier *update_tier;   /* [n_chunks] where the chunk's update runs */
    int32_t n_resident_updates; /* of this rank's chunks, those with optimizer data in the device margin */
    int32_t n_kept_on_host;     /* of the others, those with optimizer data in host memory */
    ps_gather_windows windows;  /* with several ranks */
    int32_t *window_moment;     /* [accumulation * windows.n] moment at which a gather window's group is gathered */
    ps_candidate candidate;
    int32_t *instr_moment;  /* [accumulation * n_instrs] moment of each instruction */
    int32_t *update_moment; /* [n_chunks] moment of each update; -1: another rank's, or there are none */
    int32_t *early_moment;  /* [n_chunks] moment of each early update; -1: none */
    int32_t *ready_after;   /* [n_chunks] instruction of the backward pass after which the chunk is unused there and its
                             * gradients are complete, over all ranks; -1: another rank's, or unused there */
    bool *is_early;         /* [n_chunks] the chunk is updated early */
    int32_t *update_order;  /* [n_ordered] this rank's chunks in the order of their updates in the trace: n_deferred
                             * deferred ones, then candidate.n_early early ones, then those after the backward pass.
                             * Where `usual` is set, early ones are among the deferred ones, too */
    int32_t *use_order;     /* [n_used] chunks used by the forward pass, in the order of first use */
    int32_t *use_position;  /* [n_chunks] index in use_order; -1: not in it */
    int32_t n_used;
    int32_t n_ordered, n_deferred;
    ps_trace *trace;
    int64_t *wanted_bytes; /* [n_moments * PS_RAM_TIER_COUNT] ps_exec_plan_wanted_bytes */
    ps_schedule *schedule;

    bool speculates;                  /* early updates are made before it is known whether they are valid */
    int32_t n_keeping;                /* chunks whose optimizer data the disk can keep over early updates */
    struct ps_exec_plan *taking_back; /* where it speculates: of the next step, if early updates are pending after this
                                       * one: then these are deferred. Owned */
    struct ps_exec_plan *paused;      /* where it speculates: of steps while speculation is paused; all updates are
                                       * deferred. NULL: it cannot be paused. Owned */
    struct ps_exec_plan *recompute;   /* where it speculates and recomputes: of the second passes of a step. Updates
                                       * come before them, and only round parameters from masters; without whole
                                       * masters there are none. Owned; else NULL */
    const struct ps_exec_plan *usual; /* of these three: the execution plan that owns them */
    bool is_recompute;                /* it is the `recompute` of `usual` */
} ps_exec_plan;

/* budgets may differ from those in settings. chunk_elements is as for ps_layout_create. settings, program and code must
 * outlive the execution plan.
 *
 * Deferred updates are moments between those of the forward pass, each before the first use of its chunk, so that
 * optimizer data moves while the forward pass computes. The bits are those of updates after the backward pass: clipping
 * and overflow are known when it has ended, and nothing reads a parameter in between. Early ones are moments between
 * those of the last micro-batch's backward pass, each after the last use of its chunk: their bits are the same where an
 * update needs nothing that is known only later (ps_settings.may_update_early, without which candidate.n_early is 0).
 * With some of each, optimizer data moves in both passes. The chunks of a run that is updated as a whole are never
 * updated early.
 *
 * Where settings->may_speculate, early updates are made as if the step's gradients were finite and not clipped, with
 * their optimizer data kept on disk and gradients in KEPT_GRAD, or in the list of sums. When the backward pass has
 * ended they are valid, or taken back, and then deferred: runner.h. candidate.update_time is PS_UPDATE_DEFERRED, and
 * candidate.n_early at most n_keeping. With candidate.recomputes there is no list KEPT_GRAD, and sums are used up
 * by early updates; without room for copies of the step's micro-batches (ps_settings.batch_copies_bytes) no update is
 * early then.
 *
 * deadline: PS_EBUDGET when time is up before the step is recorded; NULL: no limit. */
PS_NODISCARD ps_status ps_exec_plan_create(const ps_settings *settings, const ps_program *program, const ps_code *code,
                                           const ps_budgets *budgets, int64_t chunk_elements, ps_candidate candidate,
                                           ps_deadline *deadline, ps_exec_plan **out);
void ps_exec_plan_destroy(ps_exec_plan *b); /* NULL is accepted */

/* For an execution plan that speculates: b->paused, with this candidate but for n_early, update_time, groups_ahead,
 * keeps_logits and recomputes. Errors as ps_exec_plan_create; then there is none. */
PS_NODISCARD ps_status ps_exec_plan_add_paused(ps_exec_plan *b, const ps_budgets *budgets, ps_candidate candidate,
                                               ps_deadline *deadline);
void ps_exec_plan_drop_paused(ps_exec_plan *b);

/* Limits for the search of a chunk size, in elements: ps_chunk_limits. With several ranks a tensor that is updated as a
 * whole is in one chunk, and thus of one rank. */
int64_t ps_exec_plan_max_chunk_elements(const ps_settings *s, const ps_program *program, const ps_budgets *budgets);
int64_t ps_exec_plan_min_chunk_elements(const ps_settings *s, const ps_program *program);

/* The size to use within limits, as ps_layout_search. */
PS_NODISCARD ps_status ps_exec_plan_search_chunk_elements(const ps_settings *s, const ps_program *program,
                                                          int64_t min_elements, int64_t max_elements,
                                                          int64_t *chunk_elements);

/* True when the disk or the host can hold all chunks, or the device all of them in addition to the rest. Then each
 * chunk can leave a tier at any time, and moments that fit in the trial, which begins with creating parameters, fit
 * from any initial residency. */
bool ps_exec_plan_fits_from_anywhere(const ps_exec_plan *b, const ps_budgets *budgets);

/* Does this rank own the chunk? A single rank owns all. */
static inline bool ps_exec_plan_owns(const ps_exec_plan *b, int32_t chunk)
{
    return ps_ranks_owns(&b->settings->ranks, chunk);
}

/* Is the chunk one of trained parameters? Others are in PARAM16 alone, and have no update. */
static inline bool ps_exec_plan_trains(const ps_exec_plan *b, int32_t chunk)
{
    return chunk < b->layout->n_mirrored;
}

/* Is there a list of sums in addition to that of gradients? With several ranks each micro-batch's gradients are reduced
 * before they are added to the sum: otherwise the sum would depend on which rank owns it. */
static inline bool ps_exec_plan_has_separate_sums(const ps_exec_plan *b)
{
    return ps_lists_exists(&b->lists, ps_lists_grad_sum(&b->lists));
}

/* Does chunk `index` of the list exist? */
static inline bool ps_exec_plan_has_chunk(const ps_exec_plan *b, ps_list list, int32_t index)
{
    if (index >= ps_lists_length(&b->lists, b->layout, list)) return false;
    if (ps_lists_is_standalone(&b->lists, list)) return true;
    if (!ps_lists_exists(&b->lists, list) || list < PS_LIST_STATES) return ps_lists_exists(&b->lists, list);
    if (list < ps_lists_grad(&b->lists)) return b->chunk_states[index] >> (list - PS_LIST_STATES) & 1;
    return list == ps_lists_kept_grad(&b->lists) ? b->overwrites[index] : b->uses_grad_list[index];
}

/* The standalone chunk that an instruction offloads a value to, or fetches it from. */
static inline ps_chunk_id ps_exec_plan_offload_chunk(const ps_exec_plan *b, const ps_instr *instr)
{
    return ps_store_chunk(b->layout, b->lists.n, instr->offload_index);
}

/* The list from which an update reads gradients when they do not overwrite their parameters. */
static inline ps_list ps_exec_plan_sums(const ps_exec_plan *b)
{
    return ps_exec_plan_has_separate_sums(b) ? ps_lists_grad_sum(&b->lists) : ps_lists_grad(&b->lists);
}

/* Does the tensor's gradient overwrite it? */
static inline bool ps_exec_plan_overwrites(const ps_exec_plan *b, int32_t tensor)
{
    return b->code->grad_overwrites_param[tensor] && !ps_settings_separates_gradients(b->settings);
}

/* The list of gradients in the parameters' type: PARAM16, or GRAD16 where nothing may overwrite that. */
static inline ps_list ps_exec_plan_narrow_grad(const ps_exec_plan *b)
{
    return ps_settings_separates_gradients(b->settings) ? ps_lists_kept_grad(&b->lists) : PS_LIST_PARAM16;
}

/* Has GRAD16 this chunk? */
static inline bool ps_exec_plan_has_grad16(const ps_exec_plan *b, int32_t chunk)
{
    return ps_settings_separates_gradients(b->settings) && b->overwrites[chunk];
}

/* For a trained tensor: the list to which operators write its gradient, and the one from which its update reads it. */
static inline ps_list ps_exec_plan_grad_list(const ps_exec_plan *b, int32_t tensor)
{
    return b->code->grad_overwrites_param[tensor] ? ps_exec_plan_narrow_grad(b) : ps_lists_grad(&b->lists);
}

static inline ps_list ps_exec_plan_sum_list(const ps_exec_plan *b, int32_t tensor)
{
    return b->code->grad_overwrites_param[tensor] ? ps_exec_plan_narrow_grad(b) : ps_exec_plan_sums(b);
}

/* The tier on which operators of the node read its parameters. */
ps_tier ps_exec_plan_param_tier(const ps_exec_plan *b, const ps_node *n);

/* Bytes of a payload, in whole pages of the device. */
static inline int64_t ps_exec_plan_chunk_bytes(const ps_exec_plan *b, ps_list list)
{
    return ps_payload_bytes(b->settings, b->layout, &b->lists, list);
}

/* Bytes of the chunks of all lists, in whole pages: what the disk needs so that each has a place there. */
int64_t ps_exec_plan_all_chunk_bytes(const ps_exec_plan *b);

/* The disk budget with which it keeps the optimizer data of n chunks over an early update. */
int64_t ps_exec_plan_keeping_bytes(const ps_exec_plan *b, int32_t n);

/* Could an execution plan of these chunks speculate, in either way that the settings allow: has the disk room to keep
 * something? */
bool ps_exec_plan_may_speculate(const ps_exec_plan *b, const ps_budgets *budgets);

/* Where settings->wants_speculation, and the disk cannot keep anything: the reason and what it needs, for a person; else
 * "". Returns text. */
const char *ps_exec_plan_why_not_speculating(const ps_exec_plan *b, const ps_budgets *budgets,
                                             char text[PS_SPECULATION_TEXT_MAX]);

/* Bytes of the chunks that a moment uses on the device or the host; on the device with the groups gathered then. */
int64_t ps_exec_plan_wanted_bytes(const ps_exec_plan *b, int32_t moment, ps_tier tier);

/* Bytes of all lists together, of all ranks, without chunk padding. */
int64_t ps_exec_plan_model_data_bytes(const ps_exec_plan *b);

/* The store options of this candidate. */
ps_store_options ps_exec_plan_store_options(const ps_exec_plan *b);

/* The model state of the execution plan, over tiers that were opened for it. */
static inline ps_model_state ps_exec_plan_state(const ps_exec_plan *b, const ps_tiers *tiers)
{
    return (ps_model_state){.settings = b->settings,
                            .layout = b->layout,
                            .lists = &b->lists,
                            .pieces = &b->pieces,
                            .chunk_states = b->chunk_states,
                            .tiers = tiers,
                            .update_tier = b->update_tier,
                            .stored = b->stored};
}

/* Is its gradient, or a part of it, in KEPT_GRAD between an early update and the end of the step? */
static inline bool ps_exec_plan_keeps_grad(const ps_exec_plan *b, int32_t chunk)
{
    return b->speculates && !b->candidate.recomputes && !ps_settings_separates_gradients(b->settings) &&
           b->is_early[chunk] && b->overwrites[chunk];
}

/* The arguments of ps_tiers_open for carrying out the execution plan within these budgets; the caller adds `simulated`
 * and `profile`. */
ps_tiers_desc ps_exec_plan_tiers(const ps_exec_plan *b, const ps_budgets *budgets);

#endif
