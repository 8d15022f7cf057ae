/* ptx_counts.h - what the kernels of ptx_counts.cu take. */
#ifndef TEST_CUDA_PTX_COUNTS_H
#define TEST_CUDA_PTX_COUNTS_H

#include <stdint.h>

typedef struct ps_count_args {
    float *y;
    const float *x;
    int64_t n;
} ps_count_args;

#endif
