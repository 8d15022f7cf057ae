/* sampler.h - from logits to the next token. */
#ifndef PSTAR_SAMPLER_H
#define PSTAR_SAMPLER_H

#include "patrickstar.h"

typedef struct sampler {
    double temperature; /* 0: the likeliest token, of equal ones the first */
    int64_t top_k;      /* only the likeliest so many; 0: all */
    uint64_t seed;
    int64_t V;      /* only the first so many logits are looked at */
    int32_t *order; /* [V] scratch */
} sampler;

PS_NODISCARD ps_status sampler_init(sampler *s, int64_t V, double temperature, int64_t top_k, uint64_t seed);
void sampler_deinit(sampler *s);

/* One of the tokens, drawn from softmax(logits / temperature) by the random word number `index` of the seed.
 * PS_ENUMERIC naming a logit that is not finite. */
PS_NODISCARD ps_status sampler_choose(sampler *s, const float *logits, int64_t index, int32_t *out);

#endif
