#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/assets.h"

double ps_svg_at(const ps_svg_scale *s, double value)
{
    return s->from_px + (value - s->low) / (s->high - s->low) * (s->to_px - s->from_px);
}

/* 1, 2 or 5 times a power of ten, so that about n ticks fit into the range (> 0). */
static double tick_of(double range, int n)
{
    const double raw = range / n, power = pow(10, floor(log10(raw)));
    if (raw <= power) return power;
    if (raw <= 2 * power) return 2 * power;
    return raw <= 5 * power ? 5 * power : 10 * power;
}

void ps_svg_begin(ps_text_out *o, int height, const char *title, bool is_alone)
{
    ps_text_out_format(
        o,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-size=\"12\" "
        "font-family=\"system-ui, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\" role=\"img\">\n<title>",
        PS_SVG_WIDTH, height);
    ps_text_out_xml(o, title);
    ps_text_out_string(o, "</title>\n");
    if (is_alone) {
        ps_text_out_string(o, "<style>\n");
        ps_text_out_string(o, ps_asset_colors);
        ps_text_out_string(o, "</style>\n");
    }
    ps_text_out_string(o, "<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
                          "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" "
                          "style=\"fill:var(--wait-back)\"/><rect width=\"3\" height=\"5\" "
                          "style=\"fill:var(--wait)\"/></pattern></defs>\n");
    ps_text_out_format(o, "<rect width=\"%d\" height=\"%d\" style=\"fill:var(--back)\"/>\n", PS_SVG_WIDTH, height);
}

void ps_svg_end(ps_text_out *o)
{
    ps_text_out_string(o, "</svg>\n");
}

void ps_svg_text(ps_text_out *o, double x, double y, const char *anchor, const char *color, const char *text)
{
    ps_text_out_format(o, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" style=\"fill:var(--%s)\">", x, y, anchor,
                       color);
    ps_text_out_xml(o, text);
    ps_text_out_string(o, "</text>\n");
}

static void line(ps_text_out *o, double x0, double y0, double x1, double y1, const char *color)
{
    ps_text_out_format(o, "<path d=\"M%.1f %.1fL%.1f %.1f\" style=\"stroke:var(--%s)\"/>\n", x0, y0, x1, y1, color);
}

static int decimals_of(double tick)
{
    const int n = (int)ceil(-log10(tick) - 1e-9);
    return n > 0 ? n : 0;
}

void ps_svg_time_axis(ps_text_out *o, const ps_svg_scale *x, double y0, double y1)
{
    char text[32];
    const double tick = tick_of(x->high - x->low, 12);
    line(o, x->from_px, y1, x->to_px, y1, "line");
    for (int i = 0; i <= 1000 && i * tick <= x->high - x->low + tick * 1e-6; i++) {
        const double at = ps_svg_at(x, x->low + i * tick);
        line(o, at, y0, at, y1 + 4, "grid");
        snprintf(text, sizeof text, "%.*f", decimals_of(tick), i * tick);
        ps_svg_text(o, at, y1 + 17, "middle", "soft", text);
    }
    ps_svg_text(o, (x->from_px + x->to_px) / 2, y1 + 33, "middle", "soft", "time (s)");
}

void ps_svg_bytes_axis(ps_text_out *o, const ps_svg_scale *y, double x0, double x1)
{
    char text[32];
    const double tick = tick_of(y->high - y->low, (int)fmax(2, fabs(y->to_px - y->from_px) / 40));
    for (int i = 0; i <= 1000 && i * tick <= y->high * (1 + 1e-9); i++) {
        const double at = ps_svg_at(y, i * tick);
        line(o, x0, at, x1, at, "grid");
        snprintf(text, sizeof text, "%g", i * tick);
        ps_svg_text(o, x0 - 6, at + 4, "end", "soft", text);
    }
}

void ps_svg_path_begin(ps_text_out *o, const char *fill)
{
    if (strcmp(fill, "hatch") == 0)
        ps_text_out_string(o, "<path style=\"fill:url(#hatch)\" d=\"");
    else
        ps_text_out_format(o, "<path style=\"fill:var(--%s)\" d=\"", fill);
}

void ps_svg_rect(ps_text_out *o, double x, double y, double width, double height)
{
    const double w = fmax(width, 0.2);
    ps_text_out_format(o, "M%.2f %.2fh%.2fv%.2fh%.2fz", x, y, w, height, -w);
}

void ps_svg_path_end(ps_text_out *o)
{
    ps_text_out_string(o, "\"/>\n");
}

void ps_svg_legend(ps_text_out *o, double y, const ps_svg_key *keys, int n)
{
    double x = PS_SVG_LEFT;
    for (int i = 0; i < n; i++) {
        ps_svg_path_begin(o, keys[i].color);
        ps_svg_rect(o, x, y - 10, 12, 12);
        ps_svg_path_end(o);
        ps_text_out_format(
            o, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" style=\"fill:none;stroke:var(--line)\"/>\n", x,
            y - 10);
        ps_svg_text(o, x + 17, y, "start", "text", keys[i].label);
        x += 17 + 6.9 * (double)strlen(keys[i].label) + 16;
    }
}
