/* Sums of squares in double per block of elements, independent of the number of threads. */
#include <stdatomic.h>

#include "kernel/cpu/cpu_vec.h"

/* Element i is added to number i mod VF_SUM of so many sums (cpu_vec.h), which are folded by halves. */
PS_CPU_INLINE double stats_fold(double sum[VF_SUM])
{
    for (int half = VF_SUM / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    return sum[0];
}

/* Half of the lanes as doubles. */
typedef double stats_wide __attribute__((vector_size(VF_LANES * 4)));

/* sums += x x, of the lower lanes and of the upper ones. The square of a float is exact in double: one rounding or two
 * are the same. */
PS_CPU_INLINE void stats_add_squares(stats_wide sum[2], vf x)
{
#if defined(PS_VEC_AVX512)
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    sum[0] = _mm512_fmadd_pd(low, low, sum[0]);
    sum[1] = _mm512_fmadd_pd(high, high, sum[1]);
#elif defined(PS_VEC_AVX2)
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    sum[0] = _mm256_fmadd_pd(low, low, sum[0]);
    sum[1] = _mm256_fmadd_pd(high, high, sum[1]);
#else
    for (int half = 0; half < 2; half++)
        for (int l = 0; l < VF_LANES / 2; l++) {
            const double v = (double)x[half * (VF_LANES / 2) + l];
            sum[half][l] += v * v;
        }
#endif
}

/* A page: hardware fetches ahead within one only. Found by trial on Emerald Rapids (2 KiB .. 8 KiB are alike). */
#define STATS_AHEAD_BYTES 4096

/* Squares of floats do not overflow in double, so the sum is finite if all elements are. */
PS_CPU_INLINE double stats_sum(ps_dtype t, const void *x, int64_t lo, int64_t hi)
{
    stats_wide sum[2 * VF_SUMS] = {{0}};
    for (int64_t i0 = lo; i0 < hi; i0 += VF_SUM) {
        __builtin_prefetch((const char *)x + i0 * (int64_t)ps_dtype_bytes(t) + STATS_AHEAD_BYTES);
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t i = i0 + s * VF_LANES;
            stats_add_squares(sum + 2 * s, vf_get(t, x, i, hi - i));
        }
    }
    double lanes[VF_SUM];
    memcpy(lanes, sum, sizeof lanes);
    return stats_fold(lanes);
}

/* The sum over those that are finite. Returns how many are not. */
static int64_t stats_nonfinite(ps_dtype t, const void *x, int64_t lo, int64_t hi, double *out)
{
    double sum[VF_SUM] = {0};
    int64_t n = 0;
    for (int64_t i = lo; i < hi; i++) {
        const double v = (double)ps_dtype_load(t, x, i);
        if (isfinite(v))
            sum[(i - lo) % VF_SUM] += v * v;
        else
            n++;
    }
    *out = stats_fold(sum);
    return n;
}

/* Returns how many are not finite. */
PS_CPU_INLINE int64_t stats_range(ps_dtype t, const ps_grad_stats_args *a, int64_t lo, int64_t hi, double *out)
{
    *out = stats_sum(t, a->x, lo, hi);
    return isfinite(*out) ? 0 : stats_nonfinite(t, a->x, lo, hi, out);
}

#define STATS_BLOCKS 512 /* whose sums are kept at once */

typedef struct stats_work {
    const ps_grad_stats_args *a;
    int64_t first; /* block */
    double sums[STATS_BLOCKS];
    _Atomic int64_t n_nonfinite;
} stats_work;

/* Blocks from first + lo on. */
static void stats_blocks(const void *args, int64_t lo, int64_t hi)
{
    stats_work *const w = *(stats_work *const *)args;
    const ps_grad_stats_args *const a = w->a;
    int64_t n_nonfinite = 0;
    for (int64_t b = lo; b < hi; b++) {
        const int64_t begin = (w->first + b) * PS_GRAD_STATS_BLOCK;
        const int64_t end = ps_min_i64(a->n, begin + PS_GRAD_STATS_BLOCK);
#define CALL(t) n_nonfinite += stats_range(t, a, begin, end, &w->sums[b])
        PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
    }
    if (n_nonfinite > 0) atomic_fetch_add(&w->n_nonfinite, n_nonfinite);
}

static ps_status grad_stats(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_grad_stats_args *const a = args;
    stats_work work = {.a = a}, *const at = &work;
    const int64_t n_blocks = ps_ceil_div(a->n, PS_GRAD_STATS_BLOCK);
    (void)queue, (void)workspace_bytes;
    for (; work.first < n_blocks; work.first += STATS_BLOCKS) {
        const int64_t n_now = ps_min_i64(n_blocks - work.first, STATS_BLOCKS);
        ps_cpu_for_rows(self, n_now, PS_GRAD_STATS_BLOCK, stats_blocks, &at);
        for (int64_t b = 0; b < n_now; b++) ps_exact_sum_add(&a->sums->sum_squares, work.sums[b]);
    }
    if (work.n_nonfinite > 0) ps_grad_sums_count(a->sums, work.n_nonfinite, a->tensor);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(grad_stats) = {.run = grad_stats};
