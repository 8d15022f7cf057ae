/* cuda_stats.cu - sums over whole arrays: gradient statistics, losses, and filling with random numbers. */
#include "kernel/cuda/cuda_random.cuh"

namespace
{

/* ---- random numbers: the bits of kernel/cpu/isa/isa_fill.c, so that initial weights do not depend on the device
 * ---- */

/* A float whose operations no compiler fuses. */
struct flat {
    float x;
};
__device__ inline flat operator*(flat a, flat b)
{
    return flat{__fmul_rn(a.x, b.x)};
}
__device__ inline flat operator+(flat a, flat b)
{
    return flat{__fadd_rn(a.x, b.x)};
}
__device__ inline flat operator-(flat a, flat b)
{
    return flat{__fsub_rn(a.x, b.x)};
}

/* vf_log of cpu_vec.h */
__device__ inline flat flat_log(flat x)
{
    const int root = 0x3f3504f3, from_root = __float_as_int(x.x) - root;
    const flat k{(float)(from_root >> 23)};
    const flat f = flat{__int_as_float((from_root & 0x7fffff) + root)} - flat{1.0f}, z = f * f;
    flat p{7.0376836292e-2f};
    p = p * f - flat{1.1514610310e-1f};
    p = p * f + flat{1.1676998740e-1f};
    p = p * f - flat{1.2420140846e-1f};
    p = p * f + flat{1.4249322787e-1f};
    p = p * f - flat{1.6668057665e-1f};
    p = p * f + flat{2.0000714765e-1f};
    p = p * f - flat{2.4999993993e-1f};
    p = p * f + flat{3.3333331174e-1f};
    const flat y = (f * z * p - flat{2.12194440e-4f} * k) - flat{0.5f} * z;
    return (f + y) + flat{0.693359375f} * k;
}

/* vf_cos_sin_turns of cpu_vec.h: one of the two. */
__device__ inline flat flat_turns(flat x, bool is_sine)
{
    const flat magic{12582912.0f} /* 1.5 * 2^23 */, shifted = flat{4.0f} * x + magic;
    const flat a = flat{1.5707963267948966f} * (flat{4.0f} * x - (shifted - magic)), z = a * a;
    const flat s = ((flat{-1.9515295891e-4f} * z + flat{8.3321608736e-3f}) * z - flat{1.6666654611e-1f}) * z * a + a;
    const flat c =
        ((flat{2.443315711809948e-5f} * z - flat{1.388731625493765e-3f}) * z + flat{4.166664568298827e-2f}) * (z * z) -
        flat{0.5f} * z + flat{1.0f};
    const int quarter = __float_as_int(shifted.x);
    const bool is_odd = quarter & 1;
    const unsigned sign = ((unsigned)quarter + (is_sine ? 0 : 1)) >> 1 << 31;
    return flat{__int_as_float(__float_as_int(is_odd == is_sine ? c.x : s.x) ^ (int)sign)};
}

__device__ inline float normal_at(const ps_fill_args &a, uint64_t index)
{
    const uint64_t pair = index / 2;
    const flat x{(float)(random_word(a.key, 2 * pair) >> 8) * 0x1p-24f};
    const flat y{(float)(random_word(a.key, 2 * pair + 1) >> 8) * 0x1p-24f};
    const flat radius{__fsqrt_rn((flat{-2.0f} * flat_log(flat{1.0f} - x)).x)};
    return (flat{a.std} * (radius * flat_turns(y, index % 2 != 0)) + flat{a.mean}).x;
}

__device__ inline float uniform_at(const ps_fill_args &a, uint64_t index)
{
    const flat u{(float)(random_word(a.key, index) >> 8) * 0x1p-24f};
    return (flat{a.std} * (flat{2.0f} * u - flat{1.0f}) + flat{a.mean}).x;
}

struct fill_at {
    const ps_fill_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        const uint64_t index = (uint64_t)(a.first_index + i);
        a.dst[i] = a.std == 0.0f ? a.mean : a.is_uniform ? uniform_at(a, index) : normal_at(a, index);
    }
};

__device__ inline void fill(const ps_fill_args &a)
{
    for_each<1>(a.n, false, fill_at{a});
}

/* ---- gradient statistics ---- */

constexpr int stats_warps = PS_CUDA_THREADS_grad_stats / PS_CUDA_WARP;

/* Of a block of the grid, which processes several blocks of elements. */
struct stats_shared {
    double sum[stats_warps];
    int n_nonfinite;
    unsigned long long digit[PS_EXACT_SUM_DIGITS];
};

/* ps_exact_sum_add, for x >= 0. */
__device__ inline void exact_add(unsigned long long (&digit)[PS_EXACT_SUM_DIGITS], double x)
{
    int exponent;
    if (x == 0.0) return;
    const double fraction = frexp(x, &exponent);
    const uint64_t mantissa = (uint64_t)ldexp(fraction, 53);
    const int at = exponent - 53 + 352, drop = at < 0 ? -at : 0, first = at < 0 ? 0 : at / 32;
    const unsigned shift = at < 0 ? 0 : (unsigned)at % 32;
    const uint64_t m = mantissa >> drop, low = (m & 0xffffffffu) << shift, high = (m >> 32) << shift;
    digit[first] += low & 0xffffffffu;
    digit[first + 1] += (low >> 32) + (high & 0xffffffffu);
    digit[first + 2] += high >> 32;
}

