/* place.c - the place of measurements: the processor in RAM, or a GPU in its memory and page-locked host memory. */
#include <string.h>

#include "base/machine.h"
#include "train/measure/measure_impl.h"

#define HOST_BYTES (1 * PS_GIB) /* page-locked, with a GPU */
/* For the processor: arrays larger than caches and a block of a transformer; smaller ones where memory is short. */
#define ROOM_BYTES (256 * PS_MIB)
#define ROOM_BYTES_LEAST (96 * PS_MIB)
#define GPU_BYTES (8 * PS_GIB)
/* A GPU with less free memory than this is a part of one, or one of a test. */
#define SMALL_GPU_BYTES (4 * PS_GIB)

#define PROCESSOR_SIZES                                                                                                \
    .gemms = {{256, 768, 3072}, {1024, 768, 768}, {1024, 768, 3072}}, .copy_bytes = 8 * PS_MIB, .B = 2, .T = 256,      \
    .C = 512, .H = 8, .V = 4096, .n_calls = 1

const ps_measure_sizes ps_measure_sizes_processor = {PROCESSOR_SIZES, .stream_n = 16 << 20, .adam_n = 8 << 20,
                                                     .n_copies = 7};

/* Sizes within ROOM_BYTES_LEAST. */
static const ps_measure_sizes little_memory = {PROCESSOR_SIZES, .stream_n = 6 << 20, .adam_n = 5 << 20, .n_copies = 3};

/* Caches have up to 126 MB. */
static const ps_measure_sizes large = {.stream_n = 64 << 20,
                                       .adam_n = 32 << 20,
                                       .gemms = {{8192, 2048, 8192}, {8192, 8192, 2048}, {8192, 4096, 4096}},
                                       .copy_bytes = 16 * PS_MIB,
                                       .B = 8,
                                       .T = 1024,
                                       .C = 2048,
                                       .H = 16,
                                       .V = 16384,
                                       .n_calls = 4,
                                       .n_copies = 16};

static const ps_measure_sizes small = {.stream_n = 1 << 16,
                                       .adam_n = 1 << 15,
                                       .gemms = {{64, 64, 64}, {32, 64, 128}, {64, 128, 64}},
                                       .copy_bytes = 256 * PS_KIB,
                                       .B = 1,
                                       .T = 32,
                                       .C = 64,
                                       .H = 1,
                                       .V = 256,
                                       .n_calls = 2,
                                       .n_copies = 16};

const ps_measure_sizes *ps_measure_sizes_of_gpu(int64_t usable_bytes)
{
    return usable_bytes < SMALL_GPU_BYTES ? &small : &large;
}

ps_status ps_measure_room(int64_t available_bytes, int64_t *bytes, const ps_measure_sizes **sizes)
{
    *bytes = ps_min_i64(ROOM_BYTES, available_bytes / 4);
    *sizes = *bytes == ROOM_BYTES ? &ps_measure_sizes_processor : &little_memory;
    if (*bytes >= ROOM_BYTES_LEAST) return PS_OK;
    return PS_FAIL(PS_ENOMEM_DEV, "measuring takes a quarter of the memory that is available, and at least %d MiB",
                   (int)(ROOM_BYTES_LEAST / PS_MIB));
}

/* ---- open, close ---- */

static ps_status open_processor(ps_measuring *m)
{
    const ps_measure_options *o = m->options;
    ps_machine_memory_info memory;
    int64_t bytes;
    PS_TRY(ps_machine_memory(NULL, &memory));
    PS_TRY(ps_measure_room(memory.available_bytes, &bytes, &m->sizes));
    PS_TRY(ps_backend_create_cpu(o->isa, o->n_threads, &m->device.backend));
    PS_TRY(ps_device_create(&ps_device_cpu_ops, "memory for measuring", bytes, &m->device.memory));
    m->host = m->device;
    return PS_OK;
}

static ps_status open_gpu(ps_measuring *m, const ps_measure_gpu *gpu)
{
    const ps_space *s = ps_backend_space(gpu->backend);
    m->sizes = ps_measure_sizes_of_gpu(gpu->usable_bytes);
    m->device.backend = gpu->backend;
    m->host.backend = ps_backend_host(gpu->backend);
    PS_TRY(ps_device_create_on(s->device, s->driver, s->page_bytes, "device memory for measuring",
                               ps_min_i64(gpu->usable_bytes, GPU_BYTES), &m->device.memory));
    PS_TRY(ps_device_create_on(s->host, s->driver, s->page_bytes, "host memory for measuring", HOST_BYTES,
                               &m->host.memory));
    return ps_queue_create(m->device.memory, "kernels", PS_QUEUE_COMPUTE, &m->device.queue);
}

ps_status ps_measure_open_places(ps_measuring *m)
{
    return m->options->gpu != NULL ? open_gpu(m, m->options->gpu) : open_processor(m);
}

void ps_measure_close_places(ps_measuring *m)
{
    ps_queue_destroy(m->device.queue);
    ps_measuring_release(m);
    if (m->host.memory != m->device.memory) ps_device_destroy(m->host.memory);
    ps_device_destroy(m->device.memory);
    if (m->options->gpu == NULL) ps_backend_destroy(m->device.backend);
}

/* ---- work ---- */

ps_status ps_measuring_take(ps_measuring *m, const ps_measure_place *at, int64_t bytes, void *out_pointer)
{
    PS_ASSERT(m->n_blocks < PS_MEASURING_BLOCKS_MAX);
    void *p = NULL;
    PS_TRY(ps_device_alloc(at->memory, bytes, &p));
    m->blocks[m->n_blocks].of = at->memory;
    m->blocks[m->n_blocks].p = p;
    m->blocks[m->n_blocks++].bytes = bytes;
    memcpy(out_pointer, &p, sizeof p);
    if (at->queue == NULL) {
        PS_TRY(ps_event_wait(ps_device_gave_after(at->memory)));
        memset(p, 0, (size_t)bytes);
        return PS_OK;
    }
    PS_TRY(ps_queue_wait(at->queue, ps_device_gave_after(at->memory)));
    PS_TRY(ps_queue_fill(at->queue, p, 0, bytes));
    return ps_event_wait(ps_queue_event(at->queue));
}

void ps_measuring_release(ps_measuring *m)
{
    while (m->n_blocks > 0) {
        m->n_blocks--;
        ps_device_free(m->blocks[m->n_blocks].of, m->blocks[m->n_blocks].p, m->blocks[m->n_blocks].bytes, NULL);
    }
}

ps_status ps_measure_run(const ps_measure_place *at, ps_op op, const void *args, size_t workspace_bytes, int n,
                         double *seconds)
{
    const int64_t begin = ps_clock_ns();
    for (int i = 0; i < n; i++) PS_TRY(ps_kernel_run(at->backend, op, at->queue, args, workspace_bytes));
    if (at->queue != NULL) PS_TRY(ps_event_wait(ps_queue_event(at->queue)));
    if (seconds != NULL) *seconds = ps_seconds_since(begin) / n;
    return PS_OK;
}

ps_status ps_measure_put(const ps_measure_place *at, void *dst, const void *src, int64_t bytes)
{
    if (at->queue != NULL) return ps_queue_put(at->queue, dst, src, bytes);
    memcpy(dst, src, (size_t)bytes);
    return PS_OK;
}
