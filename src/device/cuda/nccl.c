#include "device/cuda/nccl.h"

#include <dlfcn.h>
#include <stdio.h>

#include "device/cuda/library.h"

#define NAME "libnccl.so.2"

void ps_nccl_describe_version(int version, char *out, size_t bytes)
{
    snprintf(out, bytes, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

static ps_status take_all(void *library, const char *path, ps_nccl *out)
{
    const char *missing = NULL;
    int version = 0;
#define XX(type, name, symbol, params)                                                                                 \
    *(void **)&out->name = dlsym(library, #symbol);                                                                    \
    if (out->name == NULL && missing == NULL) missing = #symbol;
#include "device/cuda/nccl.def"
#undef XX
    if (missing != NULL)
        return PS_FAIL(PS_ENOSYS, "%s has no %s: it is not NCCL %d.%d or later", path, missing,
                       PS_NCCL_VERSION_LEAST / 10000, PS_NCCL_VERSION_LEAST % 10000 / 100);
    const ps_nccl_result r = out->version(&version);
    if (r != PS_NCCL_SUCCESS) return PS_FAIL(PS_ENOSYS, "%s: its version: %s", path, out->result_text(r));
    char text[32];
    ps_nccl_describe_version(version, text, sizeof text);
    if (version < PS_NCCL_VERSION_LEAST)
        return PS_FAIL(PS_ENOSYS, "%s is NCCL %s: %d.%d or later is needed", path, text, PS_NCCL_VERSION_LEAST / 10000,
                       PS_NCCL_VERSION_LEAST % 10000 / 100);
    return PS_OK;
}

static ps_status no_library(void)
{
    return PS_FAIL(PS_ENOSYS,
                   "cannot load NCCL, by which GPUs send to each other: %s. Install libnccl2, or put its folder into "
                   "LD_LIBRARY_PATH",
                   dlerror());
}

ps_status ps_nccl_take(const char *path, ps_nccl *out)
{
    *out = (ps_nccl){0};
    void *library = ps_cuda_library_open(path);
    return library != NULL ? take_all(library, path, out) : no_library();
}

static ps_status find(void *table)
{
    ps_nccl *out = table;
    void *library = ps_cuda_library_find(NAME);
    *out = (ps_nccl){0};
    return library != NULL ? take_all(library, NAME, out) : ps_nccl_take(NAME, out);
}

ps_status ps_nccl_load(const ps_nccl **out)
{
    static ps_nccl table;
    static ps_cuda_once once = PS_CUDA_ONCE(find, &table);
    const void *found;
    const ps_status st = ps_cuda_library_once(&once, &found);
    *out = found;
    return st;
}
