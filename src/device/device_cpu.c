/* device_cpu.c - RAM as a device: anonymous pages, and a thread a stream that copies.
 *
 * Huge pages must not make memory resident that nobody was given. So blocks and regions begin at a multiple of
 * HUGE_BYTES, and huge pages are advised for just what is committed of a region. The kernel keeps advice by mapping
 * (VMA), and a huge page lies within one mapping: where HUGE_BYTES are half committed, it cannot fill the other half,
 * neither on a touch nor from its background thread. A block, or what is committed at once, is always advised as a whole:
 * it stays one mapping, as mremap moves several only from Linux 6.17 on. */
#include "base/mem.h"
#include "device/device_impl.h"
#include "device/worker.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES (2 * PS_MIB)
#define RING_LEN 256 /* copies queued in a stream before its user has to wait */

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static ps_status open_pages(void *p, int64_t bytes)
{
    if (mprotect(p, (size_t)bytes, PROT_READ | PROT_WRITE) == 0) return PS_OK;
    return PS_FAIL(PS_ENOMEM_HOST, "the system refused %lld bytes: %s", (long long)bytes, strerror(errno));
}

static ps_status reserve_block(int64_t bytes, void **out)
{
    return ps_address_reserve(bytes, bytes >= HUGE_BYTES ? HUGE_BYTES : PS_PAGE_BYTES, out);
}

static ps_status map_block(ps_device *dev, int64_t bytes, void **out)
{
    (void)dev;
    PS_TRY(reserve_block(bytes, out));
    const ps_status st = open_pages(*out, bytes);
    if (st != PS_OK) {
        munmap(*out, (size_t)bytes);
        *out = NULL;
        return st;
    }
    /* Advice: a kernel without huge pages refuses it and nothing is lost. */
    if (bytes >= HUGE_BYTES) madvise(*out, (size_t)bytes, MADV_HUGEPAGE);
    return PS_OK;
}

static void unmap_block(ps_device *dev, void *p, int64_t bytes)
{
    (void)dev;
    munmap(p, (size_t)bytes);
}

/* In multiples of HUGE_BYTES, so that nothing else lies in the last of them. */
static ps_status reserve_region(ps_device *dev, int64_t bytes, void **out)
{
    (void)dev;
    const int64_t whole = ps_round_up(bytes, HUGE_BYTES);
    PS_TRY(ps_address_reserve(whole, HUGE_BYTES, out));
    madvise(*out, (size_t)whole, MADV_NOHUGEPAGE);
    return PS_OK;
}

static void unreserve_region(ps_device *dev, void *base, int64_t bytes)
{
    (void)dev;
    munmap(base, (size_t)ps_round_up(bytes, HUGE_BYTES));
}

/* What is not committed cannot be touched: where vm.overcommit_memory is 2, all that may be written counts as used. */
static ps_status commit_range(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    (void)dev;
    char *p = base;
    PS_TRY(open_pages(p + offset, bytes));
    madvise(p + offset, (size_t)bytes, MADV_HUGEPAGE);
    return PS_OK;
}

/* Give the memory back; the addresses stay reserved. A new mapping replaces the old one, because the system goes on
 * counting what once could be written. Where it refuses that (too many mappings), the pages at least are gone. */
