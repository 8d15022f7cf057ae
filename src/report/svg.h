/* svg.h - what static figures have in common: frame, axes, rectangles of one colour in one path, legends.
 *
 * Lengths are in pixels of a figure that is PS_SVG_WIDTH wide. Colours are variables of assets/colors.css. */
#ifndef PS_REPORT_SVG_H
#define PS_REPORT_SVG_H

#include <stdbool.h>

#include "base/text_out.h"

enum { PS_SVG_WIDTH = 920, PS_SVG_LEFT = 104, PS_SVG_RIGHT = 16 };

/* A linear map of [low, high] to [from_px, to_px]. */
typedef struct ps_svg_scale {
    double low, high, from_px, to_px;
} ps_svg_scale;

double ps_svg_at(const ps_svg_scale *s, double value);

/* With is_alone the element is a file of its own, with the colours in it. */
void ps_svg_begin(ps_text_out *o, int height, const char *title, bool is_alone);
void ps_svg_end(ps_text_out *o);

/* anchor: "start", "middle" or "end"; color: a variable's name. */
void ps_svg_text(ps_text_out *o, double x, double y, const char *anchor, const char *color, const char *text);

/* A horizontal axis of seconds with its unit below, or a vertical one of megabytes with lines across to `x1`. */
void ps_svg_time_axis(ps_text_out *o, const ps_svg_scale *x, double y0, double y1);
void ps_svg_bytes_axis(ps_text_out *o, const ps_svg_scale *y, double x0, double x1);

/* Rectangles between begin and end of the color given: ps_svg_rect in between. Narrow ones are widened to be seen. */
void ps_svg_path_begin(ps_text_out *o, const char *fill);
void ps_svg_rect(ps_text_out *o, double x, double y, double width, double height);
void ps_svg_path_end(ps_text_out *o);

typedef struct ps_svg_key {
    const char *color, *label;
} ps_svg_key;

/* One line of coloured squares with their labels, from the left margin. "hatch" as color is the pattern of waits. */
void ps_svg_legend(ps_text_out *o, double y, const ps_svg_key *keys, int n);

#endif
