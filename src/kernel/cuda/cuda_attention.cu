/* cuda_attention.cu - attention without a [T, T] array (Dao et al., "FlashAttention", 2022), by the tiles of
 * cuda_tile.cuh: for f32, and for shapes that cuda_attention_mma.cu does not support. Backward computes the scores
 * twice, once for dq and once for dk and dv, so that each gradient is a sum of one block in one order; delta = dy . y
 * comes from an earlier pass (Dao, "FlashAttention-2", 2023). */
#include "kernel/cuda/cuda_attention_mask.cuh"
#include "kernel/cuda/cuda_tile.cuh"

namespace
{

/* Rows of q, of k and v, and of y, of one head from time t on. */
template <typename T, class A>
__device__ inline strided_rows<T> q_rows(const A &a, const void *q, int64_t b, int64_t h, int64_t t)
{
    return {(const T *)q + (b * a.T + t) * a.q_stride + h * a.D, a.q_stride};
}

template <typename T, class A>
__device__ inline shown_rows<T> kv_rows(const A &a, const void *k, int64_t b, int64_t kv, int64_t t)
{
    return {{(const T *)k + (b * a.T + t) * a.kv_stride + kv * a.D, a.kv_stride},
            a.mask != nullptr ? a.mask + b * a.T + t : nullptr};
}

template <typename T, class A>
__device__ inline strided_rows<T> y_rows(const A &a, const void *y, int64_t b, int64_t h, int64_t t)
{
    return {(const T *)y + ((b * a.T + t) * a.H + h) * a.D, a.H * a.D};
}

template <typename T, int WIDTH> __device__ void attention_fwd(const ps_attention_fwd_args &a)
{
    constexpr int R = tile_of<WIDTH>::rows_a_warp, SLOTS = tile_of<WIDTH>::slots;
    PS_SHARED_SIZED(float, memory);
    const tile_shared s = tile_arrays<WIDTH>(memory, a.D, 1);
    const place at = place_of<tile_of<WIDTH>::rows>(a.T, a.H, a.causal);
    const int64_t kv = at.h / (a.H / a.KV), lane = lane_of_thread(), first = at.first + warp_of_thread() * R;
    const attention_mask view = attention_mask_of(a, at.b, at.h);
    int64_t from, to;
    view.keys_of(at.first, at.end, &from, &to);
    load_rows<T, WIDTH>(s.rows[0], at.end - at.first, a.D, q_rows<T>(a, a.q, at.b, at.h, at.first));
    running_softmax<SLOTS> softmax[R];
    float y[R][SLOTS] = {};
#pragma unroll
    for (int r = 0; r < R; r++) softmax[r].start();
    for (int64_t j = from; j < to; j += PS_CUDA_WARP) {
        __syncthreads(); /* the previous tile has been read, the rows are loaded */
        load_others<T>(s.others[0], a.T - j, a.D, kv_rows<T>(a, a.k, at.b, kv, j));
        load_others<T>(s.others[1], a.T - j, a.D, kv_rows<T>(a, a.v, at.b, kv, j));
        __syncthreads();
        float p[R];
        dots<R>(p, s.rows[0], s.others[0], a.D);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const bool is_seen = view.sees(first + r, j + lane);
            p[r] = softmax[r].add(is_seen ? p[r] * a.scale : -PS_INFINITY, y[r]);
            if (is_seen) p[r] *= view.dropped(first + r, j + lane);
        }
        add_weighted<R, SLOTS>(y, p, s.weights[0], s.others[1], a.D);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int64_t i = first + r;
        if (i >= at.end) continue;
        const bool sees_any = softmax[r].sum > 0.0f;
        store_row<T, SLOTS>((T *)a.y + ((at.b * a.T + i) * a.H + at.h) * a.D, y[r],
                            sees_any ? 1.0f / softmax[r].sum : 0.0f, a.D);
        if (lane == 0) a.lse[(at.b * a.H + at.h) * a.T + i] = sees_any ? softmax[r].max + logf(softmax[r].sum) : 0.0f;
    }
}

