/* blueprint.h - everything about a run that is fixed before its first step: program, plan, chunk layout, where updates
 * run, the trace and the schedule. It holds no payload and no device, so a trial run and the real one share it. */
#ifndef PS_RUN_BLUEPRINT_H
#define PS_RUN_BLUEPRINT_H

#include "graph/code.h"
#include "run/lists.h"
#include "run/span.h"
#include "run/tiers.h"
#include "settings/settings.h"

/* A stretch of one tensor inside one chunk: the unit of an update's arithmetic. */
typedef struct ps_piece {
    int32_t tensor;
    int64_t chunk_offset, tensor_offset, n; /* elements */
    bool decays;
} ps_piece;

/* Which of a rank's chunks are updated in device memory, when not all are. */
typedef enum ps_resident_choice {
    PS_RESIDENT_FIRST,  /* those used first */
    PS_RESIDENT_SPREAD, /* evenly between others, so that copies for those run meanwhile */
    PS_RESIDENT_LAST,
} ps_resident_choice;

/* As many as the margin holds. */
#define PS_RESIDENT_ALL INT32_MAX

/* Ways to run the same step, each with its need of memory and its duration. The bits are the same. */
typedef struct ps_variant {
    bool deferred;      /* each chunk is updated before the next forward pass first uses it */
    int32_t lead;       /* deferred: that many chunks before it has to be, so that it is back in time */
    int32_t ahead;      /* ps_spans_find */
    int32_t n_resident; /* updated in device memory, at most; what the margin does not hold is not */
    ps_resident_choice resident;
    bool keeps_logits; /* where the plan leaves the choice (ps_code.keeping) */
} ps_variant;

/* A model and its plan do not depend on budgets: built once, shared by all blueprints tried. */
typedef struct ps_blueprint {
    const ps_settings *settings;
    const ps_program *program;
    const ps_code *code; /* that of the variant */

    ps_layout *layout;
    ps_lists lists;
    ps_piece *pieces; /* by chunk: those of chunk i are [first_piece[i], first_piece[i + 1]) */
    int32_t *first_piece;
    bool *uses_grad_list;       /* [n_chunks] holds tensors whose gradients may not overwrite them */
    ps_tier *update_tier;       /* [n_chunks] where the chunk's update runs */
    int32_t n_margin;           /* optimizer chunks of this many fit the device margin */
    int32_t n_resident_updates; /* and of this many are there for good */
    ps_spans spans;             /* with several ranks */
    int32_t *span_moment;       /* [accumulation * spans.n] moment at which a group is gathered */
    ps_variant variant;
    int32_t *instr_moment;  /* [accumulation * n_instrs] moment of each instruction */
    int32_t *update_moment; /* [n_chunks] moment of each update */
    int32_t *update_order;  /* [n_chunks] chunks in the order of their updates */
    int32_t *use_order;     /* [n_used] this rank's chunks in the order in which the forward pass first uses them */
    int32_t *use_position;  /* [n_chunks] place in it; -1 */
    int32_t n_used;
    int32_t n_ordered; /* entries of update_order */
    ps_trace *trace;
    ps_schedule *schedule;
} ps_blueprint;

/* budgets may differ from those in settings. chunk_elements as ps_layout_create. All pointers must outlive it.
 *
 * variant.deferred: updates are moments between those of the forward pass, each before the first use of its chunk,
 * so that optimizer data moves while forward and backward compute; otherwise they follow the backward pass. The
 * bits are the same: clipping and overflow are known when the backward pass has ended, and nothing reads a
 * parameter in between. */
PS_NODISCARD ps_status ps_blueprint_create(const ps_settings *settings, const ps_program *program, const ps_code *code,
                                           const ps_budgets *budgets, int64_t chunk_elements, ps_variant variant,
                                           ps_blueprint **out);
void ps_blueprint_destroy(ps_blueprint *b); /* NULL is accepted */

/* Chunk size limits for the search under a device budget: small enough that several updates fit at once. */
int64_t ps_blueprint_max_chunk_elements(const ps_settings *s, const ps_program *program, const ps_budgets *budgets);
/* Below this many chunks are too many: each move and each look for a victim has a price. */
int64_t ps_blueprint_min_chunk_elements(const ps_settings *s, const ps_program *program);

/* Whether a disk or the host can hold all chunks, or the device need never be left. Then each chunk can leave a tier at
 * any time, and moments that fit in the trial from creation on fit from wherever chunks are at first. */
bool ps_blueprint_fits_from_anywhere(const ps_blueprint *b, const ps_budgets *budgets);

/* Chunks of this rank: all of them when it is the only one. */
static inline bool ps_blueprint_owns(const ps_blueprint *b, int32_t chunk)
{
    return ps_ranks_owns(&b->settings->ranks, chunk);
}

/* Micro-batches have gradients of their own, which are reduced over the ranks before they are added up: so that a sum
 * does not depend on which rank owns it. */
static inline bool ps_blueprint_sums_apart(const ps_blueprint *b)
{
    return b->lists.list[ps_lists_grad_sum(&b->lists)].item_bytes > 0;
}

/* Does chunk `index` of the list exist? */
static inline bool ps_blueprint_has_chunk(const ps_blueprint *b, ps_list list, int32_t index)
{
    const bool of_gradients = list >= ps_lists_grad(&b->lists);
    return b->lists.list[list].item_bytes > 0 && (!of_gradients || b->uses_grad_list[index]);
}

/* The list that an update reads gradients from, of those that do not lie over their parameters. */
static inline ps_list ps_blueprint_sums(const ps_blueprint *b)
{
    return ps_blueprint_sums_apart(b) ? ps_lists_grad_sum(&b->lists) : ps_lists_grad(&b->lists);
}

/* The list that holds a tensor's gradient, as operators write it; and as an update reads it. */
static inline ps_list ps_blueprint_grad_list(const ps_blueprint *b, int32_t tensor)
{
    return b->code->grad_overwrites_param[tensor] ? PS_LIST_PARAM16 : ps_lists_grad(&b->lists);
}

static inline ps_list ps_blueprint_sum_list(const ps_blueprint *b, int32_t tensor)
{
    return b->code->grad_overwrites_param[tensor] ? PS_LIST_PARAM16 : ps_blueprint_sums(b);
}

/* Bytes of the chunks that a moment wants on a tier, with the groups that are gathered then. */
int64_t ps_blueprint_wanted_bytes(const ps_blueprint *b, int32_t moment, ps_tier tier);

/* Bytes of all lists together, of all ranks, without chunk padding. */
int64_t ps_blueprint_model_data_bytes(const ps_blueprint *b);

/* What tiers of these budgets are opened with to carry it out; the caller adds where their memory is from, and who
 * looks on. */
ps_tiers_options ps_blueprint_tiers(const ps_blueprint *b, const ps_budgets *budgets);

#endif
