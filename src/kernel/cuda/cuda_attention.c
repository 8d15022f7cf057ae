/* Grids, scratch and shared memory of cuda_attention.cu. */
#include "kernel/cuda/cuda_attention.h"

#include "kernel/cuda/cuda_operator.h"

#define WARPS(kernel) (PS_CUDA_THREADS_##kernel / PS_CUDA_WARP)

/* Which of the three kernels a head size takes, and its width. */
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

/* Of a block: n arrays of its rows and as many of their weights, and two of the others of a tile. */
static int64_t shared_bytes(int64_t D, int n)
{
    const int64_t rows = PS_CUDA_ATTENTION_ROWS(width_of(D)), others = PS_CUDA_WARP;
    return (int64_t)sizeof(float) * (n * rows * (D + others) + 2 * others * (D + 1));
}

static ps_status attention_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_attention_fwd_args *const a = args;
    const int64_t tiles = ps_ceil_div(a->T, PS_CUDA_ATTENTION_ROWS(width_of(a->D)));
    PS_TRY(check_head(a->D));
    return ps_cuda_launch_on(to, OF_WIDTH(attention_fwd, a->D, a->dtype), a->B * a->H * tiles, shared_bytes(a->D, 1), a,
                             sizeof *a);
}

const ps_cuda_operator ps_cuda_attention_fwd = {.run = attention_fwd};

static int64_t attention_bwd_bytes(const void *args, int64_t product_bytes)
{
    const ps_attention_bwd_args *const a = args;
    (void)product_bytes;
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
    PS_TRY(ps_cuda_launch_on(to, OF_WIDTH(attention_dq, a->D, a->dtype), a->B * a->H * tiles, shared_bytes(a->D, 2), &g,
                             sizeof g));
    return ps_cuda_launch_on(to, OF_WIDTH(attention_dkv, a->D, a->dtype), a->B * a->KV * tiles, shared_bytes(a->D, 2),
                             &g, sizeof g);
}

const ps_cuda_operator ps_cuda_attention_bwd = {.run = attention_bwd, .workspace_bytes = attention_bwd_bytes};

/* ---- with a cache ---- */

#define KEYS_A_PART 256
#define PARTS_MAX 128

/* Parts of the positions that may come to be, not of those that are there: scratch does not depend on `first`. */
static int64_t parts_of(int64_t n_positions)
{
    return ps_min_i64(ps_ceil_div(n_positions, KEYS_A_PART), PARTS_MAX);
}

static int64_t attention_cached_bytes(const void *args, int64_t product_bytes)
{
    const ps_attention_cached_args *const a = args;
    const int64_t rows = parts_of(a->n_positions) * a->T * a->H;
    (void)product_bytes;
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
