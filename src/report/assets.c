/* assets.c - the files of assets/ and third_party/uplot/, which the assembler puts into the library as they are. Paths
 * are from the root of the repository, where make runs; the Makefile knows that this file depends on them. */
#include "report/assets.h"

#define EMBED(name, path)                                                                                              \
    __asm__(".pushsection .rodata\n"                                                                                   \
            ".global " #name "\n.hidden " #name "\n.type " #name ", @object\n" #name ":\n"                             \
            ".incbin \"" path "\"\n.byte 0\n.size " #name ", . - " #name "\n"                                          \
            ".popsection\n")

EMBED(ps_asset_page, "src/report/assets/report.html");
EMBED(ps_asset_script, "src/report/assets/report.js");
EMBED(ps_asset_style, "src/report/assets/report.css");
EMBED(ps_asset_colors, "src/report/assets/colors.css");
EMBED(ps_asset_plot_script, "third_party/uplot/uPlot.iife.min.js");
EMBED(ps_asset_plot_style, "third_party/uplot/uPlot.min.css");
