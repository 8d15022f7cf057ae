/* cuda_attention.h - constants shared by the attention kernels and their grids. Also compiles as C++17, for nvcc. */
#ifndef PS_KERNEL_CUDA_CUDA_ATTENTION_H
#define PS_KERNEL_CUDA_CUDA_ATTENTION_H

/* A block has 4 warps with this many rows each; the sums of a row need width / 32 registers of each lane. */
#define PS_CUDA_ATTENTION_WARPS 4
#define PS_CUDA_ATTENTION_ROWS_A_WARP(width) ((width) <= 128 ? 4 : 2)
#define PS_CUDA_ATTENTION_ROWS(width) (PS_CUDA_ATTENTION_WARPS * PS_CUDA_ATTENTION_ROWS_A_WARP(width))

/* Tensor-core kernels for heads up to `width`, with or without dropout: rows of a block, and rows of a tile of the
 * other operand (cuda_attention_mma.cu). Registers per thread are the limit. */
#define PS_CUDA_MMA_WIDTH_MAX 128
#define PS_CUDA_MMA_FWD_ROWS(width, drops) ((width) <= 64 && !(drops) ? 128 : 64)
#define PS_CUDA_MMA_FWD_OTHERS(width, drops) ((drops) ? 32 : 64)
#define PS_CUDA_MMA_DQ_ROWS(width, drops) ((width) <= 64 ? 128 : 64)
#define PS_CUDA_MMA_DQ_OTHERS(width, drops) 32
#define PS_CUDA_MMA_DKV_ROWS(width, drops) 64
#define PS_CUDA_MMA_DKV_OTHERS(width, drops) (((width) <= 64 ? 64 : 32) >> ((drops) ? 1 : 0))

#endif
