/* assets.h - files that are part of the program: each as text with a zero byte behind it. */
#ifndef PS_REPORT_ASSETS_H
#define PS_REPORT_ASSETS_H

extern const char ps_asset_page[];        /* report.html: the page, with @names@ where the others go */
extern const char ps_asset_script[];      /* report.js */
extern const char ps_asset_style[];       /* report.css: colours for light and dark too */
extern const char ps_asset_plot_script[]; /* uPlot */
extern const char ps_asset_plot_style[];

#endif
