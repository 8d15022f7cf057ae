/* rope_scaling.h - rotary position embeddings of a ps_rope: frequencies, and the length of the rotated vectors. */
#ifndef PS_GRAPH_ROPE_SCALING_H
#define PS_GRAPH_ROPE_SCALING_H

#include <stdbool.h>
#include <stdint.h>

#include "patrickstar.h"

/* Are the parameters of its scaling within their bounds? */
bool ps_rope_is_sane(const ps_rope *o);

/* The D / 2 frequencies for heads of width D. */
void ps_rope_frequencies(const ps_rope *o, int64_t D, float *out);

/* The factor of cosines and sines, by which vectors get longer: 1 except for yarn. */
float ps_rope_scale(const ps_rope *o);

#endif
