/* Sums of squares in double, a block of elements each, whatever the threads. */
#include <stdatomic.h>

#include "kernel/cpu/cpu_vec.h"

/* Returns how many are not finite. */
PS_CPU_INLINE int64_t stats_range(ps_dtype t, const ps_grad_stats_args *a, int64_t lo, int64_t hi, double *out)
{
    double sum[VF_SUM] = {0};
    vi finite = {0};
    int64_t n_finite = 0;
    for (int64_t i0 = lo; i0 < hi; i0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t i = i0 + s * VF_LANES;
            const vf x = vf_get(t, a->x, i, hi - i);
            const vi good = ((vi)x & 0x7f800000) != 0x7f800000;
            const vf kept = (vf)((vi)x & good);
            finite -= good;
            for (int l = 0; l < VF_LANES; l++) sum[s * VF_LANES + l] += (double)kept[l] * (double)kept[l];
        }
    for (int l = 0; l < VF_LANES; l++) n_finite += finite[l];
    for (int half = VF_SUM / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    *out = sum[0];
    /* lanes beyond the end were read as zero, which is finite */
    return ps_round_up(hi - lo, VF_SUM) - n_finite;
}

typedef struct stats_work {
    const ps_grad_stats_args *a;
    _Atomic int64_t n_nonfinite;
} stats_work;

static void stats_blocks(const void *args, int64_t lo, int64_t hi)
{
    stats_work *const w = *(stats_work *const *)args;
    const ps_grad_stats_args *const a = w->a;
    int64_t n_nonfinite = 0;
    for (int64_t b = lo; b < hi; b++) {
        const int64_t begin = b * PS_GRAD_STATS_BLOCK, end = ps_min_i64(a->n, begin + PS_GRAD_STATS_BLOCK);
#define CALL(t) n_nonfinite += stats_range(t, a, begin, end, &a->sum_squares[b])
        PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
    }
    if (n_nonfinite > 0) atomic_fetch_add(&w->n_nonfinite, n_nonfinite);
}

ps_status PS_CPU_NAME(grad_stats)(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    stats_work work = {.a = args}, *const at = &work;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_rows(self, ps_ceil_div(work.a->n, PS_GRAD_STATS_BLOCK), PS_GRAD_STATS_BLOCK, stats_blocks, &at);
    *work.a->n_nonfinite = work.n_nonfinite;
    return PS_OK;
}
