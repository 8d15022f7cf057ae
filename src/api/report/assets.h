/* assets.h - files that are part of the program: each as text with a zero byte behind it. */
#ifndef PS_REPORT_ASSETS_H
#define PS_REPORT_ASSETS_H

extern const char ps_asset_page[];            /* report.html: the page, with @names@ where the others go */
extern const char ps_asset_page_script[];     /* page.js: what the scripts of all pages share */
extern const char ps_asset_profile_figures[]; /* profile.html, profile.js: of a profile */
extern const char ps_asset_profile_script[];
extern const char ps_asset_log_figures[]; /* log.html, log.js: of the log of a run */
extern const char ps_asset_log_script[];
extern const char ps_asset_style[];       /* report.css: colours for light and dark too */
extern const char ps_asset_plot_script[]; /* uPlot */
extern const char ps_asset_plot_style[];

#endif
