/* end.h - what the ends of programs share (node_end.c, node_head_loss.c). */
#ifndef PS_GRAPH_END_H
#define PS_GRAPH_END_H

#include "graph/builder.h"

/* y [rows, n] = x w^T + b in float, of the node's parameters; attr.loss.n is n. */
PS_NODISCARD ps_status ps_end_logits(ps_node_run *r, float *y, const void *x, int64_t rows);
/* The same as the result of inference, of all rows or the one that is wanted. */
PS_NODISCARD ps_status ps_end_output(ps_node_run *r);

/* The parameter `name` if it is declared, else a new one; -1 when its shape is another. */
int32_t ps_end_param(ps_builder *b, const char *name, int n_dims, int64_t rows, int64_t cols, double std);

/* End the program with the node, whose type, inputs, constants (which it takes, also on failure) and attr.loss are
 * set: a product with `weight` and perhaps `bias`, and a loss of it, with a target for each row. */
void ps_end_with_loss(ps_builder *b, const char *name, ps_node node, const char *weight, const char *bias);

#endif
