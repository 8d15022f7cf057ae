#include "device/cuda/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/machine.h"
#include "base/mem.h"
#include "device/cuda/gpu_impl.h"

/* Kernels are compiled for this compute capability and later ones. */
#define CAPABILITY_LEAST 80
/* Part of the memory that is free when kernels and libraries are loaded: for kernels that the libraries load at the
 * first multiplication of another shape, and for the driver's allocations for streams and launches. */
#define LATER_BYTES (256 * PS_MIB)

/* ---- errors ---- */

ps_status ps_gpu_check_lost(const ps_gpu *g)
{
    return atomic_load(&g->is_lost) ? PS_FAIL(PS_EDEVICE, "%s", g->how_lost) : PS_OK;
}

void ps_gpu_lose(ps_gpu *g, ps_cu_result r, const char *what)
{
    char why[256];
    const char *hint = r == PS_CU_ECC_UNCORRECTABLE || r == PS_CU_CONTAINED
                           ? "; its memory is bad: reset or replace it (nvidia-smi -q -d ECC)"
                           : "";
    ps_cu_describe(g->driver, r, why, sizeof why);
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->is_lost)) {
        snprintf(g->how_lost, sizeof g->how_lost, "cuda: GPU %d (%s) is lost: %s: %s%s", g->options.ordinal, g->name,
                 what, why, hint);
        atomic_store(&g->is_lost, true);
    }
    pthread_mutex_unlock(&g->lock);
}

ps_status ps_gpu_check(ps_gpu *g, ps_cu_result r, const char *what)
{
    if (r == PS_CU_SUCCESS) return PS_OK;
    if (ps_cu_is_fatal(r)) {
        ps_gpu_lose(g, r, what);
        return ps_gpu_check_lost(g);
    }
    char why[256];
    ps_cu_describe(g->driver, r, why, sizeof why);
    return PS_FAIL(r == PS_CU_OUT_OF_MEMORY ? PS_ENOMEM_DEV : PS_EDEVICE, "cuda: %s: %s", what, why);
}

bool ps_gpu_enter_quietly(ps_gpu *g)
{
    return !atomic_load(&g->is_lost) && g->driver->context_set(g->context) == PS_CU_SUCCESS;
}

ps_status ps_gpu_enter(ps_gpu *g)
{
    PS_TRY(ps_gpu_check_lost(g));
    if (ps_fault_hit(PS_FAULT_DEVICE)) return PS_FAIL(PS_EDEVICE, "cuda: the call failed");
    return ps_gpu_check(g, g->driver->context_set(g->context), "context");
}

/* ---- choosing a GPU ---- */

static ps_status refuse(const ps_gpu *g, const char *why, const char *remedy)
{
    return PS_FAIL(PS_ENOSYS, "GPU %d (%s) cannot be used: %s; %s", g->options.ordinal, g->name, why, remedy);
}

static ps_status refuse_result(const ps_gpu *g, ps_cu_result r, int mode)
{
    char why[256];
    ps_cu_describe(g->driver, r, why, sizeof why);
    if (r == PS_CU_OUT_OF_MEMORY)
        return PS_FAIL(PS_ENOMEM_DEV,
                       "GPU %d (%s): no memory is left to begin with: other processes have it (see "
                       "nvidia-smi)",
                       g->options.ordinal, g->name);
    if (r == PS_CU_DEVICE_UNAVAILABLE || (r == PS_CU_INVALID_DEVICE && mode == PS_CU_MODE_EXCLUSIVE))
        return refuse(g, "another process uses it exclusively (compute mode)",
                      "wait until that ends, or name another by CUDA_VISIBLE_DEVICES");
    return refuse(g, why, "does nvidia-smi show it?");
}

static ps_status ask(const ps_gpu *g, ps_cu_device_attribute which, int *out)
{
    const ps_cu_result r = g->driver->device_attribute(out, which, g->device);
    return r == PS_CU_SUCCESS ? PS_OK : refuse_result(g, r, 0);
}

