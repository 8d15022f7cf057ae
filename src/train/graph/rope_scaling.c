/* rope_scaling.c - frequencies theta^(-2 i / D), i < D / 2, changed for contexts longer than a model was trained on. In
 * double, rounded once; settings have the names of modeling_rope_utils.py of Hugging Face's transformers.
 *
 *   linear   all are divided by factor
 *   llama3   by the turns that a wave makes in the original context: below low_freq_factor divided, above
 *            high_freq_factor kept, in between a mixture of the two, linear in the turns
 *   yarn     the same with beta_slow and beta_fast (Peng et al. 2023), but the mixture is linear in i; vectors get
 *            longer by attention_factor, so that scores grow by its square */
#include "train/graph/rope_scaling.h"

#include <math.h>

#include "base/same_math.h"

bool ps_rope_is_sane(const ps_rope *o)
{
    if (!(o->theta > 0) || !isfinite(o->theta)) return false;
    if (o->scaling == PS_ROPE_UNSCALED) return true;
    if (!(o->factor > 0) || !isfinite(o->factor)) return false;
    if (o->scaling == PS_ROPE_LINEAR) return true;
    if (o->original_positions <= 0) return false;
    if (o->scaling == PS_ROPE_LLAMA3) return o->low_freq_factor > 0 && o->high_freq_factor > o->low_freq_factor;
    return o->theta != 1 && o->beta_slow > 0 && o->beta_fast > o->beta_slow && isfinite(o->beta_fast) &&
           o->attention_factor >= 0 && isfinite(o->attention_factor) && o->mscale >= 0 && isfinite(o->mscale) &&
           o->mscale_all_dim >= 0 && isfinite(o->mscale_all_dim);
}

/* ---- yarn ---- */

/* The index at which a wave makes so many turns in the original context. */
static double index_of_turns(const ps_rope *o, int64_t D, double turns)
{
    return (double)D * ps_same_log((double)o->original_positions / (turns * 2.0 * M_PI)) /
           (2.0 * ps_same_log(o->theta));
}

/* Frequencies up to index first are kept, from last on divided. */
typedef struct yarn_range {
    double first, last;
} yarn_range;

static yarn_range yarn_range_of(const ps_rope *o, int64_t D)
{
    yarn_range r = {index_of_turns(o, D, o->beta_fast), index_of_turns(o, D, o->beta_slow)};
    if (o->truncate) r = (yarn_range){floor(r.first), ceil(r.last)};
    r = (yarn_range){fmax(r.first, 0), fmin(r.last, (double)(D - 1))};
    if (r.first == r.last) r.last += 0.001;
    return r;
}

static double yarn_growth(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * ps_same_log(factor) + 1;
}

float ps_rope_scale(const ps_rope *o)
{
    if (o->scaling != PS_ROPE_YARN) return 1;
    if (o->attention_factor > 0) return (float)o->attention_factor;
    if (o->mscale > 0 && o->mscale_all_dim > 0)
        return (float)(yarn_growth(o->factor, o->mscale) / yarn_growth(o->factor, o->mscale_all_dim));
    return (float)yarn_growth(o->factor, 1);
}

/* ---- frequencies ---- */

static double between_0_and_1(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

void ps_rope_frequencies(const ps_rope *o, int64_t D, float *out)
{
    const yarn_range range = o->scaling == PS_ROPE_YARN ? yarn_range_of(o, D) : (yarn_range){0};
    for (int64_t i = 0; i < D / 2; i++) {
        const double f = ps_same_pow(o->theta, -2.0 * (double)i / (double)D);
        double kept = 1;
        if (o->scaling == PS_ROPE_LINEAR) kept = 0;
        if (o->scaling == PS_ROPE_LLAMA3) {
            const double turns = (double)o->original_positions * f / (2.0 * M_PI);
            kept = between_0_and_1((turns - o->low_freq_factor) / (o->high_freq_factor - o->low_freq_factor));
        }
        if (o->scaling == PS_ROPE_YARN)
            kept = 1 - between_0_and_1(((double)i - range.first) / (range.last - range.first));
        out[i] = (float)(kept == 1 ? f : kept == 0 ? f / o->factor : (1 - kept) * f / o->factor + kept * f);
    }
}
