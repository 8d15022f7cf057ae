/* gpu_impl.h - what the files of an opened GPU share.
 *
 *     gpu.c          opening, closing, errors
 *     gpu_memory.c   device memory: pages and ranges
 *     gpu_pinned.c   page-locked memory of the host tier
 *     gpu_staging.c  small page-locked pieces for queues
 *     gpu_queue.c    streams: items and events
 *     gpu_fence.c   stream waits for host code, and propagation of its failures */
#ifndef PS_CUDA_GPU_IMPL_H
#define PS_CUDA_GPU_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/cuda/gpu.h"
#include "device/queue_impl.h"

/* Slots for queues that wait with a number, one a queue. */
#define PS_GPU_WORDS 64

typedef struct ps_gpu_queue ps_gpu_queue;
typedef struct ps_gpu_memory ps_gpu_memory;
typedef struct ps_gpu_pinned ps_gpu_pinned;

struct ps_gpu {
    const ps_cuda_driver *driver;
    ps_gpu_options options;
    ps_cu_device device;
    ps_cu_context context;
    char name[128];
    ps_space space;
    int64_t page_bytes;
    ps_cu_event base; /* a reference event, and the host's clock at it; for times of events */
    int64_t base_ns;
    ps_queue *releases[2]; /* of device memory, and of page-locked memory: poison, and the event of what is free */
    ps_gpu_memory *memory;
    ps_gpu_pinned *pinned;
    _Atomic uint32_t *words; /* page-locked [PS_GPU_WORDS]: written by fences */
    ps_cu_address words_address;
    pthread_mutex_t release_lock; /* to issue to releases */
    pthread_mutex_t lock;         /* words in use, pending waits, queues and their failures, how_lost */
    ps_gpu_queue *queues;
    bool word_given[PS_GPU_WORDS];
    ps_gpu_pending_wait *pending_waits; /* waits for host code that have not ended */
    atomic_bool is_lost;
    char how_lost[512]; /* written before is_lost */
};

/* ---- gpu.c ---- */

/* Makes the context the calling thread's, before calls of the driver: PS_EDEVICE when the device is lost. Fault
 * injection of tests (PS_FAULT_DEVICE) fails here. */
PS_NODISCARD ps_status ps_gpu_enter(ps_gpu *g);
/* The same for calls that cannot fail: false when the device is lost. */
bool ps_gpu_enter_quietly(ps_gpu *g);
void ps_gpu_lose(ps_gpu *g, ps_cu_result r, const char *what);
PS_NODISCARD ps_status ps_gpu_check_lost(const ps_gpu *g);

/* ---- gpu_memory.c, gpu_pinned.c ---- */

PS_NODISCARD ps_status ps_gpu_memory_create(ps_gpu *g, ps_gpu_memory **out);
void ps_gpu_memory_destroy(ps_gpu_memory *m);
void ps_gpu_memory_get_stats(const ps_gpu_memory *m, ps_gpu_stats *out);
PS_NODISCARD ps_status ps_gpu_pinned_create(ps_gpu *g, ps_gpu_pinned **out);
void ps_gpu_pinned_destroy(ps_gpu_pinned *p);
void ps_gpu_pinned_get_stats(const ps_gpu_pinned *p, ps_gpu_stats *out);

/* For ps_device_ops of both. */
ps_event ps_gpu_release(ps_device *dev, void *p, int64_t bytes, const ps_events *after);
PS_NODISCARD ps_status ps_gpu_queue_create_of(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out);

/* ---- gpu_queue.c ---- */

typedef struct ps_gpu_slot {
    ps_cu_event done;       /* NULL: none yet */
    ps_cu_event begin, end; /* with timing, when a profile records the item; NULL: none yet */
    bool is_copy, is_mark;  /* to be recorded by the profile */
    int n_users;            /* lock: waits that use `done`, which may not be reused meanwhile */
    int64_t n_commands;     /* of the queue up to the end of the item; the issuing thread's */
    char name[48];          /* lock: of the item */
} ps_gpu_slot;

typedef struct ps_gpu_staging ps_gpu_staging;
typedef struct ps_gpu_fence ps_gpu_fence;

/* The host may be so many items ahead, as each has a command. */
#define PS_GPU_RING PS_GPU_COMMANDS

struct ps_gpu_queue {
    ps_queue base;
    ps_gpu *gpu;
    ps_cu_stream stream;
    bool is_external;
    pthread_mutex_t lock;
    pthread_cond_t has_changed;
    _Atomic ps_ticket done;      /* lock to write */
    _Atomic ps_ticket failed_at; /* gpu's lock to write: first failed item; 0: none; written after failure and why */
    ps_status failure;
    char why[512];
    ps_ticket recorded;     /* lock: items that the profile has recorded */
    ps_cu_event base_event; /* lock: a reference event, and the host's clock at it */
    int64_t base_ns;
    ps_gpu_staging *staging; /* NULL: none yet */
    ps_gpu_fence *fence;     /* NULL: none yet */
    ps_gpu_queue *next;      /* of the gpu; its lock */
    /* Of the issuing thread: commands issued so far; those of them that are done for sure; the slot of the item that is
     * being issued, NULL between items. */
    int64_t n_commands, n_commands_done;
    ps_gpu_slot *current;
    ps_gpu_slot ring[PS_GPU_RING];
};

/* stream NULL: the queue creates one with this priority, lower first; the driver uses the nearest that it supports. */
PS_NODISCARD ps_status ps_gpu_queue_create(ps_gpu *g, const char *name, ps_cu_stream stream, int priority,
                                           ps_queue **out);
/* The issuing thread of q is about to issue n commands to its stream: waits until there is room. */
PS_NODISCARD ps_status ps_gpu_queue_reserve(ps_gpu_queue *q, int n);
/* NULL: not a GPU queue. */
ps_gpu_queue *ps_gpu_queue_of(ps_queue *q, const ps_gpu *g);
/* The next item: a fill with 0xff (bytes > 0) after the events, even if items before it have failed. */
PS_NODISCARD ps_status ps_gpu_queue_release(ps_queue *q, void *p, int64_t bytes, const ps_events *after, ps_event *out);

/* ---- gpu_staging.c ---- */

PS_NODISCARD ps_status ps_gpu_staging_put(ps_gpu_queue *q, ps_cu_address dst, const char *src, int64_t bytes);
PS_NODISCARD ps_status ps_gpu_staging_get(ps_gpu_queue *q, char *dst, ps_cu_address src, int64_t bytes);
void ps_gpu_staging_destroy(ps_gpu_queue *q);

/* ---- gpu_fence.c ---- */

/* The stream waits until host code has ended the event. This is item t of q. */
PS_NODISCARD ps_status ps_gpu_fence_wait(ps_gpu_queue *q, ps_ticket t, ps_event e, bool ignores_failure);
/* Item t of q comes after item `until` of another queue, whose failure it inherits. */
void ps_gpu_pending_waits_inherit(ps_gpu_queue *q, ps_ticket t, const ps_gpu_queue *other, ps_ticket until);
/* Items of q fail from t on, with the calling thread's last error. */
void ps_gpu_queue_fail(ps_gpu_queue *q, ps_ticket t, ps_status st);
/* q is idle. */
void ps_gpu_fence_destroy(ps_gpu_queue *q);

#endif
