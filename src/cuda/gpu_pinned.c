/* gpu_pinned.c - page-locked memory: the host tier beside a GPU.
 *
 * Each block, and each piece that a region commits, is registered by itself, so a copy within it is one for the driver.
 * Nothing is unregistered under a copy: the host waits for its event. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/machine.h"
#include "base/mem.h"
#include "cuda/gpu_impl.h"
#include "device/device_impl.h"
#include "device/worker.h"

#define HUGE_PAGE_BYTES (2 * PS_MIB)
/* Worth a thread of its own to touch it first. */
#define TOUCH_BYTES (16 * PS_MIB)
#define TOUCHERS_MAX 8

/* Memory that the driver allocated: where registering is forbidden. */
typedef struct from_driver {
    void *p;
    struct from_driver *next;
} from_driver;

struct ps_gpu_pinned {
    ps_gpu *gpu;
    from_driver *from_driver;
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

/* By several threads, since the system clears pages in the one that touches them. Whatever is not touched here is when
 * it is registered. */
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

/* ---- page-locking ---- */

static ps_status refuse(ps_gpu *g, ps_cu_result r, int64_t bytes)
{
    char why[256];
    if (ps_cu_is_fatal(r)) return ps_gpu_check(g, r, "page-locking");
    ps_cu_describe(g->driver, r, why, sizeof why);
    return PS_FAIL(
        PS_ENOMEM_HOST,
        "cuda: cannot page-lock %lld bytes of RAM (%lld so far): %s; lower memory.host, or raise the limit of "
        "locked memory (ulimit -l) or of the container",
        (long long)bytes, (long long)g->pinned->bytes, why);
}

/* Memory at [p, p + bytes), addresses without any. On failure it is as before. */
static ps_status pin(ps_gpu *g, char *p, int64_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(p, (size_t)bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        return PS_FAIL(PS_ENOMEM_HOST, "cannot map %lld bytes: %s", (long long)bytes, strerror(errno));
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    madvise(p, (size_t)bytes, MADV_DONTFORK); /* a child's copy of a page that is locked here would be another page */
    touch_all(p, bytes);
    const ps_cu_result r = g->driver->host_register(p, (size_t)bytes, PS_CU_HOST_PORTABLE | PS_CU_HOST_MAPPED);
    if (r == PS_CU_SUCCESS) {
        g->pinned->bytes += bytes;
        g->pinned->n_pins++;
        return PS_OK;
    }
    mmap(p, (size_t)bytes, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
    return refuse(g, r, bytes);
}

/* What was released is still written to and read until then. */
static void unpin(ps_gpu *g, char *p, int64_t bytes)
{
    const ps_event e = ps_queue_event(g->releases[1]);
    if (!ps_event_is_done(e)) ps_event_outlast(e, PS_BLOCK_FREE);
    (void)ps_gpu_enter_quietly(g);
    (void)g->driver->host_unregister(p);
    mmap(p, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    g->pinned->bytes -= bytes;
}

/* ---- the device ---- */

static ps_gpu *gpu_of(const ps_device *dev)
{
    return ps_device_driver(dev);
}

/* Whoever runs the system may forbid registering and still allow the driver's own page-locked memory. */
static ps_status map_from_driver(ps_gpu *g, int64_t bytes, void **out)
{
    from_driver *f = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *f, &f));
    const ps_cu_result r = g->driver->host_alloc(&f->p, (size_t)bytes, PS_CU_HOST_PORTABLE);
    if (r != PS_CU_SUCCESS) {
        ps_mem_free(f);
        return refuse(g, r, bytes);
    }
    f->next = g->pinned->from_driver;
    g->pinned->from_driver = f;
    g->pinned->bytes += bytes;
    g->pinned->n_pins++;
    *out = f->p;
    return PS_OK;
}

static ps_status map_block(ps_device *dev, int64_t bytes, void **out)
{
    ps_gpu *g = gpu_of(dev);
    void *p = NULL;
    *out = NULL;
    PS_TRY(ps_gpu_enter(g));
    PS_TRY(ps_address_reserve(bytes, HUGE_PAGE_BYTES, &p));
    if (pin(g, p, bytes) == PS_OK) {
        *out = p;
        return PS_OK;
    }
    munmap(p, (size_t)bytes);
    PS_TRY(ps_gpu_check_lost(g));
    return map_from_driver(g, bytes, out);
}

static bool give_back_to_driver(ps_gpu *g, void *p, int64_t bytes)
{
    from_driver **f = &g->pinned->from_driver;
    while (*f != NULL && (*f)->p != p) f = &(*f)->next;
    if (*f == NULL) return false;
    from_driver *gone = *f;
    const ps_event e = ps_queue_event(g->releases[1]);
    if (!ps_event_is_done(e)) ps_event_outlast(e, PS_BLOCK_FREE);
    (void)ps_gpu_enter_quietly(g);
    (void)g->driver->host_free(p);
    *f = gone->next;
    ps_mem_free(gone);
    g->pinned->bytes -= bytes;
    return true;
}

static void unmap_block(ps_device *dev, void *p, int64_t bytes)
{
    ps_gpu *g = gpu_of(dev);
    if (give_back_to_driver(g, p, bytes)) return;
    unpin(g, p, bytes);
    munmap(p, (size_t)bytes);
}

static ps_status reserve_region(ps_device *dev, int64_t bytes, void **out)
{
    *out = NULL;
    PS_TRY(ps_gpu_enter(gpu_of(dev)));
    return ps_address_reserve(bytes, HUGE_PAGE_BYTES, out);
}

static void unreserve_region(ps_device *dev, void *base, int64_t bytes)
{
    (void)dev;
    munmap(base, (size_t)bytes);
}

static ps_status commit(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    PS_TRY(ps_gpu_enter(gpu_of(dev)));
    return pin(gpu_of(dev), (char *)base + offset, bytes);
}

static void decommit(ps_device *dev, void *base, int64_t offset, int64_t bytes)
{
    unpin(gpu_of(dev), (char *)base + offset, bytes);
}

const ps_device_ops ps_gpu_pinned_ops = {.name = "pinned",
                                         .host_can_touch = true,
                                         .release = ps_gpu_release,
                                         .map = map_block,
                                         .unmap = unmap_block,
                                         .reserve = reserve_region,
                                         .unreserve = unreserve_region,
                                         .commit = commit,
                                         .decommit = decommit,
                                         .queue_create = ps_gpu_queue_create_of};

ps_status ps_gpu_pinned_create(ps_gpu *g, ps_gpu_pinned **out)
{
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->gpu = g;
    return PS_OK;
}

void ps_gpu_pinned_destroy(ps_gpu_pinned *p)
{
    ps_mem_free(p);
}

void ps_gpu_pinned_get_stats(const ps_gpu_pinned *p, ps_gpu_stats *out)
{
    out->pinned_bytes = p->bytes;
    out->n_pins = p->n_pins;
}