/* ---- backward ---- */

/* One warp per row of y. */
template <typename T> __device__ void attention_delta(const ps_cuda_attention_delta_args &a)
{
    const int64_t row = warp_of_grid();
    if (row >= a.B * a.T * a.H) return;
    const int64_t h = row % a.H, t = row / a.H % a.T, b = row / a.H / a.T;
    float sum = 0.0f;
    for (int64_t d = lane_of_thread(); d < a.D; d += PS_CUDA_WARP)
        sum += to_float(((const T *)a.dy)[row * a.D + d]) * to_float(((const T *)a.y)[row * a.D + d]);
    sum = warp_sum(sum);
    if (lane_of_thread() == 0) a.delta[(b * a.H + h) * a.T + t] = sum;
}

/* Of one pair: score = q . k, dp = dy . v. Returns its part of dS; *weight: P after dropout. */
__device__ inline float pair_gradient(const attention_mask &view, int64_t i, int64_t j, float score, float dp,
                                      float lse, float delta, float *weight)
{
    *weight = 0.0f;
    if (!view.sees(i, j)) return 0.0f;
    const float p = expf(score * view.scale - lse), dropped = view.dropped(i, j);
    *weight = p * dropped;
    return view.scale * p * (dropped * dp - delta);
}

template <typename T, int WIDTH> __device__ void attention_dq(const ps_cuda_attention_gradient_args &g)
{
    constexpr int R = tile_of<WIDTH>::rows_a_warp, SLOTS = tile_of<WIDTH>::slots;
    const ps_attention_bwd_args &a = g.a;
    PS_SHARED_SIZED(float, memory);
    const tile_shared s = tile_arrays<WIDTH>(memory, a.D, 2);
    const place at = place_of<tile_of<WIDTH>::rows>(a.T, a.H, a.causal);
    const int64_t kv = at.h / (a.H / a.KV), lane = lane_of_thread(), first = at.first + warp_of_thread() * R;
    const int64_t sums = (at.b * a.H + at.h) * a.T; /* of lse and delta */
    const attention_mask view = attention_mask_of(a, at.b, at.h);
    int64_t from, to;
    view.keys_of(at.first, at.end, &from, &to);
    load_rows<T, WIDTH>(s.rows[0], at.end - at.first, a.D, q_rows<T>(a, a.q, at.b, at.h, at.first));
    load_rows<T, WIDTH>(s.rows[1], at.end - at.first, a.D, y_rows<T>(a, a.dy, at.b, at.h, at.first));
    float dq[R][SLOTS] = {};
    for (int64_t j = from; j < to; j += PS_CUDA_WARP) {
        __syncthreads();
        load_others<T>(s.others[0], a.T - j, a.D, kv_rows<T>(a, a.k, at.b, kv, j));
        load_others<T>(s.others[1], a.T - j, a.D, kv_rows<T>(a, a.v, at.b, kv, j));
        __syncthreads();
        float ds[R], dp[R];
        dots<R>(ds, s.rows[0], s.others[0], a.D);
        dots<R>(dp, s.rows[1], s.others[1], a.D);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int64_t i = first + r;
            const bool is_row = i < at.end;
            float unused;
            ds[r] = pair_gradient(view, i, j + lane, ds[r], dp[r], is_row ? a.lse[sums + i] : 0.0f,
                                  is_row ? g.delta[sums + i] : 0.0f, &unused);
        }
        add_weighted<R, SLOTS>(dq, ds, s.weights[0], s.others[0], a.D);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
        if (first + r < at.end)
            store_row<T, SLOTS>((T *)a.dq + (at.b * a.T + first + r) * a.q_stride + at.h * a.D, dq[r], 1.0f, a.D);
}

