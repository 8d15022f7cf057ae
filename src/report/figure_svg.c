#include "report/figure_svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"

#define MB 1e6

static const char *const band_colors[] = {"forward-band", "backward-band", "update-band"};
static const char *const reason_colors[] = {"wanted", "prefetch", "write-back"};

static ps_svg_scale time_scale(const ps_figures *f)
{
    return (ps_svg_scale){(double)f->begin_ns * 1e-9, (double)f->end_ns * 1e-9, PS_SVG_LEFT,
                          PS_SVG_WIDTH - PS_SVG_RIGHT};
}

/* Where what is on the axis of [begin, end) is drawn; false when nothing is. */
static bool clip(const ps_figures *f, const ps_svg_scale *x, int64_t begin_ns, int64_t end_ns, double *at,
                 double *width)
{
    const int64_t begin = ps_max_i64(begin_ns, f->begin_ns), end = ps_min_i64(end_ns, f->end_ns);
    *at = ps_svg_at(x, (double)begin * 1e-9);
    *width = ps_svg_at(x, (double)end * 1e-9) - *at;
    return end >= begin && begin < f->end_ns;
}

static void phase_bands(ps_text_out *o, const ps_figures *f, const ps_svg_scale *x, double y0, double y1)
{
    const ps_report_profile *p = f->profile;
    double at, width;
    for (int phase = 0; phase < PS_REPORT_N_PHASES; phase++) {
        ps_svg_path_begin(o, band_colors[phase]);
        for (int i = 0; i < p->n_spans; i++) {
            const ps_report_profile_span *s = &p->spans[i];
            if (s->lane == PS_REPORT_PHASES && (int)s->phase == phase &&
                clip(f, x, s->begin_ns, s->end_ns, &at, &width))
                ps_svg_rect(o, at, y0, width, y1 - y0);
        }
        ps_svg_path_end(o);
    }
}

static void step_names(ps_text_out *o, const ps_figures *f, const ps_svg_scale *x, double y)
{
    const ps_report_profile *p = f->profile;
    double at, width;
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        if (s->lane == PS_REPORT_STEPS && clip(f, x, s->begin_ns, s->end_ns, &at, &width) && width > 50)
            ps_svg_text(o, at + width / 2, y, "middle", "text", s->name);
    }
}

/* ---- memory ---- */

typedef enum memory_line { LINE_CHUNKS, LINE_NON_MODEL, LINE_TOTAL } memory_line;

static double line_bytes(const ps_report_profile_sample *s, memory_line line)
{
    if (line == LINE_CHUNKS) return (double)s->chunk_bytes;
    if (line == LINE_NON_MODEL) return (double)s->non_model_bytes;
    return (double)s->chunk_bytes + (double)s->non_model_bytes + (double)s->other_bytes;
}

/* A line that goes up and down like stairs; down to zero at both ends when it is filled. */
static void memory_path(ps_text_out *o, const ps_figures *f, ps_report_profile_tier tier, memory_line line,
                        const ps_svg_scale *x, const ps_svg_scale *y, bool is_filled, const char *style)
{
    const ps_report_profile *p = f->profile;
    const char *move = is_filled ? "H" : "M";
    ps_text_out_format(o, "<path style=\"%s\" d=\"", style);
    if (is_filled) ps_text_out_format(o, "M%.2f %.2f", x->from_px, y->from_px);
    for (int i = 0; i < p->n_samples; i++) {
        const ps_report_profile_sample *s = &p->samples[i];
        if (s->tier != tier || s->at_ns > f->end_ns) continue;
        const double at = ps_svg_at(x, (double)ps_max_i64(s->at_ns, f->begin_ns) * 1e-9);
        const double top = ps_svg_at(y, line_bytes(s, line) / MB);
        if (*move == 'M')
            ps_text_out_format(o, "M%.2f %.2f", at, top);
        else
            ps_text_out_format(o, "H%.2fV%.2f", at, top);
        move = "H";
    }
    if (*move == 'H') ps_text_out_format(o, "H%.2f", x->to_px);
    if (is_filled) ps_text_out_format(o, "V%.2f", y->from_px);
    ps_text_out_string(o, "\"/>\n");
}

static double most_bytes(const ps_report_profile *p, ps_report_profile_tier tier)
{
    double most = 0;
    for (int i = 0; i < p->n_samples; i++)
        if (p->samples[i].tier == tier) most = fmax(most, line_bytes(&p->samples[i], LINE_TOTAL));
    return most;
}

