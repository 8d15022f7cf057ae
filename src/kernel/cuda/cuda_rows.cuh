/* cuda_rows.cuh - rows that are read once and kept in registers, by a team of threads per row.
 *
 *     block of 256 threads     | team 0 | team 1 | ...     each of `lanes` threads, a power of two
 *     row of team t            | lane 0 | lane 1 | ... | lane 0 | lane 1 | ...     vectors of 16 bytes, V a thread
 *
 * Teams of at most a warp need no barrier. All threads of a block must make the same calls. */
#ifndef PS_KERNEL_CUDA_CUDA_ROWS_CUH
#define PS_KERNEL_CUDA_CUDA_ROWS_CUH

#include "kernel/cuda/cuda_device.cuh"

/* ---- sums over a team ---- */

template <int N, int WARPS> struct ps_team_shared {
    float sum[2][N][WARPS]; /* of warps, alternating, so that one barrier per sum suffices */
};

/* x[i] <- sum over the team, in all of its threads, by a fixed tree, so with the same bits in each. The order is that
 * of a team of half as many threads, each of which first adds the value of the other half's thread. */
template <int N> __device__ inline void sum_within_warp(float (&x)[N], int lanes)
{
    for (int distance = (lanes < PS_CUDA_WARP ? lanes : PS_CUDA_WARP) / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int i = 0; i < N; i++) x[i] += __shfl_xor_sync(PS_ALL_LANES, x[i], distance);
}

template <int N, int WARPS>
__device__ inline void sum_of_team(float (&x)[N], int lanes, ps_team_shared<N, WARPS> &s, int &turn)
{
    sum_within_warp(x, lanes);
    if (lanes <= PS_CUDA_WARP) return;
    const int n = lanes / PS_CUDA_WARP, first = warp_of_thread() / n * n;
    if (lane_of_thread() == 0)
#pragma unroll
        for (int i = 0; i < N; i++) s.sum[turn][i][warp_of_thread()] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[i] = 0.0f;
        for (int w = 0; w < n; w++) x[i] += s.sum[turn][i][first + w];
    }
    turn ^= 1;
}

/* ---- a thread's part of a row ---- */

template <typename T, int V> struct ps_row_part {
    static constexpr int W = ps_vector_of<T>::width;
    ps_pack<T, W> v[V];

    /* Zeros past the end of the row, and everywhere without a row. */
    __device__ inline void read(const T *row, int64_t cols, int lane, int lanes, bool is_row)
    {
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int64_t c = (int64_t)(lane + k * lanes) * W;
            v[k] = ps_pack<T, W>{};
            if (is_row && c < cols) v[k] = *reinterpret_cast<const ps_pack<T, W> *>(row + c);
        }
    }

    __device__ inline float at(int k, int j) const
    {
        return to_float(v[k].v[j]);
    }
};

#endif
