/* comm_impl.h - the communicator inside: state shared by the callers' thread and the worker, and state of the worker
 * alone.
 *
 *     caller                          worker (the only one to call the transport)            summing thread
 *     begin: queue a transfer    -->  runs the transfers in order, one at a time
 *                                     (collective.c); pieces received from all ranks -->  adds them
 *                                     pieces of a device  -->  its queues copy them to staging memory, and from there
 *     wait, events               <--  done, or failure                                   <--  done
 *     fail, close                -->  exchanges heartbeats meanwhile (heartbeat.c)
 *
 * Every rank sends every other a heartbeat, each heartbeat_ns. The worker ends in one of three ways: `failed` (a
 * failure here or on another rank; notices were sent), `closed` (in order), or `vanished` (without a notice, for
 * tests). In each case the transport is closed, and sums and copies are finished before callers are informed, so that
 * their buffers are no longer accessed.
 *
 * A transfer has one number, its ticket: here, and on the host queue that provides its event. */
#ifndef PS_COMM_COMM_IMPL_H
#define PS_COMM_COMM_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/leftover.h"
#include "chunk/comm/comm.h"
#include "chunk/comm/transport.h"

enum {
    PS_COMM_DEPTH = 4,          /* messages in flight to, and from, a peer */
    PS_COMM_BUFFERS = 2,        /* pieces of a ring of staging memory: one is used while the other is received */
    PS_COMM_HOST_MAX = 64,      /* of a host's name, with the terminator */
    PS_COMM_STAGING_MIN = 4096, /* bytes for each rank */
    PS_COMM_NAMES = 32,
};

/* Usual size of a data message. Large enough for any network's full speed, small enough that a slow one delivers
 * several within the heartbeat time-out. */
#define PS_COMM_MESSAGE_BYTES PS_MIB

typedef enum ps_comm_kind {
    PS_COMM_KIND_GATHER,    /* all parts to all */
    PS_COMM_KIND_BROADCAST, /* the same, when all belong to one rank */
    PS_COMM_KIND_REDUCE,    /* sums to the owners */
} ps_comm_kind;

typedef int64_t ps_comm_ticket;

typedef struct ps_comm_transfer {
    struct ps_comm_transfer *next;
    ps_comm_ticket ticket;
    ps_comm_kind kind;
    ps_dtype dtype;     /* of a reduction */
    int64_t item_bytes; /* n of the parts counts these */
    ps_events after;
    ps_transfer_condition only_if; /* holds NULL: always */
    bool is_payload;               /* counted in the statistics */
    bool on_device;
    const char *name; /* "all-gather" */
    const char *what; /* the caller's name for it; NULL: none */
    int32_t n_parts;
    ps_comm_part parts[];
} ps_comm_transfer;

/* Progress through all parts of `owner`, in order, cut into pieces. */
typedef struct ps_comm_stream {
    int32_t owner;
    int32_t part;         /* of the next piece */
    int64_t offset_bytes; /* of that piece in the part */
    int64_t n_begun, n_done;
    /* of sums and copies n_done .. n_begun - 1, indexed by number modulo the buffers */
    ps_event event[PS_COMM_BUFFERS];
} ps_comm_stream;

/* Messages of one direction to or from a peer during a transfer. */
typedef struct ps_comm_lane {
    int32_t peer;
    bool is_send;
    ps_comm_stream messages;
    ps_comm_stream copies;             /* with a device: from it before sending, to it after receiving */
    ps_request request[PS_COMM_DEPTH]; /* of messages n_done .. n_begun - 1, indexed by number modulo the depth */
    int64_t bytes[PS_COMM_DEPTH];
} ps_comm_lane;

typedef enum ps_comm_word { PS_COMM_HEARTBEAT, PS_COMM_LEAVES, PS_COMM_FAILED, PS_COMM_LOST } ps_comm_word;

/* A message of the control channel. */
typedef struct ps_comm_notice {
    int32_t word;              /* ps_comm_word */
    int32_t rank;              /* FAILED, LOST: which */
    int64_t n_calls;           /* LEAVES: transfers that the sender took part in */
    int64_t n_other_transfers; /* and those of another implementation than messages */
    uint64_t progress;         /* HEARTBEAT: ps_stall_count, and whether the sender is in a call of the library */
    int32_t is_busy;
    char text[496]; /* FAILED: the reason */
} ps_comm_notice;

typedef struct ps_comm_peer {
    int64_t heard_ns;
    uint64_t progress;         /* of its last heartbeat */
    int64_t n_calls;           /* transfers after which it left; -1: it has not left */
    int64_t n_other_transfers; /* of these, by another implementation than messages */
    bool is_receiving, is_sending, is_told;
    ps_request receiving, sending;
    ps_comm_notice in, out;
} ps_comm_peer;

typedef enum ps_comm_state { PS_COMM_OPENING, PS_COMM_OPEN, PS_COMM_ENDED } ps_comm_state;

/* Sent to all ranks at the rendezvous. */
typedef struct ps_comm_hello {
    char host[PS_COMM_HOST_MAX];
    char process[PS_LEFTOVER_MARK_MAX]; /* base/leftover.h */
    int64_t staging_bytes;
} ps_comm_hello;

