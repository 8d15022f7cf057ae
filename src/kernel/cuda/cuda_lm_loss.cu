/* cuda_lm_loss.cu - softmax and cross-entropy of a slice of the vocabulary: one warp per row, with a running maximum so
 * that exp stays in range (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018). */
#include "kernel/cuda/cuda_device.cuh"

namespace
{

/* State of a part of a row's logits: the largest, its token, and the sum of exp(logit - largest). */
struct part {
    float max, sum;
    int32_t best;
};

__device__ inline float exp_below(float x, float max)
{
    return max == -PS_INFINITY ? 0.0f : expf(x - max);
}

/* Of two parts; of equal logits the token that is lower. */
__device__ inline part join(part a, part b)
{
    const float max = fmaxf(a.max, b.max);
    part both;
    both.best = b.max > a.max || (b.max == a.max && b.best < a.best) ? b.best : a.best;
    both.max = max;
    both.sum = a.sum * exp_below(a.max, max) + b.sum * exp_below(b.max, max);
    return both;
}

/* The part with one more logit. */
__device__ inline void take(part &p, float z, int64_t token)
{
    if (z > p.max) {
        p.sum = p.sum * exp_below(p.max, z) + 1.0f;
        p.max = z, p.best = (int32_t)token;
    } else if (z != -PS_INFINITY) { /* its share is 0; NaN comes here */
        p.sum += expf(z - p.max);
    }
}

/* Rows are aligned to vectors. */
__device__ inline part part_of_lane(const ps_cuda_loss_slice_args &a, const float *logits)
{
    constexpr int W = ps_vector_of<float>::width;
    part p = {-PS_INFINITY, 0.0f, INT32_MAX};
    const int64_t n_vectors = a.cols / W;
    for (int64_t v = lane_of_thread(); v < n_vectors; v += PS_CUDA_WARP) {
        float z[W];
        load<W>(z, logits + v * W);
#pragma unroll
        for (int j = 0; j < W; j++) take(p, z[j], a.first + v * W + j);
    }
    for (int64_t c = n_vectors * W + lane_of_thread(); c < a.cols; c += PS_CUDA_WARP) take(p, logits[c], a.first + c);
    return p;
}

/* Separate from loss_slice, which has a higher occupancy without it, as most losses have no label smoothing. */
__device__ inline void loss_weighted(const ps_cuda_loss_weighted_args &a)
{
    const int64_t r = warp_of_grid();
    if (r >= a.rows) return;
    const float *const logits = a.logits + r * a.stride;
    float sum = 0.0f;
    for (int64_t c = lane_of_thread(); c < a.cols; c += PS_CUDA_WARP)
        sum += a.class_weights == nullptr ? logits[c] : logits[c] * a.class_weights[a.first + c];
    sum = warp_sum(sum);
    if (lane_of_thread() == 0) a.weighted[r] = a.first > 0 ? a.weighted[r] + sum : sum;
}

__device__ inline void loss_slice(const ps_cuda_loss_slice_args &a)
{
    const int64_t r = warp_of_grid();
    if (r >= a.rows) return;
    const float *const logits = a.logits + r * a.stride;
    part p = part_of_lane(a, logits);
    for (int distance = PS_CUDA_WARP / 2; distance > 0; distance /= 2) {
        part other;
        other.max = __shfl_xor_sync(PS_ALL_LANES, p.max, distance);
        other.sum = __shfl_xor_sync(PS_ALL_LANES, p.sum, distance);
        other.best = __shfl_xor_sync(PS_ALL_LANES, p.best, distance);
        p = join(p, other);
    }
    if (lane_of_thread() > 0) return;
    if (a.first > 0) p = join(part{a.seen.max[r], a.seen.sum[r], a.seen.best[r]}, p);
    a.seen.max[r] = p.max, a.seen.sum[r] = p.sum, a.seen.best[r] = p.best;
    const int64_t target = a.targets[r] - a.first;
    if (target >= 0 && target < a.cols) a.at_target[r] = logits[target];
}

__device__ inline float class_weight(const ps_loss_terms &t, int64_t c)
{
    return t.class_weights == nullptr ? 1.0f : t.class_weights[c];
}

/* Loss of a row that is not ignored; nll = lse - logits[target]. */
__device__ inline float row_loss(const ps_cuda_loss_finish_args &a, int64_t r, float lse, float nll)
{
    const float e = a.terms.smoothing, u = class_weight(a.terms, a.targets[r]);
    float loss = (1.0f - e) * u * nll;
    if (e > 0.0f) loss += e * (a.terms.mean_weight * lse - a.weighted[r] / (float)a.V);
    return a.terms.z_loss > 0.0f ? loss + a.terms.z_loss * u * lse * lse : loss;
}

struct finish_at {
    const ps_cuda_loss_finish_args &a;
    template <int W> __device__ void at(int64_t r) const
    {
        const float lse = a.seen.max[r] + logf(a.seen.sum[r]);
        a.lse[r] = lse;
        if (a.predicted != nullptr) a.predicted[r] = a.seen.best[r] == INT32_MAX ? 0 : a.seen.best[r];
        a.row_loss[r] = a.targets[r] == PS_IGNORE_INDEX ? 0.0f : row_loss(a, r, lse, lse - a.row_loss[r]);
    }
};

__device__ inline void loss_finish(const ps_cuda_loss_finish_args &a)
{
    for_each<1>(a.rows, false, finish_at{a});
}

/* What the elements of a row have in common. */
struct row_gradient {
    float lse, of_p, of_target, smoothing;
    int64_t target; /* of the slice */
    bool counts;
};

__device__ inline row_gradient gradient_of_row(const ps_cuda_loss_gradient_args &a, int64_t r)
{
    const int32_t target = a.targets[r];
    row_gradient g;
    g.counts = target != PS_IGNORE_INDEX;
    g.lse = a.lse[r], g.smoothing = a.terms.smoothing, g.target = target - a.first;
    const float u = g.counts ? class_weight(a.terms, target) : 0.0f;
    g.of_target = (1.0f - g.smoothing) * u;
    g.of_p = g.of_target + g.smoothing * a.terms.mean_weight + 2.0f * a.terms.z_loss * u * g.lse;
    return g;
}

__device__ inline float gradient_at(const ps_cuda_loss_gradient_args &a, const row_gradient &g, float logit, int64_t c)
{
    float d = g.of_p * expf(logit - g.lse) - (c == g.target ? g.of_target : 0.0f);
    if (g.smoothing > 0.0f) d -= g.smoothing / (float)a.V * class_weight(a.terms, a.first + c);
    return g.counts ? d * a.scale : 0.0f;
}

/* One thread per vector of an aligned row; blocks_a_row consecutive blocks have a row. */
template <typename T> __device__ void loss_gradient(const ps_cuda_loss_gradient_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    const unsigned a_block = blockDim.x * W, blocks_a_row = ((unsigned)a.cols + a_block - 1) / a_block;
    const int64_t r = blockIdx.x / blocks_a_row;
    const int64_t c = blockIdx.x % blocks_a_row * a_block + threadIdx.x * W;
    if (c >= a.cols) return;
    const row_gradient g = gradient_of_row(a, r);
    const float *const logits = a.logits + r * a.stride + c;
    T *const out = (T *)a.dlogits + r * a.dlogits_stride + c;
    if (c + W <= a.cols) {
        float z[W];
        load<W>(z, logits);
#pragma unroll
        for (int j = 0; j < W; j++) z[j] = gradient_at(a, g, z[j], c + j);
        store<W>(out, z);
    } else {
        for (int j = 0; c + j < a.cols; j++) out[j] = from_float<T>(gradient_at(a, g, logits[j], c + j));
    }
}

/* One thread per element; blocks_a_row consecutive blocks have a row. */
template <typename T> __device__ void bias(const ps_cuda_bias_args &a)
{
    const int64_t blocks_a_row = (a.cols + blockDim.x - 1) / blockDim.x, r = blockIdx.x / blocks_a_row;
    const int64_t c = blockIdx.x % blocks_a_row * blockDim.x + threadIdx.x;
    if (c < a.cols) a.y[r * a.stride + c] += to_float(((const T *)a.b)[c]);
}

} // namespace

PS_KERNEL(loss_slice, ps_cuda_loss_slice_args)
PS_KERNEL(loss_weighted, ps_cuda_loss_weighted_args)
PS_KERNEL(loss_finish, ps_cuda_loss_finish_args)
PS_KERNEL_TYPED(loss_gradient, ps_cuda_loss_gradient_args)
PS_KERNEL_TYPED(bias, ps_cuda_bias_args)
