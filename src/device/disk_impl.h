/* disk_impl.h - what disk.c and disk_pieces.c share: transfers on their way.
 *
 *   transfers ---.--> reads  -> queue[0] --.
 *                '--> writes -> queue[1] --'--> pieces, in turns by bytes under way --> the backend's threads
 *
 * The range of offsets is dealt out to the files in stripes of STRIPE bytes, one after the other:
 *
 *   offset   |   0   |   1   |   2   |   3   |   4   |   5   | ...          stripe i of n files: file i % n, there at
 *   file     |   0       1       2   |   0       1       2   |              stripe i / n
 *
 * so each has its share of any payload that is not small, whatever slot it lies in. */
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
    ps_disk_transfer *queue_next; /* those of its direction with pieces nobody took */
    ps_ticket ticket;
    bool is_write;
    bool is_admitted; /* what it comes after is over */
    char *buffer;
    int64_t offset, bytes;
    int64_t taken_bytes; /* given out in pieces */
    int n_flying;        /* pieces taken and not finished */
    int error;           /* of the first piece that failed, which was: */
    int error_file;
    int64_t error_offset, error_wanted, error_got; /* offset in that file */
    ps_status cause;                               /* of what it came after, which failed; and why: */
    char why[512];
    int64_t begin_ns; /* first piece taken; for the profile */
};

typedef struct ps_disk_direction {
    ps_disk_transfer *first, *last; /* with pieces nobody took */
    int64_t flying_bytes;           /* of pieces taken and not finished */
} ps_disk_direction;

struct ps_disk {
    ps_queue queue; /* whose events stand for transfers */
    int n_files;    /* 0: sim */
    ps_disk_file files[PS_DISK_FILES_MAX];
    const ps_disk_backend_ops *ops; /* NULL: sim */
    void *backend;
    ps_disk_gate gates[2]; /* of reads, of writes: these wait for other things */
    pthread_mutex_t lock;  /* all below; error fields and counts of transfers too */
    pthread_cond_t has_work, has_progress;
    bool closing;
    ps_disk_transfer *first, *last;
    ps_disk_direction directions[2];            /* reads, writes */
    int64_t untrimmed_bytes[PS_DISK_FILES_MAX]; /* of each file */
    _Atomic int64_t n_requests;
    ps_profile *profile; /* NULL: none */
    uint8_t read_link, write_link;
    int read_lane, write_lane; /* of a simulated disk that has time */
    _Atomic int64_t read_bytes, write_bytes;
};

static inline bool ps_disk_transfer_is_done(const ps_disk_transfer *t)
{
    return t->is_admitted && t->n_flying == 0 && (t->error != 0 || t->taken_bytes == t->bytes);
}

/* The lock is held: pieces of t may be taken. */
void ps_disk_queue_transfer(ps_disk *d, ps_disk_transfer *t);
/* The lock is held, and t is done: forget it if it went well, and tell who waits. */
void ps_disk_settle(ps_disk *d, ps_disk_transfer *t);

#endif
