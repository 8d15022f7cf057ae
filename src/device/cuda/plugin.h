/* plugin.h - libpatrickstar_cuda.so: the GPU kernels as compiled by nvcc, which `make CUDA=1` builds. It is data only;
 * the code that launches them is part of the library. Found where the MPI plug-ins are (base/plugin_file.h). */
#ifndef PS_CUDA_PLUGIN_H
#define PS_CUDA_PLUGIN_H

#include "base/base.h"
#include "base/status.h"

/* The content of PS_CUDA_IMAGE_SYMBOL in the plug-in. */
typedef struct ps_cuda_image {
    int32_t abi; /* PS_CUDA_IMAGE_ABI: version of this struct; stays first */
    int32_t n_modules;
    const char *kernels;        /* checksum of the sources that define how kernels are launched, at compile time */
    const void *const *modules; /* [n_modules] for cuModuleLoadData each: machine code by architecture, and PTX */
} ps_cuda_image;

#define PS_CUDA_IMAGE_ABI 1
#define PS_CUDA_IMAGE_SYMBOL "ps_cuda_plugin"

/* The plug-in's image, loaded once for the process and kept. PS_ENOSYS, in one line that says what to do, when it is
 * missing, cannot be loaded, or has kernels of another version of the library. Needs no driver. */
PS_NODISCARD ps_status ps_cuda_image_load(const ps_cuda_image **out);

#endif
