#include "kernel/cuda/cuda_operator.h"

/* For column sums. Enough blocks of rows to saturate any GPU with reads, also with few columns, but few enough that
 * partial sums are small compared with the rows. */
#define ROWS_A_BLOCK 16
#define ROW_BLOCKS_MIN 64
#define PARTIAL_SUMS (1 << 19)

const ps_cuda_kernel_entry ps_cuda_kernel_table[PS_CUDA_KERNEL_COUNT] = {
#define XX(symbol, args, threads) {#symbol, threads, sizeof(args)},
#include "kernel/cuda/cuda_kernels.def"
#undef XX
};

static const ps_cuda_operator *const operators[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &ps_cuda_##op,
    PS_OPS(XX)
#undef XX
};

int64_t ps_cuda_workspace_bytes(ps_op op, const void *args, int64_t gemm_bytes)
{
    return operators[op]->workspace_bytes != NULL ? operators[op]->workspace_bytes(args, gemm_bytes) : 0;
}

ps_status ps_cuda_run(const ps_cuda_issuer *to, ps_op op, const void *args, size_t workspace_bytes)
{
    PS_ASSERT((int64_t)workspace_bytes >= ps_cuda_workspace_bytes(op, args, to->gemm_bytes));
    (void)workspace_bytes;
    bool is_done = false;
    if (to->attention != NULL && (op == PS_OP_attention_fwd || op == PS_OP_attention_bwd))
        PS_TRY(to->attention(to->self, op, args, &is_done));
    return is_done ? PS_OK : operators[op]->run(to, args);
}

ps_cuda_team ps_cuda_team_of(int64_t cols, ps_dtype t, int64_t threads, bool few_vectors)
{
    const int64_t vector = PS_CUDA_VECTOR_BYTES / (int64_t)ps_dtype_bytes(t), n = cols / vector;
    const int64_t lanes_wanted = few_vectors ? threads : PS_CUDA_WARP;
    ps_cuda_team team = {.lanes = 1, .vectors = 1};
    if (cols == 0 || cols % vector != 0 || n > 4 * threads) return (ps_cuda_team){0};
    while (team.vectors < 4 && n > lanes_wanted * team.vectors) team.vectors *= 2;
    while ((int64_t)team.lanes * team.vectors < n) team.lanes *= 2;
    return team;
}

ps_status ps_cuda_launch_on(const ps_cuda_issuer *to, ps_cuda_kernel kernel, int64_t blocks, int64_t shared_bytes,
                            const void *args, size_t args_bytes)
{
    if (blocks == 0) return PS_OK;
    if (blocks > INT32_MAX)
        return PS_FAIL(PS_EINVAL, "a kernel of %lld blocks: a GPU takes 2147483647; a smaller micro-batch has fewer",
                       (long long)blocks);
    return to->launch(to->self, &(ps_cuda_launch){.kernel = kernel,
                                                  .blocks = (uint32_t)blocks,
                                                  .shared_bytes = (uint32_t)shared_bytes,
                                                  .args = args,
                                                  .args_bytes = args_bytes});
}

ps_status ps_cuda_zero(const ps_cuda_issuer *to, void *y, int64_t bytes)
{
    const ps_cuda_zero_args a = {.dst = y, .bytes = bytes};
    return PS_CUDA_LAUNCH(to, PS_CUDA_zero, ps_cuda_blocks_of(bytes, 16, PS_CUDA_THREADS_zero), &a);
}

static bool is_followed(const ps_cuda_gemm *p)
{
    return p->addend != NULL || p->gelu_x != NULL;
}

/* A matrix multiplication that every issuer supports. */
static ps_status give(const ps_cuda_issuer *to, const ps_cuda_gemm *p)
{
    bool is_done = true;
    const ps_status st = to->gemm(to->self, p, &is_done);
    PS_ASSERT(st != PS_OK || is_done);
    return st;
}

/* A 16-bit bias of a float result, which libraries do not support: the same sum, in float. */
static ps_status multiply_then_add(const ps_cuda_issuer *to, const ps_cuda_gemm *p)
{
    const ps_cuda_bias_args bias = {.y = p->y, .b = p->bias, .rows = p->m, .cols = p->n, .stride = p->y_stride};
    ps_cuda_gemm gemm = *p;
    gemm.bias = NULL;
    PS_TRY(give(to, &gemm));
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(bias, p->a.dtype), p->m * ps_ceil_div(p->n, PS_CUDA_THREADS_bias), &bias);
}

