/* disk_uring.c - io_uring, submitted to and reaped by one thread.
 *
 * The thread sleeps in the kernel until a piece is complete or until the caller writes to `bell`, an eventfd of which a
 * read is always in flight. Submission pins and maps every page of a buffer; this thread does it, in parallel with
 * computing, instead of the caller's thread. */
#include "base/mem.h"
#include "device/disk_backend.h"
#include "device/worker.h"

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct disk_uring {
    ps_disk *disk;
    int bell, queue_depth;
    bool has_files;      /* registered with the ring */
    bool shares_workers; /* completions run in this thread only */
    pthread_t thread;
    _Atomic bool sleeps;  /* the thread may wait in the kernel, and sees new pieces only if the bell rings */
    struct io_uring ring; /* this and the members below are used by the thread alone */
    uint64_t bell_count;
    bool closed;
    int n_idle; /* pieces in idle[]; the others are in flight */
    ps_disk_piece **idle, *pieces;
} disk_uring;

/* The ring has an entry for each piece and the bell, so that one is always free here. */
static struct io_uring_sqe *next_entry(disk_uring *b)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&b->ring);
    PS_ASSERT(e != NULL);
    return e;
}

static void listen_to_bell(disk_uring *b)
{
    struct io_uring_sqe *e = next_entry(b);
    io_uring_prep_read(e, b->bell, &b->bell_count, sizeof b->bell_count, 0);
    io_uring_sqe_set_data(e, NULL);
}

