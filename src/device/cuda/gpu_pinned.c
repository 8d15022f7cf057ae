/* gpu_pinned.c - page-locked memory: the host tier of a GPU.
 *
 * Each block, and each piece that a region commits, is registered separately, so a copy within it is one copy for the
 * driver. Registration is expensive (the system clears and locks each page) and unregistration waits for copies. So it
 * is done once: freed blocks are kept (device.h), and decommitted pieces of regions stay registered until exactly that
 * piece is committed again. Both count as kept memory of the budget, and are released when another allocation needs
 * their room.
 *
 * Why not one arena, registered at the start: a tensor larger than a chunk needs neighbouring addresses, and registered
 * pages cannot be remapped. An arena would fragment, and an allocation within the budget could fail. The first step,
 * and the reading of weights before it, pay for registration; later steps reuse it. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/machine.h"
#include "base/mem.h"
#include "device/cuda/gpu_impl.h"
#include "device/device_impl.h"
#include "device/worker.h"

#define HUGE_PAGE_BYTES (2 * PS_MIB)
/* Large enough for another thread to touch it first. */
#define TOUCH_BYTES (16 * PS_MIB)
#define TOUCHERS_MAX 8

typedef enum pin_kind {
    REGISTERED,
    FROM_DRIVER, /* a block, where registering is forbidden */
    UNLOCKED     /* a piece of a region then, as its address is fixed: pageable memory, with slower copies */
} pin_kind;

typedef struct pin {
    char *p;
    int64_t bytes;
    pin_kind kind;
    ps_ticket until; /* ticket of the releases queue after which its freed parts are unused */
} pin;

struct ps_gpu_pinned {
    ps_gpu *gpu;
    pin *pins; /* by address */
    int n;
    int64_t bytes, n_pins;
};

/* ---- first touch ---- */

typedef struct touched {
    char *p;
    int64_t bytes;
} touched;

static void *touch(void *arg)
{
    const touched *t = arg;
    for (int64_t i = 0; i < t->bytes; i += PS_PAGE_BYTES) ((volatile char *)t->p)[i] = 0;
    return NULL;
}

/* By several threads, since the system clears a page in the thread that touches it first. Pages that are not touched
 * here are touched by registration. */
static void touch_all(char *p, int64_t bytes)
{
    pthread_t threads[TOUCHERS_MAX];
    touched parts[TOUCHERS_MAX];
    const int64_t n_wanted = ps_min_i64(ps_min_i64(TOUCHERS_MAX, ps_machine_cores(NULL)), bytes / TOUCH_BYTES);
    int n = 0;
    for (; n < n_wanted; n++) {
        const int64_t begin = bytes * n / n_wanted / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        const int64_t end = n + 1 == n_wanted ? bytes : bytes * (n + 1) / n_wanted / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        parts[n] = (touched){p + begin, end - begin};
        if (ps_worker_start("first touch", touch, &parts[n], &threads[n]) != PS_OK) break;
    }
    while (n > 0) pthread_join(threads[--n], NULL);
}

/* ---- the table ---- */

