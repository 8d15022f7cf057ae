/* gpu.h - an opened NVIDIA GPU: its memory and the page-locked host memory as two devices (device/device.h), streams as
 * queues (device/queue.h).
 *
 * Device memory is physical pages of 2 MiB, which the driver allocates without addresses. A block or region is a range
 * of addresses to which pages are mapped. A freed block stays mapped until the work that used it is done, while its
 * pages are already mapped a second time at the address of the next allocation. So an allocation does not wait for the
 * device, except when a piece of a region is committed again whose page was reused elsewhere and whose former use is
 * not over. The new owner's work waits, on the device, for the event of the release, as ps_device_gave_after says.
 *
 *     addresses   | block A, freed    |      | block B |
 *                      \______  page 7  _______/          A is unmapped when its release is done
 *
 * Page-locked memory is RAM in huge pages, touched by several threads and registered with the driver at first use.
 * Where the system forbids registering, the driver allocates it, or it stays pageable.
 * Freed blocks, and pieces that regions decommit, stay registered as long as the device keeps them, so that later steps
 * register nothing. Regions there decommit whole pieces as they were committed.
 *
 * A wait for host code (the disk, an update on the host) is a stream wait on a number in page-locked memory, which a
 * thread of the queue writes when the host code ends; only the stream blocks.
 *
 * Failure. After a fatal error of the driver (an address that a kernel may not touch, uncorrectable memory, a kernel
 * that does not end) the device is lost: every later call and wait fails with PS_EDEVICE and the first error seen.
 * Items that were issued to a stream cannot be withdrawn: those after a wait for a failed event still execute, and
 * waits for them return the failure. Items issued after the failure is known do not execute. */
#ifndef PS_CUDA_GPU_H
#define PS_CUDA_GPU_H

#include "device/cuda/driver.h"
#include "device/device.h"

typedef struct ps_gpu ps_gpu;

typedef struct ps_gpu_options {
    int ordinal; /* among those listed in CUDA_VISIBLE_DEVICES */
    /* Allocated or freed memory is filled with 0xff, after the events of its release; always at DEBUG=3. */
    bool poisons;
    int stream_commands; /* the most that are outstanding on a stream; 0: PS_GPU_COMMANDS, at most that */
} ps_gpu_options;

/* A driver queues about 1,000 commands a stream: launches, copies, fills, records and waits alike. A call that issues one
 * more blocks within the driver, and holds a lock that other threads need. So no call here comes near that: a queue waits,
 * by its own event and without a lock, until fewer are outstanding. */
#define PS_GPU_COMMANDS 512
/* Commands that the program issues to a stream of its own between two marks (ps_gpu_open_external), as far as can be
 * known: those of a module's forward or backward pass. At a mark the program waits with them. */
#define PS_GPU_PROGRAM_COMMANDS 32

/* PS_ENOSYS, in one line that says what to do, when this GPU cannot be used: it does not exist, is used exclusively by
 * another process, forbidden, or too old; PS_ENOMEM_DEV when its memory has no room for a context. d must outlive
 * it. */
PS_NODISCARD ps_status ps_gpu_open(const ps_cuda_driver *d, const ps_gpu_options *o, ps_gpu **out);
void ps_gpu_close(ps_gpu *g); /* its devices, queues and backends must be gone; NULL is accepted */

/* For ps_device_create_on, with the ps_gpu as driver; at most one device of each at a time. The second is the host tier
 * of page-locked memory: a compute queue of it has a host thread. */
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
/* For a budget `auto`, when kernels and libraries are loaded: bytes that are free or already allocated as pages, less
 * what kernels and libraries will still allocate. */
PS_NODISCARD ps_status ps_gpu_usable_bytes(ps_gpu *g, int64_t *out);

typedef struct ps_gpu_stats {
    int64_t page_bytes_made; /* device memory allocated from the driver so far; freed at the end only */
    int64_t n_maps, n_unmaps;
    int64_t pinned_bytes; /* page-locked now, host tier */
    int64_t n_pins;       /* blocks and pieces of regions page-locked so far */
} ps_gpu_stats;

ps_gpu_stats ps_gpu_get_stats(const ps_gpu *g);

/* A queue on a stream of the caller's, of no ps_device: from then on the ps_space.external of ps_gpu_space. Destroy it
 * after all that use it, before ps_gpu_close; the stream stays. PS_EINVAL for NULL, the default stream, which
 * synchronises implicitly with other streams. */
PS_NODISCARD ps_status ps_gpu_open_external(ps_gpu *g, const char *name, void *stream, ps_queue **out);

/* The stream of a queue of a device of ps_gpu_device_ops or of ps_gpu_open_external: for calls of ps_queue_call, whose
 * function runs when it is issued, and issues work to the stream. */
ps_cu_stream ps_gpu_stream(const ps_queue *q);
/* The function of a call is about to issue so many commands to the stream, at most: waits until there is room. To be
 * called before each group of them, holding no lock that anything which the stream waits for needs. A stream of no queue
 * is not counted. */
PS_NODISCARD ps_status ps_gpu_will_issue(ps_gpu *g, ps_cu_stream stream, int n_commands);
/* A library's launch is a few kernels, memsets and events at most. */
#define PS_GPU_LIBRARY_COMMANDS 16
/* Items of a queue depend on other ranks, which may never act: when ranks are lost, all its items from now on fail, and
 * so does each item that waits for one of them. */
typedef struct ps_gpu_pending_wait ps_gpu_pending_wait;

PS_NODISCARD ps_status ps_gpu_pending_wait_begin(ps_queue *q, ps_gpu_pending_wait **out);
/* st not PS_OK: the items that are not known to be done fail with st and the calling thread's last error, before the
 * stream continues. NULL is accepted. */
void ps_gpu_pending_wait_end(ps_gpu *g, ps_gpu_pending_wait *wait, ps_status st);

/* PS_OK, or the error of a call of the driver in words: "cuda: what: why". PS_EDEVICE, and the device may be lost then;
 * PS_ENOMEM_DEV. */
PS_NODISCARD ps_status ps_gpu_check(ps_gpu *g, ps_cu_result r, const char *what);

#endif