static void prepare_piece(disk_uring *b, ps_disk_piece *p)
{
    struct io_uring_sqe *e = next_entry(b);
    const struct iovec *v = p->buffer;
    const unsigned n = (unsigned)p->n_buffers;
    const uint64_t offset = (uint64_t)(p->offset + p->done_bytes);
    const int fd = b->has_files ? p->file : ps_disk_file_fd(b->disk, p->file);
    if (n == 1 && p->is_write)
        io_uring_prep_write(e, fd, v->iov_base, (unsigned)v->iov_len, offset);
    else if (n == 1)
        io_uring_prep_read(e, fd, v->iov_base, (unsigned)v->iov_len, offset);
    else if (p->is_write)
        io_uring_prep_writev(e, fd, v, n, offset);
    else
        io_uring_prep_readv(e, fd, v, n, offset);
    if (b->has_files) io_uring_sqe_set_flags(e, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(e, p);
}

static void take_pieces(disk_uring *b)
{
    while (b->n_idle > 0 && !b->closed) {
        ps_disk_piece *p = b->idle[b->n_idle - 1];
        const ps_disk_take_result r = ps_disk_take(b->disk, false, p);
        if (r == PS_DISK_CLOSED) b->closed = true;
        if (r != PS_DISK_TAKEN) return;
        b->n_idle--;
        prepare_piece(b, p);
    }
}

static void reap_pieces(disk_uring *b)
{
    struct io_uring_cqe *c;
    while (io_uring_peek_cqe(&b->ring, &c) == 0) {
        ps_disk_piece *p = io_uring_cqe_get_data(c);
        const int result = c->res;
        io_uring_cqe_seen(&b->ring, c);
        if (p == NULL) {
            if (!b->closed) listen_to_bell(b);
        } else if (!ps_disk_piece_advance(p, result)) {
            prepare_piece(b, p);
        } else {
            ps_disk_finish(b->disk, p);
            b->idle[b->n_idle++] = p;
        }
    }
}

/* io_uring_enable_rings, which Debian 12's liburing declares and lacks. */
static bool enable_ring(const struct io_uring *ring)
{
    return syscall(__NR_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0;
}

/* A submission refused for now (no kernel memory, completions to reap first) stays in the ring for the next round.
 * A caller that queues a piece after `sleeps` is set rings the bell; earlier pieces are taken here. */
static void *thread_main(void *arg)
{
    disk_uring *b = arg;
    const bool is_enabled = !b->shares_workers || enable_ring(&b->ring);
    PS_ASSERT(is_enabled); /* a ring with the same flags has been enabled */
    (void)is_enabled;
    listen_to_bell(b);
    for (;;) {
        b->sleeps = true;
        take_pieces(b);
        if (b->closed && b->n_idle == b->queue_depth) break;
        io_uring_submit_and_wait(&b->ring, 1);
        b->sleeps = false;
        reap_pieces(b);
    }
    return NULL;
}

static void release(disk_uring *b)
{
    if (b->ring.ring_fd >= 0) io_uring_queue_exit(&b->ring);
    if (b->bell >= 0) close(b->bell);
    ps_mem_free(b->idle);
    ps_mem_free(b->pieces);
    ps_mem_free(b);
}

static void wake(void *backend)
{
    disk_uring *b = backend;
    const uint64_t one = 1;
    if (!atomic_exchange(&b->sleeps, false)) return; /* it has not checked yet, or the bell has rung */
    while (write(b->bell, &one, sizeof one) < 0 && errno == EINTR) continue;
}

static void tell(const void *backend, ps_disk_stats *s)
{
    static const char *const ways[2][2] = {{"", "one issuer"}, {"registered files", "registered files, one issuer"}};
    const disk_uring *b = backend;
    s->ways = ways[b->has_files][b->shares_workers];
    s->processor_ns = ps_worker_processor_ns(b->thread);
}

static void stop(void *backend)
{
    disk_uring *b = backend;
    pthread_join(b->thread, NULL);
    release(b);
}

/* A ring for one issuing thread with deferred completions (Linux 6.1). It belongs to the thread that enables it. */
#define SINGLE_ISSUER_RING (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED)

/* Tried on another ring first: the thread that must enable its own ring could not fall back any more. */
static bool can_share_workers(void)
{
    struct io_uring ring;
    if (io_uring_queue_init(1, &ring, SINGLE_ISSUER_RING) != 0) return false;
    const bool can = enable_ring(&ring);
    io_uring_queue_exit(&ring);
    return can;
}

static int create_ring(disk_uring *b)
{
    const unsigned n = (unsigned)b->queue_depth + 1;
    b->shares_workers = can_share_workers() && io_uring_queue_init(n, &b->ring, SINGLE_ISSUER_RING) == 0;
    return b->shares_workers ? 0 : io_uring_queue_init(n, &b->ring, 0);
}

static bool register_files(disk_uring *b)
{
    int fds[PS_DISK_FILES_MAX];
    const int n = ps_disk_file_count(b->disk);
    for (int i = 0; i < n; i++) fds[i] = ps_disk_file_fd(b->disk, i);
    return io_uring_register_files(&b->ring, fds, (unsigned)n) == 0;
}

/* Containers often forbid the calls; kernels before 5.6 lack plain reads and writes. */
static ps_status open_ring(disk_uring *b)
{
    const int rc = create_ring(b);
    if (rc < 0) {
        b->ring.ring_fd = -1;
        return PS_FAIL(PS_ENOSYS, "io_uring is not available: %s", strerror(-rc));
    }
    struct io_uring_probe *probe = io_uring_get_probe_ring(&b->ring);
    const bool ok = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                    io_uring_opcode_supported(probe, IORING_OP_WRITE);
    if (probe != NULL) io_uring_free_probe(probe);
    b->has_files = register_files(b);
    return ok ? PS_OK : PS_FAIL(PS_ENOSYS, "io_uring of this kernel cannot read and write");
}

static ps_status start(ps_disk *d, int queue_depth, void **out)
{
    ps_status st;
    disk_uring *b = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *b, &b));
    b->disk = d;
    b->bell = b->ring.ring_fd = -1;
    b->queue_depth = queue_depth;
    PS_TRY_GOTO(ps_mem_alloc((size_t)queue_depth, sizeof b->pieces[0], &b->pieces));
    PS_TRY_GOTO(ps_mem_alloc((size_t)queue_depth, sizeof b->idle[0], &b->idle));
    while (b->n_idle < queue_depth) b->idle[b->n_idle] = &b->pieces[b->n_idle], b->n_idle++;
    b->bell = eventfd(0, EFD_CLOEXEC);
    if (b->bell < 0) {
        st = PS_FAIL(PS_EIO, "cannot create an eventfd: %s", strerror(errno));
        goto out;
    }
    PS_TRY_GOTO(open_ring(b));
    PS_TRY_GOTO(ps_worker_start("ps-disk", thread_main, b, &b->thread));
    *out = b;
    return PS_OK;
out:
    release(b);
    return st;
}

const ps_disk_backend_ops ps_disk_uring_ops = {
    .name = "io_uring", .start = start, .wake = wake, .tell = tell, .stop = stop};
