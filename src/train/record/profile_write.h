/* profile_write.h - a recorder's records as a file that Perfetto and chrome://tracing open: Chrome's trace event
 * format, JSON, object form ("Trace Event Format",
 * docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). doc/profile.md describes every event. */
#ifndef PS_RECORD_PROFILE_WRITE_H
#define PS_RECORD_PROFILE_WRITE_H

#include "train/record/profile_chunks.h"
#include "train/run/forecast.h"
#include "train/state/work_time.h"

/* Content of the file in addition to the records. */
typedef struct ps_profile_facts {
    const char *title; /* "": none */
    bool simulated;
    int rank, n_ranks;
    const ps_exec_plan *exec_plan; /* NULL: no plan: the file has neither "predicted" nor "bound" nor "rates" */
    ps_budgets budgets;
    const ps_forecast *forecast;     /* of the execution plan */
    const ps_profile_chunks *chunks; /* without an execution plan */
} ps_profile_facts;

/* All or nothing. No record may be added meanwhile. PS_ESTATE when nothing was recorded, PS_EIO, PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_profile_write(const ps_profile *p, const ps_profile_facts *facts, const char *path);

#endif