static ps_status choose(ps_gpu *g)
{
    int n = 0, mode = 0, major = 0, minor = 0, has_pages = 0, has_unified = 0;
    char why[64];
    snprintf(g->name, sizeof g->name, "unknown");
    ps_cu_result r = g->driver->device_count(&n);
    if (r == PS_CU_SUCCESS && (g->options.ordinal < 0 || g->options.ordinal >= n))
        return PS_FAIL(PS_ENOSYS, "there is no GPU %d: %d %s visible (CUDA_VISIBLE_DEVICES%s%s)", g->options.ordinal, n,
                       n == 1 ? "is" : "are", getenv("CUDA_VISIBLE_DEVICES") != NULL ? "=" : " is not set",
                       getenv("CUDA_VISIBLE_DEVICES") != NULL ? getenv("CUDA_VISIBLE_DEVICES") : "");
    if (r == PS_CU_SUCCESS) r = g->driver->device_get(&g->device, g->options.ordinal);
    if (r == PS_CU_SUCCESS) r = g->driver->device_name(g->name, sizeof g->name, g->device);
    if (r != PS_CU_SUCCESS) return refuse_result(g, r, 0);
    PS_TRY(ask(g, PS_CU_DEVICE_COMPUTE_MODE, &mode));
    PS_TRY(ask(g, PS_CU_DEVICE_CAPABILITY_MAJOR, &major));
    PS_TRY(ask(g, PS_CU_DEVICE_CAPABILITY_MINOR, &minor));
    PS_TRY(ask(g, PS_CU_DEVICE_VIRTUAL_MEMORY, &has_pages));
    PS_TRY(ask(g, PS_CU_DEVICE_UNIFIED_ADDRESSES, &has_unified));
    if (mode == PS_CU_MODE_PROHIBITED)
        return refuse(g, "its compute mode forbids computing", "nvidia-smi -c DEFAULT allows it");
    snprintf(why, sizeof why, "its compute capability is %d.%d", major, minor);
    if (10 * major + minor < CAPABILITY_LEAST) return refuse(g, why, "8.0 (Ampere) or later is needed");
    if (!has_pages || !has_unified)
        return refuse(g, "its driver has no virtual memory management", "virtual GPUs need it switched on");
    r = g->driver->context_retain(&g->context, g->device);
    if (r != PS_CU_SUCCESS) {
        g->context = NULL;
        return refuse_result(g, r, mode);
    }
    return PS_OK;
}

/* ---- open, close ---- */

/* An instant by both clocks, as precisely as this thread is not interrupted. */
static ps_status synchronize_clocks(ps_gpu *g)
{
    const ps_cuda_driver *d = g->driver;
    const ps_cu_stream stream = ((const ps_gpu_queue *)g->releases[0])->stream;
    PS_TRY(ps_gpu_check(g, d->event_create(&g->base, PS_CU_EVENT_DEFAULT), "event"));
    for (int64_t i = 0, took_ns = INT64_MAX; i < 10 && took_ns > 100000; i++) {
        const int64_t begin_ns = ps_clock_ns();
        PS_TRY(ps_gpu_check(g, d->event_record(g->base, stream), "event"));
        PS_TRY(ps_gpu_check(g, d->event_wait(g->base), "event"));
        g->base_ns = ps_clock_ns();
        took_ns = g->base_ns - begin_ns;
    }
    return PS_OK;
}

static ps_status open_words(ps_gpu *g)
{
    void *p = NULL;
    PS_TRY(ps_gpu_check(g, g->driver->host_alloc(&p, PS_GPU_WORDS * sizeof *g->words, PS_CU_HOST_MAPPED),
                        "page-locked memory"));
    g->words = p;
    memset(p, 0, PS_GPU_WORDS * sizeof *g->words);
    return ps_gpu_check(g, g->driver->host_address(&g->words_address, p, 0), "address of page-locked memory");
}

