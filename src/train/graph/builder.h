/* builder.h - what builder.c provides for the operators of node_*.c. */
#ifndef PS_GRAPH_BUILDER_H
#define PS_GRAPH_BUILDER_H

#include "base/name_index.h"
#include "train/graph/program.h"

#define PS_BUILDER_DEPTH_MAX 16
/* Limit for all parameters of a model, and for one value: sums of bytes over lists and operators stay far below
 * 2^63. */
#define PS_BUILDER_PARAMETERS_MAX ((int64_t)1 << 48)
#define PS_BUILDER_VALUE_MAX ((int64_t)1 << 42)

struct ps_builder {
    ps_program *program;
    ps_status failure;                         /* the first; later calls do nothing */
    char prefix[256];                          /* names of the open blocks, each with a dot */
    int32_t depth, checkpoint_depth;           /* open blocks; depth at which the open segment began, 0: none */
    size_t outer_prefix[PS_BUILDER_DEPTH_MAX]; /* length of the prefix around each open block */
    int32_t segment;                           /* number of the open segment */
    ps_name_index names;                       /* of the program's parameters */
    int64_t n_elements;                        /* of all parameters */
    double init_std;
    bool freezes;                      /* parameters declared now are not trained */
    const ps_adapter_choice *adapters; /* of the configuration; NULL: none */
    ps_adapter adapter;                /* of linear layers declared now; r 0: none */
    bool ended;                        /* by a loss or hidden states */
};

/* Record the first failure, PS_EINVAL; returns -1. */
__attribute__((format(printf, 2, 3))) ps_value ps_builder_refuse(ps_builder *b, const char *fmt, ...);

/* For a call that needs a name: false, and the builder refuses naming both, when it is NULL. False after any failure,
 * too. */
#define PS_BUILDER_NEEDS(b, name) ps_builder_is_named((b), __func__, #name, (name))
bool ps_builder_is_named(ps_builder *b, const char *call, const char *what, const char *name);

/* Is x a value of the model? Otherwise the builder refuses it in the name of `user`. False after any failure, too. */
bool ps_builder_is_value(ps_builder *b, ps_value x, const char *user);

int64_t ps_builder_cols(const ps_builder *b, ps_value x);

/* Is x a value with a row for every token, not one a sequence? Refuses likewise. */
bool ps_builder_is_sequence(ps_builder *b, ps_value x, const char *user);

/* Are x and y two different values of equal shape? Refuses likewise. */
bool ps_builder_are_alike(ps_builder *b, ps_value x, ps_value y, const char *user);

/* -1: not found. `name` is the full name. */
int32_t ps_builder_find_param(const ps_builder *b, const char *name);

/* Declare prefix + name + suffix; n_dims 1: a vector of `cols`, rows is 1. -1 on failure. */
int32_t ps_builder_add_param(ps_builder *b, const char *name, const char *suffix, int n_dims, int64_t rows,
                             int64_t cols, double mean, double std);

/* What a linear layer adds to x W + b, where it has an adapter; 0: none. Call it after its own parameters `w` and `bias`
 * (-1: none), which it freezes, are declared. */
ps_value ps_builder_adapt(ps_builder *b, ps_value x, const char *name, int64_t n_out, int32_t w, int32_t bias);

/* y = by x. */
ps_value ps_builder_scale(ps_builder *b, ps_value x, const char *name, float by);
/* A linear layer without bias or adapter, which is trained. Its weight [n_out, n_in] begins as begin->init_mean, init_std
 * and init_is_uniform say; begin NULL: at 0. */
ps_value ps_builder_plain_linear(ps_builder *b, ps_value x, const char *name, int64_t n_out, const ps_param *begin);

/* Append the node with the rows of its first input, or B T if it has none; its output has out_cols columns (0: no
 * output). Returns the output; -1 for none, and on failure, when the caller still owns node.constants. */
ps_value ps_builder_add_node(ps_builder *b, const char *name, ps_node node, int64_t out_cols);

#endif
