#include "device/cuda/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "base/plugin_file.h"

#ifndef PS_CUDA_SUM
#error "PS_CUDA_SUM is the sum of the sources of the kernels: the Makefile gives it"
#endif

static ps_status open_file(const char *path, const ps_cuda_image **out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded: the modules are in it */
    if (library == NULL) return PS_FAIL(PS_ENOSYS, "cannot load the kernels for GPUs: %s", dlerror());
    const ps_cuda_image *image = dlsym(library, PS_CUDA_IMAGE_SYMBOL);
    if (image == NULL || image->abi != PS_CUDA_IMAGE_ABI || strcmp(image->kernels, PS_CUDA_SUM) != 0) {
        dlclose(library);
        return PS_FAIL(PS_ENOSYS,
                       "%s has the kernels of another version of this library: build and install both anew with `make "
                       "CUDA=1`",
                       path);
    }
    *out = image;
    return PS_OK;
}

static ps_status find(const ps_cuda_image **out)
{
    char path[PATH_MAX + 64], where[512];
    if (ps_plugin_find("cuda", path, sizeof path)) return open_file(path, out);
    ps_plugin_places(where, sizeof where);
    return PS_FAIL(
        PS_ENOSYS,
        "libpatrickstar_cuda.so, which has the kernels for GPUs, is in none of: %s. Build it with `make "
        "CUDA=1`, the wheel with `make python CUDA=1` (nvcc 13), or set PATRICKSTAR_PLUGIN_PATH to its folder",
        where);
}

ps_status ps_cuda_image_load(const ps_cuda_image **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const ps_cuda_image *loaded; /* lock */
    ps_status st = PS_OK;
    pthread_mutex_lock(&lock);
    if (loaded == NULL) st = find(&loaded);
    *out = loaded;
    pthread_mutex_unlock(&lock);
    return st;
}
