/* cuda_embedding.cu - token and position embeddings, and pooling. */
#include "kernel/cuda/cuda_device.cuh"

namespace
{

/* ---- tokens ---- */

template <typename T, int W> __device__ inline void copy_row(T *y, const T *x, int64_t cols)
{
    for (int64_t c = (int64_t)threadIdx.x * W; c < cols; c += (int64_t)blockDim.x * W)
        *reinterpret_cast<ps_pack<T, W> *>(y + c) = *reinterpret_cast<const ps_pack<T, W> *>(x + c);
}

template <typename T> __device__ inline void copy_row(T *y, const T *x, int64_t cols)
{
    constexpr int W = ps_vector_of<T>::width;
    if (cols % W == 0)
        copy_row<T, W>(y, x, cols);
    else
        copy_row<T, 1>(y, x, cols);
}

template <typename T> __device__ void embedding_fwd(const ps_embedding_fwd_args &a)
{
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x)
        copy_row<T>((T *)a.y + r * a.cols, (const T *)a.w + a.ids[r] * a.cols, a.cols);
}

/* ---- backward: rows sorted by id, then a block for each id that occurs ---- */

constexpr int sort_threads = PS_CUDA_THREADS_embedding_sort;

struct sort_shared {
    int warp_total[sort_threads / PS_CUDA_WARP];
    int total; /* of what has been scanned */
};

/* x[i] <- sum of x[0 .. i), for all counters, `sort_threads` of them at a time. */
__device__ inline void scan(int32_t *x, sort_shared &s)
{
    const int tid = (int)threadIdx.x, lane = lane_of_thread(), warp = warp_of_thread();
    if (tid == 0) s.total = 0;
    for (int first = 0; first < PS_CUDA_SORT_DIGITS * sort_threads; first += sort_threads) {
        const int mine = x[first + tid];
        int sum = mine; /* up to this lane */
        for (int distance = 1; distance < PS_CUDA_WARP; distance *= 2) {
            const int below = __shfl_up_sync(PS_ALL_LANES, sum, (unsigned)distance);
            if (lane >= distance) sum += below;
        }
        if (lane == PS_CUDA_WARP - 1) s.warp_total[warp] = sum;
        __syncthreads();
        int before = s.total;
        for (int w = 0; w < warp; w++) before += s.warp_total[w];
        x[first + tid] = before + sum - mine;
        __syncthreads();
        if (tid == sort_threads - 1) s.total = before + sum;
        __syncthreads();
    }
}

/* Radix sort by one block, from the lowest digit up, each pass stable: a thread has consecutive rows, and the counters
 * of a digit are adjacent, in the order of threads. Its traffic is small compared with that of embedding_sum. */
__device__ inline void embedding_sort(const ps_cuda_embedding_sort_args &a)
{
    PS_SHARED(sort_shared, s);
    const int64_t each = (a.rows + sort_threads - 1) / sort_threads, tid = threadIdx.x;
    const int64_t first = tid * each, end = first + each < a.rows ? first + each : a.rows;
    int n_passes = 1;
    while (a.V > (int64_t)1 << (n_passes * PS_CUDA_SORT_BITS)) n_passes++;
    int32_t *from = n_passes % 2 == 0 ? a.sorted : a.other, *to = n_passes % 2 == 0 ? a.other : a.sorted;
    for (int64_t i = first; i < end; i++) from[i] = (int32_t)i;
    for (int pass = 0; pass < n_passes; pass++) {
        const int shift = pass * PS_CUDA_SORT_BITS;
        for (int digit = 0; digit < PS_CUDA_SORT_DIGITS; digit++) a.counts[digit * sort_threads + tid] = 0;
        for (int64_t i = first; i < end; i++)
            a.counts[((a.ids[from[i]] >> shift) % PS_CUDA_SORT_DIGITS) * sort_threads + tid]++;
        __syncthreads();
        scan(a.counts, s);
        for (int64_t i = first; i < end; i++)
            to[a.counts[((a.ids[from[i]] >> shift) % PS_CUDA_SORT_DIGITS) * sort_threads + tid]++] = from[i];
        __syncthreads();
        int32_t *const swapped = from;
        from = to, to = swapped;
    }
}