static void memory_panel(ps_text_out *o, const ps_figures *f, ps_report_profile_tier tier, double y0, double y1)
{
    const ps_report_profile *p = f->profile;
    const ps_svg_scale x = time_scale(f);
    const double most = fmax(most_bytes(p, tier), 1), budget = (double)p->budget_bytes[tier];
    const bool has_budget = budget > 0 && budget < 4 * most; /* a budget far above would press all else flat */
    const ps_svg_scale y = {0, 1.08 * fmax(most, has_budget ? budget : 0) / MB, y1, y0};
    char text[48];
    phase_bands(o, f, &x, y0, y1);
    ps_svg_bytes_axis(o, &y, x.from_px, x.to_px);
    memory_path(o, f, tier, LINE_CHUNKS, &x, &y, true, "fill:var(--chunks-fill);stroke:var(--chunks);stroke-width:0.7");
    if (tier == PS_REPORT_DEVICE)
        memory_path(o, f, tier, LINE_NON_MODEL, &x, &y, false, "fill:none;stroke:var(--non-model);stroke-width:1.2");
    memory_path(o, f, tier, LINE_TOTAL, &x, &y, false, "fill:none;stroke:var(--total);stroke-width:1.2");
    if (has_budget) {
        const double at = ps_svg_at(&y, budget / MB);
        ps_text_out_format(o,
                           "<path style=\"stroke:var(--budget);stroke-width:1.5;stroke-dasharray:7 4\" "
                           "d=\"M%.1f %.1fH%.1f\"/>\n",
                           x.from_px, at, x.to_px);
    }
    snprintf(text, sizeof text, "%s (MB)", ps_report_profile_tier_names[tier]);
    ps_text_out_format(o, "<g transform=\"translate(36 %.1f) rotate(-90)\">", (y0 + y1) / 2);
    ps_svg_text(o, 0, 0, "middle", "text", text);
    ps_text_out_string(o, "</g>\n");
}

void ps_figure_memory(ps_text_out *o, const ps_figures *f, bool is_alone)
{
    static const ps_svg_key keys[] = {{"total", "total"},
                                      {"chunks", "chunks"},
                                      {"non-model", "non-model data"},
                                      {"budget", "budget (dashed)"},
                                      {"forward-band", "forward"},
                                      {"backward-band", "backward"},
                                      {"update-band", "update"}};
    const ps_svg_scale x = time_scale(f);
    const bool has_host = most_bytes(f->profile, PS_REPORT_HOST) > 0;
    const bool has_device = most_bytes(f->profile, PS_REPORT_DEVICE) > 0 || !has_host;
    const double host_top = has_device ? 280 : 24, bottom = has_host ? host_top + 120 : 260;
    ps_svg_begin(o, (int)bottom + 70, "Memory over time", is_alone);
    step_names(o, f, &x, 16);
    if (has_device) memory_panel(o, f, PS_REPORT_DEVICE, 24, 260);
    if (has_host) memory_panel(o, f, PS_REPORT_HOST, host_top, bottom);
    ps_svg_time_axis(o, &x, bottom, bottom);
    ps_svg_legend(o, bottom + 58, keys, (int)PS_ARRAY_LEN(keys));
    ps_svg_end(o);
}

/* ---- chunks ---- */

enum { SECTION_GAP = 10, SECTIONS_HEIGHT = 520 };

typedef struct chunk_rows {
    double height;
    double *top; /* of each chunk */
    double bottom;
} chunk_rows;

static void lay_rows(const ps_figures *f, double top, chunk_rows *rows)
{
    const ps_report_profile *p = f->profile;
    rows->height = fmin(10, (double)SECTIONS_HEIGHT / (p->n_chunks > 0 ? p->n_chunks : 1));
    rows->bottom = top;
    for (int r = 0; r < p->n_chunks; r++) {
        const int c = f->rows[r];
        if (r > 0 && p->chunks[c].list != p->chunks[f->rows[r - 1]].list) rows->bottom += SECTION_GAP;
        rows->top[c] = rows->bottom;
        rows->bottom += rows->height;
    }
}

static void section_frames(ps_text_out *o, const ps_figures *f, const ps_svg_scale *x, const chunk_rows *rows)
{
    const ps_report_profile *p = f->profile;
    for (int r = 0, first = 0; r < p->n_chunks; r++) {
        const int list = p->chunks[f->rows[r]].list;
        if (r + 1 < p->n_chunks && p->chunks[f->rows[r + 1]].list == list) continue;
        const double y0 = rows->top[f->rows[first]], y1 = rows->top[f->rows[r]] + rows->height;
        ps_text_out_format(o,
                           "<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" "
                           "style=\"fill:none;stroke:var(--line)\"/>\n",
                           x->from_px, y0, x->to_px - x->from_px, y1 - y0);
        ps_svg_text(o, x->from_px - 8, (y0 + y1) / 2 + 4, "end", "text", p->list_names[list]);
        first = r + 1;
    }
}

void ps_figure_chunks(ps_text_out *o, const ps_figures *f, bool is_alone)
{
    static const ps_svg_key keys[] = {{"device", "device"}, {"host", "host"}, {"disk", "disk"}, {"back", "released"}};
    const ps_svg_scale x = time_scale(f);
    chunk_rows rows;
    double at, width;
    if (o->st == PS_OK) o->st = ps_mem_alloc((size_t)f->profile->n_chunks, sizeof *rows.top, &rows.top);
    if (o->st != PS_OK) return;
    lay_rows(f, 24, &rows);
    ps_svg_begin(o, (int)rows.bottom + 72, "Where each chunk is over time", is_alone);
    step_names(o, f, &x, 16);
    for (int tier = 0; tier < PS_REPORT_N_TIERS; tier++) {
        ps_svg_path_begin(o, keys[tier].color);
        for (int i = 0; i < f->n_stays; i++) {
            const ps_figure_stay *s = &f->stays[i];
            if ((int)ps_figure_main_tier(s->tiers) == tier && clip(f, &x, s->begin_ns, s->end_ns, &at, &width))
                ps_svg_rect(o, at, rows.top[s->chunk], width, rows.height > 3 ? rows.height - 0.6 : rows.height);
        }
        ps_svg_path_end(o);
    }
    section_frames(o, f, &x, &rows);
    ps_svg_time_axis(o, &x, rows.bottom, rows.bottom + 4);
    ps_svg_legend(o, rows.bottom + 60, keys, (int)PS_ARRAY_LEN(keys));
    ps_svg_end(o);
    ps_mem_free(rows.top);
}

