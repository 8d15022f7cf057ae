/* async_impl.h - what the files of the fake GPU share: the memory that both processes see, and who does what.
 *
 *     device_async.c          opening and closing, the helper's life and death
 *     device_async_memory.c   two kinds of memory, as two devices
 *     device_async_queue.c    host: writes commands into the lines, and waits
 *     device_async_helper.c   helper: carries them out
 *     device_async_touch.c    host: tells who touched device memory
 *
 * Both sides only ever wait by futex, for counters that go up: a process that dies holds no lock. */
#ifndef PS_DEVICE_ASYNC_IMPL_H
#define PS_DEVICE_ASYNC_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/async.h"
#include "device/queue_impl.h"

#define PS_ASYNC_LINES 32
/* So many items, and bytes of puts, the host may be ahead: more than a step has. */
#define PS_ASYNC_RING 4096
#define PS_ASYNC_STAGING_BYTES (4 * PS_MIB)

typedef enum ps_async_kind {
    PS_ASYNC_COPY,
    PS_ASYNC_FILL,
    PS_ASYNC_CALL,
    PS_ASYNC_MARK,
    PS_ASYNC_WAIT,        /* for another line */
    PS_ASYNC_WAIT_FOREIGN /* for something that a thread of the host waits for */
} ps_async_kind;

typedef struct ps_async_command {
    ps_async_kind kind;
    bool is_last;         /* of an item */
    bool is_lost;         /* the device is lost here, a test wants */
    bool ignores_failure; /* of what is waited for */
    ps_ticket ticket;     /* reached when it is done */
    uint64_t staged;      /* bytes of the staging ring that have been used when it is done; 0: it uses none */
    union {
        struct {
            char *dst;
            const char *src;
            int64_t bytes;
        } copy;
        struct {
            char *dst;
            int64_t bytes;
            uint8_t byte;
        } fill;
        struct {
            const char *name;
            ps_status (*run)(void *self, const void *args);
            void *self;
        } call; /* addresses of code and of `self` are the same in the helper */
        struct {
            int line;
            ps_ticket ticket;
        } wait;
        uint64_t foreign; /* done when the line's foreign_done is that much */
    };
    int64_t begin_ns, end_ns; /* by the helper */
    _Alignas(64) char args[PS_CALL_ARGS_BYTES_MAX];
} ps_async_command;

typedef struct ps_async_failure {
    ps_status st;
    char why[512];
} ps_async_failure;

/* A queue, as both processes see it. Counters go on when a queue is destroyed and the line is another's. */
typedef struct ps_async_line {
    char name[32];
    _Atomic uint64_t put;           /* commands issued; host */
    _Atomic uint64_t taken;         /* commands done; helper */
    _Atomic ps_ticket done;         /* helper */
    _Atomic ps_ticket failed_at;    /* nothing from there on is carried out; 0: none; helper, after failure */
    _Atomic uint64_t staging_taken; /* bytes of the staging ring that are free again; helper */
    _Atomic uint64_t foreign_done;  /* host */
    uint64_t foreign_failed_at;     /* the first of them that failed; 0: none; host, before foreign_done */
    ps_async_failure failure, foreign_failure;
    ps_async_command ring[PS_ASYNC_RING]; /* number n is at n % PS_ASYNC_RING */
    char staging[PS_ASYNC_STAGING_BYTES];
} ps_async_line;

typedef struct ps_async_shared {
    _Atomic uint32_t wake;      /* futex: the helper looks again */
    _Atomic uint32_t progress;  /* futex: the host looks again */
    _Atomic uint32_t n_waiting; /* threads of the host that wait */
    _Atomic bool is_ready, stops, is_lost;
    _Atomic pid_t helper;
    _Atomic(const char *) busy_with; /* what the helper does, and for which line; NULL: nothing */
    _Atomic int busy_line;
    ps_async_line lines[PS_ASYNC_LINES];
} ps_async_shared;

/* Addresses of one kind of memory, given out in pages. */
typedef struct ps_async_memory {
    char *base;
    int64_t bytes, page_bytes;
    int file; /* whose pages they are */
    bool host_can_touch;
    uint64_t *given;    /* a bit a page: in a block or region */
    uint64_t *poisoned; /* a bit a page: freed since it was given, and full of poison after the last release */
    ps_queue *releases; /* poisons what is freed */
} ps_async_memory;

struct ps_async {
    ps_async_options options;
    pid_t host;
    ps_async_shared *shared;
    ps_async_memory device, pinned;
    ps_space space;
    pthread_mutex_t lock; /* lines given, what is issued to queues of releases */
    bool line_given[PS_ASYNC_LINES];
    pthread_t watcher;
    bool is_watched;
    char how_lost[256]; /* before is_lost */
};

/* ---- device_async.c ---- */

void ps_async_wake(_Atomic uint32_t *futex);
/* Until *futex is not `seen` any more, or deadline_ns (of ps_clock_ns; INT64_MAX: none) is over, or for no reason. */
void ps_async_sleep(_Atomic uint32_t *futex, uint32_t seen, int64_t deadline_ns);
/* PS_EDEVICE when the device is lost. */
PS_NODISCARD ps_status ps_async_check(const ps_async *a);
/* Asked once by each call into the device that may fail: the same, and failures that tests want. */
PS_NODISCARD ps_status ps_async_admit(const ps_async *a);

/* ---- device_async_memory.c ---- */

PS_NODISCARD ps_status ps_async_memory_init(ps_async_memory *s, int64_t bytes, int64_t page_bytes, bool host_can_touch);
void ps_async_memory_deinit(ps_async_memory *s);
bool ps_async_memory_has(const ps_async_memory *s, const void *p, int64_t bytes);

/* ---- device_async_queue.c ---- */

PS_NODISCARD ps_status ps_async_queue_create(ps_async *a, const char *name, ps_queue **out);
/* Poison after the events, whatever has failed before them. PS_EDEVICE when the device is lost. */
PS_NODISCARD ps_status ps_async_queue_poison(ps_queue *q, void *p, int64_t bytes, const ps_events *after,
                                             ps_event *out);

/* ---- device_async_helper.c ---- */

_Noreturn void ps_async_help(ps_async *a);

/* ---- device_async_touch.c ---- */

void ps_async_tell_touches(ps_async *a);
void ps_async_forget_touches(ps_async *a);

#endif
