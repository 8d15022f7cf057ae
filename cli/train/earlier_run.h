/* earlier_run.h - an output folder that holds another run: nothing of that is written over unless the user says so. */
#ifndef PSTAR_EARLIER_RUN_H
#define PSTAR_EARLIER_RUN_H

#include "client.h"

/* Whether this run may write into `folder` (train.output_dir), of which it has the lock. PS_EINVAL, with the ways to go
 * on, where the folder holds weights, checkpoints or steps of an earlier run, unless `overwrite`, or `resume` from that
 * run's own checkpoint: resume_from is NULL or lies in the folder. `resume` where there are weights but no checkpoint
 * is PS_EINVAL too: the run would begin again; and in any case a folder that has what the run begins with. */
PS_NODISCARD ps_status earlier_run_check(const char *folder, const ps_config *config, bool resume,
                                         const char *resume_from, bool overwrite);

/* Remove what an earlier run left there: checkpoints, weights, summary.json, metrics.jsonl. Other files stay. */
PS_NODISCARD ps_status earlier_run_remove(const char *folder);

#endif
