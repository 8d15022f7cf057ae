/* report.h - a profile as a page for people. */
#ifndef PS_REPORT_REPORT_H
#define PS_REPORT_REPORT_H

#include "api/report/figures.h"

/* One HTML file that needs nothing else, neither files nor network: memory, where chunks are and timeline over time, to
 * zoom into and to point at, and where a step's time went. PS_EIO. */
PS_NODISCARD ps_status ps_report_write_html(const ps_figures *f, const char *path);

#endif
