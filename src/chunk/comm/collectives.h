/* collectives.h - the interface between a step and the implementation of its collectives: operations on groups of
 * payloads, issued now and done later.
 *
 *     computing      |== op ==|== op ==|== op ==|.wait.|== op ==|
 *     collectives    |== all-gather 3 ===|== reduce-scatter 1 =====|
 *
 * Every rank issues the same collectives in the same order, and they are carried out in this order. A collective
 * accesses its payloads from when the events that it comes after are done, until its own event is done, for which other
 * queues and the host may wait. Payloads must stay valid until then; parts that are not written on this rank may be
 * read by others.
 *
 * Sums do not depend on timing or on the implementation: values of ranks 0, 1, ... p - 1 are added in this order in
 * fp32 and rounded once. Nothing is limited to 2^31 elements.
 *
 * A communicator (comm.h) has one: messages between ranks, or the implementation for a single rank; or it is given
 * another. One thread issues. */
#ifndef PS_COMM_COLLECTIVES_H
#define PS_COMM_COLLECTIVES_H

#include "base/dtype.h"
#include "device/queue.h"

typedef struct ps_collectives ps_collectives;

/* Part of a group: a payload with room for n elements on every rank, owned by one of them. */
typedef struct ps_comm_part {
    void *payload; /* n elements */
    int64_t n;     /* >= 0, equal on all ranks */
    int32_t owner;
} ps_comm_part;

/* A collective with a condition is made only if it holds, which is evaluated once all collectives before it are done.
 * The answer follows from what these have transferred, and is the same on all ranks: either all make it, or none
 * does. */
typedef struct ps_transfer_condition {
    bool (*holds)(const void *arg); /* on any thread */
    const void *arg;
    ps_event known; /* the transfer by messages that it depends on */
} ps_transfer_condition;

typedef struct ps_transfer {
    const ps_comm_part *parts; /* [n_parts]; copied */
    int32_t n_parts;
    ps_dtype dtype;
    bool on_device;                       /* payloads are in device memory (ps_comm_set_device), else in host memory */
    const char *what;                     /* its name in errors; must outlive the transfer */
    const ps_events *after;               /* copied; their queues must outlive the transfer. NULL: nothing */
    const ps_transfer_condition *only_if; /* copied; arg must outlive the transfer. NULL: it is made */
} ps_transfer;

typedef struct ps_collectives_ops {
    /* Begin the operation; *done: its event. */
    ps_status (*all_gather)(ps_collectives *x, const ps_transfer *t, ps_event *done);
    ps_status (*broadcast)(ps_collectives *x, const ps_transfer *t, ps_event *done); /* all parts have one owner */
    ps_status (*reduce_scatter)(ps_collectives *x, const ps_transfer *t, ps_event *done);
    ps_status (*reduce)(ps_collectives *x, const ps_transfer *t, ps_event *done); /* all parts have one owner */
    ps_status (*all_reduce)(ps_collectives *x, const ps_transfer *t, ps_event *done);
    /* The host waits for a transfer and all before it. Waiting for the event alone would not notice a hanging
     * network. */
    ps_status (*wait)(ps_collectives *x, ps_event done);
    /* This rank has failed: waits, here and on other ranks, return PS_ECOMM with the reason as far as it is known
     * there, and payloads are no longer accessed. */
    void (*fail)(ps_collectives *x, const char *text);
    /* Completes all issued operations, unless it failed. */
    void (*destroy)(ps_collectives *x);
} ps_collectives_ops;

/* First member of every implementation. */
struct ps_collectives {
    const ps_collectives_ops *ops;
};

/* Every rank gets every part from its owner; a broadcast if all parts have one owner. */
PS_NODISCARD ps_status ps_collectives_gather(ps_collectives *x, const ps_transfer *t, ps_event *done);
/* The owner of each part gets its sum over all ranks; the values on other ranks are undefined afterwards. A reduce if
 * all parts have one owner. */
PS_NODISCARD ps_status ps_collectives_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done);
/* Every rank gets the sum of every part, the same bits. Owners share the work. */
PS_NODISCARD ps_status ps_collectives_all_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done);
PS_NODISCARD ps_status ps_collectives_wait(ps_collectives *x, ps_event done);

/* The one rank that all parts with elements belong to, or -1. */
int32_t ps_comm_one_owner(const ps_comm_part *parts, int32_t n_parts);
/* Elements that a rank sends. Gathering: its parts to each of the others; in a group of one owner, all of them to the
 * next rank, unless that is the owner. Reduction: parts of others to their owners. */
int64_t ps_comm_gathering_sends(const ps_comm_part *parts, int32_t n_parts, int32_t rank, int32_t size);
int64_t ps_comm_reduction_sends(const ps_comm_part *parts, int32_t n_parts, int32_t rank);

#endif
