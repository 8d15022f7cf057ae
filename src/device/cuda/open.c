#include "device/cuda/open.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cublaslt.h"
#include "device/cuda/cudnn_attention.h"
#include "device/cuda/look.h"
#include "device/cuda/nccl_collectives.h"
#include "device/cuda/plugin.h"

static const ps_cuda_parts of_system = {.driver = ps_cuda_driver_load,
                                        .image = ps_cuda_image_load,
                                        .gemms = ps_cublaslt_open,
                                        .gemm_bytes = PS_CUBLASLT_WORKSPACE_BYTES,
                                        .nccl = ps_nccl_load,
                                        .nccl_bytes = PS_NCCL_RESERVE_BYTES,
                                        .attention = ps_cudnn_attention_open};
static const ps_cuda_parts *parts = &of_system;

#define GPUS_KNOWN 64

/* Memory of each GPU that kernels and libraries allocate. */
typedef struct known_gpu {
    bool is_measured;
    int64_t loaded_bytes;
    char attention[sizeof((ps_cuda_found *)0)->attention];
} known_gpu;

static known_gpu known[GPUS_KNOWN][PS_CUDA_ATTENTION_CHOICES];

void ps_cuda_use_parts(const ps_cuda_parts *others)
{
    parts = others != NULL ? others : &of_system;
    memset(known, 0, sizeof known);
}

const ps_cuda_parts *ps_cuda_get_parts(void)
{
    return parts;
}

bool ps_cuda_is_expected(void)
{
    return parts != &of_system || ps_cuda_has_hardware(NULL);
}

const char *ps_cuda_visible(void)
{
    return parts->visible != NULL ? parts->visible() : getenv("CUDA_VISIBLE_DEVICES");
}

static ps_status open_gpu(int ordinal, ps_gpu **out)
{
    const ps_cuda_driver *d;
    *out = NULL;
    PS_TRY(parts->driver(&d));
    return ps_gpu_open(
        d, &(ps_gpu_options){.ordinal = ordinal, .poisons = parts->poisons, .stream_commands = parts->stream_commands},
        out);
}

/* Number of GPUs, usable or not. */
static ps_status count(int *out)
{
    const ps_cuda_driver *d;
    PS_TRY(parts->driver(&d));
    return d->device_count(out) == PS_CU_SUCCESS && *out > 0 ? PS_OK
                                                             : PS_FAIL(PS_ENOSYS, "NVIDIA's driver finds no device");
}

static ps_status open_attention(ps_gpu *g, ps_cuda_attention_choice choice, ps_cuda_attention *out)
{
    *out = (ps_cuda_attention){0};
    if (choice == PS_CUDA_ATTENTION_OWN || (choice == PS_CUDA_ATTENTION_AUTO && parts->attention == NULL)) return PS_OK;
    const ps_status st =
        parts->attention != NULL ? parts->attention(g, out) : PS_FAIL(PS_ENOSYS, "no library for it is available");
    if (st == PS_ENOSYS && choice == PS_CUDA_ATTENTION_AUTO) return PS_OK;
    return st == PS_ENOSYS ? PS_FAIL(st, "train.attention = cudnn: %s; or set train.attention = own", ps_last_error())
                           : st;
}

/* Owns gpu and host, on failure too. */
static ps_status put_together(ps_gpu *g, ps_cuda_attention_choice choice, ps_backend *host, ps_backend **out)
{
    const ps_cuda_image *image;
    ps_cuda_gemms gemms = {0};
    ps_cuda_attention attention;
    *out = NULL;
    if (parts->backend != NULL) return parts->backend(g, ps_gpu_space(g)->page_bytes, host, out);
    ps_status st = parts->image(&image);
    if (st == PS_OK) st = parts->gemms(g, &gemms);
    if (st == PS_OK) st = open_attention(g, choice, &attention);
    if (st == PS_OK) return ps_backend_create_cuda(g, image, &gemms, &attention, host, out);
    if (gemms.destroy != NULL) gemms.destroy(gemms.self);
    ps_gpu_close(g);
    ps_backend_destroy(host);
    return st;
}

ps_status ps_backend_open_cuda(int ordinal, ps_cuda_attention_choice attention, ps_backend *host, ps_backend **out)
{
    ps_gpu *g;
    *out = NULL;
    const ps_status st = open_gpu(ordinal, &g);
    if (st == PS_OK) return put_together(g, attention, host, out);
    ps_backend_destroy(host);
    return st;
}

/* ---- free memory after loading ---- */

#define SIDE 64 /* of the matrices that are multiplied */
#define MATRIX_BYTES ((int64_t)(SIDE * SIDE * sizeof(float)))

