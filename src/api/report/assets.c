/* assets.c - the files of assets/ and third_party/uplot/. */
#include "api/report/assets.h"

#include "base/embed.h"

PS_EMBED(ps_asset_page, "src/api/report/assets/report.html");
PS_EMBED(ps_asset_page_script, "src/api/report/assets/page.js");
PS_EMBED(ps_asset_profile_figures, "src/api/report/assets/profile.html");
PS_EMBED(ps_asset_profile_script, "src/api/report/assets/profile.js");
PS_EMBED(ps_asset_log_figures, "src/api/report/assets/log.html");
PS_EMBED(ps_asset_log_script, "src/api/report/assets/log.js");
PS_EMBED(ps_asset_style, "src/api/report/assets/report.css");
PS_EMBED(ps_asset_plot_script, "third_party/uplot/uPlot.iife.min.js");
PS_EMBED(ps_asset_plot_style, "third_party/uplot/uPlot.min.css");
