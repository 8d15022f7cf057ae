/* mlm.h - masked language modelling: selects and replaces tokens (Devlin et al., "BERT", 2018, section 3.1).
 *
 * Each token that is not special is chosen with probability p (0.15). Of the chosen
 *     80 % become [MASK]     10 % any token of the vocabulary     10 % stay
 * and their targets are the original tokens; all other targets are -100. There is one difference to Hugging Face's
 * DataCollatorForLanguageModeling: when no token of a row is chosen, one is chosen uniformly, so that every row has a
 * target.
 *
 * The choice is a pure function of (seed, stream, position), so a row's mask does not depend on batch, rank or
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
