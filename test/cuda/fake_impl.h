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
#define FAKE_FILE_BYTES (16 * PS_GIB)
#define FAKE_FUNCTIONS 64
#define FAKE_DEVICES 8
#define FAKE_KERNELS 512

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
    bool is_loaded;          /* by function_load, or its first launch */
};

struct ps_cu_stream_state {
    ps_cu_context context;
    pthread_t creator;
    int number, n_commands;
    fake_command *first, *last;
    bool stops;
    int priority;
    ps_cu_stream next;
};

/* Of a GPU, and what is its own; its addresses are a part of the arena. */
struct ps_cu_context_state {
    int ordinal, n_retained, n_opened, n_modules, n_ranges;
    int64_t arena_used, used_bytes;
    ps_cu_result broken;
    bool was_fatal; /* a call has reported that the context is of no use */
    int break_in;   /* items; -1: never */
    ps_cu_result break_with;
    ps_cu_stream full; /* for whose room a call waits, in the context's lock; NULL: none */
    pthread_t waits;   /* that call's thread */
};

typedef struct fake_state {
    fake_options o;
    pthread_mutex_t lock; /* commands are carried out with it held; a kernel may call fake_break */
    uint64_t n_draws, n_calls;
    uint64_t n_moves;                   /* commands that were issued or went on: what a deadlock has none of */
    int n_full, n_synchronized, n_made; /* calls that waited for room, or synchronised; streams */
    bool calls_do_not_wait;
    uint32_t pace;        /* commands a call of the host */
    char *arena, *shadow; /* addresses of the device, where nothing is, and its memory where streams touch it */
    unsigned char *state; /* a byte a page of the arena: 0 nothing, 1 mapped, 2 and may be touched */
    int32_t *slot_at;     /* of the file, of one that is mapped */
    int64_t first_unmapped, n_unmapped; /* still in the shadow: fake_finish_unmapping */
    int file;                           /* slots of a page each */
    char *bytes;                        /* all of it */
    int32_t *slots;                     /* users of each: the page, and each place where it is mapped */
    int64_t first_free;                 /* no slot before it is free */
    int64_t taken_bytes;                /* of each GPU */
    ps_cu_stream streams;
    ps_cu_event events;
    fake_pin *pins;
    int n_pages, n_streams, n_events, n_pins;
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
/* What has broken its device. */
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
void fake_drop_pins(ps_cu_context c); /* that are left at the end; NULL: of all contexts */
/* Before a kernel runs: what was unmapped is nowhere any more, and addresses of the device among its arguments become
 * those where it touches that memory. */
void fake_finish_unmapping(void);
void fake_translate(void *args, size_t bytes);

/* The caller waits until the streams that its thread made are idle, as for calls that synchronise the context. */
void fake_synchronize(const char *function);
/* Until no call of another thread waits in the context's lock. */
void fake_wait_for_context(const char *function);

/* Issues a call of run(user) to the stream; the lock is held, then and now. While it returns false the stream waits and it
 * is called again; not when the context is broken. */
void fake_issue_call(ps_cu_stream s, bool (*run)(void *user), void *user);

/* Functions of a table have the names of the true ones in a library of their name (test/gpu/libcuda.c). */
#ifdef FAKE_LIBRARY
#define FAKE_SYMBOL(symbol) __asm__(#symbol) __attribute__((visibility("default")))
#else
#define FAKE_SYMBOL(symbol)
#endif

#define XX(is_needed, name, symbol, params) ps_cu_result fake_##name params FAKE_SYMBOL(symbol);
#include "device/cuda/driver.def"
#undef XX

#endif
