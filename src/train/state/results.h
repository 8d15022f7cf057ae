/* results.h - sums that kernels compute for the host. Kernels write them in their memory, and the host reads them on
 * demand.
 *
 * Where the host can access the device that is bookkeeping memory, and reading waits for the queue; else it is a block
 * of the tiers (ps_tiers_desc.results_bytes), and reading is a copy. There gradients of the host's kernels have
 * separate sums, which reading adds. */
#ifndef PS_STATE_RESULTS_H
#define PS_STATE_RESULTS_H

#include "kernel/kernel.h"
#include "train/state/tiers.h"

typedef struct ps_step_sums {
    ps_grad_sums grads;
    ps_loss_sums losses[]; /* of each micro-batch of a step, then of the last pass outside of a step */
} ps_step_sums;

typedef struct ps_results {
    ps_queue *queue;    /* of the kernels; NULL: none */
    ps_step_sums *sums; /* written by kernels */
    ps_step_sums *read; /* read by the host; the same if it can access them */
    int64_t bytes;
    bool is_read; /* nothing has been issued since */
    ps_queue *host_queue;
    ps_grad_sums *host_grads; /* of the host's kernels; NULL: they write to sums */
    ps_event host_done;       /* they are complete after it */
} ps_results;

/* Bytes for steps of so many micro-batches. */
int64_t ps_results_bytes(int64_t n_micro);

/* All zeros. tiers must outlive it. PS_ENOMEM_HOST. On failure *r is empty. */
PS_NODISCARD ps_status ps_results_init(ps_results *r, const ps_tiers *tiers, int64_t n_micro);
void ps_results_deinit(ps_results *r); /* an empty one is accepted */

/* A step begins: resets the sums of gradients. */
PS_NODISCARD ps_status ps_results_clear_grads(ps_results *r);

/* Called before kernels that write there are issued. */
ps_step_sums *ps_results_write(ps_results *r);

/* The sums for kernels on a tier. */
ps_grad_sums *ps_results_write_grads(ps_results *r, ps_tier tier);
/* Called after they have been issued. */
void ps_results_note_grads(ps_results *r, ps_tier tier);

/* *out: the sums of everything issued so far, valid until more is issued; waits for it. */
PS_NODISCARD ps_status ps_results_read(ps_results *r, const ps_step_sums **out);

#endif
