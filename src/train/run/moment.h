/* moment.h - one moment of a runner: pins its chunks when it begins, and unpins them when it ends. */
#ifndef PS_RUN_MOMENT_H
#define PS_RUN_MOMENT_H

#include "train/run/runner_impl.h"
#include "train/state/work_time.h"

/* Pins the chunks of the moment, and makes room for its activations. On failure nothing is pinned. */
PS_NODISCARD ps_status ps_moment_begin(ps_runner *r, int32_t moment);
void ps_moment_end(ps_runner *r, int32_t moment);

/* Record the moment as computed on the tier from `begin` until now. chunk: the updated one, or -1. */
void ps_moment_record(const ps_runner *r, int32_t moment, ps_tier tier, ps_chunk_id chunk, const ps_work_time *begin);

/* Keeps ps_last_memory_dump when a moment (-1: before the first) fails with st, before anything is freed. Returns
 * st. */
ps_status ps_moment_dump(const ps_runner *r, int32_t moment, ps_status st);

#endif
