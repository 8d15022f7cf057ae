/* log_read.h - the log of a run, metrics.jsonl (doc/train.md), in memory. */
#ifndef PS_REPORT_LOG_READ_H
#define PS_REPORT_LOG_READ_H

#include <stdbool.h>

#include "base/status.h"

/* What the page draws; keys of metrics.jsonl. Bytes are the largest of all ranks. */
#define PS_REPORT_LOG_MAP(XX)                                                                                          \
    XX(PS_REPORT_LOG_LOSS, "loss")                                                                                     \
    XX(PS_REPORT_LOG_EVAL_LOSS, "eval_loss")                                                                           \
    XX(PS_REPORT_LOG_LR, "lr")                                                                                         \
    XX(PS_REPORT_LOG_GRAD_NORM, "grad_norm")                                                                           \
    XX(PS_REPORT_LOG_LOSS_SCALE, "loss_scale")                                                                         \
    XX(PS_REPORT_LOG_STEP_S, "step_s")                                                                                 \
    XX(PS_REPORT_LOG_WAIT_S, "wait_s")                                                                                 \
    XX(PS_REPORT_LOG_TOKENS, "tokens")                                                                                 \
    XX(PS_REPORT_LOG_TOKENS_PER_S, "tokens_per_s")                                                                     \
    XX(PS_REPORT_LOG_DEVICE_BYTES, "device_peak_bytes")                                                                \
    XX(PS_REPORT_LOG_HOST_BYTES, "host_peak_bytes")                                                                    \
    XX(PS_REPORT_LOG_DISK_BYTES, "disk_peak_bytes")

typedef enum ps_report_log_metric {
#define XX(value, key) value,
    PS_REPORT_LOG_MAP(XX)
#undef XX
        PS_REPORT_LOG_N
} ps_report_log_metric;

extern const char *const ps_report_log_keys[PS_REPORT_LOG_N];

typedef struct ps_report_log_step {
    int64_t step;
    double values[PS_REPORT_LOG_N]; /* NaN: not in the line, or null */
    bool is_skipped;
    bool is_taken_back; /* updates within its backward pass were wrong, and made again */
} ps_report_log_step;

/* A checkpoint that was written, or failed. */
typedef struct ps_report_log_save {
    int64_t step;
    char *name, *error;                   /* one of them is NULL */
    double bytes, seconds, stall_seconds; /* NaN: not in the line */
} ps_report_log_save;

typedef struct ps_report_log {
    char *title; /* the folder of the file, or its bare name */
    int64_t n_steps;
    ps_report_log_step *steps; /* step numbers rise */
    int64_t n_saves;
    ps_report_log_save *saves;
    int32_t n_ranks; /* 1 where the lines have no "ranks" */
} ps_report_log;

/* The path of metrics.jsonl where `path` is the folder of a run, a copy of `path` where it is a file that begins as
 * metrics.jsonl does, else NULL: not a log. For ps_mem_free. PS_EIO, also for a folder
 * without the file; errors of ps_file_open. */
PS_NODISCARD ps_status ps_report_log_find(const char *path, char **out);

/* PS_EFORMAT with file, line and key for what is not JSON or another type, for steps that do not rise, and for a file
 * without steps. Other keys are ignored, and so is a last line that is not complete, as of a run under way. */
PS_NODISCARD ps_status ps_report_log_read(const char *path, ps_report_log **out);
void ps_report_log_destroy(ps_report_log *m); /* NULL is accepted */

#endif