/* Their values do not matter. */
static ps_status multiply(ps_backend *b, ps_queue *q, char *block, ps_dtype dtype)
{
    const ps_linear_fwd_args a = {.y = block,
                                  .x = block + MATRIX_BYTES,
                                  .w = block + 2 * MATRIX_BYTES,
                                  .rows = SIDE,
                                  .n_in = SIDE,
                                  .n_out = SIDE,
                                  .dtype = dtype,
                                  .y_dtype = dtype,
                                  .workspace = block + 3 * MATRIX_BYTES};
    size_t bytes;
    PS_TRY(ps_kernel_measure(b, PS_OP_linear_fwd, &a, &bytes));
    return ps_run_linear_fwd(b, q, &a, bytes);
}

static ps_status multiply_all(ps_backend *b, ps_queue *q, ps_device *device, int64_t bytes)
{
    void *block;
    PS_TRY(ps_device_alloc(device, bytes, &block));
    ps_status st = PS_OK;
    for (int t = 0; t < PS_DTYPE_COUNT && st == PS_OK; t++) st = multiply(b, q, block, (ps_dtype)t);
    if (st == PS_OK) st = ps_event_wait(ps_queue_event(q));
    ps_device_free(device, block, bytes, &(ps_events){.n = 1, .event = {ps_queue_event(q)}});
    return st;
}

/* Libraries load kernels at the first multiplication that needs them. */
static ps_status load_libraries(ps_backend *b)
{
    const ps_space *s = ps_backend_space(b);
    const int64_t bytes = ps_round_up(3 * MATRIX_BYTES + parts->gemm_bytes, s->page_bytes);
    ps_device *device;
    ps_queue *q;
    PS_TRY(ps_device_create_on(s->device, s->driver, s->page_bytes, "device", bytes, &device));
    ps_status st = ps_queue_create(device, "first products", PS_QUEUE_COMPUTE, &q);
    if (st == PS_OK) {
        st = multiply_all(b, q, device, bytes);
        ps_queue_destroy(q);
    }
    ps_device_destroy(device);
    return st;
}

/* Bytes that loading everything takes off the usable memory. g is closed. */
static ps_status measure_loaded(ps_gpu *g, ps_cuda_attention_choice attention, int64_t usable_bytes, known_gpu *out)
{
    ps_backend *b, *host;
    int64_t left = 0;
    const ps_status created = ps_backend_create_ref(&host);
    if (created != PS_OK) {
        ps_gpu_close(g);
        return created;
    }
    PS_TRY(put_together(g, attention, host, &b));
    ps_status st = load_libraries(b);
    if (st == PS_OK) st = ps_gpu_usable_bytes(g, &left);
    *out = (known_gpu){.is_measured = true, .loaded_bytes = ps_max_i64(0, usable_bytes - left)};
    const char *attends = ps_backend_cuda_attention(b);
    snprintf(out->attention, sizeof out->attention, "%s", attends != NULL ? attends : "");
    ps_backend_destroy(b);
    return st;
}

/* The first call in this process loads everything, to measure its memory. */
static ps_status find(int ordinal, ps_cuda_attention_choice attention, ps_cuda_found *out)
{
    known_gpu loaded = {.is_measured = false};
    ps_gpu *g;
    if (ordinal < GPUS_KNOWN) loaded = known[ordinal][attention];
    PS_TRY(open_gpu(ordinal, &g));
    ps_status st = ps_gpu_get_info(g, &out->info);
    if (st == PS_OK) st = ps_gpu_usable_bytes(g, &out->usable_bytes);
    out->page_bytes = ps_gpu_space(g)->page_bytes;
    if (st == PS_OK && !loaded.is_measured)
        st = measure_loaded(g, attention, out->usable_bytes, &loaded);
    else
        ps_gpu_close(g);
    if (st != PS_OK) return st;
    if (ordinal < GPUS_KNOWN) known[ordinal][attention] = loaded;
    out->usable_bytes = ps_max_i64(0, out->usable_bytes - loaded.loaded_bytes);
    memcpy(out->attention, loaded.attention, sizeof out->attention);
    return PS_OK;
}

ps_status ps_cuda_find(int ordinal, ps_cuda_attention_choice attention, ps_cuda_found *out)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* otherwise a rank would measure another's allocations */
    const ps_cuda_image *image;
    *out = (ps_cuda_found){0};
    PS_TRY(count(&out->n_gpus));
    PS_TRY(parts->image(&image));
    pthread_mutex_lock(&one);
    const ps_status st = find(ordinal % out->n_gpus, attention, out);
    pthread_mutex_unlock(&one);
    return st;
}
