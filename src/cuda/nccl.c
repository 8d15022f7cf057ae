#include "cuda/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "cuda/library.h"

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
#include "cuda/nccl.def"
#undef XX
    if (missing != NULL) return PS_FAIL(PS_ENOSYS, "%s has no %s: it is not NCCL 2.18 or later", path, missing);
    const ps_nccl_result r = out->version(&version);
    if (r != PS_NCCL_SUCCESS) return PS_FAIL(PS_ENOSYS, "%s: its version: %s", path, out->result_text(r));
    char text[32];
    ps_nccl_describe_version(version, text, sizeof text);
    if (version < PS_NCCL_VERSION_LEAST)
        return PS_FAIL(PS_ENOSYS, "%s is NCCL %s: 2.18 or later is needed", path, text);
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

static ps_status find(ps_nccl *out)
{
    void *library = ps_cuda_library_find(NAME);
    *out = (ps_nccl){0};
    return library != NULL ? take_all(library, NAME, out) : ps_nccl_take(NAME, out);
}

ps_status ps_nccl_load(const ps_nccl **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ps_nccl loaded; /* lock */
    static bool is_loaded; /* lock */
    ps_status st = PS_OK;
    pthread_mutex_lock(&lock);
    if (!is_loaded) st = find(&loaded);
    is_loaded = st == PS_OK;
    pthread_mutex_unlock(&lock);
    *out = st == PS_OK ? &loaded : NULL;
    return st;
}
