/* look.h - describes the NVIDIA hardware and driver of this machine without loading a driver or opening a GPU. */
#ifndef PS_CUDA_LOOK_H
#define PS_CUDA_LOOK_H

#include "device/cuda/driver.h"

/* Is there an NVIDIA display or compute adapter, or its driver: the kernel module, the device file that a container was
 * given, or a library in a folder of LD_LIBRARY_PATH? root: prepended to /proc, /dev and /sys, for tests, and the
 * environment is not looked at; NULL is the real machine. */
bool ps_cuda_has_hardware(const char *root);

/* One line without newline: "no NVIDIA GPU found"; what there is and why it cannot be used; or its name and driver.
 * driver: NULL is that of this system, which is loaded where there is hardware. True: a GPU can be opened. */
bool ps_cuda_look(const char *root, const ps_cuda_driver *driver, char *out, size_t bytes);

#endif