/* ---- timeline ---- */

enum { LANE_HEIGHT = 34, LANE_GAP = 10 };

static const char *span_color(const ps_report_profile_span *s)
{
    switch (s->lane) {
    case PS_REPORT_HOST_COMPUTE:
    case PS_REPORT_COMPUTE: return ps_figure_phase_names[s->phase];
    case PS_REPORT_WAITS: return "hatch";
    case PS_REPORT_HOST_TO_DEVICE:
    case PS_REPORT_DEVICE_TO_HOST:
    case PS_REPORT_DISK_READ:
    case PS_REPORT_DISK_WRITE: return reason_colors[s->reason];
    case PS_REPORT_STEPS:
    case PS_REPORT_PHASES:
    case PS_REPORT_COLLECTIVES:
    case PS_REPORT_CHUNKS:
    case PS_REPORT_N_LANES: return "collective";
    }
    return "collective";
}

static bool lane_is_used(const ps_report_profile *p, ps_report_profile_lane lane)
{
    for (int i = 0; i < p->n_spans; i++)
        if (p->spans[i].lane == lane) return true;
    return false;
}

/* The spans of a row that have this color: one path. */
static void lane_spans(ps_text_out *o, const ps_figures *f, const ps_svg_scale *x, int lane, double top,
                       const char *color)
{
    const ps_report_profile *p = f->profile;
    const double height = (double)LANE_HEIGHT / f->n_slots[lane];
    double at, width;
    ps_svg_path_begin(o, color);
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        if ((int)s->lane == lane && strcmp(span_color(s), color) == 0 &&
            clip(f, x, s->begin_ns, s->end_ns, &at, &width))
            ps_svg_rect(o, at, top + height * f->slots[i], width, height - (f->n_slots[lane] > 1 ? 0.5 : 0));
    }
    ps_svg_path_end(o);
}

static void lane_row(ps_text_out *o, const ps_figures *f, const ps_svg_scale *x, int lane, double top)
{
    phase_bands(o, f, x, top, top + LANE_HEIGHT);
    for (int i = 0; i < PS_REPORT_N_PHASES && (lane == PS_REPORT_COMPUTE || lane == PS_REPORT_HOST_COMPUTE); i++)
        lane_spans(o, f, x, lane, top, ps_figure_phase_names[i]);
    for (int i = 0; i < PS_REPORT_N_REASONS && lane >= PS_REPORT_HOST_TO_DEVICE && lane < PS_REPORT_COLLECTIVES; i++)
        lane_spans(o, f, x, lane, top, reason_colors[i]);
    if (lane == PS_REPORT_WAITS) lane_spans(o, f, x, lane, top, "hatch");
    if (lane == PS_REPORT_COLLECTIVES) lane_spans(o, f, x, lane, top, "collective");
    ps_svg_text(o, x->from_px - 8, top + LANE_HEIGHT / 2.0 + 4, "end", lane == PS_REPORT_WAITS ? "wait" : "text",
                ps_report_profile_lane_names[lane]);
}

void ps_figure_timeline(ps_text_out *o, const ps_figures *f, bool is_alone)
{
    static const ps_svg_key keys[] = {
        {"forward", "forward"},        {"backward", "backward"}, {"update", "update"},        {"hatch", "wait"},
        {"wanted", "copy wanted now"}, {"prefetch", "prefetch"}, {"write-back", "write back"}};
    const ps_svg_scale x = time_scale(f);
    int n_lanes = 0, lanes[PS_REPORT_N_LANES];
    for (int lane = PS_REPORT_COMPUTE; lane < PS_REPORT_N_LANES; lane++)
        if (lane < PS_REPORT_COLLECTIVES || lane_is_used(f->profile, (ps_report_profile_lane)lane))
            lanes[n_lanes++] = lane;
    const double bottom = 24 + n_lanes * (LANE_HEIGHT + LANE_GAP);
    ps_svg_begin(o, (int)bottom + 66, "Computing, copies and waits over time", is_alone);
    step_names(o, f, &x, 16);
    for (int i = 0; i < n_lanes; i++) lane_row(o, f, &x, lanes[i], 24 + i * (LANE_HEIGHT + LANE_GAP));
    ps_svg_time_axis(o, &x, bottom - 6, bottom - 2);
    ps_svg_legend(o, bottom + 52, keys, (int)PS_ARRAY_LEN(keys));
    ps_svg_end(o);
}
