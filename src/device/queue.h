/* queue.h - work in order: copies, fills and calls of kernels that are issued now and done later.
 *
 * A queue does its items one after the other. Queues are ordered with each other by events only: an event is a point of
 * a queue, everything that had been issued to it, and another queue, or the host, may wait for it.
 *
 *     host       call A   copy B   wait(copies, A)   copy C   ...                        ps_event_wait(C)
 *     compute    |====== A ======|
 *     copies              |== B ==|..................|=== C ===|
 *
 * When an item is done depends on the device (ps_device_ops):
 *   RAM        calls compute within the call that issues them (waits for events block there); a copy queue has a thread
 *   sim        nothing is done, at once; or, for a simulated asynchronous device, in estimated time (sim_time.h)
 *   CUDA       a stream; of page-locked memory, a thread of the host
 * Host queues belong to no device. They have no items; host code reports its progress: the disk, messages between
 * ranks, an optimizer on threads.
 *
 * Host memory that an item names must stay valid, and unchanged, until the item is done. What is passed by value, the
 * arguments of a call and the source of ps_queue_put, may be reused at once.
 *
 * Failure. What cannot be issued is an error of the call. An item that fails later fails its event: waits for it return
 * the error. For a copy in RAM the error is returned once and the queue continues; any other failure is permanent:
 * later items are not done, on this queue or on those that wait for it.
 *
 * One thread issues to a queue, another may issue to another queue; any thread may wait for an event. Calls here that
 * may block are counted (device/blocking.h). */
#ifndef PS_DEVICE_QUEUE_H
#define PS_DEVICE_QUEUE_H

#include "base/profile.h"

typedef struct ps_device ps_device;
typedef struct ps_queue ps_queue;

/* A point of a queue: every item issued up to it. 0 is "nothing", always done. */
typedef uint64_t ps_ticket;

typedef struct ps_event {
    ps_queue *queue; /* NULL: nothing, always done */
    ps_ticket ticket;
} ps_event;

/* Several events: of each queue the latest. */
#define PS_EVENTS_MAX 8

typedef struct ps_events {
    int n;
    ps_event event[PS_EVENTS_MAX];
} ps_events;

typedef enum ps_queue_kind {
    PS_QUEUE_COMPUTE,     /* calls, and the copies and waits ordered between them */
    PS_QUEUE_COPY,        /* copies and fills */
    PS_QUEUE_COLLECTIVES, /* collectives between ranks: of higher priority than computing */
} ps_queue_kind;

/* name: for messages and profiles, and of the thread where there is one; copied. */
PS_NODISCARD ps_status ps_queue_create(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out);
void ps_queue_destroy(ps_queue *q); /* waits until it is idle; NULL is accepted */
const char *ps_queue_name(const ps_queue *q);

/* ---- items ---- */

/* Copies between memory of any kind; the device recognises its own memory. */
PS_NODISCARD ps_status ps_queue_copy(ps_queue *q, void *dst, const void *src, int64_t bytes);
/* Every byte of dst becomes `byte`. */
PS_NODISCARD ps_status ps_queue_fill(ps_queue *q, void *dst, uint8_t byte, int64_t bytes);
/* A copy of host memory that may be reused at once: batches, numbers. May block while earlier ones are in flight. */
PS_NODISCARD ps_status ps_queue_put(ps_queue *q, void *dst, const void *src, int64_t bytes);
/* The reverse: dst, host memory of any kind, holds the bytes when the call returns. It blocks until then. */
PS_NODISCARD ps_status ps_queue_get(ps_queue *q, void *dst, const void *src, int64_t bytes);

#define PS_CALL_ARGS_BYTES_MAX 512

/* Bytes that an item reads, or writes and perhaps reads too: for observers of order. */
typedef struct ps_use {
    const void *address;
    int64_t bytes;
    bool is_write;
    const char *name; /* for messages; must outlive the queue */
} ps_use;

/* Work done by a function: run(self, args). */
typedef struct ps_call {
    const char *name; /* must outlive the queue */
    ps_status (*run)(void *self, const void *args);
    void *self;       /* must outlive the item */
    const void *args; /* copied: values and addresses of memory that the queue may touch */
    size_t args_bytes;
    const ps_use *uses; /* all memory that it accesses; copied. NULL, 0: not named */
    int n_uses;
} ps_call;

PS_NODISCARD ps_status ps_queue_call(ps_queue *q, const ps_call *call);
/* A call that does nothing, but counts as accessing these bytes: in place of a kernel where nothing is computed, for
 * observers of a trial's order. */
PS_NODISCARD ps_status ps_queue_issue_use(ps_queue *q, const char *name, const ps_use *use);
/* Does an observer need the uses of its calls? Otherwise they need not be named. */
bool ps_queue_wants_uses(const ps_queue *q);

/* An item that does nothing; a profile records when the queue reached it. A caller's own queue (ps_space.external) may
 * have work that was not issued here: waits for the mark wait for that too. */
PS_NODISCARD ps_status ps_queue_mark(ps_queue *q, ps_event *out);

/* ---- events ---- */

/* Everything issued to the queue so far. */
ps_event ps_queue_event(const ps_queue *q);
/* What is issued to the queue from now on is done after the event. */
PS_NODISCARD ps_status ps_queue_wait(ps_queue *q, ps_event e);
/* The host waits. The result is a failure up to the event that was not returned yet. */
PS_NODISCARD ps_status ps_event_wait(ps_event e);
bool ps_event_is_done(ps_event e); /* true for failed items too */

/* No more than PS_EVENTS_MAX queues. */
void ps_events_add(ps_events *all, ps_event e);
void ps_events_add_all(ps_events *all, const ps_events *more);
/* ps_queue_wait, ps_event_wait for each; the first failure. */
PS_NODISCARD ps_status ps_queue_wait_all(ps_queue *q, const ps_events *all);
PS_NODISCARD ps_status ps_events_wait(const ps_events *all);

/* ---- host queues ---- */

PS_NODISCARD ps_status ps_host_queue_create(const char *name, ps_queue **out);
/* Host code begins an operation that it will finish later, on any thread. Tickets count up by one. */
ps_event ps_host_queue_begin(ps_queue *q);
/* All up to the event are done; later ones complete in order. st: the result of the event's operation. */
void ps_host_queue_end(ps_queue *q, ps_ticket t, ps_status st);
/* While a thread or a device queue waits for an event of the queue, watch(user) is called each second: it may find that
 * the host code has failed, and end the event. To be set before the first wait. */
void ps_host_queue_set_watch(ps_queue *q, void (*watch)(void *user), void *user);
/* Its items are transfers between ranks, of which describe(user) says what item t is: ps_queue_ops.describe. */
void ps_host_queue_set_ranks(ps_queue *q, void (*describe)(void *user, ps_ticket t, char *text, size_t bytes),
                             void *user);

/* ---- profiling ---- */

/* Record begin and end of each copy (PS_PROFILE_MOVED), and each mark (PS_PROFILE_MARK), as of this link. To be called
 * before the first of them; p must outlive the queue. */
void ps_queue_set_profile(ps_queue *q, ps_profile *p, int link);

#endif
