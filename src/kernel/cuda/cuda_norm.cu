/* cuda_norm.cu - LayerNorm and RMSNorm, which read and write each row once: in 16 bits 4 bytes per element in forward,
 * 6 in backward, or 8 where it adds to dx. The same pass computes the gradients of weights. Column sums, for the
 * gradients of biases. */
#include "kernel/cuda/cuda_rows.cuh"

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

/* Any number of columns: one warp per row, which reads the row several times. */
template <typename T> __device__ inline void normalise_by_warp(const ps_cuda_norm_fwd_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    const int64_t r = warp_of_grid();
    if (r >= a.rows) return;
    const T *const x = (const T *)a.x + r * a.cols;
    float sum = 0.0f, squares = 0.0f;
    if (a.mean != nullptr) for_columns<W>(a.cols, sum_of_row<T>{x, sum});
    const float mean = a.mean != nullptr ? warp_sum(sum) / (float)a.cols : 0.0f;
    for_columns<W>(a.cols, squares_of_row<T>{x, mean, squares});
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)a.cols + a.eps);
    for_columns<W>(a.cols, normalise_row<T>{(T *)a.y + r * a.cols, x, (const T *)a.w, (const T *)a.b, mean, rstd});
    if (lane_of_thread() > 0) return;
    if (a.mean != nullptr) a.mean[r] = mean;
    a.rstd[r] = rstd;
}

constexpr int norm_warps = PS_CUDA_THREADS_layernorm_fwd / PS_CUDA_WARP;

/* One team per row, which is read once. */
template <typename T, int V> __device__ inline void normalise_by_team(const ps_cuda_norm_fwd_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    using shared = ps_team_shared<1, norm_warps>;
    PS_SHARED(shared, s);
    const int lanes = a.lanes, team = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % lanes;
    const int64_t r = (int64_t)blockIdx.x * ((int)blockDim.x / lanes) + team, at = r * a.cols;
    int turn = 0;
    ps_row_part<T, V> x;
    x.read((const T *)a.x + at, a.cols, lane, lanes, r < a.rows);
    float sum[1] = {}, squares[1] = {}, mean = 0.0f;
    if (a.mean != nullptr) {
#pragma unroll
        for (int k = 0; k < V; k++)
#pragma unroll
            for (int j = 0; j < W; j++) sum[0] += x.at(k, j);
        sum_of_team(sum, lanes, s, turn);
        mean = sum[0] / (float)a.cols;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float d = (int64_t)(lane + k * lanes) * W < a.cols ? x.at(k, j) - mean : 0.0f;
            squares[0] += d * d;
        }
    sum_of_team(squares, lanes, s, turn);
    const float rstd = 1.0f / sqrtf(squares[0] / (float)a.cols + a.eps);
    if (r >= a.rows) return;
#pragma unroll
    for (int k = 0; k < V; k++) {
        const int64_t c = (int64_t)(lane + k * lanes) * W;
        if (c >= a.cols) break;
        float scale[W], shift[W] = {}, y[W];
        load<W>(scale, (const T *)a.w + c);
        if (a.b != nullptr) load<W>(shift, (const T *)a.b + c);
#pragma unroll
        for (int j = 0; j < W; j++) y[j] = (x.at(k, j) - mean) * rstd * scale[j] + shift[j];
        store<W>((T *)a.y + at + c, y);
    }
    if (lane > 0) return;
    if (a.mean != nullptr) a.mean[r] = mean;
    a.rstd[r] = rstd;
}

template <typename T> __device__ inline void norm_fwd(const ps_cuda_norm_fwd_args &a)
{
    switch (a.vectors) {
    case 1: normalise_by_team<T, 1>(a); break;
    case 2: normalise_by_team<T, 2>(a); break;
    case 4: normalise_by_team<T, 4>(a); break;
    default: normalise_by_warp<T>(a);
    }
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

/* Any number of columns: one warp per row, without column sums. Without mean there is no average of g either. Each lane
 * writes only elements that it alone has read, so dx may be dy. */
template <typename T> __device__ inline void norm_bwd(const ps_cuda_norm_bwd_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    const int64_t r = warp_of_grid(), at = r * a.cols;
    if (r >= a.rows) return;
    const bool has_mean = a.mean != nullptr;
    const norm_row<T> row = {(T *)a.dx + at, (const T *)a.dy + at,        (const T *)a.x + at,
                             (const T *)a.w, has_mean ? a.mean[r] : 0.0f, a.rstd[r]};
    float g = 0.0f, gn = 0.0f;
    for_columns<W>(a.cols, gradient_sums<T>{row, g, gn});
    const float avg_g = has_mean ? warp_sum(g) / (float)a.cols : 0.0f, avg_gn = warp_sum(gn) / (float)a.cols;
    for_columns<W>(a.cols, gradient_of_row<T>{row, avg_g, avg_gn, a.accumulate_dx});
}

/* 16 bytes in one access, to which p is aligned. nvcc 13.0 takes some of these vectors apart, to 4 bytes each. */
__device__ inline void store_four(float *p, float x0, float x1, float x2, float x3)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "f"(x0), "f"(x1),
                 "f"(x2), "f"(x3)
                 : "memory");
