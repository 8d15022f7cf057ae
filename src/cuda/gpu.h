/* gpu.h - a GPU of NVIDIA's, opened: its memory and the page-locked memory beside it as two devices (device/device.h),
 * streams as queues (device/queue.h).
 *
 * Device memory is pages of 2 MiB, which the driver gives without addresses. A block or region is a range of addresses;
 * pages are mapped to it. What is given up stays mapped where it was until the work that used it is done, and its pages
 * are mapped to where they are wanted next at once, a second time: so nobody waits for the device,
 * but for who commits a piece of a region anew whose page went to somebody else while its former use is not over. Who
 * gets them waits for the event of the release, on the device, as ps_device_gave_after says.
 *
 *     addresses   | block A, given up |      | block B |
 *                      \______  page 7  _______/          A is unmapped when its release is done
 *
 * Page-locked memory is RAM in huge pages, touched by several threads and registered with the driver when it is first
 * wanted; blocks that are freed, and pieces that regions give back, stay registered as long as the device keeps them, so
 * that later steps register nothing. Regions there give back the pieces that they committed, no parts of them.
 *
 * A wait for something that host code is to end (the disk, an update on the host) is one for a number in page-locked
 * memory, which a thread of the queue writes when that has ended; so nothing but the stream stands still.
 *
 * Failure. After one of the driver's that is for good (an address that a kernel may not touch, memory that went bad, a
 * kernel that does not end) the device is lost: every later call and wait says so, with what was seen first, as
 * PS_EDEVICE. A stream cannot leave out what has been issued to it: what stands behind a wait for something that failed
 * is done, and who waits for it is told of the failure. What is issued when that is known is not done. */
#ifndef PS_CUDA_GPU_H
#define PS_CUDA_GPU_H

#include "cuda/driver.h"
#include "device/device.h"

typedef struct ps_gpu ps_gpu;

typedef struct ps_gpu_options {
    int ordinal;  /* among those that CUDA_VISIBLE_DEVICES leaves */
    bool poisons; /* what is freed becomes 0xff throughout, after its events, as of async.h; DEBUG=3 always does */
} ps_gpu_options;

/* PS_ENOSYS, in one line that says what to do, when this GPU cannot be used: it is not there, taken by another process,
 * forbidden, or too old; PS_ENOMEM_DEV when its memory has no room for a context. d must outlive it. */
PS_NODISCARD ps_status ps_gpu_open(const ps_cuda_driver *d, const ps_gpu_options *o, ps_gpu **out);
void ps_gpu_close(ps_gpu *g); /* its devices, queues and backends must be gone; NULL is accepted */

/* For ps_device_create_on, with the ps_gpu as driver; of each at most one device at a time. The second is the host tier
 * beside the first, of page-locked memory: a queue of it that computes has a thread of the host. */
extern const ps_device_ops ps_gpu_device_ops;
extern const ps_device_ops ps_gpu_pinned_ops;

const ps_space *ps_gpu_space(const ps_gpu *g); /* both of them */

typedef struct ps_gpu_info {
    char name[128];
    int capability; /* 10 * major + minor: 90 */
    int processors;
    int driver_version; /* 1000 * major + 10 * minor */
    int64_t total_bytes, free_bytes;
} ps_gpu_info;

PS_NODISCARD ps_status ps_gpu_get_info(ps_gpu *g, ps_gpu_info *out);
/* For a budget `auto`, when kernels and libraries are loaded: what is free or has become pages, less what they will still
 * want. */
PS_NODISCARD ps_status ps_gpu_usable_bytes(ps_gpu *g, int64_t *out);

typedef struct ps_gpu_stats {
    int64_t page_bytes_made; /* device memory taken from the driver so far; never given back before the end */
    int64_t n_maps, n_unmaps;
    int64_t pinned_bytes; /* page-locked now, of the host tier */
    int64_t n_pins;       /* blocks and pieces of regions page-locked so far */
} ps_gpu_stats;

ps_gpu_stats ps_gpu_get_stats(const ps_gpu *g);

/* A queue on a stream that is the caller's, and belongs to no ps_device: it is the ps_space.foreign of ps_gpu_space from
 * then on. To be destroyed after all that use it, before ps_gpu_close; the stream stays. PS_EINVAL for NULL, the default
 * stream, with which others that know nothing of it wait for each other. */
PS_NODISCARD ps_status ps_gpu_open_foreign(ps_gpu *g, const char *name, void *stream, ps_queue **out);

/* The stream of a queue of a device of ps_gpu_device_ops or of ps_gpu_open_foreign: for calls of ps_queue_call, whose
 * function runs when it is issued, and issues work to the stream. */
ps_cu_stream ps_gpu_stream(const ps_queue *q);
/* What other ranks are to do for the items of a queue, and may never do: all its items from now on, and what waits for
 * one of them. */
typedef struct ps_gpu_hope ps_gpu_hope;

PS_NODISCARD ps_status ps_gpu_hope_begin(ps_queue *q, ps_gpu_hope **out);
/* st not PS_OK: what of it is not known to be done fails so, with the calling thread's last error; before the stream is
 * made to go on. NULL is accepted. */
void ps_gpu_hope_end(ps_gpu *g, ps_gpu_hope *hope, ps_status st);

/* PS_OK, or the error of a call of the driver in words: "cuda: what: why". PS_EDEVICE, and the device may be lost then;
 * PS_ENOMEM_DEV. */
PS_NODISCARD ps_status ps_gpu_check(ps_gpu *g, ps_cu_result r, const char *what);

#endif
