/* cuda_operator.h - the GPU implementation of each operator: its kernels and matrix multiplications, their order, grids
 * and scratch. Nothing here needs CUDA.
 *
 * An operator runs on a ps_cuda_issuer, which executes kernels and matrix multiplications in order.
 * device/cuda/backend_cuda.h issues them to a stream of the driver; tests have an issuer over the emulator, with plain
 * loops as matrix multiplication. */
#ifndef PS_KERNEL_CUDA_CUDA_OPERATOR_H
#define PS_KERNEL_CUDA_CUDA_OPERATOR_H

#include "base/base.h"
#include "kernel/cuda/cuda_kernels.h"

/* The kernels, by number. */
typedef struct ps_cuda_kernel_entry {
    const char *name;
    uint32_t threads; /* a block */
    size_t args_bytes;
} ps_cuda_kernel_entry;

extern const ps_cuda_kernel_entry ps_cuda_kernel_table[PS_CUDA_KERNEL_COUNT];

/* One kernel. Where shared_bytes are more than 48 KiB, the function must be allowed them first
 * (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES). */
typedef struct ps_cuda_launch {
    ps_cuda_kernel kernel;
    uint32_t blocks;       /* at least 1, below 2^31 */
    uint32_t shared_bytes; /* of PS_SHARED_SIZED */
    const void *args;      /* the kernel's struct; the caller's again at once */
    size_t args_bytes;
} ps_cuda_launch;

/* A matrix with row stride `stride`, in elements. */
typedef struct ps_cuda_matrix {
    const void
        *data; /* a multiple of PS_CUDA_GEMM_ALIGN, as is y, since the choice of algorithms depends on alignment; but a
                       * may be a row within an array, with the alignment of its elements */
    int64_t stride;
    bool is_transposed; /* the matrix is transposed */
    ps_dtype dtype;
} ps_cuda_matrix;

#define PS_CUDA_GEMM_ALIGN 64

/* y (+)= a b + bias: y [m, n], a [m, k], b [k, n], all row-major; m, n, k at least 1. Sums are in float, rounded once
 * to y's type. For 16-bit types, strides that are not multiples of 8 are slow but legal, as the user chooses sizes.
 *
 * At most one of two epilogues applies to the sums before rounding: y = a b + bias + addend, or y = a b gelu'(gelu_x),
 * the derivative of the tanh form. addend and gelu_x are [m, n] with y's alignment, stride and type, in separate
 * memory. Not together with accumulate; gelu_x without a bias, and for 16-bit types only. */
typedef struct ps_cuda_gemm {
    void *y;
    int64_t y_stride;
    ps_dtype y_dtype;
    ps_cuda_matrix a, b; /* of the same type */
    const void *bias;    /* [n] of the type of a and b, or NULL; an issuer gets it in y's type as well */
    int64_t m, n, k;
    bool accumulate;             /* to y; without bias */
    const void *addend, *gelu_x; /* NULL: no epilogue */
    void *workspace;             /* gemm_bytes of it */
} ps_cuda_gemm;

typedef struct ps_cuda_issuer {
    ps_status (*launch)(void *self, const ps_cuda_launch *l);
    /* With m, n, k at least 1. *is_done false: this fused epilogue is not supported, and nothing was issued. That
     * depends only on sizes, strides, types and flags, for the lifetime of the issuer. */
    ps_status (*gemm)(void *self, const ps_cuda_gemm *p, bool *is_done);
    /* Attention by a library, tried before the kernels; NULL: none. *is_done false: the library does not support these
     * arguments of attention_fwd or attention_bwd, and nothing was issued. Scratch is enough for kernels and
     * library. */
    ps_status (*attention)(void *self, ps_op op, const void *args, bool *is_done);
    /* Runs a user's function, with the stream in its call (ps_own_run). */
    ps_status (*own)(void *self, const ps_own_args *a, const ps_own_call *call);
    void *self;
    int64_t gemm_bytes; /* workspace of each matrix multiplication; a multiple of 256, and constant for a run, as bits
                           depend on it */
} ps_cuda_issuer;

/* Issue the operator; after a failure only a part of it. workspace_bytes: the size of args' workspace. */
PS_NODISCARD ps_status ps_cuda_run(const ps_cuda_issuer *to, ps_op op, const void *args, size_t workspace_bytes);

/* ps_backend_ops.unrounded of backends that run these operators. */
#define PS_CUDA_UNROUNDED (1u << PS_EPILOGUE_ADD | 1u << PS_EPILOGUE_GELU_BWD)

