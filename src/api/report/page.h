/* page.h - what the pages have in common: the frame report.html, styles, uPlot, the script page.js. */
#ifndef PS_REPORT_PAGE_H
#define PS_REPORT_PAGE_H

#include "base/text_out.h"

typedef struct ps_page {
    const char *figures, *script; /* assets of this kind of page */
    const char *rest, *outer;     /* text still to be written; where it goes on after the figures */
    char mark[16];
} ps_page;

ps_page ps_page_begin(const char *figures, const char *script);

/* Write the page up to the next mark that the caller writes itself, and return its name ("title", "head", "table",
 * "data"); NULL at the end of the page. */
const char *ps_page_next(ps_page *p, ps_text_out *o);

#endif
