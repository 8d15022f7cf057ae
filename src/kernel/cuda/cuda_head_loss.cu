/* cuda_head_loss.cu - losses of heads with few outputs: one thread per value, or one warp for the positions of a
 * sequence, of which lane l has l, l + 32, ... */
#include "kernel/cuda/cuda_device.cuh"

namespace
{

struct values_loss_at {
    const ps_values_loss_fwd_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        const float z = a.z[i], t = a.values[i];
        const bool is_squared = a.kind == PS_VALUES_SQUARED;
        const float loss = is_squared ? (z - t) * (z - t) : fmaxf(z, 0.0f) - z * t + log1pf(expf(-fabsf(z)));
        a.loss[i] = t != t ? 0.0f : loss;
        a.predicted[i] = is_squared ? -1 : z > 0.0f;
    }
};

__device__ inline void values_loss_fwd(const ps_values_loss_fwd_args &a)
{
    for_each<1>(a.n, false, values_loss_at{a});
}

template <typename T> struct values_gradient_at {
    const ps_values_loss_bwd_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        const float z = a.z[i], t = a.values[i];
        const float d = a.kind == PS_VALUES_SQUARED ? 2.0f * (z - t) : 1.0f / (1.0f + expf(-z)) - t;
        ((T *)a.dz)[i] = from_float<T>(t != t ? 0.0f : d * a.scale);
    }
};

template <typename T> __device__ void values_loss_bwd(const ps_values_loss_bwd_args &a)
{
    for_each<1>(a.n, false, values_gradient_at<T>{a});
}

/* For a column of n numbers at stride 2: the largest, the sum of exp(z - largest), and the first position of the
 * largest. */
struct column {
    float max, sum;
    int32_t best;
};

__device__ inline column column_of(const float *z, int64_t n)
{
    column c = {-PS_INFINITY, 0.0f, INT32_MAX};
    for (int64_t t = lane_of_thread(); t < n; t += PS_CUDA_WARP)
        if (z[t * 2] > c.max) c.max = z[t * 2], c.best = (int32_t)t;
    for (int distance = PS_CUDA_WARP / 2; distance > 0; distance /= 2) {
        const float max = __shfl_xor_sync(PS_ALL_LANES, c.max, distance);
        const int32_t best = __shfl_xor_sync(PS_ALL_LANES, c.best, distance);
        if (max > c.max || (max == c.max && best < c.best)) c.best = best;
        c.max = fmaxf(c.max, max);
    }
    if (c.best == INT32_MAX) c.best = 0;
    for (int64_t t = lane_of_thread(); t < n; t += PS_CUDA_WARP) c.sum += expf(z[t * 2] - c.max);
    c.sum = warp_sum(c.sum);
    return c;
}

__device__ inline void span_loss_fwd(const ps_span_loss_fwd_args &a)
{
    const int64_t i = warp_of_grid();
    if (i >= a.B * 2) return;
    const float *const z = a.z + i / 2 * a.T * 2 + i % 2;
    const column c = column_of(z, a.T);
    if (lane_of_thread() > 0) return;
    const int32_t target = a.targets[i];
    a.predicted[i] = c.best;
    a.loss[i] = target == PS_IGNORE_INDEX ? 0.0f : a.weight[i % 2] * ((c.max - z[(int64_t)target * 2]) + logf(c.sum));
}

template <typename T> __device__ void span_loss_bwd(const ps_span_loss_bwd_args &a)
{
    const int64_t i = warp_of_grid();
    if (i >= a.B * 2) return;
    const int64_t first = i / 2 * a.T * 2 + i % 2;
    const column c = column_of(a.z + first, a.T);
    const int32_t target = a.targets[i];
    for (int64_t t = lane_of_thread(); t < a.T; t += PS_CUDA_WARP) {
        const float p = expf(a.z[first + t * 2] - c.max) / c.sum;
        const float d = (p - (t == target ? 1.0f : 0.0f)) * a.scale[i % 2];
        ((T *)a.dz)[first + t * 2] = from_float<T>(target == PS_IGNORE_INDEX ? 0.0f : d);
    }
}

} // namespace

PS_KERNEL(values_loss_fwd, ps_values_loss_fwd_args)
PS_KERNEL(span_loss_fwd, ps_span_loss_fwd_args)
PS_KERNEL_TYPED(values_loss_bwd, ps_values_loss_bwd_args)
PS_KERNEL_TYPED(span_loss_bwd, ps_span_loss_bwd_args)
