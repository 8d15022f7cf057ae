/* span.h - with several ranks: which groups of chunks are gathered when, and released when.
 *
 * In each phase a group (state/group_collectives.h) is gathered before the first operator that touches it and held until
 * the last:
 *
 *     instruction    ...  gather_at ..... first =========== last ..... release_at ...
 *     forward             all-gather --> |  operators read  |  others' chunks are dropped
 *     backward            all-gather --> |  gradients overwrite  | reduce-scatter --> others' chunks are dropped
 *
 * Chunks of parameters that are not trained are only read backward.
 *
 * What stands here is the same on all ranks: each calls the same collectives in the same order. */
#ifndef PS_RUN_SPAN_H
#define PS_RUN_SPAN_H

#include "chunk/layout.h"
#include "comm/chunk_ranks.h"
#include "graph/code.h"
#include "state/group_collectives.h"

typedef struct ps_span {
    int32_t chunk, n_chunks;                    /* the group */
    int32_t gather_at, first, last, release_at; /* instructions */
    bool is_backward;
    bool reduces; /* backward, of trained parameters: their gradients are summed over the ranks */
} ps_span;

typedef enum ps_span_event_kind {
    PS_SPAN_GATHER,  /* before the instruction: begin the all-gather */
    PS_SPAN_AWAIT,   /* before it: wait for it */
    PS_SPAN_REDUCE,  /* after it: begin the reduce-scatter */
    PS_SPAN_RELEASE, /* after it: wait for that, drop the others' chunks */
} ps_span_event_kind;

typedef struct ps_span_event {
    int32_t instr, span;
    ps_span_event_kind kind;
} ps_span_event;

typedef struct ps_spans {
    ps_span *spans; /* [n] by first */
    int32_t n;
    ps_span_event *events; /* [n_events] in the order in which they happen */
    int32_t n_events;
} ps_spans;

/* ahead: while operators run on one group, the one so many after it is being gathered, and the one before it reduced.
 * This takes the memory of `ahead` groups more, and of one more in the backward pass. 0: gathered when it is needed,
 * reduced at once. */
PS_NODISCARD ps_status ps_spans_find(const ps_program *program, const ps_code *code, const ps_layout *layout,
                                     const ps_ranks *ranks, int32_t ahead, ps_spans *out);
void ps_spans_deinit(ps_spans *s);

#endif
