/* comm_impl.h - the communicator inside: what the callers' thread and the worker share, and what is the worker's alone.
 *
 *     caller                          worker (the only one to call the transport)            summing thread
 *     begin: queue a transfer    -->  runs the transfers in order, one at a time
 *                                     (collective.c); pieces that have arrived from all  -->  adds them
 *                                     pieces of a device  -->  its queues copy them to staging memory, and from there
 *     wait, events               <--  done, or failure                                   <--  done
 *     fail, close                -->  watches over the ranks beside it (life.c)
 *
 * Every rank tells every other that it lives, each life_ns. The worker's end is one of three: `failed` (a failure here
 * or elsewhere; notices were sent), `closed` (in order), or `vanished` (without a word, for tests). In each the
 * transport is closed, sums and copies are finished before callers hear of it, so that no buffer of theirs is touched
 * any more.
 *
 * A transfer has one number, its ticket: here, and on the host queue whose events stand for transfers. */
#ifndef PS_COMM_COMM_IMPL_H
#define PS_COMM_COMM_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/leftover.h"
#include "comm/comm.h"
#include "comm/transport.h"

enum {
    PS_COMM_DEPTH = 4,          /* messages under way to, and from, a peer */
    PS_COMM_BUFFERS = 2,        /* pieces of a ring of staging memory: one is used while the other arrives */
    PS_COMM_HOST_MAX = 64,      /* of a host's name, with the terminator */
    PS_COMM_STAGING_MIN = 4096, /* bytes for each rank */
};

/* Usual size of a message of data. Large enough for any network's full speed, small enough that a slow one delivers
 * several within the time in which ranks must be heard of. */
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
    bool is_payload; /* counted in the statistics */
    bool on_device;
    const char *name; /* "all-gather" */
    const char *what; /* of the caller; NULL: nothing to add */
    int32_t n_parts;
    ps_comm_part parts[];
} ps_comm_transfer;

/* All parts of `owner`, in order, cut into pieces: how far something has come with them. */
typedef struct ps_comm_stream {
    int32_t owner;
    int32_t part;         /* that the next piece is of */
    int64_t offset_bytes; /* of that piece in the part */
    int64_t n_begun, n_done;
    /* of sums and copies n_done .. n_begun - 1, at their number modulo the buffers */
    ps_event event[PS_COMM_BUFFERS];
} ps_comm_stream;

/* Messages of one direction to or from a peer during a transfer. */
typedef struct ps_comm_lane {
    int32_t peer;
    bool is_send;
    ps_comm_stream messages;
    ps_comm_stream copies;             /* of a device: off it before pieces are sent, to it after they have come */
    ps_request request[PS_COMM_DEPTH]; /* of messages n_done .. n_begun - 1, at their number modulo the depth */
    int64_t bytes[PS_COMM_DEPTH];
} ps_comm_lane;

typedef enum ps_comm_word { PS_COMM_LIVES, PS_COMM_LEAVES, PS_COMM_FAILED, PS_COMM_LOST } ps_comm_word;

/* What goes over the control channel. */
typedef struct ps_comm_notice {
    int32_t word;      /* ps_comm_word */
    int32_t rank;      /* FAILED, LOST: which */
    int64_t n_calls;   /* LEAVES: transfers that the sender took part in */
    int64_t n_carried; /* and those that went by another than messages */
    char text[496];    /* FAILED: the reason */
} ps_comm_notice;

typedef struct ps_comm_peer {
    int64_t heard_ns;
    int64_t n_calls;   /* transfers after which it left; -1: it is there */
    int64_t n_carried; /* of these, by another than messages */
    bool is_receiving, is_sending, is_told;
    ps_request receiving, sending;
    ps_comm_notice in, out;
} ps_comm_peer;

typedef enum ps_comm_state { PS_COMM_OPENING, PS_COMM_OPEN, PS_COMM_ENDED } ps_comm_state;

/* What ranks exchange when they meet. */
typedef struct ps_comm_hello {
    char host[PS_COMM_HOST_MAX];
    char process[PS_LEFTOVER_MARK_MAX]; /* base/leftover.h */
    int64_t staging_bytes;
} ps_comm_hello;

struct ps_comm {
    ps_collectives own;     /* messages.c, or of a rank alone: alone.c */
    ps_collectives *chunks; /* who carries them: own, or another's */
    ps_transport transport; /* the worker's */
    int32_t rank, size, local_rank, local_size;
    int32_t n_keepers;           /* beside who opened it: engines; the last one to close ends it */
    int64_t timeout_ns, life_ns; /* life_ns: between signs of life, at most */
    int64_t staging_bytes;       /* the least that any rank has */
    int64_t message_bytes;       /* before the first transfer, and on all ranks, tests may change it */
    ps_comm_hello *hello;        /* [size] */
    char *staging;               /* NULL: it is taken when it is needed */
    bool has_device;             /* this and the next between transfers */
    ps_comm_device device;
    ps_device *ram; /* that the summing thread belongs to; nothing is drawn on it */
    ps_queue *sums; /* with a thread of its own: sums of pieces; NULL before the ranks have met */
    bool has_worker;
    pthread_t worker;

