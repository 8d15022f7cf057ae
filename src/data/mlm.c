#include "data/mlm.h"

#include "base/base.h"

/* Uniform in 0 .. n - 1 from a random word; the bias is below n / 2^32 (Lemire, "Fast random integer generation in an
 * interval", 2019, without its rejection). */
static int32_t below(uint32_t word, int32_t n)
{
    return (int32_t)((uint64_t)word * (uint64_t)n >> 32);
}

/* Replace one token; words 1 and 2 of its random block decide how. */
static int32_t replace(int32_t token, const uint32_t words[4], int32_t mask, int32_t n_vocabulary)
{
    const double u = (double)words[1] * 0x1p-32;
    if (u < 0.8) return mask;
    return u < 0.9 ? below(words[2], n_vocabulary) : token;
}

void ps_mlm_mask(const ps_specials *specials, int32_t n_vocabulary, double probability, ps_rng_key key, int64_t n,
                 int32_t *tokens, int32_t *targets)
{
    PS_ASSERT(specials->mask >= 0 && n_vocabulary > 0);
    int64_t n_text = 0, n_chosen = 0;
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) {
        targets[i] = PS_IGNORE_INDEX;
        if (ps_specials_contain(specials, tokens[i])) continue;
        n_text++;
        ps_rng_block(key, (uint64_t)i, words);
        if ((double)words[0] * 0x1p-32 >= probability) continue;
        n_chosen++;
        targets[i] = tokens[i];
        tokens[i] = replace(tokens[i], words, specials->mask, n_vocabulary);
    }
    if (n_chosen > 0 || n_text == 0) return;
    ps_rng_block(key, (uint64_t)n, words);
    int64_t which = below(words[0], (int32_t)n_text);
    for (int64_t i = 0; i < n; i++) {
        if (ps_specials_contain(specials, tokens[i]) || which-- > 0) continue;
        targets[i] = tokens[i];
        tokens[i] = replace(tokens[i], words, specials->mask, n_vocabulary);
        return;
    }
}
