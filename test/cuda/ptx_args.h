/* ptx_args.h - what the kernels of ptx_counts.cu and ptx_faults.cu take. */
#ifndef TEST_CUDA_PTX_ARGS_H
#define TEST_CUDA_PTX_ARGS_H

#include <stdint.h>

typedef struct ps_ptx_args {
    float *y;
    const float *x;
    int64_t n;
} ps_ptx_args;

#endif