#else
    p[0] = x0, p[1] = x1, p[2] = x2, p[3] = x3;
#endif
}

/* p[i] = sum[i]; where there are several, p is aligned to vectors of 16 bytes. */
template <int W> __device__ inline void store_sums(float *p, const float (&sum)[W])
{
    if constexpr (W == 1)
        *p = sum[0];
    else
#pragma unroll
        for (int i = 0; i < W; i += 4) store_four(p + i, sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
}

/* ---- the same in one pass: teams loop over the rows of their block, and accumulate column sums ---- */

/* Of the teams of a block, where there are several; a thread then has one vector of a row. */
constexpr int joined_columns_max = PS_CUDA_THREADS_layernorm_bwd_1 / 2 * 8;

struct joined_shared {
    float sum[joined_columns_max];
};

/* partial[c] <- the sums of all teams, in their order. */
template <typename T, int V>
__device__ inline void join_teams(float *partial, const float (&sum)[V][ps_vector_of<T>::width], int64_t cols,
                                  int lanes)
{
    constexpr int W = ps_vector_of<T>::width;
    PS_SHARED(joined_shared, s);
    const int n_teams = (int)blockDim.x / lanes, team = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % lanes;
    for (int t = 0; t + 1 < n_teams; t++) {
        if (team == t && (int64_t)lane * W < cols)
#pragma unroll
            for (int j = 0; j < W; j++) s.sum[lane * W + j] = (t > 0 ? s.sum[lane * W + j] : 0.0f) + sum[0][j];
        __syncthreads();
    }
    if (team + 1 < n_teams) return;
#pragma unroll
    for (int k = 0; k < V; k++) {
        const int64_t c = (int64_t)(lane + k * lanes) * W;
        if (c >= cols) break;
        float all[W];
#pragma unroll
        for (int j = 0; j < W; j++) all[j] = (n_teams > 1 ? s.sum[lane * W + j] : 0.0f) + sum[k][j];
        store_sums(partial + c, all);
    }
}

template <typename T, int V, bool HAS_MEAN> __device__ inline void norm_bwd_by_team(const ps_cuda_norm_bwd_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    using shared = ps_team_shared<2, norm_warps>;
    PS_SHARED(shared, s);
    const int lanes = a.lanes, team = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % lanes;
    const int n_teams = (int)blockDim.x / lanes;
    const int64_t first = blockIdx.x * a.rows_a_block, last = first + a.rows_a_block;
    const int64_t end = last < a.rows ? last : a.rows;
    int turn = 0;
    ps_row_part<T, V> w, x, dy;
    float dw[V][W] = {}, db[HAS_MEAN ? V : 1][W] = {};
    w.read((const T *)a.w, a.cols, lane, lanes, true);
    for (int64_t r = first + team; r - team < end; r += n_teams) {
        const bool is_row = r < end;
        const float mean = HAS_MEAN && is_row ? a.mean[r] : 0.0f, rstd = is_row ? a.rstd[r] : 0.0f;
        x.read((const T *)a.x + r * a.cols, a.cols, lane, lanes, is_row);
        dy.read((const T *)a.dy + r * a.cols, a.cols, lane, lanes, is_row);
        float sum[2] = {}; /* of g n, of g */
#pragma unroll
        for (int k = 0; k < V; k++)
#pragma unroll
            for (int j = 0; j < W; j++) {
                const float n = (x.at(k, j) - mean) * rstd, d = dy.at(k, j), g = d * w.at(k, j);
                sum[0] += g * n;
                dw[k][j] += d * n;
                if (HAS_MEAN) sum[1] += g, db[k][j] += d;
            }
        sum_of_team(sum, lanes, s, turn);
        const float avg_gn = sum[0] / (float)a.cols, avg_g = HAS_MEAN ? sum[1] / (float)a.cols : 0.0f;
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int64_t c = (int64_t)(lane + k * lanes) * W;
            if (!is_row || c >= a.cols) break;
            float dx[W];
#pragma unroll
            for (int j = 0; j < W; j++)
                dx[j] = rstd * (dy.at(k, j) * w.at(k, j) - avg_g - (x.at(k, j) - mean) * rstd * avg_gn);
            store<W>((T *)a.dx + r * a.cols + c, dx, a.accumulate_dx);
        }
    }
    float *const partial = a.partial + blockIdx.x * (HAS_MEAN ? 2 * a.cols : a.cols);
    join_teams<T, V>(partial, dw, a.cols, lanes);
    if constexpr (HAS_MEAN) {
        __syncthreads();
        join_teams<T, V>(partial + a.cols, db, a.cols, lanes);
    }
}

