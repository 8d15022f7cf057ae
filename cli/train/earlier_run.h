/* earlier_run.h - protects an earlier run in an output folder: it is overwritten only on request. */
#ifndef PSTAR_EARLIER_RUN_H
#define PSTAR_EARLIER_RUN_H

#include "client.h"

/* Check that this run may write to `folder` (train.output_dir), whose lock it holds. PS_EINVAL, with the alternatives,
 * where the folder has weights, checkpoints or steps of an earlier run, unless `overwrite`, or `resume` from that run's
 * checkpoint (resume_from is NULL or in the folder). PS_EINVAL also for `resume` with weights but no checkpoint, as the
 * run would start anew, and always for a folder with the initial weights of this run. */
PS_NODISCARD ps_status earlier_run_check(const char *folder, const ps_config *config, bool resume,
                                         const char *resume_from, bool overwrite);

/* Remove the files of an earlier run: checkpoints, weights, summary.json, metrics.jsonl, event
 * files. Other files stay. */
PS_NODISCARD ps_status earlier_run_remove(const char *folder);

#endif
