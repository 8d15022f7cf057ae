/* report.h - a profile, or the log of a run, as a page for people: one HTML file that needs nothing else, neither files
 * nor network, with figures to zoom into and to point at. */
#ifndef PS_REPORT_REPORT_H
#define PS_REPORT_REPORT_H

#include "api/report/figures.h"
#include "api/report/log_read.h"

/* Memory, where chunks are and timeline over time, and where a step's time went. PS_EIO. */
PS_NODISCARD ps_status ps_report_write_html(const ps_figures *f, const char *path);

/* Loss, learning rate, norm of gradients, throughput and memory over steps. PS_EIO. */
PS_NODISCARD ps_status ps_report_write_log(const ps_report_log *m, const char *path);

#endif
