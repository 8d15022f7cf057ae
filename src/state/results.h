/* results.h - what kernels sum up for the host. It lies where they can write, and the host reads it when it wants it.
 *
 * Where the host can touch the device that is bookkeeping memory, and reading waits for the queue; else it is a block
 * of the tiers (ps_tiers_options.results_bytes), and reading is a copy. There the gradients that the host's kernels
 * make have sums of their own, which reading adds. */
#ifndef PS_STATE_RESULTS_H
#define PS_STATE_RESULTS_H

#include "kernel/kernel.h"
#include "state/tiers.h"

typedef struct ps_step_sums {
    ps_grad_sums grads;
    ps_loss_sums losses[]; /* of each micro-batch of a step, then of the last pass aside */
} ps_step_sums;

typedef struct ps_results {
    ps_queue *queue;    /* of the kernels; NULL: there is nothing */
    ps_step_sums *sums; /* where they write */
    ps_step_sums *read; /* where the host reads; the same when it can */
    int64_t bytes;
    bool is_read; /* nothing has been issued since */
    ps_queue *host_queue;
    ps_grad_sums *host_grads; /* of what the host's kernels make; NULL: they write to sums */
    ps_event host_done;       /* they are whole after it */
} ps_results;

/* Of steps of so many micro-batches. */
int64_t ps_results_bytes(int64_t n_micro);

/* All zeros. tiers must outlive it. PS_ENOMEM_HOST. On failure *r is empty. */
PS_NODISCARD ps_status ps_results_init(ps_results *r, const ps_tiers *tiers, int64_t n_micro);
void ps_results_deinit(ps_results *r); /* an empty one is accepted */

/* A step begins: its gradients are none yet. */
PS_NODISCARD ps_status ps_results_clear_grads(ps_results *r);

/* Somebody issues kernels that write there. */
ps_step_sums *ps_results_write(ps_results *r);

/* Where kernels on a tier add up gradients. */
ps_grad_sums *ps_results_write_grads(ps_results *r, ps_tier tier);
/* They have been issued. */
void ps_results_note_grads(ps_results *r, ps_tier tier);

/* *out: as of all that has been issued, until more is; waits for it. */
PS_NODISCARD ps_status ps_results_read(ps_results *r, const ps_step_sums **out);

#endif
