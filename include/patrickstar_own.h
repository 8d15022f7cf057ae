/* patrickstar_own.h - operators and losses of your own, in models of patrickstar.h. */
#ifndef PATRICKSTAR_OWN_H
#define PATRICKSTAR_OWN_H

#include "patrickstar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operator that the library has not, as functions of yours: planned, offloaded and run as its own are. It has up to
 * three inputs of equal rows, which are activations; one output; up to two parameters; and statistics of each row that
 * forward keeps for backward. examples/own_operator.c and examples/own_loss.c are whole programs.
 *
 * The functions must be pure: what they write depends on what they read and on nothing else, not on where arrays lie,
 * so that a step has the same bits in any budgets, and when a block is run again (activation checkpointing). They are
 * called when the operator's turn has come, by a thread of the engine's, one call at a time for each engine; or, with
 * train.backend = cpu_async, which debug builds have, in another process, forked by ps_initialize_engine, which sees
 * memory as it was then. No exception of C++ may leave them. What they return other than PS_OK fails the step as a
 * failure of the library's own. */

#define PS_OWN_INPUTS_MAX 3
#define PS_OWN_PARAMETERS_MAX 2
#define PS_OWN_SAVED_MAX 3
#define PS_OWN_OPTIONS_BYTES_MAX 64

/* What computes a call, in its memory. */
typedef enum ps_device_type {
    PS_DEVICE_CPU,  /* compute, and return */
    PS_DEVICE_CUDA, /* a GPU of NVIDIA's, whose primary context is current: give kernels to the stream, and return */
} ps_device_type;

/* One call, forward or backward. All arrays are dense, row-major, aligned to 64 bytes, and lie in the device's memory;
 * those that are written share no memory with others. rows is B T, or B behind ps_pool; in a generation engine any
 * number. What is frozen (train.freeze, ps_set_trainable) has no dw, and below the first trained parameter backward is
 * not called. The library rounds dw, and adds it to that of other micro-batches. */
typedef struct ps_own_call {
    size_t struct_size; /* as the library has it: what a newer one adds is behind what an older one knows */
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
    void *dx[PS_OWN_INPUTS_MAX];          /* out, backward: of x[i], overwritten; NULL: nobody wants it */
    float *dw[PS_OWN_PARAMETERS_MAX];     /* out, backward: of w[k], overwritten; NULL: w[k] is frozen */
    void *scratch;                        /* scratch_bytes; content undefined */
    int64_t scratch_bytes;
    /* Of a loss (ps_own_end), which has no y and no dy: */
    const int32_t *targets; /* [rows], or PS_IGNORE_INDEX */
    float *row_loss;        /* [rows], forward writes it: 0 where the target takes no part */
    int32_t *predicted;     /* [rows], forward writes it: the class that is found likeliest, -1 where there is none */
    /* Backward: dx is this times the derivative of the sum over row_loss. It is the loss scale / (rows x
     * gradient_accumulation_steps), whatever rows take part: the update divides by their number. With
     * train.loss_average = micro_batches the number of rows that take part is in place of rows. */
    float scale;
} ps_own_call;

/* What backward looks at besides dy and saved; the rest is NULL there, and takes no memory until then. */
#define PS_READS_X 1u
#define PS_READS_Y 2u
#define PS_READS_W 4u

typedef ps_status (*ps_own_func)(const ps_own_call *call);

typedef struct ps_own_operator {
    size_t struct_size;
    const char *name;     /* for messages; valid as long as the engine */
    int32_t n_inputs;     /* 1 to 3 */
    int32_t n_parameters; /* 0 to 2 */
    uint32_t dtypes;      /* 1u << ps_dtype of all that it computes in */
    uint32_t backward_reads;
    /* Row r of y depends on row r of x alone, wherever it stands: then it works in generation engines too. */
    int32_t is_by_row;
    /* On PS_DEVICE_CPU; and on PS_DEVICE_CUDA, both NULL: it does not run on a GPU. An engine of a dtype or device that
     * the operator has not is refused (PS_ENOSYS). */
    ps_own_func forward, backward;
    ps_own_func cuda_forward, cuda_backward;
    /* Bytes of scratch of a call (array pointers in it are NULL); rising with rows. NULL: none. */
    int64_t (*scratch_bytes)(const ps_own_call *call, int is_backward);
    /* Arithmetic of a call likewise, for estimates of time. NULL: little beside moving its arrays. */
    double (*flops)(const ps_own_call *call, int is_backward);
} ps_own_operator;

/* A parameter "name.suffix" of an operator: [columns], or [rows, columns] where rows is not 0. Begins normally
 * distributed. It lies in ps_own_use, so it has no size of its own and no room to grow; nor have the numbers above. */
typedef struct ps_own_parameter {
    const char *suffix; /* "weight" */
    int64_t rows, columns;
    double mean, std;
} ps_own_parameter;

/* One use of an operator in a model. Inputs, parameters beyond those that the operator has are not looked at. */
typedef struct ps_own_use {
    size_t struct_size;
    const ps_own_operator *op;
    ps_value x[PS_OWN_INPUTS_MAX]; /* different ones */
    ps_own_parameter parameters[PS_OWN_PARAMETERS_MAX];
    int64_t y_columns;                       /* 0: as x[0] */
    int64_t saved_columns[PS_OWN_SAVED_MAX]; /* 0: none */
    const void *options;                     /* options_bytes, copied: what the calls of this use get; may be NULL */
    size_t options_bytes;
    int64_t n_classes; /* ps_own_end: targets are below it, or PS_IGNORE_INDEX; 0: as x[0] has columns */
} ps_own_use;

PS_API ps_value ps_own_apply(ps_builder *b, const char *name, const ps_own_use *use);
/* Ends the model with a loss of one's own: the mean of row_loss over the rows whose target takes part. ps_infer gives
 * x[0]. saved_columns: of saved[0] only. */
PS_API void ps_own_end(ps_builder *b, const char *name, const ps_own_use *use);

/* n elements from `first` of an array in RAM, as floats; and rounded to nearest even. For functions that compute in
 * float whatever the type. */
PS_API void ps_to_floats(ps_dtype dtype, const void *array, int64_t first, int64_t n, float *out);
PS_API void ps_from_floats(ps_dtype dtype, void *array, int64_t first, int64_t n, const float *in);

#ifdef __cplusplus
}
#endif
#endif
