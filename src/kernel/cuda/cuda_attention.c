/* Grids, scratch and shared memory of cuda_attention.cu. */
#include "kernel/cuda/cuda_attention.h"

#include "kernel/cuda/cuda_operator.h"

#define WARPS(kernel) (PS_CUDA_THREADS_##kernel / PS_CUDA_WARP)

/* The kernel of a head size, of three, and its width. */
static int64_t width_of(int64_t D)
{
    return D <= 64 ? 64 : D <= 128 ? 128 : 256;
}

static ps_cuda_kernel of_width(ps_cuda_kernel at_64, ps_cuda_kernel at_128, ps_cuda_kernel at_256, int64_t D,
                               ps_dtype t)
{
    const int64_t width = width_of(D);
    return (ps_cuda_kernel)((width == 64 ? at_64 : width == 128 ? at_128 : at_256) + t);
}

#define OF_WIDTH(name, D, t) of_width(PS_CUDA_##name##_64, PS_CUDA_##name##_128, PS_CUDA_##name##_256, (D), (t))

static ps_status check_head(int64_t D)
{
    if (D <= 256) return PS_OK;
    return PS_FAIL(PS_EINVAL, "heads of %lld elements: attention on a GPU has at most 256", (long long)D);
}

/* Of a block: n arrays of its rows and n of their weights, and two of the others of a tile. */
static int64_t shared_bytes(int64_t D, int n)
{
    const int64_t rows = PS_CUDA_ATTENTION_ROWS(width_of(D)), others = PS_CUDA_WARP;
    return (int64_t)sizeof(float) * (n * rows * (D + others) + 2 * others * (D + 1));
}

/* ---- by tensor cores: cuda_attention_mma.cu ---- */

/* Copies to shared memory take 16 bytes: units of 8 elements, so aligned in every row. */
#define UNIT_BYTES 16
#define UNIT (UNIT_BYTES / 2)

static bool is_aligned(const void *p)
{
    return (uintptr_t)p % UNIT_BYTES == 0;
}

/* Depends on the shape only, given the layout of arrays in plans. Scores are compared before scaling, so the scale must
 * be above 0. */
#define IS_FOR_MMA(a)                                                                                                  \
    ((a)->dtype != PS_DTYPE_F32 && (a)->D > 0 && (a)->D <= PS_CUDA_MMA_WIDTH_MAX && (a)->D % UNIT == 0 &&              \
     (a)->q_stride % UNIT == 0 && (a)->kv_stride % UNIT == 0 && (a)->T < (1 << 30) && (a)->scale > 0.0f &&             \
     is_aligned((a)->q) && is_aligned((a)->k) && is_aligned((a)->v) && is_aligned((a)->y))

/* The kernels of a name: heads up to 64, up to 128, and both with dropout; each for two formats, consecutively. */
typedef struct mma_kernels {
    ps_cuda_kernel first;
    int n_arrays; /* of a block's rows */
    struct {
        int width, rows, others;
    } of[4];
} mma_kernels;

#define MMA_SHAPE(name, width, drops)                                                                                  \
    {                                                                                                                  \
        width, PS_CUDA_MMA_##name##_ROWS(width, drops), PS_CUDA_MMA_##name##_OTHERS(width, drops)                      \
    }
#define MMA_KERNELS(kernel, name, n)                                                                                   \
    static const mma_kernels kernel = {.first = PS_CUDA_attention_##kernel##_64,                                       \
                                       .n_arrays = n,                                                                  \
                                       .of = {MMA_SHAPE(name, 64, false), MMA_SHAPE(name, 128, false),                 \
                                              MMA_SHAPE(name, 64, true), MMA_SHAPE(name, 128, true)}};                 \
    _Static_assert((int)PS_CUDA_attention_##kernel##_128 == (int)PS_CUDA_attention_##kernel##_64 + 2 &&                \
                       (int)PS_CUDA_attention_##kernel##_drop_64 == (int)PS_CUDA_attention_##kernel##_64 + 4 &&        \
                       (int)PS_CUDA_attention_##kernel##_drop_128_f16 == (int)PS_CUDA_attention_##kernel##_64 + 7,     \
                   "in this order in PS_CUDA_HALVES")
MMA_KERNELS(fwd_mma, FWD, 1);
MMA_KERNELS(dq_mma, DQ, 2);
MMA_KERNELS(dkv_mma, DKV, 2);

/* A grid over T rows of `heads` heads. Shared memory: rows of the block; two tiles of the others, with two arrays each,
 * and two numbers for each row of these. */
static ps_status launch_mma(const ps_cuda_issuer *to, const mma_kernels *k, int64_t D, ps_dtype t, float dropout_p,
                            int64_t heads, int64_t T, const void *args, size_t args_bytes)
{
    const int kind = (D > 64 ? 1 : 0) + (dropout_p > 0.0f ? 2 : 0), width = k->of[kind].width;
    const int64_t rows = k->of[kind].rows, others = k->of[kind].others;
    const int64_t shared = 2 * width * (k->n_arrays * rows + 4 * others) + 4 * (int64_t)sizeof(uint32_t) * others;
    return ps_cuda_launch_on(to, (ps_cuda_kernel)((int)k->first + 2 * kind + ((int)t - (int)PS_DTYPE_BF16)),
                             heads * ps_ceil_div(T, rows), shared, args, args_bytes);
}

