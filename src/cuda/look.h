/* look.h - what there is of NVIDIA's, in words: without a driver, and without opening a GPU. */
#ifndef PS_CUDA_LOOK_H
#define PS_CUDA_LOOK_H

#include "cuda/driver.h"

/* A display or compute adapter of NVIDIA's, or its driver: the module, or the device of it that a container was given.
 * root: put before /proc, /dev and /sys, for tests; NULL is the real machine. */
bool ps_cuda_has_hardware(const char *root);

/* One line without its end: "none of NVIDIA's"; what there is and why it cannot be used; or its name and driver. driver:
 * NULL is that of this system, which is loaded where there is hardware. True: there is one that could be opened. */
bool ps_cuda_look(const char *root, const ps_cuda_driver *driver, char *out, size_t bytes);

#endif
