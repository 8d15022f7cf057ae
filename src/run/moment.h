/* moment.h - one moment of a runner: its chunks are pinned when it begins, and let go when it ends. */
#ifndef PS_RUN_MOMENT_H
#define PS_RUN_MOMENT_H

#include "run/runner_impl.h"
#include "state/work_time.h"

/* Pins what the moment accesses, and makes room for its activations. On failure nothing is pinned. */
PS_NODISCARD ps_status ps_moment_begin(ps_runner *r, int32_t moment);
void ps_moment_end(ps_runner *r, int32_t moment);

/* Record the moment as computed on the tier from `begin` until now. chunk: the one updated, or -1. */
void ps_moment_record(const ps_runner *r, int32_t moment, ps_tier tier, ps_chunk_id chunk, const ps_work_time *begin);

/* Keeps ps_last_memory_dump when a moment (-1: before the first) fails with st, before anything is given back. Gives
 * st. */
ps_status ps_moment_dump(const ps_runner *r, int32_t moment, ps_status st);

#endif