/* ---- forward and backward ---- */

static ps_status attention_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_attention_fwd_args *const a = args;
    const int64_t tiles = ps_ceil_div(a->T, PS_CUDA_ATTENTION_ROWS(width_of(a->D)));
    PS_TRY(check_head(a->D));
    if (IS_FOR_MMA(a)) return launch_mma(to, &fwd_mma, a->D, a->dtype, a->dropout_p, a->B * a->H, a->T, a, sizeof *a);
    return ps_cuda_launch_on(to, OF_WIDTH(attention_fwd, a->D, a->dtype), a->B * a->H * tiles, shared_bytes(a->D, 1), a,
                             sizeof *a);
}

const ps_cuda_operator ps_cuda_attention_fwd = {.run = attention_fwd};

static int64_t attention_bwd_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_attention_bwd_args *const a = args;
    (void)gemm_bytes;
    return ps_cuda_floats(a->B * a->H * a->T);
}

static ps_status attention_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_attention_bwd_args *const a = args;
    const ps_cuda_attention_delta_args delta = {
        .delta = a->workspace, .dy = a->dy, .y = a->y, .B = a->B, .T = a->T, .H = a->H, .D = a->D};
    const ps_cuda_attention_gradient_args g = {.a = *a, .delta = a->workspace};
    const int64_t tiles = ps_ceil_div(a->T, PS_CUDA_ATTENTION_ROWS(width_of(a->D)));
    PS_TRY(check_head(a->D));
    PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(attention_delta, a->dtype),
                          ps_ceil_div(a->B * a->T * a->H, WARPS(attention_delta)), &delta));
    if (IS_FOR_MMA(a) && is_aligned(a->dy) && is_aligned(a->dq) && is_aligned(a->dk) && is_aligned(a->dv)) {
        PS_TRY(launch_mma(to, &dq_mma, a->D, a->dtype, a->dropout_p, a->B * a->H, a->T, &g, sizeof g));
        return launch_mma(to, &dkv_mma, a->D, a->dtype, a->dropout_p, a->B * a->KV, a->T, &g, sizeof g);
    }
    PS_TRY(ps_cuda_launch_on(to, OF_WIDTH(attention_dq, a->D, a->dtype), a->B * a->H * tiles, shared_bytes(a->D, 2), &g,
                             sizeof g));
    return ps_cuda_launch_on(to, OF_WIDTH(attention_dkv, a->D, a->dtype), a->B * a->KV * tiles, shared_bytes(a->D, 2),
                             &g, sizeof g);
}

const ps_cuda_operator ps_cuda_attention_bwd = {.run = attention_bwd, .workspace_bytes = attention_bwd_bytes};

/* ---- with a cache ---- */

#define KEYS_A_PART 256
#define PARTS_MAX 128

/* Parts of all possible positions, not only of present ones, as scratch does not depend on `first`. */
static int64_t parts_of(int64_t n_positions)
{
    return ps_min_i64(ps_ceil_div(n_positions, KEYS_A_PART), PARTS_MAX);
}

static int64_t attention_cached_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_attention_cached_args *const a = args;
    const int64_t rows = parts_of(a->n_positions) * a->T * a->H;
    (void)gemm_bytes;
    return ps_cuda_floats(rows * a->D) + 2 * ps_cuda_floats(rows);
}

static ps_status attention_cached(const ps_cuda_issuer *to, const void *args)
{
    const ps_attention_cached_args *const a = args;
    const int64_t n_parts = parts_of(a->n_positions), rows = n_parts * a->T * a->H;
    char *workspace = a->workspace;
    PS_TRY(check_head(a->D));
    if (a->T == 0) return PS_OK;
    const ps_cuda_attention_part_args p = {.a = *a,
                                           .y = ps_cuda_take(&workspace, ps_cuda_floats(rows * a->D)),
                                           .max = ps_cuda_take(&workspace, ps_cuda_floats(rows)),
                                           .sum = ps_cuda_take(&workspace, ps_cuda_floats(rows)),
                                           .n_parts = n_parts,
                                           .keys_a_part =
                                               ps_round_up(ps_ceil_div(a->n_positions, n_parts), PS_CUDA_WARP)};
    const int64_t tiles = ps_ceil_div(a->T * (a->H / a->KV), PS_CUDA_ATTENTION_ROWS(width_of(a->D)));
    PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(attention_append, a->dtype), a->T * a->KV, a));
    PS_TRY(ps_cuda_launch_on(to, OF_WIDTH(attention_part, a->D, a->dtype), n_parts * a->KV * tiles,
                             shared_bytes(a->D, 1), &p, sizeof p));
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(attention_join, a->dtype),
                          ps_ceil_div(a->T * a->H, WARPS(attention_join)), &p);
}

const ps_cuda_operator ps_cuda_attention_cached = {.run = attention_cached, .workspace_bytes = attention_cached_bytes};
