/* profile_write.h - a recorder's records as a file that Perfetto and chrome://tracing open: Chrome's trace event
 * format, JSON, object form ("Trace Event Format",
 * docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). doc/profile.md describes every event. */
#ifndef PS_RECORD_PROFILE_WRITE_H
#define PS_RECORD_PROFILE_WRITE_H

#include "record/profile_chunks.h"
#include "run/forecast.h"
#include "state/work_time.h"

/* What the file says beside the records. */
typedef struct ps_profile_facts {
    const char *title; /* "": none */
    bool simulated;
    int rank, n_ranks;
    const ps_blueprint
        *blueprint; /* NULL: nothing was planned, and the file has neither "predicted" nor "bound" nor "rates" */
    ps_budgets budgets;
    const ps_forecast *forecast;     /* of the blueprint */
    const ps_profile_chunks *chunks; /* without a blueprint */
} ps_profile_facts;

/* All or nothing. No record may be added meanwhile. PS_ESTATE when nothing was recorded, PS_EIO, PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_profile_write(const ps_profile *p, const ps_profile_facts *facts, const char *path);

#endif
