/* plugin.h - libpatrickstar_cuda.so: the kernels for GPUs as nvcc has compiled them, which `make CUDA=1` builds. It is
 * data; what launches them is part of the library. Found where the plug-ins of MPI are (base/plugin_file.h). */
#ifndef PS_CUDA_PLUGIN_H
#define PS_CUDA_PLUGIN_H

#include "base/base.h"
#include "base/status.h"

/* What the plug-in has under PS_CUDA_IMAGE_SYMBOL. */
typedef struct ps_cuda_image {
    int32_t abi; /* PS_CUDA_IMAGE_ABI: what this struct is; stays first */
    int32_t n_modules;
    const char *kernels;        /* a sum of the sources that say how kernels are launched, when they were compiled */
    const void *const *modules; /* [n_modules] for cuModuleLoadData each: machine code by architecture, and PTX */
} ps_cuda_image;

#define PS_CUDA_IMAGE_ABI 1
#define PS_CUDA_IMAGE_SYMBOL "ps_cuda_plugin"

/* The plug-in's, loaded once for the process and kept. PS_ENOSYS, in one line that says what to do, when there is none,
 * it cannot be loaded, or its kernels are not those of this library. Needs no driver. */
PS_NODISCARD ps_status ps_cuda_image_load(const ps_cuda_image **out);

#endif
