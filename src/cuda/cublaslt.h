/* cublaslt.h - matrix products by cuBLASLt of CUDA 13, whose library is loaded by name: building needs nothing of it, and
 * a library of a test is just another table. Types and numbers are those of its binary interface; where cublasLt.h is
 * found a test compares them.
 *
 * Bits. The same product, by shape, strides and types, has the same bits on one kind of GPU with one version of the
 * library, wherever its arrays lie: an algorithm is chosen once a shape, as a table says (ps_cuda_choosing) or else the
 * first that the library's heuristics name, for arrays that are known to be aligned to PS_CUDA_PRODUCT_ALIGN and no
 * better, and for a workspace of one size. Sums are in float: of f32 in true f32 (not TF32), of 16 bits by products that
 * are exact in it. Parts of a sum over k that are computed apart (split-K) are added in float, in their order; schemes
 * that add them up in the output are not allowed.
 *
 * What follows a product is in float, before y is rounded: the bias, where it has y's type; an addend, as the library's C
 * matrix with beta = 1; and the derivative of GELU's tanh form (DGELU, which reads GELU's input as the auxiliary matrix: of
 * y's type, its rows a multiple of 8 elements apart). Where the library's heuristics, or its multiplication, say that a
 * kind of product is not supported, there is none of this kind, which follows from the shape: kernels compute what follows.
 * DGELU is used from compute capability 9.0 on: before, llm.c found GELU's fusion slower than a kernel of its own
 * (train_gpt2.cu, gelu_fusion). GELU itself is not used: with and without the kept input it is two epilogues, of which
 * nothing says that they have the same bits, and activation checkpointing wants both of one layer. */
#ifndef PS_CUDA_CUBLASLT_H
#define PS_CUDA_CUBLASLT_H

#include "cuda/backend_cuda.h"

typedef int ps_lt_status; /* 0: success */
typedef struct ps_lt_handle_state *ps_lt_handle;
typedef struct ps_lt_product_state *ps_lt_product;
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

/* element types; how is computed */
enum { PS_LT_F32 = 0, PS_LT_F16 = 2, PS_LT_BF16 = 14, PS_LT_COMPUTE_F32 = 68 };

/* Attributes of a product, of 4 bytes each but pointers and what is said: */
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
/* Parts of a sum in the workspace, in the type that is computed in. */
enum { PS_LT_REDUCTION_COMPUTED = 2 };

typedef struct ps_cublaslt {
#define XX(type, name, symbol, params) type(*name) params;
#include "cuda/cublaslt.def"
#undef XX
} ps_cublaslt;

/* The major version of the library that is taken. */
#define PS_CUBLASLT_VERSION 13

/* The library of this system, loaded once for the process and kept: by its name, then from the folders of CUDA_HOME and
 * of /usr/local/cuda. PS_ENOSYS, in one line that says what to do. */
PS_NODISCARD ps_status ps_cublaslt_load(const ps_cublaslt **out);
/* The same from one file; not kept. */
PS_NODISCARD ps_status ps_cublaslt_take(const char *library, ps_cublaslt *out);

/* Scratch of a product, on every GPU. What the library gets is 256 bytes less, as it wants another alignment. */
#define PS_CUBLASLT_WORKSPACE_BYTES (32 * PS_MIB + 256)

/* Products on the GPU by the library of this system; they must be ended before the GPU is closed. Safe from several threads.
 * Memory of the host that they keep grows with the number of shapes. PS_ENOSYS, PS_ENOMEM_DEV, PS_EDEVICE. */
PS_NODISCARD ps_status ps_cublaslt_open(ps_gpu *gpu, ps_cuda_products *out);
/* The same by a library that outlives them, with other scratch: a multiple of 256, more than 256. */
PS_NODISCARD ps_status ps_cublaslt_open_with(ps_gpu *gpu, const ps_cublaslt *library, int64_t workspace_bytes,
                                             ps_cuda_products *out);

#endif
