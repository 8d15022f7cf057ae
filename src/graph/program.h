/* program.h - a model as a program: what the builder recorded.
 *
 * Values are activations [rows, cols], rows = B T, each made by one node. Nodes are in the order of the forward pass.
 * plan.h turns a program into the instructions of a training step. */
#ifndef PS_GRAPH_PROGRAM_H
#define PS_GRAPH_PROGRAM_H

#include "base/base.h"
#include "graph/node.h"

typedef struct ps_param {
    char *name;
    int n_dims;
    int64_t shape[2];
    int64_t elements;
    double init_mean, init_std;
} ps_param;

typedef struct ps_value_info {
    int64_t cols;
    int32_t maker;     /* node */
    int32_t n_readers; /* nodes that take it as an input */
} ps_value_info;

#define PS_NODE_INPUTS 2
#define PS_NODE_PARAMS 2
#define PS_NODE_SAVED 2

struct ps_node {
    const ps_node_type *type;
    char *label;                    /* "h.0.mlp.c_fc" */
    int32_t inputs[PS_NODE_INPUTS]; /* values, -1: none */
    int32_t output;                 /* value, -1: the loss */
    int32_t params[PS_NODE_PARAMS]; /* -1: none */
    int32_t segment;                /* checkpoint segment, -1: outside */
    int64_t n_in, n_out;            /* columns */
    union {
        struct {
            ps_weight_layout layout;
        } linear;
        struct {
            float eps;
        } layer_norm;
        struct {
            ps_gelu_kind kind;
        } gelu;
        struct {
            float p;
        } dropout;
        struct {
            int64_t n_heads;
            bool causal;
            float dropout_p;
        } attention;
        struct {
            int64_t n;
        } table; /* rows of an embedding: tokens or positions */
    } attr;
};

typedef struct ps_program {
    int64_t B, T;
    ps_param *params;
    int32_t n_params, param_capacity;
    ps_value_info *values;
    int32_t n_values, value_capacity;
    ps_node *nodes;
    int32_t n_nodes, node_capacity;
    int32_t n_segments;
    int64_t n_tokens;       /* vocabulary of the loss */
    int64_t n_input_tokens; /* rows of the smallest token embedding */
} ps_program;

/* Run the model function for micro-batches of [B, T]. The first failure of a builder call is the result. */
PS_NODISCARD ps_status ps_program_build(ps_model_func model, void *user, int64_t B, int64_t T, ps_program **out);
void ps_program_destroy(ps_program *p); /* NULL is accepted */

#endif