/* Scratch for these arguments, whose pointers are not read. */
int64_t ps_cuda_workspace_bytes(ps_op op, const void *args, int64_t gemm_bytes);

/* ---- for cuda_*.c: an object for each operator, ps_cuda_X ---- */

typedef struct ps_cuda_operator {
    ps_status (*run)(const ps_cuda_issuer *to, const void *args);
    int64_t (*workspace_bytes)(const void *args, int64_t gemm_bytes); /* NULL: none */
} ps_cuda_operator;

#define XX(op) extern const ps_cuda_operator ps_cuda_##op;
PS_OPS(XX)
#undef XX

#define PS_CUDA_ALIGN 256
#define PS_CUDA_VECTOR_BYTES 16 /* the widest access of a thread */

/* Bytes of n floats as a part of a workspace. */
static inline int64_t ps_cuda_floats(int64_t n)
{
    return ps_round_up(n * (int64_t)sizeof(float), PS_CUDA_ALIGN);
}

/* Layout of a row of `cols` columns in the registers of a team of threads (cuda_rows.cuh). */
typedef struct ps_cuda_team {
    int32_t lanes, vectors; /* 0: not possible, as the row is not a multiple of a vector, or too long */
} ps_cuda_team;

/* With few vectors per thread, which column sums prefer, or with few threads, which need less synchronization. */
ps_cuda_team ps_cuda_team_of(int64_t cols, ps_dtype t, int64_t threads, bool few_vectors);

/* The next part of a workspace. */
static inline void *ps_cuda_take(char **workspace, int64_t bytes)
{
    void *const part = *workspace;
    *workspace += bytes;
    return part;
}

/* An empty grid is not launched. */
PS_NODISCARD ps_status ps_cuda_launch_on(const ps_cuda_issuer *to, ps_cuda_kernel kernel, int64_t blocks,
                                         int64_t shared_bytes, const void *args, size_t args_bytes);
#define PS_CUDA_LAUNCH(to, kernel, blocks, args) ps_cuda_launch_on((to), (kernel), (blocks), 0, (args), sizeof *(args))
#define PS_CUDA_OF_TYPE(name, dtype) ((ps_cuda_kernel)(PS_CUDA_##name + (dtype)))
#define PS_CUDA_OF_PAIR(name, first, second) ((ps_cuda_kernel)(PS_CUDA_##name + (first)*PS_DTYPE_COUNT + (second)))

/* Blocks for n elements, `each` per thread, limited to several waves of any GPU, as kernels have grid-stride loops. */
static inline int64_t ps_cuda_blocks_of(int64_t n, int64_t each, int64_t threads)
{
    return ps_min_i64(ps_ceil_div(n, each * threads), 4096);
}

/* Set y to 0. */
PS_NODISCARD ps_status ps_cuda_zero(const ps_cuda_issuer *to, void *y, int64_t bytes);

/* Sums over ranks. */
PS_NODISCARD ps_status ps_cuda_rank_sum(const ps_cuda_issuer *to, ps_dtype dtype, const ps_cuda_rank_sum_args *a);

/* Matrix multiplication without epilogue; where k is 0, y becomes 0 unless accumulate. */
PS_NODISCARD ps_status ps_cuda_multiply(const ps_cuda_issuer *to, const ps_cuda_gemm *p);

/* With a fused epilogue, if the issuer supports it; else *is_done is false, and nothing was issued. */
PS_NODISCARD ps_status ps_cuda_multiply_whole(const ps_cuda_issuer *to, const ps_cuda_gemm *p, bool *is_done);

/* Scratch of partial column sums; non-decreasing in rows. */
int64_t ps_cuda_columns_bytes(int64_t rows, int64_t cols);

/* partial <- column sums of x (of dtype) times the normalised c->normal, if any; c->partial, c->rows_a_block and
 * c->width are set here. */
PS_NODISCARD ps_status ps_cuda_column_partials(const ps_cuda_issuer *to, ps_dtype dtype, ps_cuda_columns_args c,
                                               float *partial);
PS_NODISCARD ps_status ps_cuda_add_partials(const ps_cuda_issuer *to, const ps_cuda_partials_args *a);
/* y (+)= their sums, over `rows` rows. */
PS_NODISCARD ps_status ps_cuda_column_sums(const ps_cuda_issuer *to, const float *partial, int64_t rows, int64_t cols,
                                           void *y, ps_dtype dtype, bool accumulate);

#endif