/* ---- column sums: one thread per vector of columns and block of rows ---- */

template <int W, typename T> __device__ inline void columns_of(const ps_cuda_columns_args &a)
{
    const int64_t each = (int64_t)blockDim.x * W, blocks_a_row = (a.cols + each - 1) / each;
    const int64_t p = blockIdx.x / blocks_a_row, c = blockIdx.x % blocks_a_row * each + (int64_t)threadIdx.x * W;
    if (c >= a.cols) return;
    const int64_t first = p * a.rows_a_block, end = first + a.rows_a_block < a.rows ? first + a.rows_a_block : a.rows;
    float sum[W] = {};
#pragma unroll 4
    for (int64_t r = first; r < end; r++) {
        float x[W];
        load<W>(x, (const T *)a.x + r * a.stride + c);
        if (a.normal != nullptr) {
            float n[W];
            load<W>(n, (const T *)a.normal + r * a.cols + c);
            const float mean = a.mean != nullptr ? a.mean[r] : 0.0f, rstd = a.rstd[r];
#pragma unroll
            for (int j = 0; j < W; j++) x[j] *= (n[j] - mean) * rstd;
        }
#pragma unroll
        for (int j = 0; j < W; j++) sum[j] += x[j];
    }
    store_sums(a.partial + p * a.cols + c, sum);
}

template <typename T> __device__ void columns(const ps_cuda_columns_args &a)
{
    if (a.width > 1)
        columns_of<ps_vector_of<T>::width, T>(a);
    else
        columns_of<1, T>(a);
}

/* A warp has 32 columns and every eighth partial sum; the eight results are added in order. */
struct partials_shared {
    float sum[PS_CUDA_THREADS_partials / PS_CUDA_WARP][PS_CUDA_WARP];
};

__device__ inline void partials(const ps_cuda_partials_args &a)
{
    PS_SHARED(partials_shared, s);
    constexpr int n_warps = PS_CUDA_THREADS_partials / PS_CUDA_WARP;
    const int lane = lane_of_thread(), warp = warp_of_thread();
    const int64_t total = a.cols * a.n_arrays, c = (int64_t)blockIdx.x * PS_CUDA_WARP + lane;
    float sum = 0.0f;
    if (c < total)
#pragma unroll 4
        for (int64_t p = warp; p < a.n_partials; p += n_warps) sum += a.partial[p * total + c];
    s.sum[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || c >= total) return;
    for (int w = 1; w < n_warps; w++) sum += s.sum[w][lane];
    store_as(a.dtype, c < a.cols ? a.y : a.y2, c < a.cols ? c : c - a.cols, sum, a.accumulate);
}

} // namespace

#define NORM_TYPED(name, args, f)                                                                                      \
    PS_KERNEL_AS(name, _f32, args, f(float))                                                                           \
    PS_KERNEL_AS(name, _bf16, args, f(ps_bf16))                                                                        \
    PS_KERNEL_AS(name, _f16, args, f(ps_f16))
#define FWD(T) norm_fwd<T>
#define BWD(T) norm_bwd<T>
#define LAYER_1(T) norm_bwd_by_team<T, 1, true>
#define LAYER_2(T) norm_bwd_by_team<T, 2, true>
#define LAYER_4(T) norm_bwd_by_team<T, 4, true>
#define RMS_1(T) norm_bwd_by_team<T, 1, false>
#define RMS_2(T) norm_bwd_by_team<T, 2, false>
#define RMS_4(T) norm_bwd_by_team<T, 4, false>

NORM_TYPED(layernorm_fwd, ps_cuda_norm_fwd_args, FWD)
NORM_TYPED(rmsnorm_fwd, ps_cuda_norm_fwd_args, FWD)
NORM_TYPED(norm_bwd, ps_cuda_norm_bwd_args, BWD)
NORM_TYPED(layernorm_bwd_1, ps_cuda_norm_bwd_args, LAYER_1)
NORM_TYPED(layernorm_bwd_2, ps_cuda_norm_bwd_args, LAYER_2)
NORM_TYPED(layernorm_bwd_4, ps_cuda_norm_bwd_args, LAYER_4)
NORM_TYPED(rmsnorm_bwd_1, ps_cuda_norm_bwd_args, RMS_1)
NORM_TYPED(rmsnorm_bwd_2, ps_cuda_norm_bwd_args, RMS_2)
NORM_TYPED(rmsnorm_bwd_4, ps_cuda_norm_bwd_args, RMS_4)
PS_KERNEL_TYPED(columns, ps_cuda_columns_args)
PS_KERNEL(partials, ps_cuda_partials_args)
