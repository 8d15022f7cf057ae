/* emulate.h - run a kernel of src/kernel/cuda on the host (emulator.h says how). One at a time. */
#ifndef TEST_CUDA_EMULATE_H
#define TEST_CUDA_EMULATE_H

#include "cuda/emu_calls.h"
#include "kernel/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs it over `blocks` blocks; args as the kernel's. The seed gives the order of blocks and threads. What a kernel does
 * wrong ends the program, with a message. The kernels are those that the program is linked with (emu_kernels.c): the sources
 * as the host's compiler has them, or the PTX that nvcc made of them.
 *
 *   PS_TEST_COPIES  when copies to shared memory arrive: early, late, drawn (left out: drawn)
 *   PS_TEST_RACES   1: translated PTX is looked through for races on shared memory */
void emulate(ps_cuda_kernel kernel, unsigned blocks, unsigned shared_bytes, const void *args, unsigned seed);
/* The same of one without a number. */
void emulate_kernel(const emu_kernel *kernel, unsigned blocks, unsigned shared_bytes, const void *args, unsigned seed);

/* What translated PTX may touch of global memory: the array, [begin, end), in which an address is; false: none. NULL: all. */
typedef bool emu_find_memory(uint64_t address, uint64_t *begin, uint64_t *end);
void emulate_over(emu_find_memory *find);

#ifdef __cplusplus
}
#endif

#endif
