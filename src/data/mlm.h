/* mlm.h - masked language modelling: which tokens are hidden, and by what (Devlin et al., "BERT", 2018, section 3.1).
 *
 * Each token that is not special is chosen with probability p (0.15). Of the chosen
 *     80 % become [MASK]     10 % any token of the vocabulary     10 % stay
 * and their targets are the tokens they were; all other targets are -100. Differs from Hugging Face's
 * DataCollatorForLanguageModeling in one case: where chance chooses none of a row, one token is chosen evenly, so that
 * no row is without a target.
 *
 * The draw is a pure function of (seed, stream, position): a row's mask does not depend on its batch, rank or
 * thread. */
#ifndef PS_DATA_MLM_H
#define PS_DATA_MLM_H

#include <stdint.h>

#include "base/rng.h"
#include "data/sample.h"

/* Mask tokens[n] in place and fill targets[n]. specials->mask >= 0; random tokens are drawn from 0 .. n_vocabulary
 * - 1. */
void ps_mlm_mask(const ps_specials *specials, int32_t n_vocabulary, double probability, ps_rng_key key, int64_t n,
                 int32_t *tokens, int32_t *targets);

#endif
