/* assets.c - the files of assets/ and third_party/uplot/. */
#include "api/report/assets.h"

#include "base/embed.h"

PS_EMBED(ps_asset_page, "src/api/report/assets/report.html");
PS_EMBED(ps_asset_script, "src/api/report/assets/report.js");
PS_EMBED(ps_asset_style, "src/api/report/assets/report.css");
PS_EMBED(ps_asset_plot_script, "third_party/uplot/uPlot.iife.min.js");
PS_EMBED(ps_asset_plot_style, "third_party/uplot/uPlot.min.css");
