/* engine.h - the state of a ps_engine. Its public functions are in engine.c (destruction, statistics), about.c
 * (hardware, disk, bound), step.c (training, evaluation, logits), control.c (learning rates, weight decay, loss scale),
 * decode.c (incremental decoding), tensors.c (parameters, gradients, states), engine_shape.c (other sizes of
 * micro-batches), profiling.c, initialize.c and first_values.c (creation), weight_files.c, optimizer_import.c and
 * checkpoint.c (files); recompute.c makes the passes of a step again; rendezvous.c has the rendezvous of ranks and
 * the comparison of their configurations. */
#ifndef PS_ENGINE_ENGINE_H
#define PS_ENGINE_ENGINE_H

#include "api/checkpoint/saver.h"
#include "api/engine/profiling.h"
#include "chunk/comm/comm.h"
#include "train/plan/shape.h"
#include "train/run/bound.h"
#include "train/run/runner.h"
#include "train/state/step_decision.h"

/* The maximum count of updates, also in a checkpoint. */
#define PS_UPDATES_MAX ((int64_t)1 << 40)

/* The calls that are permitted next. */
typedef enum ps_engine_state {
    PS_ENGINE_READY,    /* ps_forward, ps_evaluate, ps_infer */
    PS_ENGINE_FORWARD,  /* after ps_forward: ps_backward */
    PS_ENGINE_BACKWARD, /* after ps_backward: ps_step */
    PS_ENGINE_FAILED,   /* after an error inside a step: none */
} ps_engine_state;

/* Targets that are not ignored, and the sum of their weights (ps_target_counts). */
typedef struct ps_step_targets {
    double weight;
    int64_t n;
} ps_step_targets;

struct ps_engine {
    ps_settings settings;
    ps_comm *comm; /* held by the engine, with one rank too; NULL: none */
    ps_shapes shapes;
    const ps_shape *shape;         /* in use; its program, code and execution plan depend on B and T */
    const ps_program *program;     /* of the configured shape: parameters and their names */
    const ps_exec_plan *exec_plan; /* of the shape in use */
    ps_state_tensor *tensors;      /* [n_params] the parameters, as files have them */
    ps_stall_watch *watch;         /* NULL: a stall is not looked for */
    ps_order *order;               /* checks the order of all that the tiers issue; NULL: none */
    ps_tiers tiers;
    ps_runner *runner;
    ps_pass *passes; /* [accumulation] of the step, with copies of its micro-batches; NULL: they are made once */
    ps_engine_state state;
    char failure[512]; /* text of the error that made it PS_ENGINE_FAILED */
    ps_loss_scaler scaler;
    ps_param_groups groups;
    bool has_new_gradients; /* some were replaced after the last backward pass: their norm has to be computed again */
    double loss_scale;      /* of the current step, or the last one */
    float unclipped_scale;  /* of the step's last backward pass: the factor of gradients that are not clipped */
    double step_loss;       /* of the step's first micro-batch with a loss that was not finite, else of the last one */
    double loss_sum; /* sum of w l of the last step, all ranks; with train.loss_average = micro_batches sum of means */
    ps_config_loss_average loss_average; /* of the checkpoint that training resumed from, else as configured */
    ps_step_targets own_targets;         /* sum of w, and targets, of the step's micro-batches so far, this rank's */
    ps_step_targets step_targets;        /* W, and targets, of the whole step, all ranks, once they are known */
    int64_t n_updates;                   /* updates made; skipped ones are not */
    int64_t n_decoded;                   /* tokens in the KV cache */
    ps_step_info last_step;
    ps_nonfinite nonfinite;
    char notices[1024]; /* ps_engine_get_notices */
    char memory_text[PS_SETTINGS_MEMORY_TEXT_MAX];
    char *config_json; /* the configuration, for checkpoints */
    bool *is_filled;   /* [n_params] for an engine created empty: tensors with values; NULL: all */
    bool knows_base;   /* base_xxh3 is of the present values */
    uint64_t base_xxh3;
    ps_saver *saver; /* a checkpoint that is being saved; NULL: none */
    ps_profiling profiling;
};

