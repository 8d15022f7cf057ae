/* program.h - a model as a program: what the builder recorded.
 *
 * Values are activations [rows, cols], rows = B T or, after a pool, B, each the output of one node. Nodes are in the
 * order of the forward pass. code.h makes the instructions of a training step of a program. */
#ifndef PS_GRAPH_PROGRAM_H
#define PS_GRAPH_PROGRAM_H

#include "base/base.h"
#include "train/graph/adapter.h"
#include "train/graph/node.h"

typedef struct ps_param {
    char *name;
    int n_dims;
    int64_t shape[2];
    int64_t elements;
    double init_mean, init_std;
    bool init_is_uniform; /* within init_std of init_mean; otherwise normal */
    int32_t group;        /* number of its parameter group; 0: the default */
    bool is_frozen;       /* not trained: no gradient, no state of an optimizer */
    bool is_left_out;     /* of files: it is the base's, with adapters of the configuration */
    bool is_whole;        /* the optimizer updates it as a whole (ps_optimizer_has_whole), a matrix of shape */
    ps_quant quant;       /* it is stored so: ps_program_quantize */
} ps_param;

typedef struct ps_value_info {
    int64_t rows, cols;
    int32_t maker;     /* node */
    int32_t n_readers; /* nodes with it as an input */
} ps_value_info;

struct ps_node {
    const ps_node_type *type;
    char *label;                    /* "h.0.mlp.c_fc" */
    int32_t inputs[PS_NODE_INPUTS]; /* values, -1: none */
    int32_t output;                 /* value, -1: none, at the end of the program */
    int32_t params[PS_NODE_PARAMS]; /* -1: none */
    int32_t segment;                /* checkpoint segment (ps_begin_block), -1: outside */
    int64_t rows;                   /* of the inputs; only a pool has fewer in its output */
    int64_t n_in, n_out;            /* columns */
    unsigned reads_batch;           /* 1 << ps_batch_array, for all it may read */
    float *constants;               /* owned; frequencies of a rope, class weights of a loss, else NULL */
    int64_t n_constants;
    union {
        struct {
            ps_weight_layout layout;
            ps_quant quant; /* of its weight */
        } linear;
        struct {
            float eps;
            int64_t group; /* columns normalised together */
        } norm;
        struct {
            ps_gelu_kind kind;
        } gelu;
        struct {
            float p;
        } dropout;
        struct {
            float by;
        } scale;
        struct {
            int64_t H, KV, D;
            int64_t window;
            bool packed; /* one input [q | k | v] instead of three */
            bool causal;
            float dropout_p;
        } attention;
        struct {
            int64_t D;
            float scale;
        } rope;
        struct {
            ps_pool_kind kind;
        } pool;
        struct {
            ps_own_operator op;
            int64_t x_columns[PS_OWN_INPUTS_MAX], saved_columns[PS_OWN_SAVED_MAX];
            int64_t w_elements[PS_OWN_PARAMETERS_MAX];
            int64_t options[PS_OWN_OPTIONS_BYTES_MAX / 8];
        } own;
        struct {
            int64_t n;          /* rows of an embedding */
            ps_batch_array ids; /* the array with their indices */
        } table;
        struct {
            int64_t n;                /* columns of the input of the loss: classes, values a row */
            ps_batch_array targets;   /* their array: targets, or values */
            ps_values_loss_kind kind; /* of values */
            ps_loss_terms terms;      /* of a cross-entropy; its class_weights are the node's constants */
        } loss;
    } attr;
};

struct ps_program {
    int64_t B, T;
    ps_param *params;
    int32_t n_params;
    ps_value_info *values; /* from 1 on: 0 stands for an unset member of a structure */
    int32_t n_values;      /* including 0 */
    ps_node *nodes;
    int32_t n_nodes;
    int32_t n_segments;
    bool has_loss;               /* false: it ends with hidden states, for inference only */
    int64_t n_outputs;           /* outputs for each row of the end: classes of the loss, or columns */
    int64_t n_rows;              /* of the end: B T, or B for a classifier */
    int64_t n_targets;           /* of the loss: n_rows, times the outputs for values, or two a sequence */
    ps_batch_array target_array; /* their array: targets, or values */
    int64_t n_target_classes;    /* targets that are class indices are below it */
    int64_t n_input_tokens;      /* rows of the smallest token embedding */
    int64_t n_types;             /* of the smallest token type embedding, INT64_MAX: none */
};

/* Elements of the program's type whose bytes the parameter takes in PARAM16: its own, or those of its records. */
static inline int64_t ps_param_stored_elements(const ps_param *p, ps_dtype dtype)
{
    if (p->quant == PS_QUANT_NONE) return p->elements;
    return ps_item_bytes(ps_quant_item(p->quant), p->elements) / (int64_t)ps_dtype_bytes(dtype);
}

/* Is w a parameter, and trained? -1 is none. */
static inline bool ps_program_trains(const ps_program *p, int32_t w)
{
    return w >= 0 && !p->params[w].is_frozen;
}

/* Counts for a micro-batch of the program's loss, in the order of targets, as loss_sums adds them up. Zeros where the
 * batch has no targets, or no values. */
ps_target_counts ps_program_count_targets(const ps_program *p, const ps_batch *batch);

/* Run the model function for micro-batches of [B, T]. adapters (NULL: none): the configuration's, which also decide what
 * is trained. The first failure of a builder call is the result. */
PS_NODISCARD ps_status ps_program_build(ps_model_func model, void *user, const ps_adapter_choice *adapters, int64_t B,
                                        int64_t T, ps_program **out);
void ps_program_destroy(ps_program *p); /* NULL is accepted */

#endif
