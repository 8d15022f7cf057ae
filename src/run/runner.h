/* runner.h - carries out a blueprint's moments on some tiers: pins what a moment wants, computes, unpins.
 *
 * A trial (compute false, simulated tiers) makes exactly the same calls of the store as a real run; that is why what it
 * predicts, peaks and moved bytes, is what happens. */
#ifndef PS_RUN_RUNNER_H
#define PS_RUN_RUNNER_H

#include "optim/exact_sum.h"
#include "run/blueprint.h"
#include "run/snapshot.h"
#include "run/tiers.h"

/* What a forward pass is for. */
typedef enum ps_pass {
    PS_PASS_TRAIN,
    PS_PASS_EVALUATE, /* no dropout; leaves no trace in the tensor states */
    PS_PASS_INFER,    /* gives the program's output instead of the loss */
} ps_pass;

/* Numbers of one update. */
typedef struct ps_update {
    bool skip; /* overflow: put the parameters back from the masters */
    float lr, grad_scale, bias1, bias2;
} ps_update;

/* The latest of a group: its gathering, then its reduction. */
typedef struct ps_exchange {
    int64_t done_ns; /* on the timeline */
    ps_comm_ticket ticket;
} ps_exchange;

typedef struct ps_runner {
    const ps_blueprint *bp;
    ps_tiers *tiers;
    bool compute;
    bool keeps_dump; /* a moment that finds no room leaves ps_last_memory_dump */
    void *non_model; /* base of the activation region */

    /* of the step under way */
    ps_pass pass;
    int64_t step, micro; /* optimizer steps begun so far (skipped ones too), micro-batch of this one */
    double loss_scale;
    ps_eval_info eval;        /* out: of the last forward pass with targets */
    ps_exact_sum sum_squares; /* out: of this step's gradients, scaled; of those that this rank owns */
    int64_t n_nonfinite;      /* out: their infinities and NaNs */
    int32_t first_nonfinite;  /* out: the tensor whose gradient had the first of them here; -1: none */
    float *output;            /* PS_PASS_INFER: out, [n_outputs] of row output_row, or of all rows when that is -1 */
    int64_t output_row;
    int64_t first,
        rows;           /* of a text that grows: position of the pass's first token, and its rows; rows 0: the plan's */
    int32_t next_event; /* of the blueprint's spans */
    ps_exchange *exchanges; /* [spans] with other ranks, under way or done */
    ps_comm_part *parts;    /* scratch: of one exchange */
    bool update_pending;    /* `update` is decided, but not carried out yet on the chunks with chunk_pending */
    ps_update update;
    bool *chunk_pending;  /* [n_chunks] */
    ps_batch batch;       /* the caller's; its pointers are valid during ps_runner_forward */
    ps_snapshot snapshot; /* under way, or empty */
} ps_runner;

/* Tiers and blueprint must outlive it. */
PS_NODISCARD ps_status ps_runner_init(ps_runner *r, const ps_blueprint *bp, ps_tiers *tiers, bool compute);
void ps_runner_deinit(ps_runner *r);

/* Create the parameters in their chunks, with their first values or else as zeros, then install the schedule. */
PS_NODISCARD ps_status ps_runner_create_params(ps_runner *r, bool draws);

/* First values of elements [first, first + n) of a tensor. */
PS_NODISCARD ps_status ps_runner_draw(const ps_runner *r, int32_t tensor, int64_t first, int64_t n, float *out);

/* Go on with another blueprint over the same chunks, between steps: chunks move to where it wants them as its moments come; a snapshot
 * under way goes on. No update may be pending that the new one cannot carry out (ps_runner_flush). It must outlive the runner,
 * or the next change. On failure all is as it was. */
PS_NODISCARD ps_status ps_runner_change(ps_runner *r, const ps_blueprint *bp);
/* Updates that are deferred now may be carried out by bp's next forward pass: it defers them too, and expects gradients where
 * they are. */
bool ps_runner_carries(const ps_runner *r, const ps_blueprint *bp);

/* Instead of creating parameters: a trial that begins where another runner stands between steps, over the same blueprint, its
 * store settled. */
PS_NODISCARD ps_status ps_runner_imitate(ps_runner *r, const ps_runner *from);

/* Moments of a forward pass over a batch, which is copied to the device first; NULL in a trial. */
PS_NODISCARD ps_status ps_runner_forward(ps_runner *r, const ps_batch *batch);
PS_NODISCARD ps_status ps_runner_backward(ps_runner *r);
/* Update all chunks; with a deferred blueprint only decide it: the next training forward pass carries it out. */
PS_NODISCARD ps_status ps_runner_update(ps_runner *r, const ps_update *u);
/* Carry out what is deferred: before anybody but a training forward pass looks at parameters. */
PS_NODISCARD ps_status ps_runner_flush(ps_runner *r);
/* The deferred updates that stand before instruction `index` of the forward pass; *next, 0 at its begin, is where to go on. */
PS_NODISCARD ps_status ps_runner_update_before(ps_runner *r, int32_t index, int32_t *next);

#endif
