/* Normal random numbers. Runs once for each parameter of a new model, so the functions of libm in double do; threads
 * share the work. */
#include <math.h>

#include "kernel/cpu/cpu_random.h"

/* Words [first, first + 64) of the sequence make the numbers of the same indices; lo, hi bound those wanted. */
static void fill_words(const ps_fill_args *a, int64_t first, int64_t lo, int64_t hi)
{
    uint32_t words[PS_RANDOM_WORDS];
    ps_random_words(words, a->key, (uint64_t)first / 4);
    for (int64_t i = first; i < first + PS_RANDOM_WORDS; i += 2) {
        if (i + 1 < lo || i >= hi) continue;
        const double u = 1.0 - (double)ps_rng_unit(words[i - first]);
        const double angle = 2.0 * 3.14159265358979323846 * (double)ps_rng_unit(words[i - first + 1]);
        const double radius = sqrt(-2.0 * log(u)), mean = (double)a->mean, std = (double)a->std;
        if (i >= lo) a->dst[i - a->first_index] = (float)(mean + std * (radius * cos(angle)));
        if (i + 1 >= lo && i + 1 < hi) a->dst[i + 1 - a->first_index] = (float)(mean + std * (radius * sin(angle)));
    }
}

ps_status PS_CPU_NAME(fill)(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_fill_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const int64_t lo = a->first_index, hi = lo + a->n;
    if (a->std == 0.0f) {
#pragma omp parallel for simd schedule(static) if (a->n >= PS_CPU_PARALLEL_MIN)
        for (int64_t i = 0; i < a->n; i++) a->dst[i] = a->mean;
        return PS_OK;
    }
    const int64_t begin = lo / PS_RANDOM_WORDS, end = ps_ceil_div(hi, PS_RANDOM_WORDS);
#pragma omp parallel for schedule(static) if (a->n >= 256)
    for (int64_t b = begin; b < end; b++) fill_words(a, b * PS_RANDOM_WORDS, lo, hi);
    return PS_OK;
}
