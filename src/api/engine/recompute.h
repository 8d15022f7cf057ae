/* recompute.h - the passes of a step once more, where the execution plan recomputes what early updates turn out to have
 * got wrong (train/run/speculation.h). Random numbers, scales and counts are those of the first time, so the norm
 * has the same bits.
 *
 *     batch_copies    | micro-batch 0: tokens | targets | ... | micro-batch 1: ... |      a block of the tiers
 */
#ifndef PS_ENGINE_RECOMPUTE_H
#define PS_ENGINE_RECOMPUTE_H

#include "api/engine/engine.h"

/* Once the tiers are open. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_recompute_init(ps_engine *e);

/* Before the first forward pass of the current micro-batch: it is copied, where passes may be made again. */
void ps_recompute_note(ps_engine *e, const ps_pass *pass);

/* After ps_runner_validate, as ps_runner_begin_recompute. first: sums over this rank's gradients of the first passes.
 * PS_EDEVICE: the second ones have come to others. */
PS_NODISCARD ps_status ps_recompute_run(ps_engine *e, const ps_grad_sums *first);

#endif
