/* group_collectives.h - with several ranks: parameters of groups of chunks (chunk_groups.h) are gathered from their
 * owners, and gradients are reduced to them.
 *
 * Messages use memory that the host can access; for other devices payloads go through copy queues and staging memory,
 * or NCCL transfers them from GPU to GPU. Each collective is on the store's timeline with its estimated duration; with
 * payloads it is also carried out. */
#ifndef PS_STATE_GROUP_COLLECTIVES_H
#define PS_STATE_GROUP_COLLECTIVES_H

#include "train/state/chunk_groups.h"
#include "train/state/state.h"

/* A collective in flight (MPI_Request; Work of torch.distributed). */
typedef struct ps_group_request {
    int64_t done_ns; /* on the timeline */
    ps_event done;
} ps_group_request;

typedef struct ps_group_collectives {
    const ps_model_state *s;
    ps_comm *comm;         /* NULL: nothing is sent */
    ps_queue *queue;       /* of NCCL; NULL: messages are used */
    ps_comm_device copies; /* for messages, where the host cannot access the device; else empty */
    ps_queue *simulated;   /* in a trial whose order or time is checked: collectives are items of it */
    ps_comm_part *parts;   /* [n_parts] scratch: for the next collective */
    int32_t n_parts, next_piece;
    ps_group_request last; /* the latest */
} ps_group_collectives;

/* The part that this rank does alone; sends: false in a trial. *x is empty before, must not move, and is to be closed
 * even after a failure. The state must outlive it. */
PS_NODISCARD ps_status ps_group_collectives_open(ps_group_collectives *x, const ps_model_state *s, bool sends);
/* The second part, which all ranks call: initialises NCCL, where it is used. */
PS_NODISCARD ps_status ps_group_collectives_join(ps_group_collectives *x);
/* Waits for collectives in flight. An empty one is accepted. */
void ps_group_collectives_close(ps_group_collectives *x);

/* Begin an all-gather: every rank gets all chunks of PARAM16 of the group, which are pinned on the device. It comes
 * after everything issued to the device's queue so far. only_if NULL: without a condition. A rank that already knows
 * that the condition will not hold passes a group of no chunks. */
PS_NODISCARD ps_status ps_group_begin_gather(ps_group_collectives *x, ps_chunk_group g,
                                             const ps_transfer_condition *only_if, ps_group_request *out);

/* The next reduction includes the gradient of piece number `piece`, in this list. In the order of pieces, all of one
 * group. */
void ps_group_add_gradient(ps_group_collectives *x, ps_list list, int32_t piece);
static inline bool ps_group_has_gradients(const ps_group_collectives *x)
{
    return x->n_parts > 0;
}
/* Begin: the owner of each of these gets its sum over all ranks. Their chunks of the list are pinned on the device.
 * Adjacent pieces become one part, with the padding between them. */
PS_NODISCARD ps_status ps_group_begin_reduction(ps_group_collectives *x, ps_chunk_group g, ps_list list,
                                                ps_group_request *out);

/* Computing issued from now on comes after it. The host waits, unless the device is asynchronous. */
PS_NODISCARD ps_status ps_group_wait(ps_group_collectives *x, const ps_group_request *c);
/* The host waits until no payload is accessed any more, also after a failure. */
PS_NODISCARD ps_status ps_group_synchronize(ps_group_collectives *x, const ps_group_request *c);

#endif
