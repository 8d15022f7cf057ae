/* runner.h - carries out an execution plan's moments on some tiers: pins the chunks of a moment, computes, unpins.
 *
 * A trial (compute false, simulated tiers) makes exactly the same calls of the store as a real run; therefore it
 * predicts peaks and moved bytes exactly. */
#ifndef PS_RUN_RUNNER_H
#define PS_RUN_RUNNER_H

#include "kernel/kernel.h"
#include "train/run/exec_plan.h"
#include "train/state/param_groups.h"
#include "train/state/snapshot.h"

typedef struct ps_runner ps_runner;

typedef struct ps_runner_options {
    bool compute;
    bool keeps_dump; /* a moment without room sets ps_last_memory_dump */
} ps_runner_options;

/* Tiers and execution plan must outlive it. PS_ENOMEM_HOST, PS_ENOMEM_DEV. */
PS_NODISCARD ps_status ps_runner_create(const ps_exec_plan *plan, ps_tiers *tiers, const ps_runner_options *o,
                                        ps_runner **out);
/* To be called before the first step: initialises NCCL, where it is used. All ranks call, once each of them has its
 * runner and knows that the others have theirs (ps_comm_agree): a failure on one rank is one on all. On failure the
 * runner is to be destroyed. */
PS_NODISCARD ps_status ps_runner_join(ps_runner *r);
/* Waits until the communicator accesses no payload any more, also after a failure. NULL is accepted. */
void ps_runner_destroy(ps_runner *r);

/* warm_up.c: before there are parameters, computes each kind of instruction once, so that no library loads or plans
 * anything in a step. For a GPU. */
PS_NODISCARD ps_status ps_runner_warm_up(ps_runner *r);

/* ---- parameters ---- */

/* Create the parameters in their chunks, with their initial values or else as zeros, then install the schedule. */
PS_NODISCARD ps_status ps_runner_create_params(ps_runner *r, bool draws);

/* Initial values of elements [first, first + n) of a tensor. */
PS_NODISCARD ps_status ps_runner_draw(const ps_runner *r, int32_t tensor, int64_t first, int64_t n, float *out);

/* ---- a snapshot (train/state/snapshot.h) ---- */

/* The runner's snapshot, which its passes and updates continue after the caller has begun it between steps. */
ps_snapshot *ps_runner_snapshot(ps_runner *r);
/* Between steps: [n_chunks] whether the update of the chunk is pending; NULL: none is. */
const bool *ps_runner_pending(const ps_runner *r);
/* Between steps: carry out pending updates, and finish it. */
PS_NODISCARD ps_status ps_runner_finish_snapshot(ps_runner *r);

/* ---- another execution plan ---- */

/* Between steps: continue with another execution plan over the same chunks, which move to their new tiers as its
 * moments come; a snapshot in progress continues. It must be able to carry out pending updates (ps_runner_can_execute;
 * otherwise call ps_runner_flush first). plan must outlive the runner, or the next change. On failure nothing has
 * changed. */
PS_NODISCARD ps_status ps_runner_change(ps_runner *r, const ps_exec_plan *plan);
/* Can plan's next forward pass carry out the updates that are pending now? It can if it defers those updates too, with
 * the gradients in the same lists. */
bool ps_runner_can_execute(const ps_runner *r, const ps_exec_plan *plan);

/* Instead of ps_runner_create_params, in a trial: begin in the state of another runner of the same execution plan
 * between steps. Its store must be synchronized (ps_store_synchronize). */
PS_NODISCARD ps_status ps_runner_simulate(ps_runner *r, const ps_runner *from);

/* The current execution plan, as given: where it speculates also for a step with its execution plan taking_back or
 * paused. */
const ps_exec_plan *ps_runner_exec_plan(const ps_runner *r);

/* ---- steps ---- */

/* Number of optimizer steps, skipped ones included. Number of finished micro-batches of the current step. */
int64_t ps_runner_steps(const ps_runner *r);
int64_t ps_runner_micro(const ps_runner *r);
/* Continue a training run that was saved after so many steps. */
void ps_runner_resume(ps_runner *r, int64_t steps);

/* The purpose of a forward pass. */
typedef enum ps_pass_kind {
    PS_PASS_TRAIN,
    PS_PASS_EVALUATE, /* no dropout; leaves no state */
    PS_PASS_INFER,    /* returns the program's output instead of the loss */
} ps_pass_kind;

