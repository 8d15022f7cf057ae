/* disk.h - the disk tier: a temporary file, or one in each of several folders, read and written asynchronously at
 * page-aligned offsets. Several files take turns in stripes, so all of them work on any payload that is not small.
 *
 * io_uring where the kernel allows it, a pool of threads with pread/pwrite where not; O_DIRECT where the file system
 * has it. A file carries no name while open where the file system supports O_TMPFILE; otherwise it is named
 * "patrickstar-<pid>-<n>.chunks", locked with flock, removed at close, and leftovers of dead processes are removed by
 * the next ps_disk_open in the same folder. */
#ifndef PS_DEVICE_DISK_H
#define PS_DEVICE_DISK_H

#include "device/device.h"

typedef struct ps_disk ps_disk;

typedef enum ps_disk_backend {
    PS_DISK_AUTO,  /* io_uring, else threads */
    PS_DISK_URING, /* PS_ENOSYS when the kernel refuses */
    PS_DISK_THREADS,
    PS_DISK_SIM, /* no file, requests complete at once: accounting only */
} ps_disk_backend;

typedef struct ps_disk_stats {
    int64_t read_bytes, write_bytes; /* completed since open */
    const char *backend;             /* "io_uring", "threads" or "sim" */
    const char *ways;                /* features of io_uring in use: "registered files, ...", or "" */
    int n_files;                     /* sim: 0 */
    bool direct;                     /* O_DIRECT in use, in all files */
    int64_t processor_ns;            /* of the I/O threads */
    int64_t n_requests;              /* requests made of the transfers: parts of large ones, or several small ones */
} ps_disk_stats;

#define PS_DISK_QUEUE_DEPTH 32 /* of the disk tier */

/* folders: one or several with commas between them (disk_folders.h); missing ones are created. At most queue_depth (>=
 * 1) requests are in flight; more wait, reads in issue order and writes in issue order. PS_EIO naming memory.disk_path,
 * the folder and the reason. */
PS_NODISCARD ps_status ps_disk_open(const char *folders, ps_disk_backend backend, int queue_depth, ps_disk **out);
/* Waits for requests in flight and for the events that they come after, whose queues must still exist. NULL is
 * accepted. */
void ps_disk_close(ps_disk *d);

/* Start a transfer of `bytes` at `offset` (multiples of PS_PAGE_BYTES; buffer page-aligned and valid until done). Large
 * transfers are split into pieces internally. The event stands for this transfer alone, and is done when all its pieces
 * are: transfers end in any order. A short read, ENOSPC, EIO, ... is PS_EIO with file, offset in it, bytes requested
 * and transferred, returned once, by the first wait for the event. The transfer begins when the events `after` (NULL:
 * none) are done, for which a thread of the disk waits. When an event of another queue has failed the transfer is not
 * tried and fails in the same way. Files grow as written. The caller orders requests on overlapping ranges. */
PS_NODISCARD ps_status ps_disk_read(ps_disk *d, int64_t offset, void *buffer, int64_t bytes, const ps_events *after,
                                    ps_event *out);
PS_NODISCARD ps_status ps_disk_write(ps_disk *d, int64_t offset, const void *buffer, int64_t bytes,
                                     const ps_events *after, ps_event *out);

/* Record begin and end of each transfer (PS_PROFILE_MOVED) as one of these links. To be called before the first
 * transfer; p must outlive the disk. */
void ps_disk_set_profile(ps_disk *d, ps_profile *p, int read_link, int write_link);

ps_disk_stats ps_disk_get_stats(const ps_disk *d);
const char *ps_disk_path(const ps_disk *d); /* of the first file, for messages */

#endif