/* The first that ends after p. */
static int find(const ps_gpu_pinned *m, const char *p)
{
    int low = 0, high = m->n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (m->pins[middle].p + m->pins[middle].bytes <= p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* There is room for one more entry. */
static void note(ps_gpu_pinned *m, char *p, int64_t bytes, pin_kind kind)
{
    const int i = find(m, p);
    memmove(&m->pins[i + 1], &m->pins[i], (size_t)(m->n - i) * sizeof m->pins[0]);
    m->pins[i] = (pin){.p = p, .bytes = bytes, .kind = kind};
    m->n++;
    if (kind == UNLOCKED) return;
    m->bytes += bytes;
    m->n_pins++;
}

static pin forget(ps_gpu_pinned *m, int i)
{
    const pin gone = m->pins[i];
    m->n--;
    memmove(&m->pins[i], &m->pins[i + 1], (size_t)(m->n - i) * sizeof m->pins[0]);
    if (gone.kind != UNLOCKED) m->bytes -= gone.bytes;
    return gone;
}

/* ---- page-locking ---- */

static ps_status refuse(ps_gpu *g, ps_cu_result r, int64_t bytes)
{
    char why[256], text[2][PS_BYTES_TEXT_MAX];
    if (ps_cu_is_fatal(r)) return ps_gpu_check(g, r, "page-locking");
    ps_cu_describe(g->driver, r, why, sizeof why);
    return PS_FAIL(PS_ENOMEM_HOST,
                   "cuda: cannot page-lock %s of RAM (%s so far): %s; lower memory.host, or raise the limit of "
                   "locked memory (ulimit -l) or of the container",
                   ps_bytes_format(bytes, text[0]), ps_bytes_format(g->pinned->bytes, text[1]), why);
}

/* It would fail regardless of free memory. */
static bool is_forbidden(ps_cu_result r)
{
    return r == PS_CU_NOT_PERMITTED || r == PS_CU_NOT_SUPPORTED;
}

static ps_status open_pages(char *p, int64_t bytes)
{
    if (mmap(p, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return PS_FAIL(PS_ENOMEM_HOST, "cannot map %lld bytes: %s", (long long)bytes, strerror(errno));
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    madvise(p, (size_t)bytes, MADV_DONTFORK); /* after fork a page locked here would be copied on write */
    touch_all(p, bytes);
    return PS_OK;
}

static void close_pages(char *p, int64_t bytes)
{
    mmap(p, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

/* Maps memory at the reserved addresses [p, p + bytes). On failure nothing has changed. */
static ps_status lock_pages(ps_gpu *g, char *p, int64_t bytes, bool may_be_unlocked)
{
    ps_gpu_pinned *m = g->pinned;
    PS_TRY(ps_mem_reserve(&m->pins, (size_t)m->n + 1, sizeof m->pins[0]));
    PS_TRY(open_pages(p, bytes));
    const ps_cu_result r = g->driver->host_register(p, (size_t)bytes, PS_CU_HOST_PORTABLE | PS_CU_HOST_MAPPED);
    if (r == PS_CU_SUCCESS || (may_be_unlocked && is_forbidden(r))) {
        note(m, p, bytes, r == PS_CU_SUCCESS ? REGISTERED : UNLOCKED);
        return PS_OK;
    }
    close_pages(p, bytes);
    return refuse(g, r, bytes);
}

/* Removes entry i. Its freed parts are still read and written until then. */
static pin_kind unlock_pages(ps_gpu *g, int i)
{
    const pin gone = forget(g->pinned, i);
    const ps_event e = {g->releases[1], gone.until};
    if (!ps_event_is_done(e)) ps_event_outlast(e, PS_BLOCK_PAGE);
    (void)ps_gpu_enter_quietly(g);
    if (gone.kind == REGISTERED) (void)g->driver->host_unregister(gone.p);
    if (gone.kind == FROM_DRIVER)
        (void)g->driver->host_free(gone.p);
    else
        close_pages(gone.p, gone.bytes);
    return gone.kind;
}

/* ---- the device ---- */

static ps_gpu *gpu_of(const ps_device *dev)
{
    return ps_device_driver(dev);
}

/* An administrator may forbid registration and still allow the driver's page-locked allocations. */
static ps_status map_from_driver(ps_gpu *g, int64_t bytes, void **out)
{
    PS_TRY(ps_mem_reserve(&g->pinned->pins, (size_t)g->pinned->n + 1, sizeof g->pinned->pins[0]));
    const ps_cu_result r = g->driver->host_alloc(out, (size_t)bytes, PS_CU_HOST_PORTABLE);
    if (r != PS_CU_SUCCESS) {
        *out = NULL;
        return refuse(g, r, bytes);
    }
    note(g->pinned, *out, bytes, FROM_DRIVER);
    return PS_OK;
}

static ps_status map_block(ps_device *dev, int64_t bytes, void **out)
{
    ps_gpu *g = gpu_of(dev);
    void *p = NULL;
    *out = NULL;
    PS_TRY(ps_gpu_enter(g));
    PS_TRY(ps_address_reserve(bytes, HUGE_PAGE_BYTES, &p));
    if (lock_pages(g, p, bytes, false) == PS_OK) {
        *out = p;
        return PS_OK;
    }
    munmap(p, (size_t)bytes);
    PS_TRY(ps_gpu_check_lost(g));
    return map_from_driver(g, bytes, out);
}

static void unmap_block(ps_device *dev, void *p, int64_t bytes)
{
    ps_gpu *g = gpu_of(dev);
    if (unlock_pages(g, find(g->pinned, p)) != FROM_DRIVER) munmap(p, (size_t)bytes);
}

static ps_status reserve_region(ps_device *dev, int64_t bytes, void **out)
{
    *out = NULL;
    PS_TRY(ps_gpu_enter(gpu_of(dev)));
    return ps_address_reserve(bytes, HUGE_PAGE_BYTES, out);
}

/* Parts may still be committed. */
static void unreserve_region(ps_device *dev, void *base, int64_t bytes)
{
    ps_gpu *g = gpu_of(dev);
    const ps_gpu_pinned *m = g->pinned;
    for (int i = find(m, base); i < m->n && m->pins[i].p < (char *)base + bytes;) (void)unlock_pages(g, i);
    munmap(base, (size_t)bytes);
}

static ps_status commit(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    PS_TRY(ps_gpu_enter(gpu_of(dev)));
    return lock_pages(gpu_of(dev), (char *)base + offset, bytes, true);
}

static void decommit(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    const ps_gpu_pinned *m = gpu_of(dev)->pinned;
    const int i = find(m, (char *)base + offset);
    PS_ASSERT(i < m->n && m->pins[i].p == (char *)base + offset && m->pins[i].bytes == bytes);
    (void)bytes;
    (void)unlock_pages(gpu_of(dev), i);
}

static ps_event release(ps_device *dev, void *p, int64_t bytes, const ps_events *after)
{
    const ps_gpu_pinned *m = gpu_of(dev)->pinned;
    pin *x = &m->pins[find(m, p)];
    const ps_event e = ps_gpu_release(dev, p, x->kind == UNLOCKED ? 0 : bytes, after); /* the GPU cannot write to
                                                                                        * unlocked memory */
    x->until = e.ticket;
    return e;
}

const ps_device_ops ps_gpu_pinned_ops = {.name = "pinned",
                                         .host_can_touch = true,
                                         .release = release,
                                         .map = map_block,
                                         .unmap = unmap_block,
                                         .reserve = reserve_region,
                                         .unreserve = unreserve_region,
                                         .commit = commit,
                                         .decommit = decommit,
                                         .pieces_stay = true,
                                         .queue_create = ps_gpu_queue_create_of};

ps_status ps_gpu_pinned_create(ps_gpu *g, ps_gpu_pinned **out)
{
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->gpu = g;
    return PS_OK;
}

void ps_gpu_pinned_destroy(ps_gpu_pinned *p)
{
    if (p == NULL) return;
    ps_mem_free(p->pins);
    ps_mem_free(p);
}

void ps_gpu_pinned_get_stats(const ps_gpu_pinned *p, ps_gpu_stats *out)
{
    out->pinned_bytes = p->bytes;
    out->n_pins = p->n_pins;
}