typedef struct ps_pass {
    ps_pass_kind kind;
    ps_batch batch;   /* the caller's, copied to the device first; without arrays in a trial */
    float loss_scale; /* PS_PASS_TRAIN: factor of the derivatives of the targets' losses in backward */
    float *output;    /* PS_PASS_INFER: out, [n_outputs] of row output_row, or of all rows when that is -1 */
    int64_t output_row;
    int64_t first, rows; /* incremental decoding (ps_decode): position of the pass's first token, and its rows */
} ps_pass;

PS_NODISCARD ps_status ps_runner_forward(ps_runner *r, const ps_pass *pass);
/* The loss of the last forward pass with targets; or of micro-batch `micro` of the current step, or of the last one.
 * Both wait until it is computed, and return a failure of that. */
PS_NODISCARD ps_status ps_runner_eval(ps_runner *r, ps_eval_info *out);
PS_NODISCARD ps_status ps_runner_loss_sums(ps_runner *r, int64_t micro, ps_loss_sums *out);
/* With an execution plan that updates chunks early the step's last backward pass carries out their updates as decided
 * (g); the step cannot be skipped, unless the execution plan speculates. Otherwise g is unused. */
PS_NODISCARD ps_status ps_runner_backward(ps_runner *r, const ps_param_groups *g);
/* After the backward pass. True: the micro-batch was the step's last, and ps_runner_update is next. */
bool ps_runner_end_micro(ps_runner *r);

/* After the last backward pass of a step: statistics of its gradients, times the loss scale, of this rank's chunks
 * only. Waits likewise. */
PS_NODISCARD ps_status ps_runner_grad_sums(ps_runner *r, ps_grad_sums *out);

/* Before ps_runner_update, with an execution plan that speculates: early updates are valid (the factor of all gradients
 * is that of the groups given to ps_runner_backward, and the step is not skipped), or else taken back: then they are
 * pending, as if they had not been made. If it computes again their gradients are gone: such a step is skipped, or
 * ps_runner_begin_recompute is next. *n: so many chunks; 0 with other execution plans. PS_EIO. */
PS_NODISCARD ps_status ps_runner_validate(ps_runner *r, bool are_right, int32_t *n);
/* Chunks with early updates that wait for ps_runner_validate. */
int32_t ps_runner_count_unvalidated(const ps_runner *r);

/* After ps_runner_validate of a step that is wrong but not skipped, with an execution plan that computes again, on all
 * ranks if any of them has taken updates back: the passes of the step's micro-batches come once more, with the same
 * numbers, and then ps_runner_update, as if the early updates had not been made. g, which skips (in a trial NULL), is
 * what the first of these forward passes makes of the parameters: they are rounded again; afterwards it may change. */
void ps_runner_begin_recompute(ps_runner *r, const ps_param_groups *g);

/* Speculation is paused while more than this share of the last PS_WRONG_STEPS steps is wrong (clipped, or not finite),
 * if the execution plan can be paused; of all steps while there are fewer, from PS_WRONG_STEPS_LEAST on. It goes on
 * when PS_WRONG_STEPS_SPAN fewer are wrong, or none is. A number below 0 pauses it from the next ps_runner_validate
 * on; INFINITY, which a runner begins with, never does. Changes time alone. */
enum { PS_WRONG_STEPS = 32, PS_WRONG_STEPS_LEAST = 8, PS_WRONG_STEPS_SPAN = 2 };
void ps_runner_set_max_wrong_share(ps_runner *r, double share);
/* Speculation is paused now: no early updates are made until the next ps_runner_validate, those that the execution plan
 * has are deferred. */
bool ps_runner_pauses_speculation(const ps_runner *r);

/* Between steps: the early updates of an execution plan that speculates that are pending, as they were taken back or
 * could not be made. */
int32_t ps_runner_count_early_pending(const ps_runner *r);
/* Between steps: a hash of which updates are pending. */
uint64_t ps_runner_pending_hash(const ps_runner *r);

/* Ends the step: updates all chunks as decided (ps_param_groups_decide), except those that the backward pass has
 * updated early. With an execution plan that defers updates the next forward pass of training carries them out, and g
 * must stay unchanged until then. A trial has no groups: NULL. With one that speculates the execution plan changes when
 * early updates are pending. */
PS_NODISCARD ps_status ps_runner_update(ps_runner *r, const ps_param_groups *g);
/* Carry out deferred updates, if any: before parameters are accessed by anything but a training forward pass. */
PS_NODISCARD ps_status ps_runner_flush(ps_runner *r);

#endif
