/* collectives.h - the seam between a step and who carries its chunks from rank to rank: transfers of groups of
 * payloads, issued now and done later.
 *
 *     computing      |== op ==|== op ==|== op ==|.wait.|== op ==|
 *     transfers      |== all-gather 3 ===|== reduce-scatter 1 =====|
 *
 * Every rank issues the same transfers in the same order, and in this order they are carried out. A transfer touches
 * its payloads from when the events are done that it comes after, until its own event is done, which other queues and
 * the host may wait for. Payloads must stay until then; what is not written on this rank may be read by others.
 *
 * Sums do not depend on timing or on who carries: values of ranks 0, 1, ... p - 1 are added in this order in fp32 and
 * rounded once. Nothing is limited to 2^31 elements.
 *
 * A communicator (comm.h) has one: messages between ranks, or a rank alone; or it is given another. One thread issues.
 */
#ifndef PS_COMM_COLLECTIVES_H
#define PS_COMM_COLLECTIVES_H

#include "device/queue.h"
#include "tensor/dtype.h"

typedef struct ps_collectives ps_collectives;

/* Part of a group: a payload that has room for n elements on every rank, and belongs to one. */
typedef struct ps_comm_part {
    void *payload; /* n elements */
    int64_t n;     /* >= 0, equal on all ranks */
    int32_t owner;
} ps_comm_part;

typedef struct ps_transfer {
    const ps_comm_part *parts; /* [n_parts]; copied */
    int32_t n_parts;
    ps_dtype dtype;
    bool on_device;         /* payloads lie where those who compute have them (ps_comm_set_device), else the host's */
    const char *what;       /* names it in errors; must outlive the transfer */
    const ps_events *after; /* copied; their queues must outlive the transfer. NULL: nothing */
} ps_transfer;

typedef struct ps_collectives_ops {
    /* Begin; *done: its event. */
    ps_status (*all_gather)(ps_collectives *x, const ps_transfer *t, ps_event *done);
    ps_status (*broadcast)(ps_collectives *x, const ps_transfer *t, ps_event *done); /* all parts have one owner */
    ps_status (*reduce_scatter)(ps_collectives *x, const ps_transfer *t, ps_event *done);
    ps_status (*reduce)(ps_collectives *x, const ps_transfer *t, ps_event *done); /* all parts have one owner */
    ps_status (*all_reduce)(ps_collectives *x, const ps_transfer *t, ps_event *done);
    /* The host waits for a transfer and all before it. An event alone knows nothing of a network that hangs. */
    ps_status (*wait)(ps_collectives *x, ps_event done);
    /* This rank cannot go on: whoever waits, here or elsewhere, gets PS_ECOMM with the reason as far as it is known
     * there, and no payload is touched any more. */
    void (*fail)(ps_collectives *x, const char *text);
    /* Finishes what was begun, unless it failed. */
    void (*destroy)(ps_collectives *x);
} ps_collectives_ops;

/* First member of every implementation. */
struct ps_collectives {
    const ps_collectives_ops *ops;
};

/* Every rank gets every part as its owner has it; of one owner, a broadcast. */
PS_NODISCARD ps_status ps_collectives_gather(ps_collectives *x, const ps_transfer *t, ps_event *done);
/* The owner of each part gets its sum over all ranks; what others have is undefined afterwards. Of one owner, a
 * reduction to that rank. */
PS_NODISCARD ps_status ps_collectives_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done);
/* Every rank gets the sum of every part, the same bits. Owners share the work. */
PS_NODISCARD ps_status ps_collectives_all_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done);
PS_NODISCARD ps_status ps_collectives_wait(ps_collectives *x, ps_event done);

/* The one rank that all parts with elements belong to, or -1. */
int32_t ps_comm_one_owner(const ps_comm_part *parts, int32_t n_parts);
/* Elements that a rank sends. Gathering: its own to each of the others; in a group of one owner, all of them to the
 * next rank, unless that is the owner. Reduction: those of others to their owners. */
int64_t ps_comm_gathering_sends(const ps_comm_part *parts, int32_t n_parts, int32_t rank, int32_t size);
int64_t ps_comm_reduction_sends(const ps_comm_part *parts, int32_t n_parts, int32_t rank);

#endif