ps_status ps_cuda_multiply(const ps_cuda_issuer *to, const ps_cuda_gemm *p)
{
    PS_ASSERT((uintptr_t)p->b.data % PS_CUDA_GEMM_ALIGN == 0 && (uintptr_t)p->y % PS_CUDA_GEMM_ALIGN == 0);
    PS_ASSERT(!is_followed(p));
    if (p->m == 0 || p->n == 0) return PS_OK;
    if (p->k > 0) return p->bias != NULL && p->y_dtype != p->a.dtype ? multiply_then_add(to, p) : give(to, p);
    PS_ASSERT(p->y_stride == p->n && p->bias == NULL);
    return p->accumulate ? PS_OK : ps_cuda_zero(to, p->y, p->m * p->n * (int64_t)ps_dtype_bytes(p->y_dtype));
}

ps_status ps_cuda_multiply_whole(const ps_cuda_issuer *to, const ps_cuda_gemm *p, bool *is_done)
{
    const uintptr_t all = (uintptr_t)p->b.data | (uintptr_t)p->y | (uintptr_t)p->addend | (uintptr_t)p->gelu_x;
    PS_ASSERT(is_followed(p) && !p->accumulate && all % PS_CUDA_GEMM_ALIGN == 0);
    PS_ASSERT(p->gelu_x == NULL || (p->addend == NULL && p->bias == NULL && p->y_dtype != PS_DTYPE_F32));
    *is_done = false;
    return p->m == 0 || p->n == 0 || p->k == 0 ? PS_OK : to->gemm(to->self, p, is_done);
}

static int64_t row_blocks(int64_t rows, int64_t cols)
{
    return ps_min_i64(ps_ceil_div(rows, ROWS_A_BLOCK), ps_max_i64(ROW_BLOCKS_MIN, PARTIAL_SUMS / ps_max_i64(cols, 1)));
}

/* Increases with the columns, although there are fewer blocks of rows then, so scratch for many columns suffices for
 * fewer. */
int64_t ps_cuda_columns_bytes(int64_t rows, int64_t cols)
{
    return ps_cuda_floats(
        ps_min_i64(ps_ceil_div(rows, ROWS_A_BLOCK) * cols, ps_max_i64(ROW_BLOCKS_MIN * cols, PARTIAL_SUMS)));
}

ps_status ps_cuda_column_partials(const ps_cuda_issuer *to, ps_dtype dtype, ps_cuda_columns_args c, float *partial)
{
    const int64_t n = row_blocks(c.rows, c.cols), vector = PS_CUDA_VECTOR_BYTES / (int64_t)ps_dtype_bytes(dtype);
    const bool is_aligned =
        (uintptr_t)c.x % PS_CUDA_VECTOR_BYTES == 0 && (uintptr_t)c.normal % PS_CUDA_VECTOR_BYTES == 0;
    if (n == 0) return PS_OK;
    c.partial = partial;
    c.rows_a_block = ps_ceil_div(c.rows, n);
    c.width = is_aligned && c.cols % vector == 0 && c.stride % vector == 0 ? (int32_t)vector : 1;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(columns, dtype),
                          ps_ceil_div(c.cols, PS_CUDA_THREADS_columns * c.width) * n, &c);
}

ps_status ps_cuda_add_partials(const ps_cuda_issuer *to, const ps_cuda_partials_args *a)
{
    return PS_CUDA_LAUNCH(to, PS_CUDA_partials, ps_ceil_div(a->cols * a->n_arrays, PS_CUDA_WARP), a);
}

ps_status ps_cuda_column_sums(const ps_cuda_issuer *to, const float *partial, int64_t rows, int64_t cols, void *y,
                              ps_dtype dtype, bool accumulate)
{
    return ps_cuda_add_partials(to, &(ps_cuda_partials_args){.y = y,
                                                             .partial = partial,
                                                             .n_partials = row_blocks(rows, cols),
                                                             .cols = cols,
                                                             .n_arrays = 1,
                                                             .dtype = dtype,
                                                             .accumulate = accumulate});
}
