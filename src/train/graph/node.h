/* node.h - operators of the graph: their forward and backward on a backend.
 *
 * An operator is a ps_node_type. Its forward and backward fill kernel arguments from a ps_node_run and issue them
 * through ps_node_call. The run's mode is either to compute, or, with all pointers NULL, to measure scratch bytes and
 * costs. As both modes use the same two functions, the measured sizes are those of the run.
 *
 * Each type is in a file node_*.c with the builder's call that creates its nodes; all other code of graph/ is
 * independent of types. */
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

/* Arrays of a micro-batch, int32 each except the values, which are floats. */
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
    PS_RUN_MEASURE, /* compute nothing: largest workspace and total cost of the kernels that would run */
} ps_run_mode;

/* The targets of a batch that are not ignored. */
typedef struct ps_target_counts {
    int64_t n, n_even; /* n_even: those at even indices, where there are two a sequence */
    double weight;     /* the sum of their class weights; n without class weights */
} ps_target_counts;

typedef struct ps_node_run {
    ps_run_mode mode;
    ps_backend *backend;
    ps_queue *queue;
    ps_dtype dtype; /* of activations and parameters */
    int64_t B, T;
    const ps_node *node;
    const ps_node *fused; /* the fused second node (code.h), or NULL */

    void *x[PS_NODE_INPUTS], *y; /* inputs, output */
    void *between;               /* the value between node and fused, or NULL: not needed */
    float *saved[PS_NODE_SAVED]; /* row statistics kept from forward to backward */
    bool keeps_logits;           /* of the loss: backward reads them instead of recomputing them */
    float *logits;
    /* gradients; dx[i] may be the same memory as dy. A gradient that is not needed may be NULL where the type can skip
     * it; otherwise it has memory */
    void *dx[PS_NODE_INPUTS], *dy;
    bool wants_dx[PS_NODE_INPUTS], wants_dw[PS_NODE_PARAMS];
    bool accumulate_dx[PS_NODE_INPUTS];
    void *w[PS_NODE_PARAMS];  /* parameters */
    void *dw[PS_NODE_PARAMS]; /* their gradients */
    bool accumulate_dw;
    ps_dtype grad_dtype;
    const float *constants; /* those of the node, where kernels can read them */
    void *workspace;
    size_t workspace_bytes; /* COMPUTE: in, its size. MEASURE: out, the largest needed */

    const int32_t *batch[PS_BATCH_ARRAY_COUNT]; /* the mask may be NULL: no padding */
    bool training;                              /* dropout acts */
    ps_rng_key dropout_key;                     /* of this node in this micro-batch */
    ps_target_counts targets;
    float loss_scale; /* backward: factor of the derivatives of the targets' losses */
    /* 0: none. Otherwise incremental decoding: B is 1, T at most the program's, attention uses the KV cache */
    int64_t cache_positions;
    int64_t first;           /* position of the first token */
    void *k_cache, *v_cache; /* of this node [KV, cache_positions, D] */
    float *output;           /* inference: f32 logits or hidden states instead of the loss */
    int64_t output_row;      /* the requested one, -1: all */

    const ps_compute_throughput *throughput; /* MEASURE */
    ps_softmax_throughput softmax_throughput;
    double flops; /* out, MEASURE: sums over the calls */
    int64_t cost_ns;
} ps_node_run;

struct ps_node_type {
    const char *name;
    ps_status (*forward)(ps_node_run *r);
    ps_status (*backward)(ps_node_run *r);
    /* Columns of saved[i] per row of the node (0: none), of 4 bytes. */
    int64_t (*saved_cols)(const ps_node *n, int i); /* NULL: none */
    int64_t (*logits_count)(const ps_node *n);      /* floats to keep, where the code keeps logits; NULL: no logits */
    bool backward_reads_x, backward_reads_y;
    bool reads_x_for_weight; /* backward reads x only for the gradient of its first parameter */
    bool leaves_out;         /* backward skips dx and dw that are not needed */
    bool backward_reads_w[PS_NODE_PARAMS];
    /* The output may overwrite an input that no other node needs. */
    bool forward_in_place;
    /* backward may write dx[0] over dy; and may add to dx instead of overwriting it. */
    bool backward_in_place, backward_accumulates;
    /* d input = d output for every input: backward has no dx to compute (add, position embedding). */
    bool passes_gradient;
    bool is_users;             /* it calls functions of the program */
    bool takes_quantized;      /* its first parameter may be quantized: attr.linear.quant */
    bool gives_row_a_sequence; /* its output has B rows */
    bool is_embedding;         /* use_cpu_embedding keeps its parameter on the host */
    /* Fusing (fuse.h): it is a matrix multiplication with epilogues; or the epilogue that it can be itself: in forward
     * of the multiplication before it, in backward of the one after it, whose backward runs first. */
    bool takes_epilogue;
    ps_epilogue_kind epilogue, backward_epilogue;
    /* Or the pair that it begins, and the one that it ends; NONE. Backward of a pair runs as one if backward_pairs. */
    ps_pair_kind begins_pair, ends_pair;
    bool backward_pairs;
    /* For the type that begins it: do these two nodes have the pair's shapes? NULL: always. */
    bool (*pairs)(const ps_node *first, const ps_node *second);
    /* KV cache: columns of the keys, and of the values, for each position; NULL: none. */
    int64_t (*cached_cols)(const ps_node *n);
    /* Does it support incremental decoding to so many positions? PS_EINVAL with the reason when a row depends on later
     * tokens, or the text is too long for it; NULL: always. */
    ps_status (*continues)(const ps_program *p, const ps_node *n, int64_t positions);
};

/* Rows that the call computes. */
int64_t ps_node_rows(const ps_node_run *r);

/* Forward of a program's end in inference: its first input as floats, all rows or the requested one. */
ps_status ps_node_output(ps_node_run *r);

/* Run kernel `op` with its argument struct, or measure it: by the run's mode. */
#define ps_node_call(r, op, args_pointer)                                                                              \
    ((r)->mode == PS_RUN_COMPUTE ? ps_run_##op((r)->backend, (r)->queue, (args_pointer), (r)->workspace_bytes)         \
                                 : ps_node_measure((r), PS_OP_##op, (args_pointer)))

/* Add the kernel's scratch (the largest) and costs (the sum) to r. */
ps_status ps_node_measure(ps_node_run *r, ps_op op, const void *args);

#endif