    pthread_mutex_t lock;
    pthread_cond_t has_work, has_progress;
    /* under the lock */
    ps_comm_state state;
    ps_comm_transfer *first, *last;
    ps_queue *transfers; /* a host queue; NULL without a worker */
    ps_order *order;     /* NULL: nobody looks at the order of transfers */
    ps_comm_ticket issued;
    bool wants_close;
    int64_t watched_ns, watched_looks, still_ns; /* of a worker that may have gone astray */
    bool is_abandoned; /* closed while the worker was stuck: it frees all should it come back */
    ps_status open_status;
    char failure[640]; /* once failed_rank is set: constant */
    char own_text[496];
    const char *late_text; /* ps_comm_set_late_text; the caller's */
    int64_t late_after_ns;
    ps_profile *profile; /* NULL: nobody wants to know */
    uint8_t profile_link;
    /* read by anyone */
    atomic_int failed_rank; /* -1: none */
    atomic_bool wants_failure, wants_vanish;
    atomic_bool is_stuck; /* the worker does not come back from the transport; callers no longer count on it */
    atomic_llong done;    /* the last ticket that is done */
    atomic_llong n_looks;
    atomic_llong sent_bytes, n_transfers, busy_ns, wait_ns;
    atomic_llong n_carried; /* transfers that another has begun in place of messages */

    /* the worker's alone */
    const ps_comm_transfer *current;
    const ps_comm_device *copying; /* of the transfer under way; NULL: payloads are the host's */
    ps_comm_peer *peers;           /* [size]; the own one is not used */
    ps_comm_lane *lanes;           /* [2 (size - 1)] */
    const void **values;           /* [PS_COMM_BUFFERS][size]: of each sum under way */
    int64_t looked_ns, told_ns, moved_ns;
};

/* ---- messages.c: the callers' side of a communicator with a worker ---- */

extern const ps_collectives_ops ps_comm_messages_ops;

/* Waits for the worker's next word; the lock is held. A worker that no longer looks after the ranks is held for lost
 * itself: its time counts only while callers run too. */
void ps_comm_await_worker(ps_comm *c);
/* The same for who waits by other means: ps_host_queue_set_watch. */
void ps_comm_watch_worker(void *comm);
/* This is the first failure: c->failure says which. Callers and events hear of it; the lock is held. */
void ps_comm_set_failed(ps_comm *c, int32_t rank);
/* Queues a transfer with the head of *head. */
PS_NODISCARD ps_status ps_comm_begin(ps_comm *c, const ps_comm_transfer *head, const ps_comm_part *parts,
                                     ps_event *done);

/* ---- alone.c ---- */

extern const ps_collectives_ops ps_comm_alone_ops;

/* ---- comm_worker.c ---- */

/* Starts it; it opens the transport, meets the others and sets state. */
PS_NODISCARD ps_status ps_comm_worker_start(ps_comm *c);

/* ---- comm.c ---- */

/* A communicator over a transport still to be opened, which becomes its own. */
PS_NODISCARD ps_status ps_comm_open_over(const ps_comm_options *o, const ps_transport *transport, ps_comm **out);

/* comm_state.c: without a transport and a worker; no longer with them. */
PS_NODISCARD ps_status ps_comm_create(const ps_comm_options *o, const ps_collectives_ops *own, ps_comm **out);
void ps_comm_destroy(ps_comm *c);

/* ---- life.c ---- */

void ps_comm_life_begin(ps_comm *c);
/* Hears and tells who lives; notices who does not, and failures. False: it is over. */
bool ps_comm_life_look(ps_comm *c);
/* One round of waiting for messages: looks after the ranks, and rests if nothing moved. False: it is over. */
bool ps_comm_life_turn(ps_comm *c, bool has_moved);
/* Says goodbye to all and waits for theirs. False: it is over. */
bool ps_comm_life_leave(ps_comm *c);
/* This rank cannot go on: tells the others. Always false. */
bool ps_comm_life_fail(ps_comm *c, const char *reason);
/* The transport failed: its error becomes this rank's failure. Always false. */
bool ps_comm_life_broken(ps_comm *c);

/* ---- collective.c ---- */

/* Waits until no sum and no copy touches a payload. */
void ps_comm_finish_payloads(ps_comm *c);
/* Carries out a transfer. False: it is over. */
bool ps_comm_collective_run(ps_comm *c, const ps_comm_transfer *t);

/* ---- for tests ---- */

/* The rank is gone without a word, as if its process had been killed. To be closed then. */
void ps_comm_vanish(ps_comm *c);
void ps_comm_set_message_bytes(ps_comm *c, int64_t bytes);

#endif
