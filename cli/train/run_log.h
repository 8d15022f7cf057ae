/* run_log.h - files of a training run in its output folder: metrics.jsonl, one object per step, the same for
 * TensorBoard (event_file.h), and summary.json.
 *
 * A log that cannot be written does not end training. It is reported once on stderr, for each file; lines are kept in
 * memory, and written as soon as that works. metrics.jsonl is the record of the run, so a folder in which it cannot be
 * created is refused before the first step, and lines that are missing at the end are an error, after the weights are
 * written. Event files are a copy of it: they end no run. */
#ifndef PSTAR_RUN_LOG_H
#define PSTAR_RUN_LOG_H

#include <stdbool.h>

#include "program.h"
#include "progress.h"
#include "step_bound.h"

typedef struct run_log run_log;

/* Numbers of one rank's step, or of its run so far. */
typedef struct run_rank {
    int64_t device_peak_bytes, host_peak_bytes, disk_peak_bytes, rss_peak_bytes;
    int64_t host_to_device_bytes, device_to_host_bytes, disk_read_bytes, disk_write_bytes;
    int64_t sent_bytes;   /* to other ranks */
    int64_t comm_wait_ns; /* it waited for them */
    /* of a run only; sent: in a step */
    int64_t planned_device_peak_bytes, planned_host_peak_bytes, planned_disk_peak_bytes, planned_sent_bytes;
} run_rank;

/* Create the folder and its parents if missing. has_events: log for TensorBoard, too. `shown` is cleared before a
 * failure is reported. PS_EINVAL while another run has the folder open: its `.lock` is locked until close. */
PS_NODISCARD ps_status run_log_open(const char *folder, bool has_events, const progress *shown, run_log **out);
/* Call before the first line: metrics.jsonl keeps its lines of steps 1 .. last_step (0: none) and drops the others, so
 * that the file of a resumed run equals that of an uninterrupted one; likewise the event files, also without
 * has_events. PS_EIO for metrics.jsonl. */
PS_NODISCARD ps_status run_log_begin(run_log *l, int64_t last_step);
void run_log_close(run_log *l); /* NULL is accepted */

/* Write one line. Only rank 0 has a log; on the others l is NULL, and these functions do nothing. `ranks` has the
 * numbers of n_ranks ranks, none for a single rank. Bytes and waits of the step are the differences between `after` and
 * `before`. */
void run_log_step(run_log *l, const progress_step *s, const ps_step_info *info, const ps_memory_info *before,
                  const ps_memory_info *after, const run_rank *ranks, int32_t n_ranks);

/* A line about a complete checkpoint, or, with info NULL, about a failed one and its error. */
void run_log_checkpoint(run_log *l, int64_t step, const ps_checkpoint_info *info, const char *error);

typedef struct run_summary {
    const run_totals *totals;
    uint64_t weights_xxh3;
    int interrupted;
    const char *backend, *gpu; /* NULL: none */
    const char *config_json;
    const step_bound *bound;
    const program_change *faster;
    const run_rank *ranks; /* [n_ranks] of the whole run */
    int32_t n_ranks;
} run_summary;

/* The steps of the run in summary.json; -1: there is none. */
int64_t run_log_summary_steps(const run_log *l);

/* PS_EIO also when lines of the log could still not be written. */
PS_NODISCARD ps_status run_log_summary(run_log *l, const run_summary *s);

#endif
