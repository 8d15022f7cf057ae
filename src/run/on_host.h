/* on_host.h - an instruction that the host's kernels compute for a device whose kernels cannot reach its parameters
 * (ps_instr.on_host). It computes in one block of the host's memory, which all of them use in turn.
 *
 *     device's queue    ...  |= copies there =|                 |= copy back =|  ...
 *     host's queue           '--------------> |=== kernels ===| ^            '--> the next one's copies
 *                                                             '-'
 *
 * Queues wait for each other; the host's thread that issues does not. */
#ifndef PS_RUN_ON_HOST_H
#define PS_RUN_ON_HOST_H

#include "run/runner_impl.h"

/* Bring what it reads; run gets the addresses of the block. What is issued to run's queue, the host tier's, comes after
 * that. */
PS_NODISCARD ps_status ps_on_host_begin(ps_runner *r, const ps_instr *instr, ps_node_run *run, ps_host_copies *copies);
/* It has been issued: bring back what it has computed. */
PS_NODISCARD ps_status ps_on_host_end(ps_runner *r, const ps_host_copies *copies);

#endif
