/* optimizer.h - the interface of optimizers: optimizer.type.
 *
 * An optimizer defines its states, kept for each element in addition to the fp32 master, and has a kernel that updates
 * elements. It is one file of this folder and one line of PS_CONFIG_OPTIMIZER_MAP (options.h); its kernel, unless
 * another optimizer has it, is an operator (PS_OPS of kernel.h). The place of states, the time of updates and the
 * format of checkpoints are the same for all: other code knows states by number, with their names from here.
 *
 *     ps_options --read--> ps_optimizer_setup --update, a piece of elements at a time--> ps_run_adam, ...
 *
 * States begin as zeros. */
#ifndef PS_OPTIM_OPTIMIZER_H
#define PS_OPTIM_OPTIMIZER_H

#include "config/option/options.h"
#include "kernel/backend.h"

enum { PS_OPTIMIZER_STATES_MAX = 4, PS_OPTIMIZER_NUMBERS_MAX = 4 };

/* One state: a number for each element. */
typedef struct ps_optimizer_state {
    const char *list;   /* name of its chunk list: "MOMENTUM" */
    const char *suffix; /* in files, after the parameter's name: ".exp_avg", torch's name */
    int32_t item_bytes; /* 4: checkpoints hold floats */
} ps_optimizer_state;

typedef struct ps_optimizer ps_optimizer;

/* An optimizer with its options. */
typedef struct ps_optimizer_setup {
    const ps_optimizer *optimizer;
    int32_t n_states;                        /* the first so many states of the optimizer: those that these options
                                              * need */
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
    void *param;                           /* out [n] of param_dtype; may be grad itself when the types are equal */
    const void *grad;                      /* in  [n] of grad_dtype */
    float *master;                         /* in-out [n] */
    float *state[PS_OPTIMIZER_STATES_MAX]; /* in-out [n]; NULL from n_states on */
    int64_t n;
    float weight_decay; /* 0 where the parameter does not decay */
    ps_dtype param_dtype, grad_dtype;
} ps_optimizer_piece;

struct ps_optimizer {
    const char *name; /* as in optimizer.type */
    ps_optimizer_state states[PS_OPTIMIZER_STATES_MAX];
    /* Set n_states and number, from options that config_check.c has accepted. PS_EINVAL naming options that contradict
     * each other. */
    ps_status (*read)(const ps_options *o, ps_optimizer_setup *out);
    /* Element by element: the bits do not depend on how a parameter is cut into pieces. */
    ps_status (*update)(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                        const ps_optimizer_piece *p);
};

#define XX(value, text, optimizer, ...) extern const ps_optimizer ps_optimizer_##optimizer;
PS_CONFIG_OPTIMIZER_MAP(XX)
#undef XX

/* The optimizer that the options name. */
PS_NODISCARD ps_status ps_optimizer_read(const ps_options *o, ps_optimizer_setup *out);

PS_NODISCARD ps_status ps_optimizer_update(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o,
                                           const ps_optimizer_step *s, const ps_optimizer_piece *p);

/* A state's name in files without the dot, "exp_avg"; NULL from n_states on. And the number of the state of a name; -1:
 * none. */
const char *ps_optimizer_state_name(const ps_optimizer_setup *o, int32_t i);
int32_t ps_optimizer_find_state(const ps_optimizer_setup *o, const char *name);

/* The states, for messages: "exp_avg, exp_avg_sq", or "nothing". Returns text. */
enum { PS_OPTIMIZER_KEPT_TEXT_MAX = 128 };
const char *ps_optimizer_kept_text(const ps_optimizer_setup *o, char text[PS_OPTIMIZER_KEPT_TEXT_MAX]);

/* Bytes of an element's master and states. */
int64_t ps_optimizer_bytes(const ps_optimizer_setup *o);

/* Bytes of a checkpoint's arrays: masters of all n_params elements, states of the n_trained. */
int64_t ps_optimizer_checkpoint_bytes(const ps_optimizer_setup *o, int64_t n_params, int64_t n_trained);

/* Bytes that the update of an element moves, its cost: gradient in, parameter out, master and states both in and
 * out. */
int64_t ps_optimizer_traffic_bytes(const ps_optimizer_setup *o, int64_t param_bytes);

#endif
