/* figure_svg.h - the static figures, into a file of their own (is_alone) or into the page. */
#ifndef PS_REPORT_FIGURE_SVG_H
#define PS_REPORT_FIGURE_SVG_H

#include "report/figures.h"
#include "report/svg.h"

void ps_figure_memory(ps_text_out *o, const ps_figures *f, bool is_alone);
void ps_figure_chunks(ps_text_out *o, const ps_figures *f, bool is_alone);
void ps_figure_timeline(ps_text_out *o, const ps_figures *f, bool is_alone);
void ps_figure_time(ps_text_out *o, const ps_figures *f, bool is_alone);

#endif