static ps_status open_all(ps_gpu *g)
{
    const ps_cu_page_properties page = {.type = PS_CU_PAGE_PINNED, .location = {PS_CU_LOCATION_DEVICE, g->device}};
    size_t page_bytes = 0;
    PS_TRY(ps_gpu_enter(g));
    PS_TRY(ps_gpu_check(g, g->driver->page_bytes(&page_bytes, &page, PS_CU_GRANULARITY_LEAST), "page size"));
    g->page_bytes = (int64_t)page_bytes;
    g->space =
        (ps_space){.device = &ps_gpu_device_ops, .host = &ps_gpu_pinned_ops, .driver = g, .page_bytes = g->page_bytes};
    PS_TRY(open_words(g));
    PS_TRY(ps_gpu_memory_create(g, &g->memory));
    PS_TRY(ps_gpu_pinned_create(g, &g->pinned));
    PS_TRY(ps_gpu_queue_create(g, "releases", NULL, 0, &g->releases[0]));
    PS_TRY(ps_gpu_queue_create(g, "pinned releases", NULL, 0, &g->releases[1]));
    return synchronize_clocks(g);
}

ps_status ps_gpu_open(const ps_cuda_driver *d, const ps_gpu_options *o, ps_gpu **out)
{
    *out = NULL;
    ps_gpu *g = NULL;
    ps_status st;
    PS_TRY(ps_mem_alloc(1, sizeof *g, &g));
    g->driver = d;
    g->options = *o;
    g->options.poisons = o->poisons || PS_DEBUG >= 3;
    if (o->stream_commands <= 0 || o->stream_commands > PS_GPU_COMMANDS) g->options.stream_commands = PS_GPU_COMMANDS;
    pthread_mutex_init(&g->release_lock, NULL);
    pthread_mutex_init(&g->lock, NULL);
    PS_TRY_GOTO(choose(g));
    PS_TRY_GOTO(open_all(g));
    *out = g;
    return PS_OK;
out:
    ps_gpu_close(g);
    return st;
}

void ps_gpu_close(ps_gpu *g)
{
    if (g == NULL) return;
    ps_queue_destroy(g->releases[0]);
    ps_queue_destroy(g->releases[1]);
    if (g->context != NULL) (void)g->driver->context_set(g->context);
    ps_gpu_memory_destroy(g->memory);
    ps_gpu_pinned_destroy(g->pinned);
    if (g->base != NULL) (void)g->driver->event_destroy(g->base);
    if (g->words != NULL) (void)g->driver->host_free((void *)(uintptr_t)g->words);
    if (g->context != NULL) {
        (void)g->driver->context_set(NULL); /* the context is not to stay current on this thread */
        (void)g->driver->context_release(g->device);
    }
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->release_lock);
    ps_mem_free(g);
}

/* ---- information ---- */

const ps_space *ps_gpu_space(const ps_gpu *g)
{
    return &g->space;
}

ps_status ps_gpu_get_info(ps_gpu *g, ps_gpu_info *out)
{
    size_t free_bytes = 0, total_bytes = 0;
    int major = 0, minor = 0;
    *out = (ps_gpu_info){0};
    PS_TRY(ps_gpu_enter(g));
    snprintf(out->name, sizeof out->name, "%s", g->name);
    PS_TRY(ask(g, PS_CU_DEVICE_CAPABILITY_MAJOR, &major));
    PS_TRY(ask(g, PS_CU_DEVICE_CAPABILITY_MINOR, &minor));
    PS_TRY(ask(g, PS_CU_DEVICE_MULTIPROCESSORS, &out->processors));
    out->capability = 10 * major + minor;
    PS_TRY(ps_gpu_check(g, g->driver->version(&out->driver_version), "version"));
    PS_TRY(ps_gpu_check(g, g->driver->memory_info(&free_bytes, &total_bytes), "free memory"));
    out->free_bytes = (int64_t)free_bytes;
    out->total_bytes = (int64_t)total_bytes;
    return PS_OK;
}

ps_status ps_gpu_usable_bytes(ps_gpu *g, int64_t *out)
{
    ps_gpu_info info;
    *out = 0;
    PS_TRY(ps_gpu_get_info(g, &info));
    const ps_gpu_stats s = ps_gpu_get_stats(g);
    *out = ps_max_i64(0, info.free_bytes + s.page_bytes_made - LATER_BYTES) / g->page_bytes * g->page_bytes;
    return PS_OK;
}

ps_gpu_stats ps_gpu_get_stats(const ps_gpu *g)
{
    ps_gpu_stats s = {0};
    ps_gpu_memory_get_stats(g->memory, &s);
    ps_gpu_pinned_get_stats(g->pinned, &s);
    return s;
}
