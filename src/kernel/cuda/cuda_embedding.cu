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

/* ---- backward: rows sorted by id, then a warp for each id that occurs and each tile of columns ---- */

/* Rows are sorted by radix, from the lowest digit up, each pass stable, in three kernels: segments of rows count their
 * digits, one block adds the counts up, and segments put their rows where their digits begin. */

constexpr int n_digits = PS_CUDA_SORT_DIGITS, n_sort_warps = PS_CUDA_THREADS_embedding_place / PS_CUDA_WARP;
constexpr int rows_a_warp = PS_CUDA_SORT_ROWS / n_sort_warps;
static_assert(PS_CUDA_THREADS_embedding_place == n_digits && PS_CUDA_THREADS_embedding_count == n_digits,
              "a thread has a digit");

struct sort_shared {
    unsigned count[n_sort_warps][n_digits]; /* of each warp's rows */
};

__device__ inline int32_t sorted_before(const ps_cuda_embedding_sort_args &a, int64_t i)
{
    return a.from == nullptr ? (int32_t)i : a.from[i];
}

__device__ inline unsigned digit_of(const ps_cuda_embedding_sort_args &a, int32_t row)
{
    return (unsigned)a.ids[row] >> a.shift & (n_digits - 1);
}

/* Count the digits of this warp's rows of the segment. */
__device__ inline void count_digits(const ps_cuda_embedding_sort_args &a, sort_shared &s)
{
    const int warp = warp_of_thread(), lane = lane_of_thread();
    for (int w = 0; w < n_sort_warps; w++) s.count[w][threadIdx.x] = 0;
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * PS_CUDA_SORT_ROWS + warp * rows_a_warp;
    for (int i = lane; i < rows_a_warp && first + i < a.rows; i += PS_CUDA_WARP)
        atomicAdd(&s.count[warp][digit_of(a, sorted_before(a, first + i))], 1u);
    __syncthreads();
}

/* One block per segment. */
__device__ inline void embedding_count(const ps_cuda_embedding_sort_args &a)
{
    PS_SHARED(sort_shared, s);
    count_digits(a, s);
    unsigned sum = 0;
    for (int w = 0; w < n_sort_warps; w++) sum += s.count[w][threadIdx.x];
    a.counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = (int32_t)sum;
}

constexpr int scan_threads = PS_CUDA_THREADS_embedding_scan;

struct scan_shared {
    int warp_total[scan_threads / PS_CUDA_WARP];
    int total; /* of what has been scanned */
};

/* counts[i] <- sum of counts[0 .. i), by one block. */
__device__ inline void embedding_scan(const ps_cuda_embedding_scan_args &a)
{
    PS_SHARED(scan_shared, s);
    const int tid = (int)threadIdx.x, lane = lane_of_thread(), warp = warp_of_thread();
    if (tid == 0) s.total = 0;
    for (int64_t first = 0; first < a.n; first += scan_threads) {
        const bool is_here = first + tid < a.n;
        const int mine = is_here ? a.counts[first + tid] : 0;
        int sum = mine; /* up to this lane */
        for (int distance = 1; distance < PS_CUDA_WARP; distance *= 2) {
            const int below = __shfl_up_sync(PS_ALL_LANES, sum, (unsigned)distance);
            if (lane >= distance) sum += below;
        }
        if (lane == PS_CUDA_WARP - 1) s.warp_total[warp] = sum;
        __syncthreads();
        int before = s.total;
        for (int w = 0; w < warp; w++) before += s.warp_total[w];
        if (is_here) a.counts[first + tid] = before + sum - mine;
        __syncthreads();
        if (tid == scan_threads - 1) s.total = before + sum;
        __syncthreads();
    }
}

/* The lanes that have the same digit as this one, of those that have a row. */
__device__ inline unsigned lanes_with(unsigned digit, bool has_row)
{
    unsigned lanes = __ballot_sync(PS_ALL_LANES, has_row);
#pragma unroll
    for (int bit = 0; bit < PS_CUDA_SORT_BITS; bit++) {
        const unsigned ones = __ballot_sync(PS_ALL_LANES, digit >> bit & 1);
        lanes &= (digit >> bit & 1) != 0 ? ones : ~ones;
    }
    return lanes;
}

