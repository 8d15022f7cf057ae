/* patrickstar_own.h - custom operators and losses in models of patrickstar.h. */
#ifndef PATRICKSTAR_OWN_H
#define PATRICKSTAR_OWN_H

#include "patrickstar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A custom operator is a set of functions of the program; the library plans, offloads and runs it like its own
 * operators. It has up to three inputs of equal rows, which are activations; one output; up to two parameters; and
 * statistics of each row that forward keeps for backward. examples/own_operator.c and examples/own_loss.c are complete
 * programs.
 *
 * The functions must be pure: outputs depend on inputs only, not on the addresses of arrays, so that a step has the
 * same bits with any budgets, and when a block is recomputed (activation checkpointing). A thread of the engine calls
 * them, one call at a time for each engine. No C++ exception may leave them. A return value other than PS_OK fails the
 * step. */

#define PS_OWN_INPUTS_MAX 3
#define PS_OWN_PARAMETERS_MAX 2
#define PS_OWN_SAVED_MAX 3
#define PS_OWN_OPTIONS_BYTES_MAX 64

/* The device that computes a call; the arrays are in its memory. */
typedef enum ps_device_type {
    PS_DEVICE_CPU,  /* compute, and return */
    PS_DEVICE_CUDA, /* an NVIDIA GPU, whose primary context is current: launch kernels on the stream, and return */
} ps_device_type;

/* One call, forward or backward. All arrays are dense, row-major, aligned to 64 bytes, and in the device's memory;
 * output arrays overlap no other array. rows is B T, or B after ps_pool; in a generation engine any number. Frozen
 * parameters (train.freeze, ps_set_trainable) have no dw, and below the first trained parameter backward is not called.
 * The library rounds dw, and adds it to that of other micro-batches. */
typedef struct ps_own_call {
    size_t struct_size; /* size in the library; newer versions append members */
    ps_device_type device;
    ps_dtype dtype; /* of x, w, y, dy, dx */
    void *stream;   /* cuda: a cudaStream_t; else NULL */
    const void *options;
    int64_t batch, sequence; /* B, T */
    int64_t rows, x_columns[PS_OWN_INPUTS_MAX], y_columns;
    int64_t w_elements[PS_OWN_PARAMETERS_MAX];
    const void *x[PS_OWN_INPUTS_MAX];     /* [rows, x_columns[i]] */
    const void *w[PS_OWN_PARAMETERS_MAX]; /* parameters, rounded to dtype */
    void *y;                              /* [rows, y_columns]; forward writes it */
    float *saved[PS_OWN_SAVED_MAX];       /* [rows, saved_columns[i]]: forward writes, backward reads */
    const void *dy;                       /* backward: the gradient of y */
    void *dx[PS_OWN_INPUTS_MAX];          /* out, backward: gradient of x[i], overwritten; NULL: not needed */
    float *dw[PS_OWN_PARAMETERS_MAX];     /* out, backward: gradient of w[k], overwritten; NULL: w[k] is frozen */
    void *scratch;                        /* [scratch_bytes]; content undefined */
    int64_t scratch_bytes;
    /* For a loss (ps_own_end), which has no y and no dy: */
    const int32_t *targets; /* [rows], or PS_IGNORE_INDEX */
    float *row_loss;        /* [rows], forward writes it: 0 where the target is ignored */
    int32_t *predicted;     /* [rows], forward writes it: the most likely class, -1 where there is none */
    /* Backward: dx is this times the derivative of the sum over row_loss. It is the loss scale / (rows x
     * gradient_accumulation_steps), with ignored rows counted: the update divides by the number of targets. With
     * train.loss_average = micro_batches only rows with a target are counted. */
    float scale;
} ps_own_call;

/* Arrays that backward reads in addition to dy and saved. The others are NULL in backward, and are not kept for it. */
#define PS_READS_X 1u
#define PS_READS_Y 2u
#define PS_READS_W 4u

typedef ps_status (*ps_own_func)(const ps_own_call *call);

typedef struct ps_own_operator {
    size_t struct_size;
    const char *name;     /* for messages; valid as long as the engine */
    int32_t n_inputs;     /* 1 to 3 */
    int32_t n_parameters; /* 0 to 2 */
    uint32_t dtypes;      /* 1u << ps_dtype of each type that it supports */
    uint32_t backward_reads;
    /* 1: row r of y depends on row r of x only, not on r. Required for generation engines. */
    int32_t is_by_row;
    /* Functions for PS_DEVICE_CPU and for PS_DEVICE_CUDA. Both NULL: the device is not supported. An engine with a
     * dtype or device that the operator does not support is refused (PS_ENOSYS). */
    ps_own_func forward, backward;
    ps_own_func cuda_forward, cuda_backward;
    /* Scratch bytes of a call (its array pointers are NULL); must not decrease with rows. NULL: none. */
    int64_t (*scratch_bytes)(const ps_own_call *call, int is_backward);
    /* Floating-point operations of a call likewise, for estimates of time. NULL: few; the call is limited by memory
     * bandwidth. */
    double (*flops)(const ps_own_call *call, int is_backward);
} ps_own_operator;

/* A parameter "name.suffix" of an operator: [columns], or [rows, columns] where rows is not 0. Initialised from a
 * normal distribution. It is a member of ps_own_use, so it has no struct_size and its members are fixed; so are the
 * limits above. */
typedef struct ps_own_parameter {
    const char *suffix; /* "weight" */
    int64_t rows, columns;
    double mean, std;
} ps_own_parameter;

/* One use of an operator in a model. Inputs and parameters past those that the operator has are ignored. */
typedef struct ps_own_use {
    size_t struct_size;
    const ps_own_operator *op;
    ps_value x[PS_OWN_INPUTS_MAX]; /* all different */
    ps_own_parameter parameters[PS_OWN_PARAMETERS_MAX];
    int64_t y_columns;                       /* 0: as x[0] */
    int64_t saved_columns[PS_OWN_SAVED_MAX]; /* 0: none */
    const void *options;                     /* [options_bytes], copied; passed to the calls of this use; may be NULL */
    size_t options_bytes;
    int64_t n_classes; /* ps_own_end: targets are below it, or PS_IGNORE_INDEX; 0: the columns of x[0] */
} ps_own_use;

/* ---- in a model (src/train/graph) ------------------------------------------------------------------------ */

PS_API ps_value ps_own_apply(ps_builder *b, const char *name, const ps_own_use *use);
/* Ends the model with a custom loss: the mean of row_loss over the rows whose target is not ignored. ps_infer returns
 * x[0]. saved_columns: of saved[0] only. */
PS_API void ps_own_end(ps_builder *b, const char *name, const ps_own_use *use);

/* ---- floats (src/base) ----------------------------------------------------------------------------------- */

/* Convert n elements from `first` of an array in RAM to floats, and back with rounding to nearest even. For functions
 * that compute in float for every type. */
PS_API void ps_to_floats(ps_dtype dtype, const void *array, int64_t first, int64_t n, float *out);
PS_API void ps_from_floats(ps_dtype dtype, void *array, int64_t first, int64_t n, const float *in);

#ifdef __cplusplus
}
#endif
#endif
