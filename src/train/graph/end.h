/* end.h - shared by the nodes that end programs (node_end.c, node_head_loss.c). */
#ifndef PS_GRAPH_END_H
#define PS_GRAPH_END_H

#include "train/graph/builder.h"

/* y [rows, n] = x w^T + b in float, with the node's parameters; attr.loss.n is n. */
PS_NODISCARD ps_status ps_end_logits(ps_node_run *r, float *y, const void *x, int64_t rows);
/* The same as the result of inference, for all rows or the requested one. */
PS_NODISCARD ps_status ps_end_output(ps_node_run *r);

/* The parameter `name` if it is declared, else a new one; -1 when its shape differs. */
int32_t ps_end_param(ps_builder *b, const char *name, int n_dims, int64_t rows, int64_t cols, double std);

/* End the program with the node, whose type, inputs, constants (ownership passes, also on failure) and attr.loss are
 * set: a linear layer with `weight` and perhaps `bias`, and its loss, with a target for each row. */
void ps_end_with_loss(ps_builder *b, const char *name, ps_node node, const char *weight, const char *bias);

#endif
