/* node.h - operators of the graph: how each runs forward and backward on a backend.
 *
 * An operator is a ps_node_type. Its forward and backward fill kernel arguments from a ps_node_run and issue them
 * through ps_node_call. The run's mode says what for: to compute, or, with all pointers NULL, to ask for scratch bytes
 * and costs. As both go through the same two functions, the sizes asked for are those of what is run.
 *
 * Each type stands in a file node_*.c with the builder's call that makes nodes of it; all else in graph/ asks the type,
 * and knows none by name. */
#ifndef PS_GRAPH_NODE_H
#define PS_GRAPH_NODE_H

#include "kernel/backend.h"
#include "kernel/softmax_cost.h"

typedef struct ps_node ps_node;
typedef struct ps_program ps_program;
typedef struct ps_node_type ps_node_type;

#define PS_NODE_INPUTS 3
#define PS_NODE_PARAMS 2
#define PS_NODE_SAVED 3

/* What comes with a micro-batch, int32 each but for the values, which are floats. */
typedef enum ps_batch_array {
    PS_BATCH_TOKENS,      /* [B T] */
    PS_BATCH_TARGETS,     /* [targets of the loss] */
    PS_BATCH_VALUES,      /* [targets of the loss] instead */
    PS_BATCH_MASK,        /* [B T] 0: padding */
    PS_BATCH_TOKEN_TYPES, /* [B T] */
    PS_BATCH_ARRAY_COUNT,
} ps_batch_array;

typedef enum ps_run_mode {
    PS_RUN_COMPUTE,
    PS_RUN_MEASURE, /* compute nothing: largest workspace and summed cost of the kernels that would run */
} ps_run_mode;

/* The targets of a batch that take part. */
typedef struct ps_target_counts {
    int64_t n, n_even; /* n_even: of those at even places, where there are two a sequence */
    double weight;     /* the sum of the weights of their classes; n where these have none */
} ps_target_counts;

typedef struct ps_node_run {
    ps_run_mode mode;
    ps_backend *backend;
    ps_queue *queue;
    ps_dtype dtype; /* of activations and parameters */
    int64_t B, T;
    const ps_node *node;
    const ps_node *fused; /* what else the instruction does (code.h), or NULL */

    void *x[PS_NODE_INPUTS], *y; /* inputs, output */
    void *between;               /* the value between node and fused, or NULL: not wanted */
    float *saved[PS_NODE_SAVED]; /* row statistics kept from forward to backward */
    bool keeps_logits;           /* of the loss: backward gets them instead of computing them again */
    float *logits;
    /* gradients; dx[i] may be the same memory as dy. What is not wanted may be NULL where the type can leave it out, else
     * it has memory all the same */
    void *dx[PS_NODE_INPUTS], *dy;
    bool wants_dx[PS_NODE_INPUTS], wants_dw[PS_NODE_PARAMS];
    bool accumulate_dx[PS_NODE_INPUTS];
    void *w[PS_NODE_PARAMS];  /* parameters */
    void *dw[PS_NODE_PARAMS]; /* their gradients */
    bool accumulate_dw;
    ps_dtype grad_dtype;
    const float *constants; /* those of the node, where kernels can read them */
    void *workspace;
    size_t workspace_bytes; /* COMPUTE: what it has. MEASURE: out, the largest that is wanted */

    const int32_t *batch[PS_BATCH_ARRAY_COUNT]; /* the mask may be NULL: no padding */
    bool training;                              /* dropout acts */
    ps_rng_key dropout_key;                     /* of this node in this micro-batch */
    ps_target_counts targets;
    float loss_scale; /* backward: what the derivatives of the losses of targets are multiplied by */
    /* 0: none. Else a text grows: B is 1, T any number up to the program's, attention keeps keys and values */
    int64_t cache_positions;
    int64_t first;           /* position of the first token */
    void *k_cache, *v_cache; /* of this node [KV, cache_positions, D] */
    float *output;           /* inference: f32 logits or hidden states instead of the loss */
    int64_t output_row;      /* the one wanted, -1: all */

    const ps_compute_rates *rates; /* MEASURE */
    ps_softmax_rates softmax_rates;
    double flops; /* out, MEASURE: sums over the calls */
    int64_t cost_ns;
} ps_node_run;

struct ps_node_type {
    const char *name;
    ps_status (*forward)(ps_node_run *r);
    ps_status (*backward)(ps_node_run *r);
    /* Columns of saved[i] per row of the node (0: none), of 4 bytes. */
    int64_t (*saved_cols)(const ps_node *n, int i); /* NULL: none */
    int64_t (*logits_count)(const ps_node *n);      /* floats to keep, where the code keeps logits; NULL: it has none */
    bool backward_reads_x, backward_reads_y;
    bool reads_x_for_weight; /* only for the gradient of its first parameter */
    bool leaves_out;         /* backward computes neither dx nor dw that are not wanted */
    bool backward_reads_w[PS_NODE_PARAMS];
    /* The output may lie over an input, when nobody else needs that. */
    bool forward_in_place;
    /* backward may write dx[0] over dy; and may add to dx instead of overwriting it. */
    bool backward_in_place, backward_accumulates;
    /* d input = d output for every input: backward has no dx to compute (add, position embedding). */
    bool passes_gradient;
    bool gives_row_a_sequence; /* its output has B rows, of whatever its input has */
    bool is_embedding;         /* its parameter is one of those that use_cpu_embedding keeps on the host */
    /* Fusing (fuse.h): it is a product that takes epilogues; or the epilogue that it can be itself, in forward of the
     * product before it, in backward of the product behind it, whose backward runs first. */
    bool takes_epilogue;
    ps_epilogue_kind epilogue, backward_epilogue;
    /* Or which pair it begins, and which it ends; NONE. Backward of a pair runs as one where backward_pairs. */
    ps_pair_kind begins_pair, ends_pair;
    bool backward_pairs;
    /* Of the type that begins it: are these two nodes of the pair's shapes? NULL: always. */
    bool (*pairs)(const ps_node *first, const ps_node *second);
    /* A text that grows: columns of the keys, and of the values, that it keeps for each position; NULL: none. */
    int64_t (*cached_cols)(const ps_node *n);
    /* Can a text of so many positions grow through it? PS_EINVAL, saying why, when a row depends on later tokens, or
     * the text is too long for it; NULL: always. */
    ps_status (*continues)(const ps_program *p, const ps_node *n, int64_t positions);
};

/* Rows that the call computes. */
int64_t ps_node_rows(const ps_node_run *r);

/* Forward of a program's end in inference: its first input as floats, all rows or the one wanted. */
ps_status ps_node_output(ps_node_run *r);

/* Run kernel `op` with its argument struct, or measure it: by the run's mode. */
#define ps_node_call(r, op, args_pointer)                                                                              \
    ((r)->mode == PS_RUN_COMPUTE ? ps_run_##op((r)->backend, (r)->queue, (args_pointer), (r)->workspace_bytes)         \
                                 : ps_node_measure((r), PS_OP_##op, (args_pointer)))

/* Add the kernel's scratch (the largest) and costs (the sum) to r. */
ps_status ps_node_measure(ps_node_run *r, ps_op op, const void *args);

#endif
