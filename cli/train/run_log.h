/* run_log.h - what a training run leaves in its output folder: metrics.jsonl, one object a step, and summary.json. */
#ifndef PSTAR_RUN_LOG_H
#define PSTAR_RUN_LOG_H

#include <stdbool.h>

#include "progress.h"
#include "step_bound.h"

typedef struct run_log run_log;

/* Of one rank's step, or of its run so far. */
typedef struct run_rank {
    int64_t device_peak_bytes, host_peak_bytes, disk_peak_bytes, rss_peak_bytes;
    int64_t host_to_device_bytes, device_to_host_bytes, disk_read_bytes, disk_write_bytes;
    int64_t sent_bytes;   /* to other ranks */
    int64_t comm_wait_ns; /* it stood still for them */
    /* of a run only; sent: in a step */
    int64_t planned_device_peak_bytes, planned_host_peak_bytes, planned_disk_peak_bytes, planned_sent_bytes;
} run_rank;

/* Creates the folder and its parents if missing. PS_EINVAL while another run has it open: its `.lock` is locked until
 * close. */
PS_NODISCARD ps_status run_log_open(const char *folder, run_log **out);
/* Before the first line: metrics.jsonl keeps what it has of steps 1 .. last_step (0: nothing) and loses the rest, so
 * that a run that was killed and resumed reads as one that was not. */
PS_NODISCARD ps_status run_log_begin(run_log *l, int64_t last_step);
void run_log_close(run_log *l); /* NULL is accepted */

/* Only rank 0 has a log: for the others these functions do nothing, with NULL. One line; `ranks` has the n_ranks ranks'
 * numbers, none when it is the only one. While the disk is full, lines are kept in memory and written as soon as there
 * is room. `before` and `after` frame the step; its bytes and waits are their differences. rss_peak_bytes 0: not
 * watched. */
PS_NODISCARD ps_status run_log_step(run_log *l, const progress_step *s, const ps_step_info *info,
                                    const ps_memory_info *before, const ps_memory_info *after, int64_t rss_peak_bytes,
                                    const run_rank *ranks, int32_t n_ranks);

/* A line about a checkpoint that is complete, or about one that failed: info NULL, and the error's text. */
void run_log_checkpoint(run_log *l, int64_t step, const ps_checkpoint_info *info, const char *error);

typedef struct run_summary {
    const run_totals *totals;
    uint64_t weights_xxh3;
    int interrupted;
    const char *backend, *gpu; /* NULL: none */
    const char *config_json;
    const step_bound *bound;
    const run_rank *ranks; /* [n_ranks] of the whole run */
    int32_t n_ranks;
} run_summary;

/* The steps of the run that summary.json tells of; -1: there is none. */
int64_t run_log_summary_steps(const run_log *l);

/* PS_EIO too when lines of metrics.jsonl could still not be written. */
PS_NODISCARD ps_status run_log_summary(run_log *l, const run_summary *s);

#endif
