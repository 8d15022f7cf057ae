/* optimizer.h - the interface of optimizers: optimizer.type.
 *
 * An optimizer defines its states, kept for each element in addition to the fp32 master, and has a kernel that updates
 * elements. It is one file of this folder and one line of PS_CONFIG_OPTIMIZER_MAP (options.h); its kernel, unless
 * another optimizer has it, is an operator (PS_OPS of kernel.h). The place of states, the time of updates and the
 * format of checkpoints are the same for all: other code knows states by number, with their names from here.
 *
 *     ps_options --read--> ps_optimizer_setup --update, a piece of elements at a time--> ps_run_adam, ...
 *
 * An optimizer of whole tensors (Muon) has a second function, which updates a matrix at once and composes operators of
 * the backend in scratch memory; its `update` is that of all other tensors. A tensor is updated in one of the two ways
 * (ps_param.is_whole), and has the states of that way only. The list of a state has the chunks with tensors that have
 * it.
 *
 * States begin as zeros. */
#ifndef PS_OPTIM_OPTIMIZER_H
#define PS_OPTIM_OPTIMIZER_H

#include "base/compact.h"
#include "config/option/options.h"
#include "kernel/backend.h"

enum { PS_OPTIMIZER_STATES_MAX = 4, PS_OPTIMIZER_NUMBERS_MAX = 9 };

/* One state: a number for each element, stored as optimizer.params.state_format says: as a float, in 8 bits or as bf16.
 */
typedef struct ps_optimizer_state {
    const char *list;   /* name of its chunk list: "MOMENTUM" */
    const char *suffix; /* in files, after the parameter's name: ".exp_avg", torch's name */
    ps_format compact;  /* with state_format = compact; PS_FORMAT_F32: the optimizer refuses that option */
} ps_optimizer_state;

typedef struct ps_optimizer ps_optimizer;

/* An optimizer with its options. */
typedef struct ps_optimizer_setup {
    const ps_optimizer *optimizer;
    int32_t n_states;                        /* the first so many states of the optimizer: those that these options
                                              * need */
    bool is_compact;                         /* optimizer.params.state_format: states in 8 bits */
    bool is_split;                           /* and masters are bf16 parameters with 16 bits beside them */
    bool is_stochastic;                      /* states are bf16, rounded at random, as are parameters: there are no
                                              * masters */
    double weight_decay;                     /* of parameters that decay (grad_clip.h) */
    double betas[2], eps;                    /* for optimizers with them */
    double number[PS_OPTIMIZER_NUMBERS_MAX]; /* computed from the other options by its file */
} ps_optimizer_setup;

/* Numbers common to all updates of a step. */
typedef struct ps_optimizer_step {
    int64_t t; /* from 1; steps that were skipped do not count */
    float lr;
    float grad_scale; /* clip factor / (loss scale * ranks * weight ratio): api/engine/step.c */
} ps_optimizer_step;

/* n adjacent elements of one parameter, adjacent in all lists. */
typedef struct ps_optimizer_piece {
    void *param;                          /* out [n] of param_dtype; may be grad itself when the types are equal and
                                           * there is a master. Without one it is in-out [n] of bf16 */
    const void *grad;                     /* in  [n] of grad_dtype */
    float *master;                        /* in-out [n]; NULL: is_split, is_stochastic */
    uint16_t *low;                        /* in-out [n] with is_split: of base/split.h; else NULL */
    void *state[PS_OPTIMIZER_STATES_MAX]; /* in-out [n], from the beginning of a group on; NULL from n_states on */
    int64_t n, first;                     /* the piece is elements [first, first + n) of the parameter */
    ps_rng_key rounding;                  /* is_stochastic: of the parameter in this step */
    float weight_decay;                   /* 0 where the parameter does not decay */
    ps_dtype param_dtype, grad_dtype;
} ps_optimizer_piece;

/* A matrix that is updated as a whole: a piece of all its rows * cols elements, with the scratch of
 * ps_optimizer_scratch_bytes. */
typedef struct ps_optimizer_matrix {
    ps_optimizer_piece all;
    int64_t rows, cols;
    void *scratch; /* of the backend's memory, aligned to 64 bytes; content undefined before and after */
} ps_optimizer_matrix;

