/* emulate.h - run a kernel of src/kernel/cuda on the host (emulator.h says how). One at a time. */
#ifndef TEST_CUDA_EMULATE_H
#define TEST_CUDA_EMULATE_H

#include "kernel/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs it over `blocks` blocks; args as the kernel's. The seed gives the order of blocks and threads. What a kernel does
 * wrong ends the program, with a message. */
void emulate(ps_cuda_kernel kernel, unsigned blocks, unsigned shared_bytes, const void *args, unsigned seed);

#ifdef __cplusplus
}
#endif

#endif
