/* disk_threads.c - preadv and pwritev on a pool of threads, one request each. */
#include "base/mem.h"
#include "device/disk_backend.h"
#include "device/worker.h"

#include <errno.h>
#include <unistd.h>

#define THREADS_MAX 32

typedef struct disk_threads {
    ps_disk *disk;
    int n;
    pthread_t thread[THREADS_MAX];
} disk_threads;

static void *thread_main(void *arg)
{
    const disk_threads *b = arg;
    ps_disk_piece p;
    while (ps_disk_take(b->disk, true, &p) == PS_DISK_TAKEN) {
        ssize_t n;
        do {
            const int fd = ps_disk_file_fd(b->disk, p.file);
            const off_t offset = p.offset + p.done_bytes;
            n = p.is_write ? pwritev(fd, p.buffer, p.n_buffers, offset) : preadv(fd, p.buffer, p.n_buffers, offset);
        } while (!ps_disk_piece_advance(&p, n >= 0 ? n : -errno));
        ps_disk_finish(b->disk, &p);
    }
    return NULL;
}

static void tell(const void *backend, ps_disk_stats *s)
{
    const disk_threads *b = backend;
    s->ways = "";
    for (int i = 0; i < b->n; i++) s->processor_ns += ps_worker_processor_ns(b->thread[i]);
}

static void stop(void *backend)
{
    disk_threads *b = backend;
    for (int i = 0; i < b->n; i++) pthread_join(b->thread[i], NULL);
    ps_mem_free(b);
}

/* Fewer threads than requested suffice: no failure. They only read b->disk. */
static ps_status start(ps_disk *d, int queue_depth, void **out)
{
    disk_threads *b = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *b, &b));
    b->disk = d;
    const int wanted = (int)ps_min_i64(queue_depth, THREADS_MAX);
    while (b->n < wanted) {
        const ps_status st = ps_worker_start("ps-disk", thread_main, b, &b->thread[b->n]);
        if (st == PS_OK) {
            b->n++;
        } else if (b->n > 0) {
            break;
        } else {
            ps_mem_free(b);
            return st;
        }
    }
    *out = b;
    return PS_OK;
}

const ps_disk_backend_ops ps_disk_threads_ops = {.name = "threads", .start = start, .tell = tell, .stop = stop};
