/* fake_impl.h - what the files of the fake driver share.
 *
 *     fake_driver.c    the system, and what a test wants to fail
 *     fake_memory.c    device memory and page-locked memory
 *     fake_streams.c   streams, events, kernels */
#ifndef TEST_CUDA_FAKE_IMPL_H
#define TEST_CUDA_FAKE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda/fake_driver.h"

#define FAKE_ARENA_BYTES (64 * PS_GIB)
#define FAKE_FUNCTIONS 64
#define FAKE_DEVICES 8
#define FAKE_KERNELS 256

typedef struct fake_command fake_command;
typedef struct fake_pin fake_pin;

struct ps_cu_event_state {
    uint64_t recorded, done;
    bool has_time, is_destroyed;
    int64_t at_ns;
    ps_cu_event next;
};

/* A registered kernel. */
struct ps_cu_function_state {
    const char *name;
    fake_kernel run;
    void *user;
    size_t args_bytes;
    unsigned shared_allowed; /* beyond 48 KiB */
};

struct ps_cu_stream_state {
    pthread_t thread;
    pthread_cond_t has_work; /* or stops */
    ps_cu_context context;
    fake_command *first, *last;
    bool stops;
    int priority;
    uint64_t id, n_done;
    int64_t spent_ns; /* by its kernels, more than they did */
    ps_cu_stream next;
};

/* Of a GPU, and what is its own; its addresses are a part of the arena. */
struct ps_cu_context_state {
    int ordinal, n_retained, n_opened, n_modules, n_ranges;
    int64_t arena_used, used_bytes;
    int n_touching; /* streams that read or write memory just now */
    ps_cu_result broken;
    bool was_fatal; /* somebody was told that the context is of no use any more */
    int break_in;   /* items; -1: never */
    ps_cu_result break_with;
};

typedef struct fake_state {
    fake_options o;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an event, a stream with nothing left to do, a context that broke */
    char *arena, *shadow;   /* addresses of the device, and the same memory where streams touch it */
    unsigned char *state;   /* a byte a page of the arena: 0 nothing, 1 mapped, 2 and may be touched */
    int file;
    int64_t n_pages_ever;
    int64_t taken_bytes; /* of each GPU */
    int key;  /* by which the processor lets one thread touch device memory, and no other; -1: it has none of these */
    int open; /* without: kernels that run */
    ps_cu_stream streams;
    ps_cu_event events;
    fake_pin *pins;
    int n_pages, n_streams, n_events, n_pins;
    uint64_t n_streams_ever;
    const char *names[FAKE_FUNCTIONS];
    int n_names, calls[FAKE_FUNCTIONS], fail_in[FAKE_FUNCTIONS];
    ps_cu_result fail_with[FAKE_FUNCTIONS];
    struct ps_cu_function_state kernels[FAKE_KERNELS];
    int n_kernels;
    struct ps_cu_context_state contexts[FAKE_DEVICES];
} fake_state;

extern fake_state fake;

/* The lock is held from here on when it is PS_CU_SUCCESS. */
ps_cu_result fake_enter(const char *name, bool wants_context);
ps_cu_result fake_leave(ps_cu_result r); /* r */
/* The calling thread's; NULL: none. */
ps_cu_context fake_current(void);
/* What has broken its device, once no stream touches memory there any more: no driver tells of it before. */
ps_cu_result fake_broken(void);

#define ENTER(wants_context)                                                                                           \
    do {                                                                                                               \
        const ps_cu_result r_ = fake_enter(__func__ + 5, wants_context);                                               \
        if (r_ != PS_CU_SUCCESS) return r_;                                                                            \
    } while (0)

/* Where streams of a GPU touch it; NULL: nowhere, as of another's memory. The lock is held for all of these. */
char *fake_touch(ps_cu_context c, ps_cu_address p, size_t bytes);
/* It may be named in a copy. */
bool fake_is_known(ps_cu_address p, size_t bytes);
bool fake_is_pinned(ps_cu_address p, size_t bytes);
void fake_drop_pins(ps_cu_context c); /* that are left at the end; NULL: whoever's */
/* What is mapped may be touched where it is: by the calling thread, or by all where the processor cannot tell them apart. */
void fake_open_arena(bool is_open);

/* Issues a call of run(user) to the stream; the lock is held, then and now. It may wait for fake.changed, as long as the
 * context is not broken. */
void fake_issue_call(ps_cu_stream s, void (*run)(void *user), void *user);

#define XX(is_needed, name, symbol, params) ps_cu_result fake_##name params;
#include "cuda/driver.def"
#undef XX

#endif
