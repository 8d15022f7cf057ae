/* cublaslt.h - matrix multiplication by cuBLASLt of CUDA 13, whose library is loaded by name: building needs no part of
 * it, and tests supply another table of functions. Types and numbers are those of its binary interface; where
 * cublasLt.h is found a test compares them.
 *
 * Bits. The same multiplication, by shape, strides and types, has the same bits on one kind of GPU with one version of
 * the library, whatever the addresses of its arrays. An algorithm is chosen once a shape: the first that the library's
 * heuristics return for arrays aligned to PS_CUDA_GEMM_ALIGN and for a workspace of one size. Sums are in float: of f32
 * in true f32 (not TF32), of 16 bits by products that are exact in float. Partial sums over k (split-K) are added in
 * float, in order; schemes that add them up in the output are not allowed.
 *
 * Epilogues are computed in float, before y is rounded: the bias, where it has y's type; an addend, as the library's C
 * matrix with beta = 1; and the derivative of GELU's tanh form (DGELU, which reads GELU's input as the auxiliary
 * matrix: of y's type, its rows a multiple of 8 elements apart). Where the library's heuristics or its matmul call
 * report an epilogue as not supported, which follows from the shape, a kernel computes it instead. DGELU is used from
 * compute capability 9.0 on: llm.c found GELU's fusion slower than a separate kernel on older GPUs (train_gpt2.cu,
 * gelu_fusion). GELU itself is not used: with and without the kept input it is two epilogues, which are not documented
 * to have the same bits, and activation checkpointing needs both in one layer. */
#ifndef PS_CUDA_CUBLASLT_H
#define PS_CUDA_CUBLASLT_H

#include "device/cuda/backend_cuda.h"

typedef int ps_lt_status; /* 0: success */
typedef struct ps_lt_handle_state *ps_lt_handle;
typedef struct ps_lt_gemm_state *ps_lt_gemm;
typedef struct ps_lt_layout_state *ps_lt_layout;
typedef struct ps_lt_preference_state *ps_lt_preference;

typedef struct ps_lt_algorithm {
    uint64_t data[8];
} ps_lt_algorithm;

typedef struct ps_lt_choice {
    ps_lt_algorithm algorithm;
    size_t workspace_bytes;
    ps_lt_status state; /* the rest is valid when it is success */
    float waves;
    int reserved[4];
} ps_lt_choice;

enum {
    PS_LT_SUCCESS = 0,
    PS_LT_NOT_INITIALIZED = 1,
    PS_LT_ALLOC_FAILED = 3,
    PS_LT_INVALID_VALUE = 7,
    PS_LT_ARCH_MISMATCH = 8,
    PS_LT_EXECUTION_FAILED = 13,
    PS_LT_INTERNAL_ERROR = 14,
    PS_LT_NOT_SUPPORTED = 15,
};

/* element types; the type of computation */
enum { PS_LT_F32 = 0, PS_LT_F16 = 2, PS_LT_BF16 = 14, PS_LT_COMPUTE_F32 = 68 };

/* Attributes of a matmul descriptor, of 4 bytes each but for pointers and where noted: */
enum {
    PS_LT_TRANSPOSES_A = 3,
    PS_LT_TRANSPOSES_B = 4,
    PS_LT_EPILOGUE = 7,
    PS_LT_BIAS_POINTER = 8,
    PS_LT_AUX_POINTER = 11,
    PS_LT_AUX_STRIDE = 12, /* of 8 bytes */
    PS_LT_BIAS_TYPE = 26,
};
enum { PS_LT_AS_IS = 0, PS_LT_TRANSPOSED = 1, PS_LT_EPILOGUE_BIAS = 4, PS_LT_EPILOGUE_DGELU = 64 | 128 };

/* Attributes of a preference, of 4 bytes each but the workspace's 8: */
enum {
    PS_LT_WORKSPACE_BYTES = 1,
    PS_LT_REDUCTIONS = 3,
    PS_LT_ALIGN_A = 5,
    PS_LT_ALIGN_B = 6,
    PS_LT_ALIGN_C = 7,
    PS_LT_ALIGN_Y = 8,
};
/* Reduction scheme: partial sums in the workspace, in the compute type. */
enum { PS_LT_REDUCTION_COMPUTED = 2 };

typedef struct ps_cublaslt {
#define XX(type, name, symbol, params) type(*name) params;
#include "device/cuda/cublaslt.def"
#undef XX
} ps_cublaslt;

/* The required major version of the library. */
#define PS_CUBLASLT_VERSION 13

/* The library of this system, loaded once for the process and kept: by its name, then from the folders of CUDA_HOME and
 * of /usr/local/cuda. PS_ENOSYS, in one line that says what to do. */
PS_NODISCARD ps_status ps_cublaslt_load(const ps_cublaslt **out);
/* The library in one file; not kept. */
PS_NODISCARD ps_status ps_cublaslt_take(const char *library, ps_cublaslt *out);

/* Scratch of a multiplication, on every GPU. The library gets 256 bytes less, as it requires another alignment. */
#define PS_CUBLASLT_WORKSPACE_BYTES (32 * PS_MIB + 256)

/* Matrix multiplication on the GPU by the library of this system; must be destroyed before the GPU is closed.
 * Thread-safe. Its host memory grows with the number of shapes. PS_ENOSYS, PS_ENOMEM_DEV, PS_EDEVICE. */
PS_NODISCARD ps_status ps_cublaslt_open(ps_gpu *gpu, ps_cuda_gemms *out);
/* The same by a library that outlives it, with other scratch: a multiple of 256, more than 256. */
PS_NODISCARD ps_status ps_cublaslt_open_with(ps_gpu *gpu, const ps_cublaslt *library, int64_t workspace_bytes,
                                             ps_cuda_gemms *out);

#endif
