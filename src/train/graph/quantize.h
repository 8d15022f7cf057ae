/* quantize.h - parameters that are stored as records of base/quantized.h: weights of linear layers that are not trained.
 *
 * Embeddings, heads that compute the loss, norms and biases are not: other operators read them, and they are a small
 * part of a large model. Nor is a weight that is tied to one of these. */
#ifndef PS_GRAPH_QUANTIZE_H
#define PS_GRAPH_QUANTIZE_H

#include "train/graph/program.h"

/* Those of the parameters with may_be [p->n_params] that only linear layers read become quantized. Returns how many. */
int32_t ps_program_quantize(ps_program *p, ps_quant quant, const bool *may_be);

#endif