template <typename T> __device__ void embedding_sum(const ps_cuda_embedding_sum_args &a)
{
    for (int64_t first = blockIdx.x; first < a.rows; first += gridDim.x) {
        const int32_t id = a.ids[a.sorted[first]];
        if (first > 0 && a.ids[a.sorted[first - 1]] == id) continue;
        int64_t end = first + 1;
        while (end < a.rows && a.ids[a.sorted[end]] == id) end++;
        for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
            float sum = 0.0f;
#pragma unroll 4
            for (int64_t i = first; i < end; i++) sum += to_float(((const T *)a.dy)[a.sorted[i] * a.cols + c]);
            store_as(a.grad_dtype, a.dw, id * a.cols + c, sum, true);
        }
    }
}

/* ---- positions ---- */

template <typename T> struct position_at {
    const ps_position_fwd_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        float x[W], w[W];
        load<W>(x, (const T *)a.x + i);
        load<W>(w, (const T *)a.w + a.first * a.cols + i % (a.T * a.cols));
#pragma unroll
        for (int j = 0; j < W; j++) x[j] += w[j];
        store<W>((T *)a.y + i, x);
    }
};

template <typename T> __device__ void position_fwd(const ps_position_fwd_args &a)
{
    for_each<4>(a.B * a.T * a.cols, a.cols % 4 == 0, position_at<T>{a});
}

template <typename T> struct position_gradient_at {
    const ps_position_bwd_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        const int64_t n = a.T * a.cols;
        float sum = 0.0f;
        for (int64_t b = 0; i < n && b < a.B; b++) sum += to_float(((const T *)a.dy)[b * n + i]);
        store_as(a.grad_dtype, a.dw, i, sum, a.accumulate_grad);
    }
};

template <typename T> __device__ void position_bwd(const ps_position_bwd_args &a)
{
    for_each<1>(a.n_positions * a.cols, false, position_gradient_at<T>{a});
}

/* ---- pooling ---- */

/* By all threads of a block together. */
__device__ inline int64_t position_of(ps_pool_kind kind, const int32_t *mask, int64_t b, int64_t T)
{
    PS_SHARED(int, last);
    if (threadIdx.x == 0) last = kind == PS_POOL_FIRST || mask != nullptr ? 0 : (int)T - 1;
    __syncthreads();
    if (kind == PS_POOL_LAST && mask != nullptr)
        for (int64_t t = threadIdx.x; t < T; t += blockDim.x)
            if (mask[b * T + t] != 0) atomicMax(&last, (int)t);
    __syncthreads();
    return last;
}

template <typename T> __device__ void pool_fwd(const ps_pool_fwd_args &a)
{
    const int64_t b = blockIdx.x, t = position_of(a.kind, a.mask, b, a.T);
    copy_row<T>((T *)a.y + b * a.cols, (const T *)a.x + (b * a.T + t) * a.cols, a.cols);
}

/* One block per row of dx. */
template <typename T> __device__ void pool_bwd(const ps_pool_bwd_args &a)
{
    const int64_t row = blockIdx.x, b = row / a.T;
    const bool is_here = position_of(a.kind, a.mask, b, a.T) == row % a.T;
    if (a.accumulate_dx && !is_here) return;
    for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
        const float dy[1] = {is_here ? to_float(((const T *)a.dy)[b * a.cols + c]) : 0.0f};
        store<1>((T *)a.dx + row * a.cols + c, dy, a.accumulate_dx);
    }
}

} // namespace

PS_KERNEL_TYPED(embedding_fwd, ps_embedding_fwd_args)
PS_KERNEL(embedding_sort, ps_cuda_embedding_sort_args)
PS_KERNEL_TYPED(embedding_sum, ps_cuda_embedding_sum_args)
PS_KERNEL_TYPED(position_fwd, ps_position_fwd_args)
PS_KERNEL_TYPED(position_bwd, ps_position_bwd_args)
PS_KERNEL_TYPED(pool_fwd, ps_pool_fwd_args)
PS_KERNEL_TYPED(pool_bwd, ps_pool_bwd_args)