static void close_pages(void *p, int64_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    const bool is_new = mmap(p, (size_t)bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
    madvise(p, (size_t)bytes, MADV_NOHUGEPAGE);
    if (!is_new) madvise(p, (size_t)bytes, MADV_DONTNEED);
}

static void decommit_range(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    (void)dev;
    char *p = (char *)base + offset;
    close_pages(p, bytes);
}

/* A failed mremap may have unmapped its target already, and another thread may have got those addresses since: they are
 * taken again where they are free, and never given back or mapped over where they are not. True: they were gone, and
 * are reserved again. */
static bool reserve_again(void *p, int64_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    void *got = mmap(p, (size_t)bytes, PROT_NONE, flags, -1, 0);
    if (got != MAP_FAILED && got != p) munmap(got, (size_t)bytes); /* a kernel before 4.17 takes it as a wish */
    return got == p;
}

/* MREMAP_DONTUNMAP (Linux 5.7) takes the pages and leaves the mapping. The new address is a block's, so that huge pages
 * stay huge where the old one was a multiple of HUGE_BYTES too. */
static ps_status move_out(ps_device *dev, void *base, int64_t offset, int64_t bytes, void **block)
{
    (void)dev;
    char *p = (char *)base + offset;
    void *to;
    PS_TRY(reserve_block(bytes, &to));
    if (mremap(p, (size_t)bytes, (size_t)bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == MAP_FAILED) {
        const int error = errno;
        const bool never = error != ENOMEM && error != EFAULT; /* refused before anything was done */
        /* else it is still there, or another's: addresses without memory are the lesser loss */
        if (never || reserve_again(to, bytes)) munmap(to, (size_t)bytes);
        return PS_FAIL(never ? PS_ENOSYS : PS_ENOMEM_HOST, "cannot move %lld bytes: %s", (long long)bytes,
                       strerror(error));
    }
    close_pages(p, bytes);
    *block = to;
    return PS_OK;
}

static ps_status move_in(ps_device *dev, void *base, int64_t offset, int64_t bytes, void *block)
{
    (void)dev;
    char *p = (char *)base + offset;
    if (mremap(block, (size_t)bytes, (size_t)bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p) != MAP_FAILED) return PS_OK;
    const int error = errno;
    (void)reserve_again(p, bytes);
    return PS_FAIL(PS_ENOMEM_HOST, "cannot move %lld bytes: %s", (long long)bytes, strerror(error));
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

typedef struct copy_item {
    void *dst;
    const void *src;
    int64_t bytes;
} copy_item;

/* Copy number t (from 1) is in ring[t % RING_LEN] from its issue until it is done. */
typedef struct cpu_stream {
    ps_stream base;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t has_work, has_progress;
    bool stop;              /* lock */
    ps_ticket issued;       /* lock to write; only the user's thread writes */
    _Atomic ps_ticket done; /* lock to write; only the worker writes */
    copy_item ring[RING_LEN];
} cpu_stream;

static void record_copy(const cpu_stream *s, ps_ticket ticket, int64_t begin_ns)
{
    ps_profile *p = s->base.profile;
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_MOVED,
                                           .chunk = -1,
                                           .begin_ns = begin_ns,
                                           .end_ns = ps_profile_now(p),
                                           .copy = {.ticket = ticket, .link = s->base.profile_link}});
}

static void *stream_main(void *arg)
{
    cpu_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->issued == s->done && !s->stop) pthread_cond_wait(&s->has_work, &s->lock);
        if (s->issued == s->done) break;
        const ps_ticket ticket = s->done + 1;
        const copy_item c = s->ring[ticket % RING_LEN];
        pthread_mutex_unlock(&s->lock);
        const int64_t begin_ns = ps_profile_now(s->base.profile);
        if (c.bytes > 0) memcpy(c.dst, c.src, (size_t)c.bytes);
        record_copy(s, ticket, begin_ns);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->has_progress);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void stream_release(cpu_stream *s)
{
    pthread_cond_destroy(&s->has_progress);
    pthread_cond_destroy(&s->has_work);
    pthread_mutex_destroy(&s->lock);
    ps_mem_free(s);
}

static ps_status stream_create(ps_device *dev, const char *name, ps_stream **out)
{
    (void)dev;
    cpu_stream *s = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->has_work, NULL);
    pthread_cond_init(&s->has_progress, NULL);
    const ps_status st = ps_worker_start(name, stream_main, s, &s->thread);
    if (st != PS_OK)
        stream_release(s);
    else
        *out = &s->base;
    return st;
}

static void stream_destroy(ps_stream *stream)
{
    cpu_stream *s = (cpu_stream *)stream;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->has_work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL); /* ends when the ring is empty */
    stream_release(s);
}

static ps_status stream_copy(ps_stream *stream, void *dst, const void *src, int64_t bytes, ps_ticket *out)
{
    cpu_stream *s = (cpu_stream *)stream;
    pthread_mutex_lock(&s->lock);
    while (s->issued - s->done == RING_LEN) pthread_cond_wait(&s->has_progress, &s->lock);
    s->issued++;
    s->ring[s->issued % RING_LEN] = (copy_item){dst, src, bytes};
    *out = s->issued;
    pthread_cond_signal(&s->has_work);
    pthread_mutex_unlock(&s->lock);
    return PS_OK;
}

static bool stream_is_done(ps_stream *stream, ps_ticket t)
{
    cpu_stream *s = (cpu_stream *)stream;
    PS_ASSERT(t <= s->issued);
    return t <= s->done;
}

static ps_status stream_wait(ps_stream *stream, ps_ticket t)
{
    cpu_stream *s = (cpu_stream *)stream;
    if (stream_is_done(stream, t)) return PS_OK;
    pthread_mutex_lock(&s->lock);
    while (s->done < t) pthread_cond_wait(&s->has_progress, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return PS_OK;
}

const ps_device_ops ps_device_cpu_ops = {
    .name = "cpu",
    .map = map_block,
    .unmap = unmap_block,
    .reserve = reserve_region,
    .unreserve = unreserve_region,
    .commit = commit_range,
    .decommit = decommit_range,
    .move_out = move_out,
    .move_in = move_in,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .copy = stream_copy,
    .wait = stream_wait,
    .is_done = stream_is_done,
};
