/* cuda_rank_sum.cu - sums over ranks in their order, as chunk/comm/sum.h, on a GPU. */
#include "kernel/cuda/cuda_device.cuh"

namespace
{

/* A sum begins with the first rank's value, as 0 + x is not x where x is -0. */
template <typename T> struct rank_sum_at {
    const ps_cuda_rank_sum_args &a;
    __device__ const T *of(int rank) const
    {
        if (rank == a.rank) return (const T *)a.own;
        return (const T *)a.others + (rank < a.rank ? rank : rank - 1) * a.stride;
    }
    template <int W> __device__ void at(int64_t i) const
    {
        float sum[W], v[W];
        load<W>(sum, of(0) + i);
        for (int r = 1; r < a.n_ranks; r++) {
            load<W>(v, of(r) + i);
#pragma unroll
            for (int j = 0; j < W; j++) sum[j] += v[j];
        }
        store<W>((T *)a.own + i, sum);
    }
};

template <typename T> __device__ void rank_sum(const ps_cuda_rank_sum_args &a)
{
    constexpr int width = ps_vector_of<T>::width;
    const bool aligned = is_aligned(a.own, 16) && is_aligned(a.others, 16) && a.stride % width == 0;
    for_each<width>(a.n, aligned, rank_sum_at<T>{a});
}

} // namespace

PS_KERNEL_TYPED(rank_sum, ps_cuda_rank_sum_args)
