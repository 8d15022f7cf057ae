/* runner.h - carries out a blueprint's moments on some tiers: pins what a moment wants, computes, unpins.
 *
 * A trial (compute false, simulated tiers) makes exactly the same calls of the store as a real run; that is why what it
 * predicts, peaks and moved bytes, is what happens. */
#ifndef PS_RUN_RUNNER_H
#define PS_RUN_RUNNER_H

#include "kernel/kernel.h"
#include "run/blueprint.h"
#include "state/groups.h"
#include "state/snapshot.h"

typedef struct ps_runner ps_runner;

typedef struct ps_runner_options {
    bool compute;
    bool keeps_dump; /* a moment that finds no room leaves ps_last_memory_dump */
} ps_runner_options;

/* Tiers and blueprint must outlive it. PS_ENOMEM_HOST, PS_ENOMEM_DEV. */
PS_NODISCARD ps_status ps_runner_create(const ps_blueprint *bp, ps_tiers *tiers, const ps_runner_options *o,
                                        ps_runner **out);
/* Before the first step: NCCL, where chunks go by it. All ranks call, once each of them has its runner and knows that the
 * others have theirs (ps_comm_agree): what fails here on one fails on all. On failure it is to be destroyed. */
PS_NODISCARD ps_status ps_runner_join(ps_runner *r);
/* Waits until the communicator touches no payload any more; after a failure it does not from then on. NULL is
 * accepted. */
void ps_runner_destroy(ps_runner *r);

/* ---- parameters ---- */

/* Create the parameters in their chunks, with their first values or else as zeros, then install the schedule. */
PS_NODISCARD ps_status ps_runner_create_params(ps_runner *r, bool draws);

/* First values of elements [first, first + n) of a tensor. */
PS_NODISCARD ps_status ps_runner_draw(const ps_runner *r, int32_t tensor, int64_t first, int64_t n, float *out);

/* ---- a snapshot (state/snapshot.h) ---- */

/* The runner's, which its passes and updates carry on once somebody has begun it between steps. */
ps_snapshot *ps_runner_snapshot(ps_runner *r);
/* Between steps: [n_chunks] those whose update is pending; NULL: none is. */
const bool *ps_runner_pending(const ps_runner *r);
/* Between steps: carry out pending updates, and finish it. */
PS_NODISCARD ps_status ps_runner_finish_snapshot(ps_runner *r);

/* ---- another blueprint ---- */

/* Between steps: go on with another blueprint over the same chunks, which move to where it wants them as its moments
 * come; a snapshot under way goes on. Updates that are pending must be ones that it can carry out (ps_runner_carries;
 * else call ps_runner_flush first). bp must outlive the runner, or the next change. On failure all is as it was. */
PS_NODISCARD ps_status ps_runner_change(ps_runner *r, const ps_blueprint *bp);
/* Can bp's next forward pass carry out updates that are pending now? It can when it defers updates too, and has the
 * gradients in the same lists. */
bool ps_runner_carries(const ps_runner *r, const ps_blueprint *bp);

/* Instead of ps_runner_create_params, in a trial: begin where another runner of the same blueprint stands between
 * steps. Its store must be settled (ps_store_settle). */
PS_NODISCARD ps_status ps_runner_imitate(ps_runner *r, const ps_runner *from);

/* The one in use. */
const ps_blueprint *ps_runner_blueprint(const ps_runner *r);

/* ---- steps ---- */

/* Optimizer steps made, skipped ones too. Micro-batches that are done of the step under way. */
int64_t ps_runner_steps(const ps_runner *r);
int64_t ps_runner_micro(const ps_runner *r);
/* Go on with a training run that was saved after so many steps. */
void ps_runner_resume(ps_runner *r, int64_t steps);

/* What a forward pass is for. */
typedef enum ps_pass_kind {
    PS_PASS_TRAIN,
    PS_PASS_EVALUATE, /* no dropout; leaves no trace in the tensor states */
    PS_PASS_INFER,    /* gives the program's output instead of the loss */
} ps_pass_kind;

typedef struct ps_pass {
    ps_pass_kind kind;
    ps_batch batch;   /* the caller's, copied to the device first; without arrays in a trial */
    float loss_scale; /* PS_PASS_TRAIN: what backward multiplies the derivatives of the losses of targets by */
    float *output;    /* PS_PASS_INFER: out, [n_outputs] of row output_row, or of all rows when that is -1 */
    int64_t output_row;
    int64_t first, rows; /* of a text that grows (ps_decode): position of the pass's first token, and its rows */
} ps_pass;

PS_NODISCARD ps_status ps_runner_forward(ps_runner *r, const ps_pass *pass);
/* Of the last forward pass with targets; or of micro-batch `micro` of the step under way, or of the last one. Both wait
 * until it is computed; its failure is theirs. */
PS_NODISCARD ps_status ps_runner_eval(ps_runner *r, ps_eval_info *out);
PS_NODISCARD ps_status ps_runner_loss_sums(ps_runner *r, int64_t micro, ps_loss_sums *out);
/* With a blueprint that updates early the step's last backward pass carries out what has been decided of it (g), but for
 * chunks that it does not use; skipping is not allowed. Else g is unused. */
PS_NODISCARD ps_status ps_runner_backward(ps_runner *r, const ps_groups *g);
/* After the backward pass. True: the micro-batch was the step's last, and ps_runner_update is next. */
bool ps_runner_end_micro(ps_runner *r);

/* After the last backward pass of a step: of its gradients as they are, times the loss scale, and of this rank's chunks
 * only. Waits likewise. */
PS_NODISCARD ps_status ps_runner_grad_sums(ps_runner *r, ps_grad_sums *out);

/* Ends the step: updates all chunks by what has been decided (ps_groups_decide). With a blueprint that defers updates
 * the next forward pass of training carries them out, and g must stay as it is until then; with one that updates early
 * they are those that the backward pass was given, and what is left of them is done. A trial has no groups: NULL. */
PS_NODISCARD ps_status ps_runner_update(ps_runner *r, const ps_groups *g);
/* Carry out what is deferred, if anything: before anybody but a training forward pass looks at parameters. */
PS_NODISCARD ps_status ps_runner_flush(ps_runner *r);

#endif
