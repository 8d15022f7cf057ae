/* optimizer.h - what updates parameters: the seam behind optimizer.type.
 *
 * An optimizer says what it keeps of each element beside the fp32 master, its states, and has a kernel that updates
 * elements. It is one file of this folder and one line of PS_CONFIG_OPTIMIZER_MAP (options.h). Where states lie, when
 * they are updated and how they are saved is the same for all: whoever moves or stores them knows them by number, and
 * their names from here.
 *
 *     ps_options --read--> ps_optimizer_setup --update, a piece of elements at a time--> ps_run_adam, ...
 *
 * States begin as zeros. */
#ifndef PS_OPTIM_OPTIMIZER_H
#define PS_OPTIM_OPTIMIZER_H

#include "kernel/backend.h"
#include "option/options.h"

enum { PS_OPTIMIZER_STATES_MAX = 4, PS_OPTIMIZER_NUMBERS_MAX = 4 };

/* One number for each element. */
typedef struct ps_optimizer_state {
    const char *list;   /* name of its chunk list: "MOMENTUM" */
    const char *suffix; /* in files, behind the parameter's name: ".exp_avg", as torch calls it */
    int32_t item_bytes; /* 4: checkpoints hold floats */
} ps_optimizer_state;

typedef struct ps_optimizer ps_optimizer;

/* An optimizer with its options. */
typedef struct ps_optimizer_setup {
    const ps_optimizer *optimizer;
    int32_t n_states;                        /* the first so many of the optimizer's: those that these options need */
    double weight_decay;                     /* of parameters that decay (grad_clip.h) */
    double betas[2], eps;                    /* of those that have them */
    double number[PS_OPTIMIZER_NUMBERS_MAX]; /* what its file makes of the other options */
} ps_optimizer_setup;

/* What all updates of a step have in common. */
typedef struct ps_optimizer_step {
    int64_t t; /* from 1; steps that were skipped do not count */
    float lr;
    float grad_scale; /* clip factor / (loss scale * ranks * weight ratio): engine/step.c */
} ps_optimizer_step;

/* n elements of one parameter that lie behind each other, in all lists alike. */
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
    /* Fill in n_states and number, from options that config_check.c has passed. PS_EINVAL naming options that do not go
     * together. */
    ps_status (*read)(const ps_options *o, ps_optimizer_setup *out);
    /* Element by element: the same bits however a parameter is cut into pieces. */
    ps_status (*update)(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                        const ps_optimizer_piece *p);
};

#define XX(value, text, optimizer, ...) extern const ps_optimizer ps_optimizer_##optimizer;
PS_CONFIG_OPTIMIZER_MAP(XX)
#undef XX

/* The optimizer that the options ask for. */
PS_NODISCARD ps_status ps_optimizer_read(const ps_options *o, ps_optimizer_setup *out);

PS_NODISCARD ps_status ps_optimizer_update(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o,
                                           const ps_optimizer_step *s, const ps_optimizer_piece *p);

/* A state's name outside of files, "exp_avg"; NULL from n_states on. And the number of the state that has it; -1: none. */
const char *ps_optimizer_state_name(const ps_optimizer_setup *o, int32_t i);
int32_t ps_optimizer_find_state(const ps_optimizer_setup *o, const char *name);

/* What is kept, for messages: "exp_avg, exp_avg_sq", or "nothing". Returns text. */
enum { PS_OPTIMIZER_KEPT_TEXT_MAX = 128 };
const char *ps_optimizer_kept_text(const ps_optimizer_setup *o, char text[PS_OPTIMIZER_KEPT_TEXT_MAX]);

/* Bytes that are kept of an element: its master and its states. */
int64_t ps_optimizer_bytes(const ps_optimizer_setup *o);

/* Bytes of a checkpoint's arrays: masters of all n_params elements, states of the n_trained. */
int64_t ps_optimizer_checkpoint_bytes(const ps_optimizer_setup *o, int64_t n_params, int64_t n_trained);

/* Bytes that the update of an element moves, which is what it costs: gradient in, parameter out, master and states both
 * in and out. */
int64_t ps_optimizer_traffic_bytes(const ps_optimizer_setup *o, int64_t param_bytes);

#endif
