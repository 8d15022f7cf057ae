/* library.h - shared libraries of CUDA, loaded at first use: building needs none of them. */
#ifndef PS_CUDA_LIBRARY_H
#define PS_CUDA_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

/* dlopen of one file, or of a name that the loader finds. NULL: dlerror has the reason. Never unload it: such a library
 * has threads and driver state. Thread-safe. */
void *ps_cuda_library_open(const char *path);

/* By its file name, then from the folders of CUDA_HOME and of /usr/local/cuda. NULL: not found. */
void *ps_cuda_library_find(const char *name);

/* The file of a library that was loaded under this name; "": none was. */
const char *ps_cuda_library_path(const char *name);

/* The function table of a library, for the process: loaded at first use, then kept; after a failure the next call tries
 * again. A static object. */
typedef struct ps_cuda_once {
    pthread_mutex_t lock;
    ps_status (*find)(void *table); /* the lock is held */
    void *table;
    bool is_found; /* lock */
} ps_cuda_once;

#define PS_CUDA_ONCE(how, where)                                                                                       \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER, .find = (how), .table = (where)                                             \
    }

/* *out: the table; NULL on failure. Thread-safe. */
PS_NODISCARD ps_status ps_cuda_library_once(ps_cuda_once *once, const void **out);

#endif
