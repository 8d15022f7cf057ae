/* cuda_operator.h - how a GPU computes each operator: which kernels and matrix products, in which order, over how many
 * blocks, with what scratch. Nothing here needs CUDA.
 *
 * An operator is carried out on a ps_cuda_issuer: what takes kernels and products, one after the other. That of
 * cuda/backend_cuda.h gives them to a stream of the driver; tests have one over the emulator, whose products are plain
 * loops. */
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

/* A matrix whose rows lie `stride` elements apart. */
typedef struct ps_cuda_matrix {
    const void
        *data; /* a multiple of PS_CUDA_PRODUCT_ALIGN, as is y: algorithms are chosen by what is known to be aligned;
                       * but a may be some row within an array, aligned as its elements are */
    int64_t stride;
    bool is_transposed; /* the product reads it as if columns were rows */
    ps_dtype dtype;
} ps_cuda_matrix;

#define PS_CUDA_PRODUCT_ALIGN 64

/* y (+)= a b + bias: y [m, n], a [m, k], b [k, n], all row-major; m, n, k at least 1. Sums in float, one rounding to
 * y's type at the end. Of 16 bits, strides that are no multiples of 8 are slow but legal: sizes are the user's.
 *
 * At most one of two may follow, on the sums before they are rounded: y = a b + bias + addend, or y = a b gelu'(gelu_x),
 * the tanh form's derivative. Both [m, n], aligned as y, with its stride and type, in memory of their own. Not together
 * with accumulate; gelu_x without a bias, and of 16 bits. */
typedef struct ps_cuda_product {
    void *y;
    int64_t y_stride;
    ps_dtype y_dtype;
    ps_cuda_matrix a, b; /* of one type */
    const void *bias;    /* [n] of the type of a and b, or NULL; as an issuer gets it, of y's type too */
    int64_t m, n, k;
    bool accumulate;             /* to y; without bias */
    const void *addend, *gelu_x; /* NULL: nothing follows */
    void *workspace;             /* product_bytes of it */
} ps_cuda_product;

typedef struct ps_cuda_issuer {
    ps_status (*launch)(void *self, const ps_cuda_launch *l);
    /* With m, n, k at least 1. *is_done false: of a product that something follows, there is none of this kind, and nothing
     * was given; which these are depends on sizes, strides, types and flags alone, as long as the issuer lives. */
    ps_status (*product)(void *self, const ps_cuda_product *p, bool *is_done);
    /* Attention by a library, before the kernels are asked; NULL: there is none. *is_done false: it has nothing for these
     * arguments of attention_fwd or attention_bwd, and gave nothing; their scratch is the kernels' and the library's. */
    ps_status (*attention)(void *self, ps_op op, const void *args, bool *is_done);
    /* A user's function, with the stream in its call (ps_own_run). */
    ps_status (*own)(void *self, const ps_own_args *a, const ps_own_call *call);
    void *self;
    int64_t product_bytes; /* workspace of each product; a multiple of 256, and constant for a run: bits depend on it */
} ps_cuda_issuer;

/* Gives all of the operator to it, or, at the first failure, a part. workspace_bytes: the size of args'
 * workspace. */
PS_NODISCARD ps_status ps_cuda_run(const ps_cuda_issuer *to, ps_op op, const void *args, size_t workspace_bytes);

/* ps_backend_ops.unrounded of whoever runs these operators. */
#define PS_CUDA_UNROUNDED (1u << PS_EPILOGUE_ADD | 1u << PS_EPILOGUE_GELU_BWD)

/* Scratch for these arguments; pointers in them are not looked at. */
int64_t ps_cuda_workspace_bytes(ps_op op, const void *args, int64_t product_bytes);

/* ---- for cuda_*.c: an object for each operator, ps_cuda_X ---- */

typedef struct ps_cuda_operator {
    ps_status (*run)(const ps_cuda_issuer *to, const void *args);
    int64_t (*workspace_bytes)(const void *args, int64_t product_bytes); /* NULL: none */
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

/* How a row of so many columns is kept in the registers of a team of threads (cuda_rows.cuh). */
typedef struct ps_cuda_team {
    int32_t lanes, vectors; /* 0: it is not; a vector does not divide it, or it is too long */
} ps_cuda_team;

/* With few vectors a thread, as sums down columns want it, or with few threads, which wait for fewer others. */
ps_cuda_team ps_cuda_team_of(int64_t cols, ps_dtype t, int64_t threads, bool few_vectors);

/* The next part of a workspace. */
static inline void *ps_cuda_take(char **workspace, int64_t bytes)
{
    void *const part = *workspace;
    *workspace += bytes;
    return part;
}

/* A grid of no blocks is no launch. */
PS_NODISCARD ps_status ps_cuda_launch_on(const ps_cuda_issuer *to, ps_cuda_kernel kernel, int64_t blocks,
                                         int64_t shared_bytes, const void *args, size_t args_bytes);
#define PS_CUDA_LAUNCH(to, kernel, blocks, args) ps_cuda_launch_on((to), (kernel), (blocks), 0, (args), sizeof *(args))
#define PS_CUDA_OF_TYPE(name, dtype) ((ps_cuda_kernel)(PS_CUDA_##name + (dtype)))
#define PS_CUDA_OF_PAIR(name, first, second) ((ps_cuda_kernel)(PS_CUDA_##name + (first)*PS_DTYPE_COUNT + (second)))

/* Blocks for n elements, `each` a thread, as many as fill any GPU several times: kernels go on in steps of the grid. */
static inline int64_t ps_cuda_blocks_of(int64_t n, int64_t each, int64_t threads)
{
    return ps_min_i64(ps_ceil_div(n, each * threads), 4096);
}

/* y becomes 0. */
PS_NODISCARD ps_status ps_cuda_zero(const ps_cuda_issuer *to, void *y, int64_t bytes);

/* Sums over ranks. */
PS_NODISCARD ps_status ps_cuda_rank_sum(const ps_cuda_issuer *to, ps_dtype dtype, const ps_cuda_rank_sum_args *a);

/* The product, which nothing follows; where k is 0, y becomes 0 without accumulate. */
PS_NODISCARD ps_status ps_cuda_multiply(const ps_cuda_issuer *to, const ps_cuda_product *p);

/* One that something follows, if the issuer has it; else *is_done is false, and nothing was given. */
PS_NODISCARD ps_status ps_cuda_multiply_whole(const ps_cuda_issuer *to, const ps_cuda_product *p, bool *is_done);

/* Scratch of partial sums down columns; what is enough for some is so for fewer. */
int64_t ps_cuda_columns_bytes(int64_t rows, int64_t cols);

/* partial <- sums of x (of dtype) times the normalised c->normal, if any; c->partial, c->rows_a_block and c->width
 * are set here. */
PS_NODISCARD ps_status ps_cuda_column_partials(const ps_cuda_issuer *to, ps_dtype dtype, ps_cuda_columns_args c,
                                               float *partial);
PS_NODISCARD ps_status ps_cuda_add_partials(const ps_cuda_issuer *to, const ps_cuda_partials_args *a);
/* y (+)= their sums, over `rows` rows. */
PS_NODISCARD ps_status ps_cuda_column_sums(const ps_cuda_issuer *to, const float *partial, int64_t rows, int64_t cols,
                                           void *y, ps_dtype dtype, bool accumulate);

#endif
