/* runner_impl.h - the state of a runner; for the files of run/ only. */
#ifndef PS_RUN_RUNNER_IMPL_H
#define PS_RUN_RUNNER_IMPL_H

#include "train/run/runner.h"
#include "train/state/group_collectives.h"
#include "train/state/results.h"

/* Streams of random numbers (base/rng.h): from these on, those of initial parameters, and of dropout. From
 * PS_STREAMS_ROUNDING on, those of rounding. */
#define PS_STREAMS_PARAMS ((uint64_t)0)
#define PS_STREAMS_DROPOUT ((uint64_t)1 << 63)

struct ps_runner {
    const ps_exec_plan *plan;
    ps_tiers *tiers;
    ps_model_state state; /* the execution plan's, over the tiers */
    ps_runner_options o;
    void *non_model; /* base of the activation region */

    /* of the current step */
    int64_t step, micro;      /* steps made before it, micro-batch of this one */
    ps_pass pass;             /* its pointers are valid during ps_runner_forward */
    ps_target_counts targets; /* of its batch */
    ps_results results;
    ps_event host_block_free; /* after the host's kernels in the tiers' block for activations */
    int64_t last_losses;      /* index in the results' losses: of the last forward pass with targets */
    int32_t next_event;       /* index into the events of the execution plan's gather windows */
    ps_group_collectives between_ranks;
    ps_group_request *requests;    /* [windows.n] the latest of a window: its gathering, then its reduction */
    bool update_pending;           /* an update is decided, but not done on the chunks with chunk_pending */
    const ps_param_groups *groups; /* numbers of the update; NULL in a trial */
    bool *chunk_pending;           /* [n_chunks] */
    bool *is_unvalidated;          /* [n_chunks] updated early; the update before it is kept until ps_runner_validate */
    bool *is_grad_kept;            /* [n_chunks] pending after an update taken back: its gradient is in KEPT_GRAD */
    double max_wrong_share;        /* ps_runner_set_max_wrong_share */
    uint32_t wrong_steps;          /* a bit for each of the last PS_WRONG_STEPS steps, the last one in bit 0 */
    int32_t n_weighed_steps;       /* of these bits so many are of steps; at most PS_WRONG_STEPS */
    bool is_paused;                /* no early updates, if the execution plan can be paused */
    bool *is_overwritten;          /* [n_params] PARAM16 holds the tensor's gradient instead of its values */
    ps_snapshot snapshot;          /* in progress, or empty */
};

/* The queue for kernels of the device. */
static inline ps_queue *ps_runner_device_queue(const ps_runner *r)
{
    return r->tiers->compute[PS_TIER_DEVICE];
}

static inline bool ps_runner_is_last_micro(const ps_runner *r)
{
    return r->micro + 1 == r->plan->settings->accumulation;
}

/* For a tensor's gradients before they are added up. */
static inline ps_dtype ps_runner_grad_dtype(const ps_runner *r, int32_t tensor)
{
    return r->plan->code->grad_overwrites_param[tensor] ? r->plan->settings->dtype : PS_DTYPE_F32;
}

/* Arguments of the instruction in the present pass, numbers and addresses, with the activations in the region; but for
 * parameters and their gradients. */
ps_node_run ps_runner_bind(const ps_runner *r, const ps_instr *instr, void *region);
/* Adds x[n], gradients of the tensor as stored on a tier, to the step's sums. x begins at a multiple of
 * PS_GRAD_STATS_BLOCK elements of its tensor. */
PS_NODISCARD ps_status ps_runner_add_grad_stats(ps_runner *r, ps_tier tier, int32_t tensor, const char *x, int64_t n);

/* runner_create.c: between steps; the execution plan has the same activations as the present one. */
void ps_runner_set_plan(ps_runner *r, const ps_exec_plan *plan);

/* runner_update.c: the deferred updates that the trace has before instruction `index` of the forward pass. *next, 0
 * when the pass begins, is the index in update_order at which the next call continues. */
PS_NODISCARD ps_status ps_runner_update_before(ps_runner *r, int32_t index, int32_t *next);

/* runner_update.c: the updates of all chunks are decided, and pending. */
void ps_runner_decide(ps_runner *r, const ps_param_groups *g);

/* runner_update.c: all updates that are pending, for the end of the forward pass. */
PS_NODISCARD ps_status ps_runner_update_pending(ps_runner *r);
/* runner_update.c: the gradients of a chunk that an update has read are used up: in lists of their own. */
void ps_runner_discard_grad(ps_runner *r, int32_t chunk);

/* runner_update.c: early updates. The first begins the last backward pass of a step; the second makes the updates that
 * the trace has after its instruction `index`. *next is as above, and n_deferred of the execution plan when the pass
 * begins. */
void ps_runner_begin_early(ps_runner *r, const ps_param_groups *g);
PS_NODISCARD ps_status ps_runner_update_after(ps_runner *r, int32_t index, int32_t *next);

#endif
