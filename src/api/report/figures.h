/* figures.h - what the figures of a report show. */
#ifndef PS_REPORT_FIGURES_H
#define PS_REPORT_FIGURES_H

#include "api/report/profile_read.h"

/* A chunk's time with the same tiers: a rectangle in the row of the chunk. */
typedef struct ps_figure_stay {
    int chunk; /* into the profile's chunks */
    int64_t begin_ns, end_ns;
    unsigned tiers; /* bit (1 << tier) for each tier that has the chunk; never 0 */
} ps_figure_stay;

/* The parts of a step, averaged over the steps. They do not overlap: time that two spans share counts for the one that
 * began first. */
typedef struct ps_figure_parts {
    double compute_seconds[PS_REPORT_N_PHASES];
    double wait_seconds[PS_REPORT_N_LANES]; /* by the link that is waited for */
    double rest_seconds;                    /* neither computing nor waiting: planning, starting operators */
    double step_seconds;                    /* the sum */
} ps_figure_parts;

typedef struct ps_figures {
    const ps_report_profile *profile;
    int64_t begin_ns, end_ns; /* of the time axis: the steps, or all there is when no step was recorded */
    int *rows;                /* [n_chunks] chunks from top to bottom: by list */
    int n_stays;
    ps_figure_stay *stays;          /* by chunk, then time; clipped to the axis */
    int *slots;                     /* [n_spans] which slot of its row: spans that overlap have different ones */
    int n_slots[PS_REPORT_N_LANES]; /* that a row is divided into, at least 1 */
    int n_steps;
    ps_figure_parts parts;
} ps_figures;

/* What figures call phases, and their colours: "update". */
extern const char *const ps_figure_phase_names[PS_REPORT_N_PHASES];

/* `p` must outlive the figures. */
PS_NODISCARD ps_status ps_figures_create(const ps_report_profile *p, ps_figures **out);
void ps_figures_destroy(ps_figures *f); /* NULL is accepted */

#endif
