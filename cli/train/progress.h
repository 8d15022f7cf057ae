/* progress.h - what training shows while it runs: a bar that redraws itself on a terminal, plain lines elsewhere; and
 * numbers of the whole run. */
#ifndef PSTAR_PROGRESS_H
#define PSTAR_PROGRESS_H

#include "client.h"

typedef struct progress {
    int64_t n_steps, log_interval;
    int is_terminal;
    double begin_s;
} progress;

typedef struct progress_step {
    int64_t step;           /* 1-based */
    double loss, eval_loss; /* eval_loss NaN: none */
    double lr, grad_norm, step_s;
    int64_t tokens, padding; /* of all ranks; padding is beside the tokens */
    int is_skipped;
    double loss_scale; /* 1: none */
} progress_step;

/* Numbers of a whole run, for its summary. */
typedef struct run_totals {
    int64_t steps, tokens, padding;
    int64_t resumed_step; /* 0: from the beginning. tokens, padding, seconds and bytes count from here */
    double seconds, wait_s, loss_first, loss_last;
    int64_t device_peak_bytes, host_peak_bytes, disk_peak_bytes, rss_peak_bytes;
    int64_t kept_logits_steps, kept_logits_bytes; /* in how many steps, and how much at most */
    int64_t speculated_steps, taken_back_steps;   /* with updates before their norm was known; of these, taken back */
    int64_t recomputed_steps;                     /* of these, passes made a second time */
    int64_t paused_steps;                         /* without them, as too many had been taken back */
    ps_disk_info disk;                            /* at the end */
    ps_memory_info memory;                        /* as well */
    ps_memory_info before;                        /* at the first step: links count from there */
} run_totals;

/* The share of padding in what was computed: 0 to 1. */
double progress_padding(int64_t tokens, int64_t padding);

/* 0 in no time. */
double progress_tokens_per_s(int64_t tokens, double seconds);

enum { PROGRESS_SPEED_MAX = 64 };

/* Tokens in so many seconds, and how much padding was computed beside them: "1210 tokens/s (3.1 % padding)". Returns
 * text. */
const char *progress_speed(int64_t tokens, int64_t padding, double seconds, char text[PROGRESS_SPEED_MAX]);

/* may_draw: stdout may be a terminal. A launcher's is none, even where it says so. */
void progress_begin(progress *p, int64_t n_steps, int64_t log_interval, int may_draw);
void progress_show(const progress *p, const progress_step *s, const ps_memory_info *memory);
void progress_clear(const progress *p); /* before a line of another kind: takes the bar away */
void progress_end(const progress *p);   /* leaves the bar's line */

#endif
