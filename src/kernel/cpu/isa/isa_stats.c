/* Sums of squares in double, a block of elements each, whatever the threads. */
#include "kernel/cpu/cpu_vec.h"

/* Returns how many are not finite. */
PS_CPU_INLINE int64_t stats_range(ps_dtype t, const ps_grad_stats_args *a, int64_t lo, int64_t hi, double *out)
{
    double sum[VF_LANES] = {0};
    vi finite = {0};
    int64_t n_finite = 0;
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const vf x = vf_get(t, a->x, i, hi - i);
        const vi good = ((vi)x & 0x7f800000) != 0x7f800000;
        const vf kept = (vf)((vi)x & good);
        finite -= good;
        for (int l = 0; l < VF_LANES; l++) sum[l] += (double)kept[l] * (double)kept[l];
    }
    for (int l = 0; l < VF_LANES; l++) n_finite += finite[l];
    for (int half = VF_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    *out = sum[0];
    /* lanes beyond the end were read as zero, which is finite */
    return ps_round_up(hi - lo, VF_LANES) - n_finite;
}

ps_status PS_CPU_NAME(grad_stats)(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_grad_stats_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const int64_t n_blocks = ps_ceil_div(a->n, PS_GRAD_STATS_BLOCK);
    int64_t n_nonfinite = 0;
#pragma omp parallel for schedule(static) reduction(+ : n_nonfinite) if (a->n >= PS_CPU_PARALLEL_MIN)
    for (int64_t b = 0; b < n_blocks; b++) {
        const int64_t lo = b * PS_GRAD_STATS_BLOCK, hi = ps_min_i64(a->n, lo + PS_GRAD_STATS_BLOCK);
        int64_t bad = 0;
#define CALL(t) bad = stats_range(t, a, lo, hi, &a->sum_squares[b])
        PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
        n_nonfinite += bad;
    }
    *a->n_nonfinite = n_nonfinite;
    return PS_OK;
}
