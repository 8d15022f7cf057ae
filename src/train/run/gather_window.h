/* gather_window.h - with several ranks: when each group of chunks is gathered and released.
 *
 * In each phase a group (train/state/chunk_groups.h) is gathered before the first operator that uses it and held until
 * the last:
 *
 *     instruction    ...  gather_at ..... first =========== last ..... release_at ...
 *     forward             all-gather --> |  operators read  |  others' chunks are dropped
 *     backward            all-gather --> |  gradients overwrite  | reduce-scatter --> others' chunks are dropped
 *
 * Chunks of parameters that are not trained are only read backward.
 *
 * The windows are the same on all ranks: each calls the same collectives in the same order. */
#ifndef PS_RUN_GATHER_WINDOW_H
#define PS_RUN_GATHER_WINDOW_H

#include "chunk/comm/chunk_ranks.h"
#include "chunk/layout.h"
#include "train/graph/code.h"
#include "train/state/chunk_groups.h"

typedef struct ps_gather_window {
    int32_t chunk, n_chunks;                    /* the group */
    int32_t gather_at, first, last, release_at; /* instructions */
    bool is_backward;
    bool reduces; /* backward, of trained parameters: their gradients are summed over the ranks */
} ps_gather_window;

typedef enum ps_gather_event_kind {
    PS_GATHER_BEGIN,   /* before the instruction: begin the all-gather */
    PS_GATHER_WAIT,    /* before it: wait for it */
    PS_GATHER_REDUCE,  /* after it: begin the reduce-scatter */
    PS_GATHER_RELEASE, /* after it: wait for that, drop the others' chunks */
} ps_gather_event_kind;

typedef struct ps_gather_event {
    int32_t instr, window;
    ps_gather_event_kind kind;
} ps_gather_event;

typedef struct ps_gather_windows {
    ps_gather_window *windows; /* [n] by first */
    int32_t n;
    ps_gather_event *events; /* [n_events] in the order in which they happen */
    int32_t n_events;
} ps_gather_windows;

/* ahead: while operators run on one group, the one so many after it is being gathered, and the one before it reduced.
 * This needs the memory of `ahead` more groups, and of one more in the backward pass. 0: gathered when needed, reduced
 * at once. */
PS_NODISCARD ps_status ps_gather_windows_find(const ps_program *program, const ps_code *code, const ps_layout *layout,
                                              const ps_ranks *ranks, int32_t ahead, ps_gather_windows *out);
void ps_gather_windows_deinit(ps_gather_windows *s);

#endif
