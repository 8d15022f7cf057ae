/* on_host.h - an instruction computed by the host's kernels for a device whose kernels cannot access its parameters
 * (ps_instr.on_host). It computes in one block of host memory, which all such instructions share.
 *
 *     device's queue    ...  |= copies in  =|                 |= copy back =|  ...
 *     host's queue           '--------------> |=== kernels ===| ^            '--> the next copies in
 *                                                             '-'
 *
 * Queues wait for each other; the issuing thread of the host does not. */
#ifndef PS_RUN_ON_HOST_H
#define PS_RUN_ON_HOST_H

#include "train/run/runner_impl.h"

/* Copy its inputs in; run gets the addresses in the block. Work issued later to run's queue, the host tier's, comes
 * after that. */
PS_NODISCARD ps_status ps_on_host_begin(ps_runner *r, const ps_instr *instr, ps_node_run *run, ps_host_copies *copies);
/* After it has been issued: copy its results back. */
PS_NODISCARD ps_status ps_on_host_end(ps_runner *r, const ps_host_copies *copies);

#endif
