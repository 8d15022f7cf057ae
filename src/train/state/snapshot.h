/* snapshot.h - masters and the optimizer's states of all chunks after one update, passed to a sink while training
 * continues.
 *
 * Updates may be deferred: when a snapshot begins after step n, some chunks still wait for update n. Each chunk is
 * passed on at an update, when its lists are in memory anyway, so a snapshot moves no chunk:
 *
 *     update n still pending    apply update n, then pass on
 *     update n done             pass on, then apply update n + 1
 *
 * Chunks of parameters that are not trained, whose values are in PARAM16, are passed on in the next forward pass, while
 * operators read them.
 *
 * Chunks of nothing but tensors that are left out of checkpoints (is_left_out) are not passed on.
 *
 * Chunks that are left when the snapshot must end are read on their current tiers. Independent of files: see the
 * sink. */
#ifndef PS_STATE_SNAPSHOT_H
#define PS_STATE_SNAPSHOT_H

#include "train/state/state.h"

/* The receiver of pieces. Trained chunks come in the order of updates, a chunk's pieces in theirs, each with its values
 * in MASTER and in the states one after the other; those that ps_snapshot_finish reads come list by list instead.
 * Values of chunks that are not trained, which come at any time, are passed as if they were in MASTER. */
typedef struct ps_snapshot_sink {
    /* n values of a tensor from `offset` on, stored as `item` says, in whole groups; valid during the call */
    void (*take)(void *user, ps_list list, ps_item item, int32_t tensor, int64_t offset, const void *values, int64_t n);
    void (*end)(void *user); /* that was the last piece */
    void *user;
} ps_snapshot_sink;

/* When a chunk is passed on: at its next update, before or after the arithmetic. */
typedef enum ps_snapshot_when { PS_SNAPSHOT_DONE, PS_SNAPSHOT_BEFORE, PS_SNAPSHOT_AFTER } ps_snapshot_when;

typedef struct ps_snapshot {
    ps_snapshot_sink sink;
    uint8_t *when;  /* [n_chunks] ps_snapshot_when; NULL: no snapshot in progress */
    int32_t n_left; /* chunks of this rank that are not passed on yet */
} ps_snapshot;

static inline bool ps_snapshot_is_under_way(const ps_snapshot *x)
{
    return x->when != NULL;
}

/* Begin one between steps; none may be in progress. pending: [n_chunks] an update is decided, but not carried out on
 * the chunk; NULL: on none. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_snapshot_begin(ps_snapshot *x, const ps_model_state *s, const bool *pending,
                                         const ps_snapshot_sink *sink);
/* Called by the update of a chunk, its lists pinned on the tier: with PS_SNAPSHOT_BEFORE ahead of the arithmetic, with
 * PS_SNAPSHOT_AFTER after it. Fails only where the values must be copied off a device. */
PS_NODISCARD ps_status ps_snapshot_visit(ps_snapshot *x, const ps_model_state *s, int32_t chunk, ps_tier tier,
                                         ps_snapshot_when when);
/* Called by a forward pass of training: a chunk of this rank's that is not trained is pinned on this tier. */
PS_NODISCARD ps_status ps_snapshot_visit_frozen(ps_snapshot *x, const ps_model_state *s, int32_t chunk, ps_tier tier);
/* To be called before anything but an update changes the chunk: if this rank owns it and it is not passed on yet, it is
 * read now, on its current tier. Not while an update is pending on it. Errors as ps_view_open. */
PS_NODISCARD ps_status ps_snapshot_take(ps_snapshot *x, const ps_model_state *s, int32_t chunk);
/* Between steps, when no update is pending: read the rest, this rank's trained chunks in this order [n], and call the
 * sink's end. Does nothing when no snapshot is in progress. After a failure of a tier it is still in progress. */
PS_NODISCARD ps_status ps_snapshot_finish(ps_snapshot *x, const ps_model_state *s, const int32_t *order, int32_t n);
/* Cancel: the sink is not called any more. */
void ps_snapshot_drop(ps_snapshot *x);

#endif
