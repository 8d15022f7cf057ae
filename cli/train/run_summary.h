/* run_summary.h - what a run prints at its end: a summary of some lines, with -v tables. summary.json has every
 * figure. */
#ifndef PSTAR_RUN_SUMMARY_H
#define PSTAR_RUN_SUMMARY_H

#include "program.h"
#include "run_log.h"

typedef struct run_summary_text {
    const run_totals *totals;
    const step_bound *bound;
    const run_rank *ranks; /* [size of comm] of the whole run */
    const ps_comm *comm;
    bool device_is_ram; /* nothing is copied between device and host */
    const program_change *faster;
} run_summary_text;

void run_summary_print(const run_summary_text *t, bool is_verbose);

#endif
