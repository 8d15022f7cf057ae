#include "device/cuda/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

void *ps_cuda_library_open(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *ps_cuda_library_find(const char *name)
{
    const char *home = getenv("CUDA_HOME");
    const char *const roots[] = {home != NULL && home[0] == '/' ? home : "/usr/local/cuda", "/usr/local/cuda"};
    static const char *const folders[] = {"lib64", "lib"};
    char path[PATH_MAX];
    void *library = ps_cuda_library_open(name);
    for (size_t r = 0; r < PS_ARRAY_LEN(roots) && library == NULL; r++)
        for (size_t f = 0; f < PS_ARRAY_LEN(folders) && library == NULL; f++)
            if (snprintf(path, sizeof path, "%s/%s/%s", roots[r], folders[f], name) < (int)sizeof path)
                library = ps_cuda_library_open(path);
    return library;
}

const char *ps_cuda_library_path(const char *name)
{
    struct link_map *map = NULL;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL) return "";
    (void)dlinfo(library, RTLD_DI_LINKMAP, &map);
    dlclose(library); /* it stays */
    return map != NULL ? map->l_name : "";
}

ps_status ps_cuda_library_once(ps_cuda_once *once, const void **out)
{
    ps_status st = PS_OK;
    pthread_mutex_lock(&once->lock);
    if (!once->is_found) st = once->find(once->table);
    once->is_found = st == PS_OK;
    pthread_mutex_unlock(&once->lock);
    *out = st == PS_OK ? once->table : NULL;
    return st;
}
