#include "device/cuda/cudnn.h"

#include <dlfcn.h>
#include <stdio.h>

#include "device/cuda/library.h"

const char *ps_cudnn_version_text(const ps_cudnn *dnn, char text[PS_CUDNN_VERSION_TEXT_MAX])
{
    const size_t v = dnn->version();
    snprintf(text, PS_CUDNN_VERSION_TEXT_MAX, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    return text;
}

static ps_status take_all(void *library, const char *path, ps_cudnn *out)
{
    const char *missing = NULL;
    char text[PS_CUDNN_VERSION_TEXT_MAX];
#define XX(type, name, symbol, params)                                                                                 \
    *(void **)&out->name = dlsym(library, #symbol);                                                                    \
    if (out->name == NULL && missing == NULL) missing = #symbol;
#include "device/cuda/cudnn.def"
#undef XX
    if (missing != NULL) return PS_FAIL(PS_ENOSYS, "%s has no %s: it is not cuDNN %d", path, missing, PS_CUDNN_VERSION);
    const size_t version = out->version();
    if (version / 10000 != PS_CUDNN_VERSION || version < PS_CUDNN_VERSION_LEAST)
        return PS_FAIL(PS_ENOSYS, "%s is cuDNN %s: %d.%d or a later %d is needed", path,
                       ps_cudnn_version_text(out, text), PS_CUDNN_VERSION, PS_CUDNN_VERSION_LEAST / 100 % 100,
                       PS_CUDNN_VERSION);
    return PS_OK;
}

ps_status ps_cudnn_take(const char *path, ps_cudnn *out)
{
    *out = (ps_cudnn){0};
    void *library = ps_cuda_library_open(path);
    if (library != NULL) return take_all(library, path, out);
    return PS_FAIL(PS_ENOSYS,
                   "cannot load cuDNN, which computes attention on the GPU: %s. Install cuDNN %d, or put its folder "
                   "into LD_LIBRARY_PATH",
                   dlerror(), PS_CUDNN_VERSION);
}

static ps_status find(void *table)
{
    ps_cudnn *out = table;
    char name[64];
    snprintf(name, sizeof name, "libcudnn.so.%d", PS_CUDNN_VERSION);
    *out = (ps_cudnn){0};
    void *library = ps_cuda_library_find(name);
    return library != NULL ? take_all(library, name, out) : ps_cudnn_take(name, out);
}

ps_status ps_cudnn_load(const ps_cudnn **out)
{
    static ps_cudnn table;
    static ps_cuda_once once = PS_CUDA_ONCE(find, &table);
    const void *found;
    const ps_status st = ps_cuda_library_once(&once, &found);
    *out = found;
    return st;
}
