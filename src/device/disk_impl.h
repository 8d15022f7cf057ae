/* disk_impl.h - shared by disk.c and disk_pieces.c: transfers that are not done.
 *
 *   transfers ---.--> reads  -> queue[0] --.
 *                '--> writes -> queue[1] --'--> pieces, in turns by bytes in flight --> the backend's threads
 *
 * The range of offsets is distributed over the files in stripes of STRIPE bytes:
 *
 *   offset   |   0   |   1   |   2   |   3   |   4   |   5   | ...          stripe i of n files: file i % n, there at
 *   file     |   0       1       2   |   0       1       2   |              stripe i / n
 *
 * so each file has its share of any payload that is not small, whatever slot it is in. */
#ifndef PS_DEVICE_DISK_IMPL_H
#define PS_DEVICE_DISK_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/disk_backend.h"
#include "device/disk_gate.h"
#include "device/queue_impl.h"

/* From its issue until it is done, or, if it failed, until the failure is reported. */
struct ps_disk_transfer {
    ps_disk_transfer *next;       /* all of them, by ticket */
    ps_disk_transfer *queue_next; /* those of its direction with pieces that no thread has taken */
    ps_ticket ticket;
    bool is_write;
    bool is_admitted; /* the events that it comes after are done */
    char *buffer;
    int64_t offset, bytes;
    int64_t taken_bytes; /* taken by threads */
    int n_flying;        /* pieces taken and not finished */
    int error;           /* errno of the first piece that failed, with its */
    int error_file;
    int64_t error_offset, error_wanted, error_got; /* offset in that file */
    ps_status cause;                               /* failure of an event that it came after, and its message */
    char why[512];
    int64_t begin_ns; /* first piece taken; for the profile */
};

typedef struct ps_disk_direction {
    ps_disk_transfer *first, *last; /* with pieces that no thread has taken */
    int64_t flying_bytes;           /* of pieces taken and not finished */
} ps_disk_direction;

struct ps_disk {
    ps_queue queue; /* its events stand for transfers */
    int n_files;    /* 0: sim */
    ps_disk_file files[PS_DISK_FILES_MAX];
    const ps_disk_backend_ops *ops; /* NULL: sim */
    void *backend;
    ps_disk_gate gates[2]; /* of reads, of writes: separate, as they wait for different events */
    pthread_mutex_t lock;  /* guards all below, and error fields and counts of transfers */
    pthread_cond_t has_work, has_progress;
    bool closing;
    ps_disk_transfer *first, *last;
    ps_disk_direction directions[2];            /* reads, writes */
    int64_t untrimmed_bytes[PS_DISK_FILES_MAX]; /* of each file */
    _Atomic int64_t n_requests;
    uint8_t links[2]; /* of reads, of writes, for a profile */
    int lanes[2];     /* of a simulated disk that has time */
    _Atomic int64_t read_bytes, write_bytes;
};

static inline bool ps_disk_transfer_is_done(const ps_disk_transfer *t)
{
    return t->is_admitted && t->n_flying == 0 && (t->error != 0 || t->taken_bytes == t->bytes);
}

/* The lock is held. Pieces of t may now be taken. */
void ps_disk_queue_transfer(ps_disk *d, ps_disk_transfer *t);
/* The lock is held, and t is done: removes it if it succeeded, and wakes waiting threads. */
void ps_disk_complete(ps_disk *d, ps_disk_transfer *t);

#endif
