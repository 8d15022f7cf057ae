/* async.h - the fake GPU: a device that works late, in a process of its own, on memory that the host cannot touch. It
 * is there to find, without a GPU, code that relies on order that no event makes, or on memory that is not the host's.
 *
 *     memory at the same addresses     host process             helper process, forked by ps_async_open
 *     device                           a touch is a fault       read, write
 *     pinned                           read, write              read, write
 *     anything else                    as ever                  not there, or old: never named in a command
 *
 * Queues are rings of commands in shared memory: values, and addresses of the two kinds above. The helper carries out
 * the first command of any queue that events let go on; which one is drawn from a seed, and some are put off, half
 * done, or kept until the host waits for something. So each order that events allow shows up sooner or later, and
 * results must be the same for every seed.
 *
 * What is given is 0xff throughout (NaN in every float format), and so is what was freed, from when the items that used
 * it are done.
 *
 * Failure. A call into the device can be made to fail, and the device to be lost at an item (base/fault.h). When the
 * helper dies, whatever of, the device is lost: every later call and wait says so, and none hangs.
 *
 * It is slow, and takes a process and three threads: users can choose it in debug builds only. */
#ifndef PS_DEVICE_ASYNC_H
#define PS_DEVICE_ASYNC_H

#include <sys/types.h>

#include "device/device.h"

typedef struct ps_async ps_async;

typedef struct ps_async_options {
    uint64_t seed;                      /* of the scheduler */
    int64_t page_bytes;                 /* granularity of device memory; 0: 2 MiB */
    int64_t device_bytes, pinned_bytes; /* addresses that there are of each kind, without memory at first; 0: many */
    int64_t in_bytes_per_s, out_bytes_per_s; /* rates of the copy engines, pinned to device and back; 0: none */
} ps_async_options;

/* PS_ENOMEM_HOST when the system has no process, memory or addresses left. Signals are left alone, but with PS_DEBUG >=
 * 1 SIGSEGV: a touch of device memory by the host is told on stderr, then goes the way that it would have gone. */
PS_NODISCARD ps_status ps_async_open(const ps_async_options *o, ps_async **out);
void ps_async_close(ps_async *a); /* its devices, queues and backends must be gone; NULL is accepted */

/* For ps_device_create_on, with the ps_async as driver; of each at most one device at a time. The second is the host
 * tier beside the first, of page-locked memory: a queue of it that computes has a thread of the host. */
extern const ps_device_ops ps_device_async_ops;
extern const ps_device_ops ps_device_pinned_ops;

/* May train.backend = cpu_async be chosen? In debug builds, and after ps_async_permit, which the tests of other builds
 * call. */
bool ps_async_is_permitted(void);
void ps_async_permit(void);

const ps_space *ps_async_space(const ps_async *a); /* both of them */
/* What ps_async_open would give, without a driver: to plan with. */
ps_space ps_async_plan_space(const ps_async_options *o);

/* A queue that belongs to no ps_device: of a program with work of its own on the fake GPU. With `computes` it is the
 * ps_space.foreign of ps_async_space from then on. To be destroyed after all that use it, before ps_async_close. */
PS_NODISCARD ps_status ps_async_open_foreign(ps_async *a, const char *name, bool computes, ps_queue **out);
pid_t ps_async_process(const ps_async *a); /* the helper */

/* Is [p, p + bytes) device memory? */
bool ps_async_is_device_memory(const ps_async *a, const void *p, int64_t bytes);

#endif
