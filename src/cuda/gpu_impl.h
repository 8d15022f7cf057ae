/* gpu_impl.h - what the files of an opened GPU share.
 *
 *     gpu.c          opening, closing, errors
 *     gpu_memory.c   device memory: pages and ranges
 *     gpu_pinned.c   page-locked memory: the host tier, and small pieces for queues
 *     gpu_queue.c    streams: items, events, staging
 *     gpu_herald.c   waits for what host code ends, and whose failure it was */
#ifndef PS_CUDA_GPU_IMPL_H
#define PS_CUDA_GPU_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda/gpu.h"
#include "device/queue_impl.h"

/* Of queues that waits with a number are given to, one a queue. */
#define PS_GPU_WORDS 64

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
    ps_cu_event base; /* a moment, and the host's clock then; to tell times of events */
    int64_t base_ns;
    ps_queue *releases[2]; /* of device memory, and of page-locked memory: poison, and the event of what is free */
    ps_gpu_memory *memory;
    ps_gpu_pinned *pinned;
    _Atomic uint32_t *words; /* page-locked [PS_GPU_WORDS]: what heralds write */
    ps_cu_address words_address;
    pthread_mutex_t release_lock; /* to issue to releases */
    pthread_mutex_t lock;         /* words given, hopes, failures of queues, how it was lost */
    bool word_given[PS_GPU_WORDS];
    ps_gpu_hope *hopes; /* waits for host code that are not over */
    atomic_bool is_lost;
    char how_lost[512]; /* before is_lost */
};

/* ---- gpu.c ---- */

/* Makes the context the calling thread's, before calls of the driver: PS_EDEVICE when the device is lost. With it ends
 * what a test wants to fail (PS_FAULT_DEVICE). */
PS_NODISCARD ps_status ps_gpu_enter(ps_gpu *g);
/* The same for what cannot fail: false when the device is lost. */
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
    ps_cu_event begin, end; /* with time, of an item that a profile wants; NULL: none yet */
    bool is_copy, is_mark;  /* that the profile is to be told of */
    int n_users;            /* lock: that wait by `done`, so it may not be another item's */
} ps_gpu_slot;

typedef struct ps_gpu_staging ps_gpu_staging;
typedef struct ps_gpu_herald ps_gpu_herald;

/* So many items the host may be ahead. */
#define PS_GPU_RING 4096

typedef struct ps_gpu_queue {
    ps_queue base;
    ps_gpu *gpu;
    ps_cu_stream stream;
    bool is_foreign;
    pthread_mutex_t lock;
    pthread_cond_t has_changed;
    _Atomic ps_ticket done;      /* lock to write */
    _Atomic ps_ticket failed_at; /* gpu's lock to write: the first that failed; 0: none; after failure and why */
    ps_status failure;
    char why[512];
    ps_ticket recorded;     /* lock: items that the profile knows of */
    ps_cu_event base_event; /* lock: a moment, and the host's clock then */
    int64_t base_ns;
    ps_gpu_staging *staging; /* NULL: none yet */
    ps_gpu_herald *herald;   /* NULL: none yet */
    ps_gpu_slot ring[PS_GPU_RING];
} ps_gpu_queue;

/* stream NULL: one of its own, with this priority, the lower the sooner; the driver takes the nearest that it has. */
PS_NODISCARD ps_status ps_gpu_queue_create(ps_gpu *g, const char *name, ps_cu_stream stream, int priority,
                                           ps_queue **out);
/* NULL: of something else. */
ps_gpu_queue *ps_gpu_queue_of(ps_queue *q, const ps_gpu *g);
/* The next item after what is there: fill with 0xff (bytes > 0) after the events, whatever has failed before them. */
PS_NODISCARD ps_status ps_gpu_queue_release(ps_queue *q, void *p, int64_t bytes, const ps_events *after, ps_event *out);

/* ---- gpu_staging.c ---- */

PS_NODISCARD ps_status ps_gpu_staging_put(ps_gpu_queue *q, ps_cu_address dst, const char *src, int64_t bytes);
PS_NODISCARD ps_status ps_gpu_staging_get(ps_gpu_queue *q, char *dst, ps_cu_address src, int64_t bytes);
void ps_gpu_staging_destroy(ps_gpu_queue *q);

/* ---- gpu_herald.c ---- */

/* The stream waits until host code has ended the event. Item number t of q. */
PS_NODISCARD ps_status ps_gpu_herald_wait(ps_gpu_queue *q, ps_ticket t, ps_event e, bool ignores_failure);
/* Item t of q comes after item `until` of another: what fails that, fails it. */
void ps_gpu_hopes_inherit(ps_gpu_queue *q, ps_ticket t, const ps_gpu_queue *other, ps_ticket until);
/* q fails from item t on, as the calling thread's last error says. */
void ps_gpu_queue_fail(ps_gpu_queue *q, ps_ticket t, ps_status st);
/* q is idle. */
void ps_gpu_herald_destroy(ps_gpu_queue *q);

#endif
