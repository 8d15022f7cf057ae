/* library.h - shared libraries of CUDA's, found when they are wanted: building needs none of them. */
#ifndef PS_CUDA_LIBRARY_H
#define PS_CUDA_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

/* dlopen of one file, or of a name that the system knows. NULL: dlerror has the reason. Never to be unloaded: such a
 * library has threads and state of the driver's. From any thread. */
void *ps_cuda_library_open(const char *path);

/* By the name of its file, then from the folders of CUDA_HOME and of /usr/local/cuda. NULL: it is nowhere. */
void *ps_cuda_library_find(const char *name);

/* The table of a library's functions, for the process: found when it is first wanted, and then kept; after a failure
 * looked for again the next time. A static object. */
typedef struct ps_cuda_once {
    pthread_mutex_t lock;
    ps_status (*find)(void *table); /* with the lock */
    void *table;
    bool is_found; /* lock */
} ps_cuda_once;

#define PS_CUDA_ONCE(how, where)                                                                                       \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER, .find = (how), .table = (where)                                             \
    }

/* *out: the table; NULL on failure. From any thread. */
PS_NODISCARD ps_status ps_cuda_library_once(ps_cuda_once *once, const void **out);

#endif
