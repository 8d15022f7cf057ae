#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ps_cu_is_fatal(ps_cu_result r)
{
    switch (r) {
    case PS_CU_DEINITIALIZED:
    case PS_CU_ECC_UNCORRECTABLE:
    case PS_CU_NVLINK_UNCORRECTABLE:
    case PS_CU_CONTAINED:
    case PS_CU_CONTEXT_IS_DESTROYED:
    case PS_CU_TENSOR_MEMORY_LEAK:
    case PS_CU_EXTERNAL_DEVICE:
    case PS_CU_UNKNOWN: return true;
    default: /* errors of a kernel */
        return (r >= PS_CU_ILLEGAL_ADDRESS && r <= PS_CU_LAUNCH_TIMEOUT && r != 701) || r == PS_CU_ASSERT ||
               (r >= PS_CU_HARDWARE_STACK_ERROR && r <= PS_CU_LAUNCH_FAILED);
    }
}

void ps_cu_describe(const ps_cuda_driver *d, ps_cu_result r, char *out, size_t bytes)
{
    const char *name = NULL, *text = NULL;
    if (d->error_name(r, &name) != PS_CU_SUCCESS || name == NULL) {
        snprintf(out, bytes, "error %d of the driver", r);
        return;
    }
    (void)d->error_text(r, &text);
    snprintf(out, bytes, "%s (%s)", name, text != NULL ? text : "no text");
}

/* ---- loading ---- */

static ps_status take_all(void *library, const char *path, ps_cuda_driver *out)
{
    const char *missing[4];
    int n_missing = 0;
#define XX(is_needed, name, symbol, params)                                                                            \
    *(void **)&out->name = dlsym(library, #symbol);                                                                    \
    if (out->name == NULL && (is_needed) && n_missing++ < 4) missing[n_missing - 1] = #symbol;
#include "device/cuda/driver.def"
#undef XX
    if (n_missing == 0) return PS_OK;
    char names[160];
    size_t length = 0;
    for (int i = 0; i < n_missing && i < 4; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i > 0 ? ", " : "", missing[i]);
    return PS_FAIL(PS_ENOSYS, "%s has no %s%s: NVIDIA's driver is too old; CUDA %d.%d or later is needed", path, names,
                   n_missing > 4 ? " and more" : "", PS_CUDA_DRIVER_LEAST / 1000, PS_CUDA_DRIVER_LEAST % 1000 / 10);
}

ps_status ps_cuda_driver_take(const char *path, ps_cuda_driver *out)
{
    *out = (ps_cuda_driver){0};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded: it has threads */
    if (library == NULL)
        return PS_FAIL(PS_ENOSYS,
                       "cannot load NVIDIA's driver: %s. Install driver R580 or later (CUDA 13); a container gets the "
                       "host's, by docker's --gpus all, or NVIDIA's container toolkit for others",
                       dlerror());
    return take_all(library, path, out);
}

/* ---- checks ---- */

static ps_status explain_start(const ps_cuda_driver *d, ps_cu_result r)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char why[256];
    ps_cu_describe(d, r, why, sizeof why);
    switch (r) {
    case PS_CU_NO_DEVICE:
        if (visible != NULL)
            return PS_FAIL(PS_ENOSYS, "no GPU is left to use: CUDA_VISIBLE_DEVICES is \"%s\"; unset it or name one",
                           visible);
        return PS_FAIL(PS_ENOSYS, "NVIDIA's driver finds no GPU: %s", why);
    case PS_CU_STUB_LIBRARY:
        return PS_FAIL(PS_ENOSYS, "libcuda.so.1 is the toolkit's, made for linking only: take its folder out of "
                                  "LD_LIBRARY_PATH, or install the driver");
    case PS_CU_DRIVER_MISMATCH:
    case PS_CU_COMPAT_NOT_SUPPORTED:
        return PS_FAIL(PS_ENOSYS,
                       "NVIDIA's driver does not fit its kernel module: %s; restart the machine after an "
                       "update of the driver",
                       why);
    default: return PS_FAIL(PS_ENOSYS, "NVIDIA's driver does not start: %s; does nvidia-smi work?", why);
    }
}

/* With fewer connections than streams several streams share one, and a stream that waits for host code stops the others.
 * 32 is the most. */
static void ask_for_connections(void)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

ps_status ps_cuda_driver_start(const ps_cuda_driver *d)
{
    int version = 0, n = 0;
    ask_for_connections();
    ps_cu_result r = d->init(0);
    if (r == PS_CU_SUCCESS) r = d->version(&version);
    if (r == PS_CU_SUCCESS && version < PS_CUDA_DRIVER_LEAST)
        return PS_FAIL(PS_ENOSYS, "NVIDIA's driver is for CUDA %d.%d: CUDA %d.%d or later is needed; update the driver",
                       version / 1000, version % 1000 / 10, PS_CUDA_DRIVER_LEAST / 1000,
                       PS_CUDA_DRIVER_LEAST % 1000 / 10);
    if (r == PS_CU_SUCCESS) r = d->device_count(&n);
    if (r == PS_CU_SUCCESS && n == 0) r = PS_CU_NO_DEVICE;
    return r != PS_CU_SUCCESS ? explain_start(d, r) : PS_OK;
}

/* ---- the driver of this system ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ps_cuda_driver loaded; /* lock */
static bool is_loaded;        /* lock */

ps_status ps_cuda_driver_load(const ps_cuda_driver **out)
{
    ps_cuda_driver found;
    ps_status st = PS_OK;
    *out = NULL;
    pthread_mutex_lock(&lock);
    if (!is_loaded) {
        st = ps_cuda_driver_take("libcuda.so.1", &found);
        if (st == PS_OK) st = ps_cuda_driver_start(&found);
        if (st == PS_OK) loaded = found;
        is_loaded = st == PS_OK;
    }
    pthread_mutex_unlock(&lock);
    if (st == PS_OK) *out = &loaded;
    return st;
}
