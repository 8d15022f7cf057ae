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

/* Blocks of words, counted from the one that has the first number. */
static void fill_blocks(const void *args, int64_t lo, int64_t hi)
{
    const ps_fill_args *const a = args;
    const int64_t begin = a->first_index / PS_RANDOM_WORDS;
    for (int64_t b = begin + lo; b < begin + hi; b++)
        fill_words(a, b * PS_RANDOM_WORDS, a->first_index, a->first_index + a->n);
}

static void fill_constant(const void *args, int64_t lo, int64_t hi)
{
    const ps_fill_args *const a = args;
    for (int64_t i = lo; i < hi; i++) a->dst[i] = a->mean;
}

ps_status PS_CPU_NAME(fill)(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_fill_args *const a = args;
    (void)queue, (void)workspace_bytes;
    const int64_t begin = a->first_index / PS_RANDOM_WORDS, end = ps_ceil_div(a->first_index + a->n, PS_RANDOM_WORDS);
    if (a->std == 0.0f)
        ps_cpu_for_blocks(self, a->n, fill_constant, a);
    else
        ps_cpu_pool_run_range(ps_cpu_of(self)->pool, end - begin, 1, 4, fill_blocks, a);
    return PS_OK;
}
