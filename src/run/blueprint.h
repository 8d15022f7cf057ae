/* blueprint.h - all of a step that is fixed before the first one: program, code, chunk layout, where updates run, the
 * trace and the schedule. It holds no payload and no device, so a trial and the real run share it. */
#ifndef PS_RUN_BLUEPRINT_H
#define PS_RUN_BLUEPRINT_H

#include "base/deadline.h"
#include "graph/code.h"
#include "run/span.h"
#include "settings/settings.h"
#include "state/placement.h"
#include "state/state.h"

/* Which of a rank's chunks are updated in device memory, when not all are. */
typedef enum ps_resident_choice {
    PS_RESIDENT_FIRST,  /* those used first */
    PS_RESIDENT_SPREAD, /* evenly among the others, whose copies run while these are updated */
    PS_RESIDENT_LAST,   /* those used last */
} ps_resident_choice;

/* When a step's updates run. */
typedef enum ps_update_time {
    PS_UPDATE_AFTER,    /* all behind the backward pass */
    PS_UPDATE_DEFERRED, /* each chunk's before the next forward pass first uses it */
    PS_UPDATE_EARLY,    /* each chunk's within the last backward pass of the step, when that has used it last */
} ps_update_time;

/* n_resident of a variant: as many as the margin holds. */
#define PS_RESIDENT_ALL INT32_MAX

/* Ways to run the same step, each with its need of memory and its duration. The bits are the same. */
typedef struct ps_variant {
    ps_update_time update_time;
    int32_t lead;       /* deferred: updated while so many chunks before it are still unused, to be back in time */
    int32_t ahead;      /* groups gathered ahead of use: ps_spans_find */
    int32_t n_resident; /* chunks that stay in device memory for their updates, at most; fewer where the margin ends */
    ps_resident_choice resident;
    int32_t n_streamed; /* of the chunks kept on the host, spread evenly, that pass through the device to be updated */
    int32_t depth;      /* doublings of memory.prefetch; negative: halvings */
    bool hurries;       /* loads for the next step push out what the disk has to write first */
    bool keeps_logits;  /* where the plan leaves the choice (ps_code.keeping) */
} ps_variant;

/* Program and code do not depend on budgets: made once, and shared by all blueprints that are tried. */
typedef struct ps_blueprint {
    const ps_settings *settings;
    const ps_program *program;
    const ps_code *code; /* that of the variant */

    ps_layout *layout;
    ps_lists lists;
    ps_pieces pieces;
    bool *decays;               /* [program->n_params] weight decay applies */
    bool *uses_grad_list;       /* [n_chunks] holds tensors whose gradients may not overwrite them */
    ps_tier *update_tier;       /* [n_chunks] where the chunk's update runs */
    int32_t n_margin;           /* so many of this rank's chunks could keep their optimizer data in the device margin */
    int32_t n_resident_updates; /* so many do */
    int32_t n_kept_on_host;     /* of the others, so many keep it in host memory */
    ps_spans spans;             /* with several ranks */
    int32_t *span_moment;       /* [accumulation * spans.n] moment at which a span's group is gathered */
    ps_variant variant;
    int32_t *instr_moment;  /* [accumulation * n_instrs] moment of each instruction */
    int32_t *update_moment; /* [n_chunks] moment of each update; -1: another rank's */
    int32_t *ready_after;   /* [n_chunks] instruction of the backward pass after which nothing there uses the chunk, and
                               its gradients are whole, over all ranks; -1: another rank's, or unused there */
    int32_t *update_order;  /* [n_ordered] this rank's chunks in the order of their updates */
    int32_t *use_order;     /* [n_used] those that the forward pass uses, in the order of their first uses */
    int32_t *use_position;  /* [n_chunks] index in use_order; -1: not in it */
    int32_t n_used;
    int32_t n_ordered;
    ps_trace *trace;
    int64_t *wanted_bytes; /* [n_moments * PS_RAM_TIER_COUNT] ps_blueprint_wanted_bytes */
    ps_schedule *schedule;
} ps_blueprint;

/* budgets may differ from those in settings. chunk_elements is as for ps_layout_create. settings, program and code must
 * outlive the blueprint.
 *
 * variant.update_time: deferred updates are moments between those of the forward pass, each before the first use of its
 * chunk, so that optimizer data moves while forward and backward compute. The bits are those of updates after the
 * backward pass: clipping and overflow are known when it has ended, and nothing reads a parameter in between. Early
 * ones are moments between those of the last micro-batch's backward pass, each after the last use of its chunk: their
 * bits are the same where an update needs nothing that is known only later (ps_settings.may_update_early).
 *
 * deadline: PS_EBUDGET when time is up before the step is recorded; NULL: no limit. */
PS_NODISCARD ps_status ps_blueprint_create(const ps_settings *settings, const ps_program *program, const ps_code *code,
                                           const ps_budgets *budgets, int64_t chunk_elements, ps_variant variant,
                                           ps_deadline *deadline, ps_blueprint **out);
