/* run_log.h - what a training run leaves in its output folder: metrics.jsonl, one object a step, and summary.json. */
#ifndef PSTAR_RUN_LOG_H
#define PSTAR_RUN_LOG_H

#include "progress.h"

typedef struct run_log run_log;

/* Creates the folder and its parents if missing, and an empty metrics.jsonl. */
PS_NODISCARD ps_status run_log_open(const char *folder, run_log **out);
void run_log_close(run_log *l); /* NULL is accepted */

/* One line. `before` and `after` frame the step; its bytes and waits are their differences. rss_peak_bytes 0: not watched. */
PS_NODISCARD ps_status run_log_step(run_log *l, const progress_step *s, const ps_step_info *info,
                                    const ps_memory_info *before, const ps_memory_info *after, int64_t rss_peak_bytes);

typedef struct run_summary {
    const run_totals *totals;
    uint64_t weights_xxh3;
    int interrupted;
    const char *backend;
    const char *config_json;
} run_summary;

PS_NODISCARD ps_status run_log_summary(run_log *l, const run_summary *s);

#endif
