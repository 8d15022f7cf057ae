/* speculation.h - early updates that are made before it is known whether they are right: with a gradient that is taken
 * for finite and for not clipped. For the files of run/ only; ps_runner_validate is in runner.h.
 *
 *                     masters and states       PARAM16      gradient
 *     before          old                      gradient     PARAM16, or the list of sums
 *     early update    new; old kept on disk    new          KEPT_GRAD, or the list of sums
 *     valid           new                      new          none
 *     taken back      old, on disk             none         as after the early update; the update is pending
 *
 * With an execution plan that computes again there is no KEPT_GRAD, and a list of sums is used up by the early update:
 *
 *     taken back      old, on disk             none         none
 *     again, forward  old                      old          none         of all chunks; plan `again` from here on
 *     again, backward old                      gradient     PARAM16, or the list of sums; the update is pending
 *
 * Without whole masters (lists.h) PARAM16 belongs to the first column: old again when it is taken back, with no rounding
 * between the passes. Gradients are in GRAD16 before an early update and, without second passes, until the step has
 * ended.
 *
 * New optimizer data is written to the disk ahead of the next early update, which otherwise would wait for that. A
 * chunk whose optimizer data cannot be kept (before its first update it has none) stays as before, and pending. If
 * early updates are pending after a step, the next one has the execution plan taking_back, which defers them.
 *
 * While speculation is paused (ps_runner_set_max_wrong_share) steps have the execution plan paused, after one with
 * taking_back if gradients are in KEPT_GRAD; the first step after that has taking_back, too, as all is pending. */
#ifndef PS_RUN_SPECULATION_H
#define PS_RUN_SPECULATION_H

#include "train/run/runner_impl.h"

/* Before the moment of a chunk's early update: its optimizer data is kept over the update. *is_possible false: it
 * cannot be (ps_store_can_keep). PS_EIO as ps_store_keep. */
PS_NODISCARD ps_status ps_speculation_keep_states(ps_runner *r, int32_t chunk, bool *is_possible);

/* Within that moment, before the update: copies the gradient that the update will overwrite. */
PS_NODISCARD ps_status ps_speculation_keep_grad(ps_runner *r, int32_t chunk);

/* After an update of the chunk that cannot be taken back: its optimizer data begins to be written to the disk, for the
 * next early update. PS_EIO. */
PS_NODISCARD ps_status ps_speculation_write_states(ps_runner *r, int32_t chunk);

/* Between steps: the execution plan for the updates that are pending now. */
void ps_speculation_choose_plan(ps_runner *r);

#endif
