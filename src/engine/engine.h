/* engine.h - what a ps_engine is made of. Its public functions are in engine.c (its end, what it says of itself),
 * about.c (what computes, disk, bound), step.c (training, evaluation, logits), control.c (rates, weight decay, loss
 * scale), decode.c (a text that grows), tensors.c (parameters, gradients, states), engine_shape.c (other sizes of
 * micro-batches), profiling.c and metrics.c; those that begin it, and those for weights and checkpoints, in checkpoint/;
 * meet.c has how ranks meet and compare what they are. */
#ifndef PS_ENGINE_ENGINE_H
#define PS_ENGINE_ENGINE_H

#include "checkpoint/saver.h"
#include "comm/comm.h"
#include "engine/profiling.h"
#include "plan/shape.h"
#include "run/bound.h"
#include "run/runner.h"
#include "settings/products.h"
#include "state/step_decision.h"

/* More updates are none: what a checkpoint's count goes up to. */
#define PS_UPDATES_MAX ((int64_t)1 << 40)

/* What may be called next. */
typedef enum ps_engine_state {
    PS_ENGINE_READY,    /* ps_forward, ps_evaluate, ps_infer */
    PS_ENGINE_FORWARD,  /* after ps_forward: ps_backward */
    PS_ENGINE_BACKWARD, /* after ps_backward: ps_step */
    PS_ENGINE_FAILED,   /* an error inside a step: nothing */
} ps_engine_state;

/* Targets that take part, and what they weigh together (ps_target_counts). */
typedef struct ps_step_targets {
    double weight;
    int64_t n;
} ps_step_targets;

struct ps_engine {
    ps_settings settings;
    ps_comm *comm; /* kept as long as the engine, with one rank too; NULL: there is none */
    ps_products products;
    ps_shapes shapes;
    const ps_shape *shape;         /* in use; what depends on B and T is in its program, code and blueprint */
    const ps_program *program;     /* of the configured shape: parameters and their names */
    const ps_blueprint *blueprint; /* of the shape in use */
    ps_state_tensor *tensors;      /* [n_params] the same as files have them */
    ps_order *order;               /* looks at all that the tiers issue; NULL: nobody does */
    ps_tiers tiers;
    ps_runner *runner;
    ps_engine_state state;
    char failure[512]; /* what turned it PS_ENGINE_FAILED: the text of the error */
    ps_loss_scaler scaler;
    ps_groups groups;
    bool has_new_gradients; /* some were replaced after the last backward pass: their norm has to be taken again */
    double loss_scale;      /* of the step under way, or the last one */
    double step_loss;       /* of the step's first micro-batch with a loss that was not finite, else of the last one */
    double loss_sum; /* sum of w l of the last step, all ranks; with train.loss_average = micro_batches of the means */
    ps_config_loss_average loss_average; /* the checkpoint's that training goes on from, else as configured */
    ps_step_targets own_targets;         /* sum of w, and targets, of the step's micro-batches so far, this rank's */
    ps_step_targets step_targets;        /* W, and targets, of the whole step, all ranks, once they are known */
    int64_t n_updates;                   /* updates made; skipped ones are not */
    int64_t n_decoded;                   /* tokens whose keys and values are kept */
    ps_step_info last_step;
    ps_nonfinite nonfinite;
    char notices[1024]; /* ps_engine_get_notices */
    char memory_text[PS_SETTINGS_MEMORY_TEXT_MAX];
    char *config_json; /* the configuration, for checkpoints */
    bool *is_filled;   /* [n_params] tensors of an engine created empty that have values by now; NULL: all have */
    ps_saver *saver;   /* a checkpoint on its way to disk; NULL: none is */
    ps_profiling profiling;
};

static inline ps_model_state ps_engine_model_state(const ps_engine *e)
{
    ps_model_state s = ps_blueprint_state(e->blueprint, &e->tiers);
    s.tensors = e->tensors;
    s.n_tensors = e->program->n_params;
    return s;
}

/* Adds a text to the notices, as far as there is room. */
void ps_engine_tell(ps_engine *e, const char *text);

/* ps_initialize_engine, ps_initialize_inference_engine or ps_initialize_generation_engine, without weights that the
 * configuration names (checkpoint/initialize.h), as one of comm's ranks, all of which call; comm NULL: alone. It keeps
 * comm (ps_comm_keep). What fails on one rank fails on all: here with the first one's status and message (ps_comm_agree), and
 * comm stays of use; inside a step with PS_ECOMM on the others (ps_comm_fail), and it does not. */
PS_NODISCARD ps_status ps_engine_create(ps_model_func model, void *user, const ps_config *config, ps_purpose purpose,
                                        ps_comm *comm, ps_engine **out);

/* The same, but parameters are zeros: for a caller that has values for them and would only overwrite what is drawn
 * here. Until ps_engine_draw_rest nothing but ps_engine_fill_tensor and loading a checkpoint may touch them, and no
 * pass may be made: ps_engine_expect_values. */
PS_NODISCARD ps_status ps_engine_create_empty(ps_model_func model, void *user, const ps_config *config,
                                              ps_purpose purpose, ps_comm *comm, ps_engine **out);

/* Draw the tensors of an engine created empty that have not been filled, as ps_engine_create would have. Does nothing
 * for other engines. */
PS_NODISCARD ps_status ps_engine_draw_rest(ps_engine *e);

/* Fill a whole tensor with its first values. */
PS_NODISCARD ps_status ps_engine_draw_tensor(ps_engine *e, int64_t tensor);

/* All tensors of an engine created empty have values by now. */
void ps_engine_end_filling(ps_engine *e);

/* tensors.c: what grad_stats sums of this rank's gradients as they lie now. */
PS_NODISCARD ps_status ps_engine_sum_gradients(ps_engine *e, ps_grad_sums *out);

/* PS_ESTATE naming the call and the state unless the engine is in `wanted`. */
PS_NODISCARD ps_status ps_engine_expect(const ps_engine *e, ps_engine_state wanted, const char *call);

/* PS_ESTATE naming the call while parameters of an engine created empty have no values. */
PS_NODISCARD ps_status ps_engine_expect_values(const ps_engine *e, const char *call);

/* Which list has a tensor's value: MASTER, or PARAM16 of an inference engine and of what is not trained. */
ps_list ps_engine_value_list(const ps_engine *e, int64_t tensor);

/* Replace n elements from `first` of a tensor in MASTER (the 16-bit parameter follows) or a state of the optimizer; of
 * an inference engine, or of what is not trained, in PARAM16. Fails as ps_engine_write_tensor. */
PS_NODISCARD ps_status ps_engine_put_values(ps_engine *e, ps_list list, int64_t tensor, int64_t first, int64_t n,
                                            const float *in);

/* A forward pass outside training, after pending updates. A failure turns the engine failed. */
PS_NODISCARD ps_status ps_engine_run_aside(ps_engine *e, const ps_pass *pass);

/* Gives st; in place of PS_OK PS_EDEVICE when the checker of order has found something. Unless that is PS_OK the engine
 * is failed from now on, and the other ranks are told. */
ps_status ps_engine_check(ps_engine *e, ps_status st);

/* For what all ranks have come to together (ps_comm_agree): the engine is failed, and nobody is told. Who is told while
 * he still hears of the agreement would take the telling for the failure. */
ps_status ps_engine_check_agreed(ps_engine *e, ps_status st);

/* ps_engine_check for what is done between steps, where PS_EDEVICE alone does harm, of a device that works later:
 * content may be lost that nobody asks for before the next step, or a part be carried out of what would be tried
 * again. */
ps_status ps_engine_check_device(ps_engine *e, ps_status st);

#endif