static inline ps_model_state ps_engine_model_state(const ps_engine *e)
{
    ps_model_state s = ps_exec_plan_state(e->exec_plan, &e->tiers);
    s.tensors = e->tensors;
    s.n_tensors = e->program->n_params;
    return s;
}

/* Adds a text to the notices, if there is room. */
void ps_engine_report(ps_engine *e, const char *text);

/* ps_initialize_engine, ps_initialize_inference_engine or ps_initialize_generation_engine, without the weights that the
 * configuration names (initialize.c), as one of comm's ranks, all of which call; comm NULL: a single rank.
 * It holds a reference to comm (ps_comm_keep). A failure on one rank is one on all: here with the first one's status
 * and message (ps_comm_agree), and comm stays usable; inside a step with PS_ECOMM on the others (ps_comm_fail), and
 * comm is unusable. */
PS_NODISCARD ps_status ps_engine_create(ps_model_func model, void *user, const ps_config *config, ps_purpose purpose,
                                        ps_comm *comm, ps_engine **out);

/* The same, but parameters are zeros: for a caller with values for them, which would overwrite drawn ones. Until
 * ps_engine_init_remaining only ps_engine_fill_tensor and loading a checkpoint may access them, and no pass may be
 * made: ps_engine_expect_values. */
PS_NODISCARD ps_status ps_engine_create_empty(ps_model_func model, void *user, const ps_config *config,
                                              ps_purpose purpose, ps_comm *comm, ps_engine **out);

/* Draw initial values for the tensors of an engine created empty that have not been filled, as ps_engine_create would
 * have. Does nothing for other engines. */
PS_NODISCARD ps_status ps_engine_init_remaining(ps_engine *e);

/* Fill a whole tensor with its initial values. */
PS_NODISCARD ps_status ps_engine_draw_tensor(ps_engine *e, int64_t tensor);

/* All tensors of an engine created empty have values by now. */
void ps_engine_end_filling(ps_engine *e);

/* tensors.c: the sums of grad_stats over this rank's gradients as they are stored now. */
PS_NODISCARD ps_status ps_engine_sum_gradients(ps_engine *e, ps_grad_sums *out);

/* PS_ESTATE naming the call and the state unless the engine is in `wanted`. */
PS_NODISCARD ps_status ps_engine_expect(const ps_engine *e, ps_engine_state wanted, const char *call);

/* PS_ESTATE naming the call while parameters of an engine created empty have no values. */
PS_NODISCARD ps_status ps_engine_expect_values(const ps_engine *e, const char *call);

/* The list with a tensor's value: MASTER, or PARAM16 for an inference engine and for frozen tensors. */
ps_list ps_engine_value_list(const ps_engine *e, int64_t tensor);

/* Replace n elements from `first` of a tensor in MASTER (the 16-bit parameter follows) or of a state of the optimizer;
 * for an inference engine, or a frozen tensor, in PARAM16. Fails as ps_engine_write_tensor. */
PS_NODISCARD ps_status ps_engine_put_values(ps_engine *e, ps_list list, int64_t tensor, int64_t first, int64_t n,
                                            const float *in);

/* A forward pass outside of training, after pending updates. After a failure the engine is failed. */
PS_NODISCARD ps_status ps_engine_run_outside_step(ps_engine *e, const ps_pass *pass);

/* Returns st; in place of PS_OK PS_EDEVICE when the checker of order has found something. Unless the result is PS_OK
 * the engine is failed from now on, and the other ranks are notified. */
ps_status ps_engine_check(ps_engine *e, ps_status st);

/* For results that all ranks have agreed on (ps_comm_agree): the engine is failed, and no rank is notified, as a rank
 * that is still receiving the agreement would report the notice as the failure. */
ps_status ps_engine_check_agreed(ps_engine *e, ps_status st);

/* ps_engine_check for calls between steps, in which only PS_EDEVICE of an asynchronous device matters: content may be
 * lost that is not accessed before the next step, or an operation may be done in part that would be repeated. */
ps_status ps_engine_check_device(ps_engine *e, ps_status st);

#endif
