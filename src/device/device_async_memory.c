/* device_async_memory.c - the two kinds of memory of the fake GPU, each a range of addresses over a file in memory. A
 * page has memory from when it is first poisoned. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "device/async_impl.h"
#include "device/device_impl.h"

#define POISON 0xff

/* ---- bits of pages ---- */

static bool bit(const uint64_t *words, int64_t i)
{
    return words[i / 64] >> (i % 64) & 1;
}

static void set_bits(uint64_t *words, int64_t first, int64_t n, bool value)
{
    for (int64_t i = first; i < first + n; i++) {
        const uint64_t mask = (uint64_t)1 << (i % 64);
        words[i / 64] = value ? words[i / 64] | mask : words[i / 64] & ~mask;
    }
}

/* The first n zeros in a row among `total` bits; -1: none. */
static int64_t find_zeros(const uint64_t *words, int64_t total, int64_t n)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < total; i++) {
        if (i % 64 == 0 && words[i / 64] == UINT64_MAX) {
            zeros = 0;
            i += 63;
            continue;
        }
        zeros = bit(words, i) ? 0 : zeros + 1;
        if (zeros == n) return i + 1 - n;
    }
    return -1;
}

/* ---- each kind ---- */

ps_status ps_async_memory_init(ps_async_memory *s, int64_t bytes, int64_t page_bytes, bool host_can_touch)
{
    bytes = ps_round_up(bytes, page_bytes);
    const size_t n_words = (size_t)ps_ceil_div(bytes / page_bytes, 64);
    const int access = host_can_touch ? PROT_READ | PROT_WRITE : PROT_NONE;
    s->page_bytes = page_bytes;
    s->host_can_touch = host_can_touch;
    PS_TRY(ps_mem_alloc(n_words, sizeof s->given[0], &s->given));
    PS_TRY(ps_mem_alloc(n_words, sizeof s->poisoned[0], &s->poisoned));
    void *p;
    PS_TRY(ps_address_reserve(bytes, page_bytes, &p));
    s->base = p;
    s->bytes = bytes;
    s->file = memfd_create(host_can_touch ? "pinned" : "cpu_async", MFD_CLOEXEC);
    if (s->file < 0 || ftruncate(s->file, bytes) != 0 ||
        mmap(p, (size_t)bytes, access, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, s->file, 0) == MAP_FAILED)
        return PS_FAIL(PS_ENOMEM_HOST, "cpu_async: cannot map %lld bytes: %s", (long long)bytes, strerror(errno));
    return PS_OK;
}

void ps_async_memory_deinit(ps_async_memory *s)
{
    if (s->base != NULL) munmap(s->base, (size_t)s->bytes);
    if (s->file >= 0) close(s->file);
    ps_mem_free(s->poisoned);
    ps_mem_free(s->given);
}

bool ps_async_memory_has(const ps_async_memory *s, const void *p, int64_t bytes)
{
    const char *c = p;
    return c >= s->base && c <= s->base + s->bytes && bytes <= s->base + s->bytes - c;
}

static int64_t page_of(const ps_async_memory *s, const void *p)
{
    return ((const char *)p - s->base) / s->page_bytes;
}

