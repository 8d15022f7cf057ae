/* report.h - a profile as a page for people, and its figures as files. */
#ifndef PS_REPORT_REPORT_H
#define PS_REPORT_REPORT_H

#include "report/figures.h"

/* One HTML file that needs nothing else, neither files nor network: memory, where chunks are and timeline over time, to
 * zoom into and to point at, and where a step's time went. PS_EIO. */
PS_NODISCARD ps_status ps_report_write_html(const ps_figures *f, const char *path);

/* The same figures standing still: memory.svg, chunks.svg, timeline.svg, time.svg in `folder`, which is created when it
 * is not there. PS_EIO. */
PS_NODISCARD ps_status ps_report_write_svg(const ps_figures *f, const char *folder);

#endif
