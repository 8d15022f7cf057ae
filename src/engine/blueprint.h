/* blueprint.h - everything about a run that is fixed before its first step: program, plan, chunk layout, where Adam runs,
 * the trace and the schedule. It holds no payload and no device, so a trial run and the real one share it. */
#ifndef PS_ENGINE_BLUEPRINT_H
#define PS_ENGINE_BLUEPRINT_H

#include "engine/settings.h"
#include "graph/plan.h"

/* A stretch of one tensor inside one chunk: the unit of Adam's arithmetic. */
typedef struct ps_piece {
    int32_t tensor;
    int64_t chunk_offset, tensor_offset, n; /* elements */
    bool decays;
} ps_piece;

/* A model and its plan do not depend on budgets: built once, shared by all blueprints tried. */
typedef struct ps_blueprint {
    const ps_settings *settings;
    const ps_program *program;
    const ps_plan *plan;

    ps_layout *layout;
    int32_t item_bytes[PS_LIST_COUNT];
    ps_piece *pieces; /* by chunk: those of chunk i are [first_piece[i], first_piece[i + 1]) */
    int32_t *first_piece;
    bool *uses_grad_list;    /* [n_chunks] holds tensors whose gradients may not overwrite them */
    ps_tier *adam_tier;      /* [n_chunks] where the chunk's update runs */
    int32_t n_adam_resident; /* optimizer chunks of this many fit the device margin */
    ps_trace *trace;
    ps_schedule *schedule;
} ps_blueprint;

/* budgets may differ from those in settings. chunk_elements as ps_layout_create. All pointers must outlive it. */
PS_NODISCARD ps_status ps_blueprint_create(const ps_settings *settings, const ps_program *program, const ps_plan *plan,
                                           const ps_budgets *budgets, int64_t chunk_elements, ps_blueprint **out);
void ps_blueprint_destroy(ps_blueprint *b); /* NULL is accepted */

/* Moments of a step: accumulation * plan->n_instrs, then one for each chunk's update. */
int32_t ps_blueprint_adam_begin(const ps_blueprint *b);

/* Chunk size limits for the search under a device budget: small enough that several updates fit at once. */
int64_t ps_blueprint_max_chunk_elements(const ps_settings *s, const ps_program *program, const ps_budgets *budgets);
#define PS_MIN_CHUNK_ELEMENTS ((int64_t)32768)

/* Bytes of all lists together, without chunk padding. */
int64_t ps_blueprint_model_data_bytes(const ps_blueprint *b);

#endif
