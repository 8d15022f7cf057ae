/* Sum of squares in double. The array is cut in a fixed number of parts whose sums are added in order, so the result
 * depends on n alone, not on the threads. */
#include "kernel/cpu/cpu_vec.h"

#define STATS_PARTS 128

typedef struct stats_part {
    double sum;
    int64_t n_nonfinite;
} stats_part;

PS_CPU_INLINE void stats_range(ps_dtype t, const ps_grad_stats_args *a, int64_t lo, int64_t hi, stats_part *out)
{
    double sum[VF_LANES] = {0};
    vi finite = {0};
    int64_t n_finite = 0;
    for (int64_t i = lo; i < hi;) {
        /* blocks, so that the 32-bit counters cannot overflow */
        const int64_t end = ps_min_i64(hi, i + PS_CPU_BLOCK);
        finite = (vi){0};
        for (; i < end; i += VF_LANES) {
            const vf x = vf_get(t, a->x, i, end - i);
            const vi good = ((vi)x & 0x7f800000) != 0x7f800000;
            const vf kept = (vf)((vi)x & good);
            finite -= good;
            for (int l = 0; l < VF_LANES; l++) sum[l] += (double)kept[l] * (double)kept[l];
        }
        for (int l = 0; l < VF_LANES; l++) n_finite += finite[l];
        /* lanes beyond the end were read as zero, which is finite */
        n_finite -= i - end;
        i = end;
    }
    for (int half = VF_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    out->sum = sum[0];
    out->n_nonfinite = (hi - lo) - n_finite;
}

ps_status PS_CPU_NAME(grad_stats)(ps_stream *s, const ps_grad_stats_args *a)
{
    (void)s;
    stats_part parts[STATS_PARTS];
    const int64_t n_vectors = ps_ceil_div(a->n, VF_LANES);
#pragma omp parallel for schedule(static) if (a->n >= PS_CPU_PARALLEL_MIN)
    for (int p = 0; p < STATS_PARTS; p++) {
        const int64_t lo = ps_min_i64(a->n, n_vectors * p / STATS_PARTS * VF_LANES);
        const int64_t hi = ps_min_i64(a->n, n_vectors * (p + 1) / STATS_PARTS * VF_LANES);
#define CALL(t) stats_range(t, a, lo, hi, &parts[p])
        PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
    }
    *a->sum_squares = 0.0, *a->n_nonfinite = 0;
    for (int p = 0; p < STATS_PARTS; p++) {
        *a->sum_squares += parts[p].sum;
        *a->n_nonfinite += parts[p].n_nonfinite;
    }
    return PS_OK;
}
