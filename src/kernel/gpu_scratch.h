/* gpu_scratch.h - scratch that kernels of a GPU will need, for plans of GPUs that are not here. A backend for one says
 * itself what its kernels need; where it is built in, plans ask it instead. */
#ifndef PS_KERNEL_GPU_SCRATCH_H
#define PS_KERNEL_GPU_SCRATCH_H

#include "kernel/kernel.h"

/* Bytes for a call of op with these arguments; pointers in them are not looked at. product_bytes: what the library of
 * matrix products is given for each of them. */
int64_t ps_gpu_scratch_bytes(ps_op op, const void *args, int64_t product_bytes);

#endif