template <int W, typename T> __device__ inline void add_squares(const T *x, double &sum, int *n_nonfinite)
{
    float v[W];
    load<W>(v, x);
#pragma unroll
    for (int j = 0; j < W; j++) {
        if (fabsf(v[j]) < PS_INFINITY)
            sum += (double)v[j] * (double)v[j];
        else
            ++*n_nonfinite;
    }
}

/* The elements of a thread do not depend on addresses, as a piece of a chunk may begin anywhere. */
template <typename T> __device__ inline double squares_of_thread(const T *x, int64_t n, int *n_nonfinite)
{
    constexpr int W = ps_vector_of<T>::width;
    const bool aligned = is_aligned(x, W * sizeof(T));
    double sum = 0.0;
    for (int64_t i = (int64_t)threadIdx.x * W; i < n; i += (int64_t)blockDim.x * W) {
        if (aligned && i + W <= n)
            add_squares<W>(x + i, sum, n_nonfinite);
        else
            for (int64_t j = i; j < i + W && j < n; j++) add_squares<1>(x + j, sum, n_nonfinite);
    }
    return sum;
}

/* Digits and counts are integers, so the result of atomics does not depend on their order. */
template <typename T> __device__ void grad_stats(const ps_grad_stats_args &a)
{
    PS_SHARED(stats_shared, s);
    for (int i = (int)threadIdx.x; i < PS_EXACT_SUM_DIGITS; i += (int)blockDim.x) s.digit[i] = 0;
    if (threadIdx.x == 0) s.n_nonfinite = 0;
    int n_nonfinite = 0;
    for (int64_t first = (int64_t)blockIdx.x * PS_GRAD_STATS_BLOCK; first < a.n;
         first += (int64_t)gridDim.x * PS_GRAD_STATS_BLOCK) {
        const int64_t n = a.n - first < PS_GRAD_STATS_BLOCK ? a.n - first : PS_GRAD_STATS_BLOCK;
        const double sum = warp_sum(squares_of_thread((const T *)a.x + first, n, &n_nonfinite));
        __syncthreads(); /* the sums of the last turn have been read */
        if (lane_of_thread() == 0) s.sum[warp_of_thread()] = sum;
        __syncthreads();
        if (threadIdx.x > 0) continue;
        double all = 0.0;
        for (int w = 0; w < stats_warps; w++) all += s.sum[w];
        exact_add(s.digit, all);
    }
    __syncthreads();
    if (n_nonfinite > 0) atomicAdd(&s.n_nonfinite, n_nonfinite);
    __syncthreads();
    unsigned long long *const digits = reinterpret_cast<unsigned long long *>(a.sums->sum_squares.digit);
    for (int i = (int)threadIdx.x; i < PS_EXACT_SUM_DIGITS; i += (int)blockDim.x)
        if (s.digit[i] != 0) atomicAdd(&digits[i], s.digit[i]);
    if (threadIdx.x > 0 || s.n_nonfinite == 0) return;
    unsigned long long *const count = reinterpret_cast<unsigned long long *>(&a.sums->n_nonfinite);
    if (atomicAdd(count, (unsigned long long)s.n_nonfinite) == 0) a.sums->first_nonfinite = a.tensor;
}

/* ---- losses: one thread adds them in the order of rows; the others load them ---- */

struct loss_shared {
    double loss[PS_CUDA_THREADS_loss_sums], weight[PS_CUDA_THREADS_loss_sums];
    int n_targets, n_correct;
};

__device__ inline bool takes_part(const ps_loss_sums_args &a, int64_t r)
{
    return a.values != nullptr ? a.values[r] == a.values[r] : a.targets[r] != PS_IGNORE_INDEX;
}

__device__ inline bool is_right(const ps_loss_sums_args &a, int64_t r)
{
    return a.predicted[r] == (a.values != nullptr ? a.values[r] > 0.5f : a.targets[r]);
}

__device__ inline void loss_sums(const ps_loss_sums_args &a)
{
    PS_SHARED(loss_shared, s);
    double loss = 0.0, weight = 0.0;
    int n_targets = 0, n_correct = 0;
    if (threadIdx.x == 0) s.n_targets = s.n_correct = 0;
    for (int64_t first = 0; first < a.rows; first += blockDim.x) {
        const int64_t r = first + threadIdx.x;
        const bool counts = r < a.rows && takes_part(a, r);
        const bool is_weighted = counts && a.class_weights != nullptr;
        __syncthreads();
        s.loss[threadIdx.x] = counts ? (double)a.row_loss[r] : 0.0;
        s.weight[threadIdx.x] = is_weighted ? (double)a.class_weights[a.targets[r]] : (double)counts;
        n_targets += counts, n_correct += counts && is_right(a, r);
        __syncthreads();
        if (threadIdx.x == 0)
            for (unsigned i = 0; i < blockDim.x; i++) loss += s.loss[i], weight += s.weight[i];
    }
    __syncthreads();
    atomicAdd(&s.n_targets, n_targets);
    atomicAdd(&s.n_correct, n_correct);
    __syncthreads();
    if (threadIdx.x > 0) return;
    a.sums->loss = loss, a.sums->weight = weight;
    a.sums->n_targets = s.n_targets, a.sums->n_correct = s.n_correct;
}

} // namespace

PS_KERNEL(fill, ps_fill_args)
PS_KERNEL(loss_sums, ps_loss_sums_args)
PS_KERNEL_TYPED(grad_stats, ps_grad_stats_args)
