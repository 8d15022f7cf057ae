/* rope_scaling.h - what a ps_rope makes of positions: frequencies, and the length of the vectors that are turned. */
#ifndef PS_GRAPH_ROPE_SCALING_H
#define PS_GRAPH_ROPE_SCALING_H

#include <stdbool.h>
#include <stdint.h>

#include "patrickstar.h"

/* Are the numbers that its scaling uses within their bounds? */
bool ps_rope_is_sane(const ps_rope *o);

/* The D / 2 frequencies for heads of width D. */
void ps_rope_frequencies(const ps_rope *o, int64_t D, float *out);

/* The factor of cosines and sines, by which vectors get longer: 1 but for yarn. */
float ps_rope_scale(const ps_rope *o);

#endif