struct ps_comm {
    ps_collectives own;     /* messages.c, or for a single rank: single_rank.c */
    ps_collectives *chunks; /* the implementation in use: own, or another */
    ps_transport transport; /* used by the worker alone */
    int32_t rank, size, local_rank, local_size;
    int32_t n_keepers;                /* references of engines; the last close destroys it */
    int64_t timeout_ns, heartbeat_ns; /* heartbeat_ns: between heartbeats, at most */
    int64_t staging_bytes;            /* the least that any rank has */
    int64_t message_bytes;            /* before the first transfer, and on all ranks, tests may change it */
    ps_comm_hello *hello;             /* [size] */
    char *staging;                    /* NULL: allocated when needed */
    bool has_device;                  /* has_device and device change between transfers only */
    ps_comm_device device;
    ps_device *ram; /* device of the summing thread; nothing is allocated on it */
    ps_queue *sums; /* with a thread: sums of pieces; NULL before the rendezvous */
    bool has_worker;
    pthread_t worker;

    pthread_mutex_t lock;
    pthread_cond_t has_work, has_progress;
    /* under the lock */
    ps_comm_state state;
    ps_comm_transfer *first, *last;
    ps_queue *transfers; /* a host queue; NULL without a worker */
    ps_order *order;     /* NULL: no observer */
    ps_comm_ticket issued;
    char names[PS_COMM_NAMES][64]; /* of the last transfers, ticket modulo their number: for reports */
    bool wants_close;
    int64_t checked_ns, checked_looks, still_ns; /* to detect a hanging worker */
    bool is_abandoned; /* closed while the worker was stuck: the worker frees everything if it returns */
    ps_status open_status;
    char failure[640]; /* once failed_rank is set: constant */
    char own_text[496];
    const char *late_text; /* ps_comm_set_late_text; the caller's */
    int64_t late_after_ns;
    ps_profile *profile; /* NULL: none */
    uint8_t profile_link;
    /* atomic, read by any thread */
    atomic_int failed_rank; /* -1: none */
    atomic_bool wants_failure, wants_vanish;
    atomic_bool is_stuck; /* the worker does not return from the transport; callers no longer wait for it */
    atomic_llong done;    /* the last ticket that is done */
    atomic_llong n_looks;
    atomic_llong sent_bytes, n_transfers, busy_ns, wait_ns;
    atomic_llong n_other_transfers; /* transfers begun by another implementation than messages */

    /* used by the worker alone */
    const ps_comm_transfer *current;
    const ps_comm_device *copying; /* of the current transfer; NULL: payloads in host memory */
    ps_comm_peer *peers;           /* [size]; the own one is not used */
    ps_comm_lane *lanes;           /* [2 (size - 1)] */
    const void **values;           /* [PS_COMM_BUFFERS][size]: of each sum in flight */
    int64_t looked_ns, heartbeat_sent_ns, moved_ns;
};

/* ---- messages.c: the callers' side of a communicator with a worker ---- */

extern const ps_collectives_ops ps_comm_messages_ops;

/* Waits for the worker's next signal; the lock is held. A worker that no longer checks the ranks counts as failed
 * itself; the time-out runs only while callers run too. */
void ps_comm_await_worker(ps_comm *c);
/* The same for waits by other means: ps_host_queue_set_watch. */
void ps_comm_watch_worker(void *comm);
/* What the transfer is, for ps_host_queue_set_ranks. */
void ps_comm_describe_transfer(void *comm, ps_ticket t, char *text, size_t bytes);
/* Records the first failure, described in c->failure. Callers and events are informed; the lock is held. */
void ps_comm_set_failed(ps_comm *c, int32_t rank);
/* Queues a transfer with the header *head. */
PS_NODISCARD ps_status ps_comm_begin(ps_comm *c, const ps_comm_transfer *head, const ps_comm_part *parts,
                                     ps_event *done);

/* ---- single_rank.c ---- */

extern const ps_collectives_ops ps_comm_single_rank_ops;

/* ---- comm_worker.c ---- */

/* Starts it; it opens the transport, makes the rendezvous and sets state. */
PS_NODISCARD ps_status ps_comm_worker_start(ps_comm *c);

/* ---- comm.c ---- */

/* A communicator over a transport that is not open yet, and which it owns. */
PS_NODISCARD ps_status ps_comm_open_over(const ps_comm_options *o, const ps_transport *transport, ps_comm **out);

/* comm_state.c: without transport and worker; and release after both have ended. */
PS_NODISCARD ps_status ps_comm_create(const ps_comm_options *o, const ps_collectives_ops *own, ps_comm **out);
void ps_comm_destroy(ps_comm *c);

/* Waits until no sum and no copy touches a payload. */
void ps_comm_finish_payloads(ps_comm *c);

/* ---- heartbeat.c ---- */

void ps_comm_heartbeat_begin(ps_comm *c);
/* Exchanges heartbeats; detects lost ranks and failures. False: the worker must end. */
bool ps_comm_heartbeat_listen(ps_comm *c);
/* One round of polling messages: checks the ranks, and sleeps if nothing moved. False: the worker must end. */
bool ps_comm_heartbeat_tick(ps_comm *c, bool has_moved);
/* Sends a leave notice to all and waits for theirs. False: the worker must end. */
bool ps_comm_heartbeat_leave(ps_comm *c);
/* This rank has failed: tells the others. Always false. */
bool ps_comm_heartbeat_fail(ps_comm *c, const char *reason);
/* The transport failed: its error becomes this rank's failure. Always false. */
bool ps_comm_heartbeat_broken(ps_comm *c);

/* ---- collective.c ---- */

/* Carries out a transfer. False: the worker must end. */
bool ps_comm_collective_run(ps_comm *c, const ps_comm_transfer *t);

/* ---- for tests ---- */

/* The rank vanishes without a notice, as if its process had been killed. To be closed then. */
void ps_comm_vanish(ps_comm *c);
void ps_comm_set_message_bytes(ps_comm *c, int64_t bytes);

#endif
