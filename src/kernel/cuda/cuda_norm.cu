/* cuda_norm.cu - LayerNorm and RMSNorm: a warp a row, whose lanes go over its columns. Sums down columns, of the
 * gradients of weights and biases. */
#include "kernel/cuda/cuda_device.cuh"

namespace
{

/* Calls f(first column, x) with vectors of W columns, or with single ones, so that the lanes of the warp have all
 * together. Rows are aligned to a vector if the number of columns is a multiple of it. */
template <int W, class F> __device__ inline void for_columns(int64_t cols, const F &f)
{
    const int64_t lane = lane_of_thread();
    if (cols % W == 0)
        for (int64_t c = lane * W; c < cols; c += PS_CUDA_WARP * W) f.template at<W>(c);
    else
        for (int64_t c = lane; c < cols; c += PS_CUDA_WARP) f.template at<1>(c);
}

template <typename T> struct sum_of_row {
    const T *x;
    float &sum;
    template <int W> __device__ void at(int64_t c) const
    {
        float v[W];
        load<W>(v, x + c);
#pragma unroll
        for (int j = 0; j < W; j++) sum += v[j];
    }
};

/* Of (x - mean)^2 */
template <typename T> struct squares_of_row {
    const T *x;
    float mean;
    float &sum;
    template <int W> __device__ void at(int64_t c) const
    {
        float v[W];
        load<W>(v, x + c);
#pragma unroll
        for (int j = 0; j < W; j++) sum += (v[j] - mean) * (v[j] - mean);
    }
};

/* y = (x - mean) rstd w + b; without b that is 0 */
template <typename T> struct normalise_row {
    T *y;
    const T *x, *w, *b;
    float mean, rstd;
    template <int W> __device__ void at(int64_t c) const
    {
        float v[W], scale[W], shift[W] = {};
        load<W>(v, x + c);
        load<W>(scale, w + c);
        if (b != nullptr) load<W>(shift, b + c);
#pragma unroll
        for (int j = 0; j < W; j++) v[j] = (v[j] - mean) * rstd * scale[j] + shift[j];
        store<W>(y + c, v);
    }
};

template <typename T> __device__ void layernorm_fwd(const ps_layernorm_fwd_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    const int64_t r = warp_of_grid();
    if (r >= a.rows) return;
    const T *const x = (const T *)a.x + r * a.cols;
    float sum = 0.0f, squares = 0.0f;
    for_columns<W>(a.cols, sum_of_row<T>{x, sum});
    const float mean = warp_sum(sum) / (float)a.cols;
    for_columns<W>(a.cols, squares_of_row<T>{x, mean, squares});
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)a.cols + a.eps);
    for_columns<W>(a.cols, normalise_row<T>{(T *)a.y + r * a.cols, x, (const T *)a.w, (const T *)a.b, mean, rstd});
    if (lane_of_thread() == 0) a.mean[r] = mean, a.rstd[r] = rstd;
}

template <typename T> __device__ void rmsnorm_fwd(const ps_rmsnorm_fwd_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    const int64_t r = warp_of_grid();
    if (r >= a.rows) return;
    const T *const x = (const T *)a.x + r * a.cols;
    float squares = 0.0f;
    for_columns<W>(a.cols, squares_of_row<T>{x, 0.0f, squares});
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)a.cols + a.eps);
    for_columns<W>(a.cols, normalise_row<T>{(T *)a.y + r * a.cols, x, (const T *)a.w, nullptr, 0.0f, rstd});
    if (lane_of_thread() == 0) a.rstd[r] = rstd;
}

/* ---- backward: with g = dy w and n = (x - mean) rstd ---- */

template <typename T> struct norm_row {
    T *dx;
    const T *dy, *x, *w;
    float mean, rstd;
};

/* Sums of g and of g n. */
template <typename T> struct gradient_sums {
    const norm_row<T> &row;
    float &g, &gn;
    template <int W> __device__ void at(int64_t c) const
    {
        float dy[W], x[W], w[W];
        load<W>(dy, row.dy + c);
        load<W>(x, row.x + c);
        load<W>(w, row.w + c);
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float one = dy[j] * w[j];
            g += one, gn += one * ((x[j] - row.mean) * row.rstd);
        }
    }
};

