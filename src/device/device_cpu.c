/* device_cpu.c - RAM as a device: anonymous pages, and a thread a queue that copies.
 *
 * Huge pages must not make memory resident that was not allocated. So blocks and regions begin at a multiple of
 * HUGE_BYTES, and huge pages are advised for exactly the committed parts of a region. The kernel keeps advice by
 * mapping (VMA), and a huge page is within one mapping: where HUGE_BYTES are half committed, it cannot fill the other
 * half, neither on a touch nor by khugepaged. A block, or a range committed at once, is always advised as a whole: it
 * stays one mapping, as mremap moves several only from Linux 6.17 on. */
#include "device/device_impl.h"
#include "device/queue_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES (2 * PS_MIB)

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

/* In multiples of HUGE_BYTES, so that the last of them is not shared with another mapping. */
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

/* Uncommitted pages are PROT_NONE: with vm.overcommit_memory 2 all writable memory counts as used. */
static ps_status commit_range(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    (void)dev;
    char *p = base;
    PS_TRY(open_pages(p + offset, bytes));
    madvise(p + offset, (size_t)bytes, MADV_HUGEPAGE);
    return PS_OK;
}

/* Unmap the memory; the addresses stay reserved. A new mapping replaces the old one, because the system keeps counting
 * memory that was once writable. Where the system refuses that (too many mappings), at least the pages are freed. */
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

/* A failed mremap may have unmapped its target already, and another thread may have been given those addresses since:
 * they are reserved again if they are free, and otherwise neither unmapped nor mapped over. True: they were free, and
 * are reserved again. */
static bool reserve_again(void *p, int64_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    void *got = mmap(p, (size_t)bytes, PROT_NONE, flags, -1, 0);
    if (got != MAP_FAILED && got != p) munmap(got, (size_t)bytes); /* a kernel before 4.17 treats it as a hint */
    return got == p;
}

/* MREMAP_DONTUNMAP (Linux 5.7) moves the pages and leaves the mapping. The new address is that of a block, so that huge
 * pages stay huge where the old address was a multiple of HUGE_BYTES too. */
static ps_status move_out(ps_device *dev, void *base, int64_t offset, int64_t bytes, void **block)
{
    (void)dev;
    char *p = (char *)base + offset;
    void *to;
    PS_TRY(reserve_block(bytes, &to));
    if (mremap(p, (size_t)bytes, (size_t)bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == MAP_FAILED) {
        const int error = errno;
        const bool never = error != ENOMEM && error != EFAULT; /* refused before anything was done */
        /* otherwise the old mapping may be another thread's: leaking addresses without memory is the lesser loss */
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

/* ---- queues ------------------------------------------------------------------------------------------------------ */

#define COPIES_MAX 256 /* in flight on a queue */

/* Kernels have their own threads, and the calling thread waits for them. */
static ps_status create_queue(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out)
{
    (void)dev;
    return kind == PS_QUEUE_COMPUTE ? ps_queue_now_create(false, out) : ps_queue_thread_create(name, COPIES_MAX, out);
}

const ps_device_ops ps_device_cpu_ops = {
    .name = "cpu",
    .host_can_touch = true,
    .gives_zeros = true,
    .large_page_bytes = HUGE_BYTES,
    .map = map_block,
    .unmap = unmap_block,
    .reserve = reserve_region,
    .unreserve = unreserve_region,
    .commit = commit_range,
    .decommit = decommit_range,
    .move_out = move_out,
    .move_in = move_in,
    .queue_create = create_queue,
};

const ps_space ps_space_ram = {
    .device = &ps_device_cpu_ops, .host = &ps_device_cpu_ops, .page_bytes = PS_PAGE_BYTES, .is_unified_memory = true};
