/* library.h - shared libraries of CUDA's, found when they are wanted: building needs none of them. */
#ifndef PS_CUDA_LIBRARY_H
#define PS_CUDA_LIBRARY_H

/* dlopen of one file, or of a name that the system knows. NULL: dlerror has the reason. Never to be unloaded: such a
 * library has threads and state of the driver's. From any thread. */
void *ps_cuda_library_open(const char *path);

/* By the name of its file, then from the folders of CUDA_HOME and of /usr/local/cuda. NULL: it is nowhere. */
void *ps_cuda_library_find(const char *name);

#endif