/* dx (+)= rstd (g - avg_g - n avg_gn) */
template <typename T> struct gradient_of_row {
    const norm_row<T> &row;
    float avg_g, avg_gn;
    bool accumulate;
    template <int W> __device__ void at(int64_t c) const
    {
        float dy[W], x[W], w[W];
        load<W>(dy, row.dy + c);
        load<W>(x, row.x + c);
        load<W>(w, row.w + c);
#pragma unroll
        for (int j = 0; j < W; j++) dy[j] = row.rstd * (dy[j] * w[j] - avg_g - (x[j] - row.mean) * row.rstd * avg_gn);
        store<W>(row.dx + c, dy, accumulate);
    }
};

/* Without mean there is no average of g either. A lane writes what it alone has read: dx may be dy. */
template <typename T>
__device__ inline void norm_bwd(const norm_row<T> &row, int64_t cols, bool has_mean, bool accumulate)
{
    constexpr int W = ps_vector_of<T>::width;
    float g = 0.0f, gn = 0.0f;
    for_columns<W>(cols, gradient_sums<T>{row, g, gn});
    const float avg_g = has_mean ? warp_sum(g) / (float)cols : 0.0f, avg_gn = warp_sum(gn) / (float)cols;
    for_columns<W>(cols, gradient_of_row<T>{row, avg_g, avg_gn, accumulate});
}

template <typename T> __device__ void layernorm_bwd(const ps_layernorm_bwd_args &a)
{
    const int64_t r = warp_of_grid(), at = r * a.cols;
    if (r >= a.rows) return;
    const norm_row<T> row = {(T *)a.dx + at, (const T *)a.dy + at, (const T *)a.x + at, (const T *)a.w, a.mean[r],
                             a.rstd[r]};
    norm_bwd<T>(row, a.cols, true, a.accumulate_dx);
}

template <typename T> __device__ void rmsnorm_bwd(const ps_rmsnorm_bwd_args &a)
{
    const int64_t r = warp_of_grid(), at = r * a.cols;
    if (r >= a.rows) return;
    const norm_row<T> row = {(T *)a.dx + at, (const T *)a.dy + at, (const T *)a.x + at, (const T *)a.w, 0.0f,
                             a.rstd[r]};
    norm_bwd<T>(row, a.cols, false, a.accumulate_dx);
}

/* ---- sums down columns: a thread a column and block of rows ---- */

template <typename T> __device__ void columns(const ps_cuda_columns_args &a)
{
    const int64_t blocks_a_row = (a.cols + blockDim.x - 1) / blockDim.x;
    const int64_t p = blockIdx.x / blocks_a_row, c = blockIdx.x % blocks_a_row * blockDim.x + threadIdx.x;
    if (c >= a.cols) return;
    const int64_t first = p * a.rows_a_block, end = first + a.rows_a_block < a.rows ? first + a.rows_a_block : a.rows;
    float sum = 0.0f;
    for (int64_t r = first; r < end; r++) {
        const float x = to_float(((const T *)a.x)[r * a.stride + c]);
        if (a.normal == nullptr)
            sum += x;
        else
            sum += x * ((to_float(((const T *)a.normal)[r * a.cols + c]) - (a.mean != nullptr ? a.mean[r] : 0.0f)) *
                        a.rstd[r]);
    }
    a.partial[p * a.cols + c] = sum;
}

__device__ inline void partials(const ps_cuda_partials_args &a)
{
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= a.cols) return;
    float sum = 0.0f;
    for (int64_t p = 0; p < a.n_partials; p++) sum += a.partial[p * a.cols + c];
    store_as(a.dtype, a.y, c, sum, a.accumulate);
}

} // namespace

PS_KERNEL_TYPED(layernorm_fwd, ps_layernorm_fwd_args)
PS_KERNEL_TYPED(rmsnorm_fwd, ps_rmsnorm_fwd_args)
PS_KERNEL_TYPED(layernorm_bwd, ps_layernorm_bwd_args)
PS_KERNEL_TYPED(rmsnorm_bwd, ps_rmsnorm_bwd_args)
PS_KERNEL_TYPED(columns, ps_cuda_columns_args)
PS_KERNEL(partials, ps_cuda_partials_args)