struct ps_optimizer {
    const char *name; /* as in optimizer.type */
    ps_optimizer_state states[PS_OPTIMIZER_STATES_MAX];
    uint32_t whole_states; /* 1 << i for each state of whole tensors; the others are of tensors updated by elements */
    /* Set n_states and number, from options that config_check.c has accepted. PS_EINVAL naming options that contradict
     * each other. */
    ps_status (*read)(const ps_options *o, ps_optimizer_setup *out);
    /* Element by element, or group by group: the bits do not depend on how a parameter is cut into pieces. */
    ps_status (*update)(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                        const ps_optimizer_piece *p);
    /* For optimizers of whole tensors, else NULL. The bits depend on nothing but the matrix, its states and gradient:
     * not on chunks, nor on threads. */
    ps_status (*update_whole)(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                              const ps_optimizer_matrix *m);
    ps_status (*scratch_bytes)(ps_backend *b, const ps_optimizer_setup *o, int64_t rows, int64_t cols, int64_t *bytes);
    double (*flops)(const ps_optimizer_setup *o, int64_t rows, int64_t cols); /* of its matrix multiplications */
};

#define XX(value, text, optimizer, ...) extern const ps_optimizer ps_optimizer_##optimizer;
PS_CONFIG_OPTIMIZER_MAP(XX)
#undef XX

/* The optimizer that the options name. */
PS_NODISCARD ps_status ps_optimizer_read(const ps_options *o, ps_optimizer_setup *out);

PS_NODISCARD ps_status ps_optimizer_update(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o,
                                           const ps_optimizer_step *s, const ps_optimizer_piece *p);

/* Does the optimizer update whole tensors? Then of a matrix: the update, its scratch, and its arithmetic. */
static inline bool ps_optimizer_has_whole(const ps_optimizer_setup *o)
{
    return o->optimizer->update_whole != NULL;
}

PS_NODISCARD ps_status ps_optimizer_update_whole(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o,
                                                 const ps_optimizer_step *s, const ps_optimizer_matrix *m);
PS_NODISCARD ps_status ps_optimizer_scratch_bytes(ps_backend *b, const ps_optimizer_setup *o, int64_t rows,
                                                  int64_t cols, int64_t *bytes);
double ps_optimizer_whole_flops(const ps_optimizer_setup *o, int64_t rows, int64_t cols);

/* The states of a tensor, 1 << i for each: of one that is updated as a whole, or by elements. */
uint32_t ps_optimizer_states_of(const ps_optimizer_setup *o, bool is_whole);

/* A state's name in files without the dot, "exp_avg"; NULL from n_states on. And the number of the state of a name; -1:
 * none. */
const char *ps_optimizer_state_name(const ps_optimizer_setup *o, int32_t i);
int32_t ps_optimizer_find_state(const ps_optimizer_setup *o, const char *name);

/* The states, for messages: "exp_avg, exp_avg_sq", or "nothing". Returns text. */
enum { PS_OPTIMIZER_KEPT_TEXT_MAX = 128 };
const char *ps_optimizer_kept_text(const ps_optimizer_setup *o, char text[PS_OPTIMIZER_KEPT_TEXT_MAX]);

/* How state i is stored in chunks, and in files. */
ps_format ps_optimizer_state_format(const ps_optimizer_setup *o, int32_t i);

/* Of optimizer.params.state_format: fp32 where there are no states. */
ps_config_state_format ps_optimizer_format(const ps_optimizer_setup *o);

/* Are parameters their own masters, or a part of them? Then no gradient may overwrite one. */
static inline bool ps_optimizer_has_whole_masters(const ps_optimizer_setup *o)
{
    return !o->is_split && !o->is_stochastic;
}

/* How masters are stored in chunks: floats; with is_split the 16 bits that parameters do not have; with is_stochastic
 * 0 bytes. */
ps_item ps_optimizer_master_item(const ps_optimizer_setup *o);

/* Bytes of master and these states of n elements of a tensor, and of the states of tensors updated by elements, or as a
 * whole where the optimizer does so: of most of a model. */
int64_t ps_optimizer_bytes_of(const ps_optimizer_setup *o, uint32_t states, int64_t n);
int64_t ps_optimizer_bytes(const ps_optimizer_setup *o, int64_t n);

/* Bytes of the arrays of a tensor of n elements in a checkpoint: master as floats, and states where it is trained. */
int64_t ps_optimizer_checkpoint_bytes(const ps_optimizer_setup *o, int64_t n, bool is_trained, bool is_whole);

/* Bytes that the update of n elements with these states moves, its cost: gradients in and parameters out, param_bytes
 * of each for all n, masters and states both in and out; without whole masters parameters in, too. */
int64_t ps_optimizer_traffic_bytes(const ps_optimizer_setup *o, uint32_t states, int64_t n, int64_t param_bytes);

#endif
