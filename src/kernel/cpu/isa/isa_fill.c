/* Random numbers for initial weights, which limit the time of creating a model. Without FMA and functions of the
 * C library, so that a seed gives the same weights on every CPU. */
#include "kernel/cpu/cpu_random.h"
#include "kernel/cpu/cpu_vec.h"

static void fill_uniform(const ps_fill_args *a, const uint32_t words[PS_RANDOM_WORDS], float out[PS_RANDOM_WORDS])
{
    for (int i = 0; i < PS_RANDOM_WORDS; i++) out[i] = ps_rng_unit(words[i]);
    for (int i = 0; i < PS_RANDOM_WORDS; i += VF_LANES)
        vf_store(out + i, a->std * (2.0f * vf_load(out + i) - 1.0f) + a->mean);
}

/* Numbers [first, first + 64) from the words of the same indices. */
static void fill_numbers(const ps_fill_args *a, int64_t first, float out[PS_RANDOM_WORDS])
{
    enum { PAIRS = PS_RANDOM_WORDS / 2 };
    uint32_t words[PS_RANDOM_WORDS];
    float x[PAIRS], y[PAIRS];
    ps_random_words(words, a->key, (uint64_t)first / 4);
    if (a->is_uniform) {
        fill_uniform(a, words, out);
        return;
    }
    for (int i = 0; i < PAIRS; i++) x[i] = ps_rng_unit(words[2 * i]), y[i] = ps_rng_unit(words[2 * i + 1]);
    for (int i = 0; i < PAIRS; i += VF_LANES) {
        vf cosine, sine;
        vf_cos_sin_turns(vf_load(y + i), &cosine, &sine);
        const vf radius = vf_sqrt(-2.0f * vf_log(1.0f - vf_load(x + i)));
        vf_store(x + i, a->std * (radius * cosine) + a->mean);
        vf_store(y + i, a->std * (radius * sine) + a->mean);
    }
    for (int i = 0; i < PAIRS; i++) out[2 * i] = x[i], out[2 * i + 1] = y[i];
}

/* Store the numbers of [first, first + 64) that are in [lo, hi). */
static void fill_words(const ps_fill_args *a, int64_t first, int64_t lo, int64_t hi)
{
    float *const dst = a->dst + (first - a->first_index);
    if (first >= lo && first + PS_RANDOM_WORDS <= hi) {
        fill_numbers(a, first, dst);
        return;
    }
    float numbers[PS_RANDOM_WORDS];
    fill_numbers(a, first, numbers);
    for (int64_t i = ps_max_i64(first, lo); i < ps_min_i64(first + PS_RANDOM_WORDS, hi); i++)
        dst[i - first] = numbers[i - first];
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

static ps_status fill(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
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

const ps_kernel PS_CPU_NAME(fill) = {.run = fill};