/* Rows are keys here, of head at.h of keys; the queries of all heads that share it are the others. */
template <typename T, int WIDTH> __device__ void attention_dkv(const ps_cuda_attention_gradient_args &g)
{
    constexpr int R = tile_of<WIDTH>::rows_a_warp, SLOTS = tile_of<WIDTH>::slots;
    const ps_attention_bwd_args &a = g.a;
    PS_SHARED_SIZED(float, memory);
    const tile_shared s = tile_arrays<WIDTH>(memory, a.D, 2);
    const place at = place_of<tile_of<WIDTH>::rows>(a.T, a.KV, false);
    const int64_t group = a.H / a.KV, lane = lane_of_thread(), first = at.first + warp_of_thread() * R;
    load_rows<T, WIDTH>(s.rows[0], at.end - at.first, a.D, kv_rows<T>(a, a.k, at.b, at.h, at.first));
    load_rows<T, WIDTH>(s.rows[1], at.end - at.first, a.D, kv_rows<T>(a, a.v, at.b, at.h, at.first));
    float dk[R][SLOTS] = {}, dv[R][SLOTS] = {};
    for (int64_t h = at.h * group; h < (at.h + 1) * group; h++) {
        const attention_mask view = attention_mask_of(a, at.b, h);
        int64_t from, to;
        view.queries_of(at.first, at.end, &from, &to);
        for (int64_t first_query = from; first_query < to; first_query += PS_CUDA_WARP) {
            const int64_t i = first_query + lane, sums = (at.b * a.H + h) * a.T + i;
            __syncthreads();
            load_others<T>(s.others[0], a.T - first_query, a.D, q_rows<T>(a, a.q, at.b, h, first_query));
            load_others<T>(s.others[1], a.T - first_query, a.D, y_rows<T>(a, a.dy, at.b, h, first_query));
            __syncthreads();
            const float lse = i < a.T ? a.lse[sums] : 0.0f, delta = i < a.T ? g.delta[sums] : 0.0f;
            float ds[R], weight[R];
            dots<R>(ds, s.rows[0], s.others[0], a.D);
            dots<R>(weight, s.rows[1], s.others[1], a.D);
#pragma unroll
            for (int r = 0; r < R; r++)
                ds[r] = pair_gradient(view, i, first + r, ds[r], weight[r], lse, delta, &weight[r]);
            add_weighted<R, SLOTS>(dk, ds, s.weights[0], s.others[0], a.D);
            add_weighted<R, SLOTS>(dv, weight, s.weights[1], s.others[1], a.D);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int64_t row = (at.b * a.T + first + r) * a.kv_stride + at.h * a.D;
        if (first + r >= at.end) continue;
        store_row<T, SLOTS>((T *)a.dk + row, dk[r], 1.0f, a.D);
        store_row<T, SLOTS>((T *)a.dv + row, dv[r], 1.0f, a.D);
    }
}

} // namespace

#define KERNELS(name, args)                                                                                            \
    PS_KERNEL_AS(name##_64, _f32, args, name<float, 64>)                                                               \
    PS_KERNEL_AS(name##_64, _bf16, args, name<ps_bf16, 64>)                                                            \
    PS_KERNEL_AS(name##_64, _f16, args, name<ps_f16, 64>)                                                              \
    PS_KERNEL_AS(name##_128, _f32, args, name<float, 128>)                                                             \
    PS_KERNEL_AS(name##_128, _bf16, args, name<ps_bf16, 128>)                                                          \
    PS_KERNEL_AS(name##_128, _f16, args, name<ps_f16, 128>)                                                            \
    PS_KERNEL_AS(name##_256, _f32, args, name<float, 256>)                                                             \
    PS_KERNEL_AS(name##_256, _bf16, args, name<ps_bf16, 256>)                                                          \
    PS_KERNEL_AS(name##_256, _f16, args, name<ps_f16, 256>)
KERNELS(attention_fwd, ps_attention_fwd_args)
PS_KERNEL_TYPED(attention_delta, ps_cuda_attention_delta_args)
KERNELS(attention_dq, ps_cuda_attention_gradient_args)
KERNELS(attention_dkv, ps_cuda_attention_gradient_args)
