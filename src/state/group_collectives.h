/* group_collectives.h - with several ranks: the parameters of groups of chunks go from their owners to all ranks, and
 * gradients to the owners.
 *
 * Chunk i belongs to rank i mod p. A group is p consecutive chunks, one of each rank (one chunk, with memory-saving
 * communication); chunks of parameters that are not trained (ps_layout.n_mirrored) have groups of their own.
 *
 * Messages go from and to memory that the host can touch; of other devices they go by queues of copies and staging
 * memory, or NCCL brings them from GPU to GPU. Each collective stands on the store's timeline with its estimated time;
 * with payloads it also happens. */
#ifndef PS_STATE_GROUP_COLLECTIVES_H
#define PS_STATE_GROUP_COLLECTIVES_H

#include "state/state.h"

/* Chunks chunk .. chunk + n_chunks - 1. */
typedef struct ps_chunk_group {
    int32_t chunk, n_chunks;
} ps_chunk_group;

int32_t ps_group_count(const ps_layout *l, const ps_ranks *ranks);
int32_t ps_group_of_chunk(const ps_layout *l, const ps_ranks *ranks, int32_t chunk);
ps_chunk_group ps_group_at(const ps_layout *l, const ps_ranks *ranks, int32_t group);

typedef struct ps_group_collectives {
    const ps_model_state *s;
    ps_comm *comm;         /* NULL: nothing is sent */
    ps_queue *exchange;    /* by which NCCL brings chunks from rank to rank; NULL: messages do */
    ps_comm_device copies; /* for messages, where the host cannot touch the device; else empty */
    ps_queue *simulated;   /* in a trial whose order or time is checked: collectives are items of it */
    ps_comm_part *parts;   /* [n_parts] scratch: of the next collective */
    int32_t n_parts, next_piece;
} ps_group_collectives;

/* One that is under way (MPI_Request; Work of torch.distributed). */
typedef struct ps_group_collective {
    int64_t done_ns; /* on the timeline */
    ps_event done;
} ps_group_collective;

/* What this rank does alone of it; sends: false in a trial. *x is empty before, must stay where it is, and is to be
 * closed even after a failure. The state must outlive it. */
PS_NODISCARD ps_status ps_group_collectives_open(ps_group_collectives *x, const ps_model_state *s, bool sends);
/* The rest, which all ranks call: NCCL, where chunks go by it. */
PS_NODISCARD ps_status ps_group_collectives_join(ps_group_collectives *x);
/* When no collective is under way any more. An empty one is accepted. */
void ps_group_collectives_close(ps_group_collectives *x);

/* Begin: every rank gets all chunks of PARAM16 of the group, which are pinned on the device. What has been issued to the
 * device's queue so far comes before it. */
PS_NODISCARD ps_status ps_group_begin_gather(ps_group_collectives *x, ps_chunk_group g, ps_group_collective *out);

/* The next reduction has the gradient of piece number `piece`, which lies in this list. In the order of pieces, all of
 * one group. */
void ps_group_add_gradient(ps_group_collectives *x, ps_list list, int32_t piece);
static inline bool ps_group_has_gradients(const ps_group_collectives *x)
{
    return x->n_parts > 0;
}
/* Begin: the owner of each of these gets its sum over all ranks. Their chunks of the list are pinned on the device. Adjacent
 * pieces become one part, with the padding between them. */
PS_NODISCARD ps_status ps_group_begin_reduction(ps_group_collectives *x, ps_chunk_group g, ps_list list,
                                                ps_group_collective *out);

/* What is computed from now on comes after it. The host waits, unless the device works later. */
PS_NODISCARD ps_status ps_group_await(ps_group_collectives *x, const ps_group_collective *c);
/* The host waits until no payload is touched any more; after a failure none is. */
PS_NODISCARD ps_status ps_group_finish(ps_group_collectives *x, const ps_group_collective *c);

#endif
