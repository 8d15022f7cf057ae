/* cuda_stats.cu - sums over whole arrays: gradient statistics, losses, and filling with random numbers. */
#include "kernel/cuda/cuda_random.cuh"

namespace
{

constexpr double pi = 3.14159265358979323846;

/* As ref_fill.c. */
__device__ inline float normal_at(const ps_fill_args &a, uint64_t index)
{
    const uint64_t pair = index / 2;
    const double u = 1.0 - (double)((float)(random_word(a.key, 2 * pair) >> 8) * 0x1p-24f);
    const double angle = 2.0 * pi * (double)((float)(random_word(a.key, 2 * pair + 1) >> 8) * 0x1p-24f);
    const double z = sqrt(-2.0 * log(u)) * (index % 2 == 0 ? cos(angle) : sin(angle));
    return (float)((double)a.mean + (double)a.std * z);
}

struct fill_at {
    const ps_fill_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        a.dst[i] = a.std == 0.0f ? a.mean : normal_at(a, (uint64_t)(a.first_index + i));
    }
};

__device__ inline void fill(const ps_fill_args &a)
{
    for_each<1>(a.n, false, fill_at{a});
}

/* ---- gradient statistics ---- */

constexpr int stats_warps = PS_CUDA_THREADS_grad_stats / PS_CUDA_WARP;

/* Of a block of the grid, which goes through several blocks of elements. */
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

template <typename T> __device__ inline double squares_of_thread(const T *x, int64_t n, int *n_nonfinite)
{
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = to_float(x[i]);
        if (fabsf(v) < PS_INFINITY)
            sum += (double)v * (double)v;
        else
            ++*n_nonfinite;
    }
    return sum;
}

/* Digits and counts are integers: atomics add them in any order to the same. */
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

/* ---- losses: added in the order of rows by one thread, which the others bring them to ---- */

struct loss_shared {
    double loss[PS_CUDA_THREADS_loss_sums];
    int n_targets, n_correct;
};

__device__ inline void loss_sums(const ps_loss_sums_args &a)
{
    PS_SHARED(loss_shared, s);
    double loss = 0.0;
    int n_targets = 0, n_correct = 0;
    if (threadIdx.x == 0) s.n_targets = s.n_correct = 0;
    for (int64_t first = 0; first < a.rows; first += blockDim.x) {
        const int64_t r = first + threadIdx.x;
        const bool counts = r < a.rows && a.targets[r] != PS_IGNORE_INDEX;
        __syncthreads();
        s.loss[threadIdx.x] = counts ? (double)a.row_loss[r] : 0.0;
        n_targets += counts, n_correct += counts && a.predicted[r] == a.targets[r];
        __syncthreads();
        if (threadIdx.x == 0)
            for (unsigned i = 0; i < blockDim.x; i++) loss += s.loss[i];
    }
    __syncthreads();
    atomicAdd(&s.n_targets, n_targets);
    atomicAdd(&s.n_correct, n_correct);
    __syncthreads();
    if (threadIdx.x > 0) return;
    a.sums->loss = loss, a.sums->n_targets = s.n_targets, a.sums->n_correct = s.n_correct;
}

} // namespace

PS_KERNEL(fill, ps_fill_args)
PS_KERNEL(loss_sums, ps_loss_sums_args)
PS_KERNEL_TYPED(grad_stats, ps_grad_stats_args)
