/* cuda_tile.cuh - attention by tiles. A block has some rows, divided among its warps, and loops over the other operand
 * ("others") in tiles of 32, one per lane:
 *
 *              others, a lane each                 rows        others
 *              j0 j1 ... j31                       queries     keys       forward, dq, with a cache
 *     row r0   .  .      .    a warp               keys        queries    dk and dv
 *     row r1   .  .      .    the same warp
 *
 * Each lane computes whole scores (dot products); of a sum over the others each lane has every 32nd element, in
 * registers. All in float. Arrays of the others are padded by one element per row, to avoid bank conflicts of shared
 * memory. */
#ifndef PS_KERNEL_CUDA_CUDA_TILE_CUH
#define PS_KERNEL_CUDA_CUDA_TILE_CUH

#include "kernel/cuda/cuda_attention.h"
#include "kernel/cuda/cuda_random.cuh"

/* For heads up to WIDTH elements. */
template <int WIDTH> struct tile_of {
    static constexpr int rows_a_warp = PS_CUDA_ATTENTION_ROWS_A_WARP(WIDTH); /* R below */
    static constexpr int rows = PS_CUDA_ATTENTION_ROWS(WIDTH);
    static constexpr int slots = WIDTH / PS_CUDA_WARP; /* elements of a row's sums per lane */
};

/* Shared memory: cuda_attention.c has its size. */
struct tile_shared {
    float *rows[2], *weights[2], *others[2];
};

template <int WIDTH> __device__ inline tile_shared tile_arrays(float *memory, int64_t D, int n)
{
    constexpr int rows = tile_of<WIDTH>::rows;
    tile_shared s = {};
    for (int i = 0; i < n; i++, memory += rows * (D + PS_CUDA_WARP)) {
        s.rows[i] = memory;
        s.weights[i] = memory + rows * D;
    }
    for (int i = 0; i < 2; i++, memory += PS_CUDA_WARP * (D + 1)) s.others[i] = memory;
    return s;
}

/* tile[r][0 .. D) = row_of(r)[0 .. D), or 0 where that is NULL or r >= n; rows of the tile are at stride `stride`. */
template <typename T, class F>
__device__ inline void load_tile(float *tile, int n_rows, int64_t stride, int64_t n, int64_t D, const F &row_of)
{
    for (int r = warp_of_thread(); r < n_rows; r += PS_CUDA_ATTENTION_WARPS) {
        const T *const row = r < n ? row_of(r) : nullptr;
        for (int64_t d = lane_of_thread(); d < D; d += PS_CUDA_WARP)
            tile[r * stride + d] = row != nullptr ? to_float(row[d]) : 0.0f;
    }
}

/* Rows in an array at `stride`, from the first on. */
template <typename T> struct strided_rows {
    const T *first;
    int64_t stride;
    __device__ const T *operator()(int r) const
    {
        return first + r * stride;
    }
};

/* Rows that are not masked, so that NaN in padding has no effect. */
template <typename T> struct shown_rows {
    strided_rows<T> rows;
    const int32_t *mask; /* of the rows, or NULL */
    __device__ const T *operator()(int r) const
    {
        return mask == nullptr || mask[r] != 0 ? rows(r) : nullptr;
    }
};

/* The rows of a block, dense; the others of a tile. */
template <typename T, int WIDTH, class F>
__device__ inline void load_rows(float *rows, int64_t n, int64_t D, const F &row_of)
{
    load_tile<T>(rows, tile_of<WIDTH>::rows, D, n, D, row_of);
}

template <typename T, class F> __device__ inline void load_others(float *others, int64_t n, int64_t D, const F &row_of)
{
    load_tile<T>(others, PS_CUDA_WARP, D + 1, n, D, row_of);
}

/* score[r] = row r of this warp . the other of this lane */
template <int R> __device__ inline void dots(float (&score)[R], const float *rows, const float *others, int64_t D)
{
    const float *const mine = rows + warp_of_thread() * R * D, *const other = others + lane_of_thread() * (D + 1);
#pragma unroll
    for (int r = 0; r < R; r++) score[r] = 0.0f;
    for (int64_t d = 0; d < D; d++) {
        const float x = other[d];
#pragma unroll
        for (int r = 0; r < R; r++) score[r] += mine[r * D + d] * x;
    }
}

/* sum[r][slot] += sum over the lanes' others of weight[r] times their elements. Between two calls with the same array
 * of weights, all threads must synchronize. */
template <int R, int SLOTS>
__device__ inline void add_weighted(float (&sum)[R][SLOTS], const float (&weight)[R], float *weights,
                                    const float *others, int64_t D)
{
    float *const mine = weights + warp_of_thread() * R * PS_CUDA_WARP;
    const int lane = lane_of_thread();
#pragma unroll
    for (int r = 0; r < R; r++) mine[r * PS_CUDA_WARP + lane] = weight[r];
    __syncwarp();
    for (int j = 0; j < PS_CUDA_WARP; j++) {
        const float *const other = others + j * (D + 1);
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++) {
            const int64_t d = lane + slot * PS_CUDA_WARP;
            const float x = d < D ? other[d] : 0.0f;
#pragma unroll
            for (int r = 0; r < R; r++) sum[r][slot] += mine[r * PS_CUDA_WARP + j] * x;
        }
    }
}

/* y[d] = sum of this lane times factor. */
template <typename T, int SLOTS>
__device__ inline void store_row(T *y, const float (&sum)[SLOTS], float factor, int64_t D)
{
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        const int64_t d = lane_of_thread() + slot * PS_CUDA_WARP;
        if (d < D) y[d] = from_float<T>(sum[slot] * factor);
    }
}

/* Online softmax of a row over the keys so far: sums are in units of exp(max). */
template <int SLOTS> struct running_softmax {
    float max, sum;
    __device__ void start()
    {
        max = -PS_INFINITY, sum = 0.0f;
    }
    /* Add the scores of a tile, one per lane, -infinity where there is none; returns exp(score) in the new unit, to
     * which y is rescaled. */
    __device__ float add(float score, float (&y)[SLOTS])
    {
        const float new_max = fmaxf(max, warp_max(score));
        const float p = score == -PS_INFINITY ? 0.0f : expf(score - new_max);
        const float factor = max == -PS_INFINITY ? 0.0f : expf(max - new_max);
        sum = sum * factor + warp_sum(p);
        max = new_max;
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++) y[slot] *= factor;
        return p;
    }
};

#endif
