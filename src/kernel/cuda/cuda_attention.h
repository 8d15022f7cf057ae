/* cuda_attention.h - what the kernels of attention and their grids must agree on. Also compiles as C++17, for nvcc. */
#ifndef PS_KERNEL_CUDA_CUDA_ATTENTION_H
#define PS_KERNEL_CUDA_CUDA_ATTENTION_H

/* A block has 4 warps, each with so many rows: sums of a row take width / 32 registers of each lane. */
#define PS_CUDA_ATTENTION_WARPS 4
#define PS_CUDA_ATTENTION_ROWS_A_WARP(width) ((width) <= 128 ? 4 : 2)
#define PS_CUDA_ATTENTION_ROWS(width) (PS_CUDA_ATTENTION_WARPS * PS_CUDA_ATTENTION_ROWS_A_WARP(width))

#endif
