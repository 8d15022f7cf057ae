/* disk_backend.h - the interface inside the disk tier: disk.c keeps transfers, disk_pieces.c cuts them into pieces, a
 * backend's threads take pieces, move them and report.
 *
 *   caller --transfer--> gate: after events --> queues of pieces --ps_disk_take--> backend's thread: pread, pwrite or
 *                                                                                io_uring --ps_disk_finish--> done
 *
 * Backends have their own threads, so that long queues keep moving while the caller computes. */
#ifndef PS_DEVICE_DISK_BACKEND_H
#define PS_DEVICE_DISK_BACKEND_H

#include <sys/uio.h>

#include "device/disk.h"
#include "device/disk_folders.h"

typedef struct ps_disk_transfer ps_disk_transfer;

/* ---- the file (disk_file.c) -------------------------------------------------------------------------------------- */

/* Behave as on a file system without these features. */
enum { PS_DISK_NO_TMPFILE = 1, PS_DISK_NO_DIRECT = 2 };

typedef struct ps_disk_file {
    int fd;
    bool is_named, is_direct;
    char *path; /* of a file without a name: how messages call it */
} ps_disk_file;

/* An empty file in `folder`, which is created if missing, after removing files of dead processes there. avoid:
 * PS_DISK_NO_* or 0. PS_EIO naming memory.disk_path, the folder and the reason. */
PS_NODISCARD ps_status ps_disk_file_open(const char *folder, unsigned avoid, ps_disk_file *out);
void ps_disk_file_close(ps_disk_file *f); /* a named file is removed */

/* ps_disk_open as on file systems without the features that `avoid` lists. */
PS_NODISCARD ps_status ps_disk_open_avoiding(const char *folders, ps_disk_backend backend, int queue_depth,
                                             unsigned avoid, ps_disk **out);

/* ---- for the gate (disk_gate.h) ---------------------------------------------------------------------------------- */

/* The events that the transfer comes after are done; or have failed (st, and the last error of the calling thread), and
 * it is not tried. */
void ps_disk_admit(ps_disk *d, ps_disk_transfer *t, ps_status st);

/* ---- for the backends' threads (disk_pieces.c) ---- */

enum { PS_DISK_PARTS_MAX = 16 };
enum { PS_DISK_END = -1 }; /* error of a read past the end of the file */

/* The part of a transfer that lies in a piece. */
typedef struct ps_disk_part {
    ps_disk_transfer *transfer;
    char *buffer;
    int64_t bytes;
    int error;         /* errno, or PS_DISK_END */
    int64_t got_bytes; /* bytes moved before the error */
} ps_disk_part;

/* A range of a file: of one transfer, or of several that are adjacent there. */
typedef struct ps_disk_piece {
    bool is_write;
    int file;
    int64_t offset, bytes; /* offset in the file */
    int64_t done_bytes;    /* of `bytes`, moved or failed: after a short transfer the next system call continues from
                            * there */
    bool is_one_by_one;    /* a request for several parts has failed: each is tried alone, to find the failing one */
    int n_parts;
    ps_disk_part part[PS_DISK_PARTS_MAX]; /* in the order of the file */
    int n_buffers;
    struct iovec buffer[PS_DISK_PARTS_MAX]; /* buffers of the next system call, from offset + done_bytes on */
} ps_disk_piece;

typedef enum ps_disk_take_result { PS_DISK_TAKEN, PS_DISK_NOTHING, PS_DISK_CLOSED } ps_disk_take_result;

int ps_disk_file_count(const ps_disk *d);
int ps_disk_file_fd(const ps_disk *d, int file);

/* The next piece: in issue order of its direction, reads and writes alternating by bytes. NOTHING also when enough is
 * in flight; waits for one if `block`. CLOSED: the disk is closing. */
ps_disk_take_result ps_disk_take(ps_disk *d, bool block, ps_disk_piece *out);

/* Account for the result of one system call for p->buffer: bytes moved, or -errno. True when the piece is finished,
 * failed or not; else the next system call is for the updated p->buffer. */
bool ps_disk_piece_advance(ps_disk_piece *p, int64_t result);
void ps_disk_finish(ps_disk *d, const ps_disk_piece *p);

typedef struct ps_disk_backend_ops {
    const char *name;
    /* Start threads that move pieces of d. PS_ENOSYS when the system does not support this. */
    ps_status (*start)(ps_disk *d, int queue_depth, void **out);
    void (*wake)(void *backend); /* pieces were queued or the disk closes; NULL: the threads block in ps_disk_take */
    void (*tell)(const void *backend, ps_disk_stats *s); /* adds ways, processor_ns */
    void (*stop)(void *backend); /* the disk is closing: wait until the threads are idle, free everything */
} ps_disk_backend_ops;

extern const ps_disk_backend_ops ps_disk_uring_ops;
extern const ps_disk_backend_ops ps_disk_threads_ops;

#endif