/* By the file: the host has the device's memory under no address that it could touch. */
static ps_status write_poison(const ps_async_memory *s, int64_t offset, int64_t bytes)
{
    char poison[16 * PS_KIB];
    memset(poison, POISON, sizeof poison);
    while (bytes > 0) {
        const ssize_t n = pwrite(s->file, poison, (size_t)ps_min_i64(bytes, sizeof poison), offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return PS_FAIL(PS_ENOMEM_HOST, "cpu_async: no memory for %lld bytes: %s", (long long)bytes,
                           strerror(errno));
        offset += n;
        bytes -= n;
    }
    return PS_OK;
}

/* Poison where there is none yet, and is not going to be: what the helper poisons is named by an event. */
static ps_status make_poisoned(ps_async_memory *s, void *p, int64_t bytes)
{
    const int64_t first = page_of(s, p), n = bytes / s->page_bytes;
    for (int64_t i = first; i < first + n; i++)
        if (!bit(s->poisoned, i)) PS_TRY(write_poison(s, i * s->page_bytes, s->page_bytes));
    set_bits(s->poisoned, first, n, false);
    return PS_OK;
}

static ps_status take(ps_async_memory *s, int64_t bytes, void **out)
{
    const int64_t n = bytes / s->page_bytes, first = find_zeros(s->given, s->bytes / s->page_bytes, n);
    if (first < 0)
        return PS_FAIL(PS_ENOMEM_HOST, "cpu_async: no %lld bytes of addresses are left of %lld", (long long)bytes,
                       (long long)s->bytes);
    set_bits(s->given, first, n, true);
    *out = s->base + first * s->page_bytes;
    return PS_OK;
}

static void give_back(ps_async_memory *s, const void *p, int64_t bytes)
{
    set_bits(s->given, page_of(s, p), bytes / s->page_bytes, false);
}

/* ---- two devices ---- */

/* A device lies in the space that its operations say; so both share these functions. */
static ps_async_memory *memory_of(const ps_device *dev)
{
    ps_async *a = ps_device_driver(dev);
    return ps_device_host_can_touch(dev) ? &a->pinned : &a->device;
}

static ps_status map_block(ps_device *dev, int64_t bytes, void **out)
{
    ps_async_memory *s = memory_of(dev);
    PS_TRY(ps_async_admit(ps_device_driver(dev)));
    PS_TRY(take(s, bytes, out));
    const ps_status st = make_poisoned(s, *out, bytes);
    if (st != PS_OK) {
        give_back(s, *out, bytes);
        *out = NULL;
    }
    return st;
}

static void unmap_block(ps_device *dev, void *p, int64_t bytes)
{
    give_back(memory_of(dev), p, bytes);
}

static ps_status reserve_region(ps_device *dev, int64_t bytes, void **out)
{
    PS_TRY(ps_async_admit(ps_device_driver(dev)));
    return take(memory_of(dev), bytes, out);
}

/* Of what is committed still nobody has said that it is free: it is poisoned when it is given again. */
static void unreserve_region(ps_device *dev, void *base, int64_t bytes)
{
    ps_async_memory *s = memory_of(dev);
    give_back(s, base, bytes);
    set_bits(s->poisoned, page_of(s, base), bytes / s->page_bytes, false);
}

static ps_status commit_range(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    PS_TRY(ps_async_admit(ps_device_driver(dev)));
    return make_poisoned(memory_of(dev), (char *)base + offset, bytes);
}

static void decommit_range(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    (void)dev, (void)base, (void)offset, (void)bytes;
}

/* It fails only when the device is lost, and then nothing is under way. */
static ps_event release(ps_device *dev, void *p, int64_t bytes, const ps_events *after)
{
    static const ps_events none;
    ps_async *a = ps_device_driver(dev);
    ps_async_memory *s = memory_of(dev);
    ps_event e = {0};
    bytes = ps_round_up(bytes, s->page_bytes);
    pthread_mutex_lock(&a->lock);
    const ps_status st = ps_async_queue_poison(s->releases, p, bytes, after != NULL ? after : &none, &e);
    pthread_mutex_unlock(&a->lock);
    set_bits(s->poisoned, page_of(s, p), bytes / s->page_bytes, st == PS_OK);
    return e;
}

static ps_status create_queue(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out)
{
    ps_async *a = ps_device_driver(dev);
    const bool computes_here = ps_device_host_can_touch(dev) && kind == PS_QUEUE_COMPUTE;
    PS_TRY(ps_async_admit(a));
    return computes_here ? ps_queue_thread_create(name, PS_ASYNC_RING, out) : ps_async_queue_create(a, name, out);
}

#define MEMORY_OPS                                                                                                     \
    .release = release, .map = map_block, .unmap = unmap_block, .reserve = reserve_region,                             \
    .unreserve = unreserve_region, .commit = commit_range, .decommit = decommit_range, .queue_create = create_queue

const ps_device_ops ps_device_async_ops = {.name = "cpu_async", .works_later = true, MEMORY_OPS};
const ps_device_ops ps_device_pinned_ops = {.name = "pinned", .host_can_touch = true, MEMORY_OPS};