/* One block per segment; s.count becomes the place of a warp's next row with a digit. */
__device__ inline void embedding_place(const ps_cuda_embedding_sort_args &a)
{
    PS_SHARED(sort_shared, s);
    const int warp = warp_of_thread(), lane = lane_of_thread();
    count_digits(a, s);
    unsigned place = (unsigned)a.counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x];
    for (int w = 0; w < n_sort_warps; w++) {
        const unsigned count = s.count[w][threadIdx.x];
        s.count[w][threadIdx.x] = place;
        place += count;
    }
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * PS_CUDA_SORT_ROWS + warp * rows_a_warp;
    for (int i = lane; i < rows_a_warp; i += PS_CUDA_WARP) {
        const bool has_row = first + i < a.rows;
        const int32_t row = has_row ? sorted_before(a, first + i) : 0;
        const unsigned digit = has_row ? digit_of(a, row) : 0;
        const unsigned lanes = lanes_with(digit, has_row), before = lanes & ((1u << lane) - 1);
        const unsigned begin = s.count[warp][digit];
        if (has_row) a.to[begin + __popc(before)] = row;
        __syncwarp();
        if (has_row && before == 0) s.count[warp][digit] = begin + __popc(lanes);
        __syncwarp();
    }
}

/* p[i] += x[i], rounded once, of an array whose type is known at run time; T's are aligned to the vector. */
template <typename T, int W> __device__ inline void add_to(ps_dtype t, void *p, int64_t i, const float (&x)[W])
{
    if (t != PS_DTYPE_F32) {
        store<W>((T *)p + i, x, true);
        return;
    }
#pragma unroll
    for (int j = 0; j < W; j++) ((float *)p)[i + j] += x[j];
}

/* Sum the rows from place `first` on that have this id, in order, in a vector a lane; the warp reads 32 places at once. */
template <typename T, int W>
__device__ inline void sum_rows(const ps_cuda_embedding_sum_args &a, int64_t first, int32_t id, int64_t tile)
{
    constexpr int at_once = 4;
    const int lane = lane_of_thread();
    const int64_t c = (tile * PS_CUDA_WARP + lane) * W;
    const bool is_here = c < a.cols;
    float sum[W] = {};
    int n = PS_CUDA_WARP;
    for (int64_t i = first; n == PS_CUDA_WARP; i += PS_CUDA_WARP) {
        const int32_t row = i + lane < a.rows ? a.sorted[i + lane] : 0;
        const unsigned others = __ballot_sync(PS_ALL_LANES, i + lane >= a.rows || a.ids[row] != id);
        n = others == 0 ? PS_CUDA_WARP : __popc((others & (0u - others)) - 1); /* lanes below the lowest other */
        for (int j = 0; j < n; j += at_once) {
            float x[at_once][W];
#pragma unroll
            for (int u = 0; u < at_once; u++) {
                const int32_t from = __shfl_sync(PS_ALL_LANES, row, j + u < n ? j + u : n - 1);
                if (is_here) load<W>(x[u], (const T *)a.dy + from * a.cols + c);
            }
#pragma unroll
            for (int u = 0; u < at_once; u++)
#pragma unroll
                for (int w = 0; w < W; w++)
                    if (is_here && j + u < n) sum[w] += x[u][w];
        }
    }
    if (is_here) add_to<T, W>(a.grad_dtype, a.dw, id * a.cols + c, sum);
}

/* One warp per place and tile of columns: of places with the same id the first works. */
template <typename T, int W> __device__ inline void sum_tiles(const ps_cuda_embedding_sum_args &a)
{
    const int64_t n_tiles = (a.cols + PS_CUDA_WARP * W - 1) / (PS_CUDA_WARP * W);
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / PS_CUDA_WARP);
    for (int64_t item = warp_of_grid(); item < a.rows * n_tiles; item += step) {
        const int64_t first = item / n_tiles;
        const int32_t id = a.ids[a.sorted[first]];
        if (first == 0 || a.ids[a.sorted[first - 1]] != id) sum_rows<T, W>(a, first, id, item % n_tiles);
    }
}

template <typename T> __device__ void embedding_sum(const ps_cuda_embedding_sum_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    if (a.cols % W == 0)
        sum_tiles<T, W>(a);
    else
        sum_tiles<T, 1>(a);
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
PS_KERNEL(embedding_count, ps_cuda_embedding_sort_args)
PS_KERNEL(embedding_scan, ps_cuda_embedding_scan_args)
PS_KERNEL(embedding_place, ps_cuda_embedding_sort_args)
PS_KERNEL_TYPED(embedding_sum, ps_cuda_embedding_sum_args)
PS_KERNEL_TYPED(position_fwd, ps_position_fwd_args)
PS_KERNEL_TYPED(position_bwd, ps_position_bwd_args)
PS_KERNEL_TYPED(pool_fwd, ps_pool_fwd_args)
PS_KERNEL_TYPED(pool_bwd, ps_pool_bwd_args)