void ps_blueprint_destroy(ps_blueprint *b); /* NULL is accepted */

/* Limits for the search of a chunk size, in elements: ps_chunk_limits. */
int64_t ps_blueprint_max_chunk_elements(const ps_settings *s, const ps_program *program, const ps_budgets *budgets);
int64_t ps_blueprint_min_chunk_elements(const ps_settings *s, const ps_program *program);

/* The size to use within limits, as ps_layout_search. */
PS_NODISCARD ps_status ps_blueprint_search_chunk_elements(const ps_settings *s, const ps_program *program,
                                                          int64_t min_elements, int64_t max_elements,
                                                          int64_t *chunk_elements);

/* True when the disk or the host can hold all chunks, or the device all of them beside the rest. Then each chunk can
 * leave a tier at any time, and moments that fitted in the trial, which begins with creating parameters, fit from
 * wherever chunks are at first. */
bool ps_blueprint_fits_from_anywhere(const ps_blueprint *b, const ps_budgets *budgets);

/* Is the chunk this rank's? All are when it is the only one. */
static inline bool ps_blueprint_owns(const ps_blueprint *b, int32_t chunk)
{
    return ps_ranks_owns(&b->settings->ranks, chunk);
}

/* Is the chunk one of trained parameters? Others are in PARAM16 alone, and have no update. */
static inline bool ps_blueprint_trains(const ps_blueprint *b, int32_t chunk)
{
    return chunk < b->layout->n_mirrored;
}

/* Is there a list of sums beside that of gradients? With several ranks each micro-batch's gradients are reduced before
 * they are added to the sum: else it would depend on which rank owns it. */
static inline bool ps_blueprint_sums_apart(const ps_blueprint *b)
{
    return b->lists.list[ps_lists_grad_sum(&b->lists)].item_bytes > 0;
}

/* Does chunk `index` of the list exist? */
static inline bool ps_blueprint_has_chunk(const ps_blueprint *b, ps_list list, int32_t index)
{
    if (index >= ps_lists_length(&b->lists, b->layout, list)) return false;
    if (ps_lists_is_apart(&b->lists, list)) return true;
    const bool of_gradients = list >= ps_lists_grad(&b->lists);
    return b->lists.list[list].item_bytes > 0 && (!of_gradients || b->uses_grad_list[index]);
}

/* The chunk apart that an instruction puts a value into, or takes it from. */
static inline ps_chunk_id ps_blueprint_aside(const ps_blueprint *b, const ps_instr *instr)
{
    return ps_store_chunk(b->layout, b->lists.n, instr->aside);
}

/* The list that an update reads gradients from when they do not lie over their parameters. */
static inline ps_list ps_blueprint_sums(const ps_blueprint *b)
{
    return ps_blueprint_sums_apart(b) ? ps_lists_grad_sum(&b->lists) : ps_lists_grad(&b->lists);
}

/* Of a trained tensor: the list to which operators write its gradient, and the one from which its update reads it. */
static inline ps_list ps_blueprint_grad_list(const ps_blueprint *b, int32_t tensor)
{
    return b->code->grad_overwrites_param[tensor] ? PS_LIST_PARAM16 : ps_lists_grad(&b->lists);
}

static inline ps_list ps_blueprint_sum_list(const ps_blueprint *b, int32_t tensor)
{
    return b->code->grad_overwrites_param[tensor] ? PS_LIST_PARAM16 : ps_blueprint_sums(b);
}

/* Where operators of the node find its parameters. */
ps_tier ps_blueprint_param_tier(const ps_blueprint *b, const ps_node *n);

/* Bytes of a payload, in whole pages of the device's. */
static inline int64_t ps_blueprint_chunk_bytes(const ps_blueprint *b, ps_list list)
{
    return ps_payload_bytes(b->settings, b->layout, &b->lists, list);
}

/* Bytes of the chunks that a moment wants on the device or the host; on the device with the groups that are gathered then. */
int64_t ps_blueprint_wanted_bytes(const ps_blueprint *b, int32_t moment, ps_tier tier);

/* Bytes of all lists together, of all ranks, without chunk padding. */
int64_t ps_blueprint_model_data_bytes(const ps_blueprint *b);

/* Chunk loads kept under way ahead of use. */
int32_t ps_blueprint_prefetch(const ps_blueprint *b);

/* What is trained, over tiers that were opened for the blueprint. */
static inline ps_model_state ps_blueprint_state(const ps_blueprint *b, const ps_tiers *tiers)
{
    return (ps_model_state){.settings = b->settings,
                            .layout = b->layout,
                            .lists = &b->lists,
                            .pieces = &b->pieces,
                            .tiers = tiers,
                            .update_tier = b->update_tier};
}

/* What ps_tiers_open needs to carry the blueprint out within these budgets; the caller adds `simulated` and
 * `profile`. */
ps_tiers_options ps_blueprint_tiers(const ps_blueprint *b, const ps_budgets *budgets);

#endif
