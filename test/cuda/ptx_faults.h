/* ptx_faults.h - what the kernels of ptx_faults.cu take. */
#ifndef TEST_CUDA_PTX_FAULTS_H
#define TEST_CUDA_PTX_FAULTS_H

#include <stdint.h>

typedef struct ps_fault_args {
    float *y;
    const float *x;
    int64_t n;
} ps_fault_args;

#endif
