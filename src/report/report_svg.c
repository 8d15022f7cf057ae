/* report_svg.c - where a step's time went, and all static figures as files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/folder.h"
#include "base/mem.h"
#include "report/figure_svg.h"
#include "report/report.h"

enum { BAR_TOP = 40, BAR_HEIGHT = 34, ROW_HEIGHT = 22, PAIR_HEIGHT = 40, COLUMNS = 3 };

static void put_seconds(double seconds, char text[24])
{
    if (seconds < 0.1)
        snprintf(text, 24, "%.3g ms", seconds * 1e3);
    else
        snprintf(text, 24, "%.3g s", seconds);
}

/* Of a step's time, as figures.h divides it. */
typedef struct part {
    const char *color, *label;
    double seconds;
} part;

enum { PARTS_MAX = PS_REPORT_N_PHASES + PS_REPORT_N_LANES + 1 };

static int list_parts(const ps_figures *f, char labels[PARTS_MAX][48], part parts[PARTS_MAX])
{
    const ps_figure_parts *a = &f->parts;
    int n = 0;
    for (int i = 0; i < PS_REPORT_N_PHASES; i++) {
        snprintf(labels[n], 48, "%s", ps_figure_phase_names[i]);
        parts[n] = (part){ps_figure_phase_names[i], labels[n], a->compute_seconds[i]}, n++;
    }
    for (int i = 0; i < PS_REPORT_N_LANES; i++) {
        if (a->wait_seconds[i] <= 0) continue;
        snprintf(labels[n], 48, "wait: %s", ps_report_profile_lane_names[i]);
        parts[n] = (part){"hatch", labels[n], a->wait_seconds[i]}, n++;
    }
    snprintf(labels[n], 48, "other");
    parts[n] = (part){"rest", labels[n], a->rest_seconds}, n++;
    return n;
}

/* Height in pixels of the parts' names below their bar. */
static int parts_height(const ps_figures *f)
{
    char labels[PARTS_MAX][48];
    part parts[PARTS_MAX];
    return 19 * (int)ps_ceil_div(list_parts(f, labels, parts), COLUMNS);
}

/* The parts one behind the other, and below each one's name, time and share. */
static void stacked_bar(ps_text_out *o, const ps_figures *f, const ps_svg_scale *x)
{
    char labels[PARTS_MAX][48], text[120], seconds[24];
    part parts[PARTS_MAX];
    const int n = list_parts(f, labels, parts);
    double at = 0, left = PS_SVG_LEFT, top = BAR_TOP + BAR_HEIGHT + 22;
    for (int i = 0; i < n; i++) {
        const double begin = ps_svg_at(x, at);
        at += parts[i].seconds;
        ps_svg_path_begin(o, parts[i].color);
        ps_svg_rect(o, begin, BAR_TOP, ps_svg_at(x, at) - begin, BAR_HEIGHT);
        ps_svg_path_end(o);
    }
    for (int i = 0; i < n; i++) {
        put_seconds(parts[i].seconds, seconds);
        snprintf(text, sizeof text, "%s %s (%.1f %%)", parts[i].label, seconds,
                 100 * parts[i].seconds / fmax(f->parts.step_seconds, 1e-12));
        if (i > 0 && i % COLUMNS == 0) left = PS_SVG_LEFT, top += 19;
        ps_svg_path_begin(o, parts[i].color);
        ps_svg_rect(o, left, top - 10, 12, 12);
        ps_svg_path_end(o);
        ps_svg_text(o, left + 17, top, "start", "text", text);
        left += (PS_SVG_WIDTH - PS_SVG_LEFT - PS_SVG_RIGHT) / (double)COLUMNS;
    }
}

/* Nothing where the time is not known. */
static void account_bar(ps_text_out *o, const ps_svg_scale *x, double y, double seconds, const char *color,
                        const char *label)
{
    char text[64], number[24];
    if (seconds < 0) return;
    ps_svg_path_begin(o, color);
    ps_svg_rect(o, x->from_px, y, ps_svg_at(x, seconds) - x->from_px, 13);
    ps_svg_path_end(o);
    put_seconds(seconds, number);
    snprintf(text, sizeof text, "%s %s", number, label);
    ps_svg_text(o, ps_svg_at(x, seconds) + 5, y + 11, "start", "text", text);
}

static double most_seconds(const ps_report_profile *p, double most)
{
    most = fmax(most, fmax(p->predicted.step_seconds, p->measured.step_seconds));
    for (int i = 0; i < PS_REPORT_N_LANES; i++)
        most = fmax(most, fmax(p->predicted.busy_seconds[i], p->measured.busy_seconds[i]));
    return fmax(most, 1e-9);
}

/* Two bars a row; one where nothing is predicted. */
void ps_figure_time(ps_text_out *o, const ps_figures *f, bool is_alone)
{
    const ps_report_profile *p = f->profile;
    const char *measured = p->is_simulated ? "simulated" : "measured";
    const double most = most_seconds(p, f->parts.step_seconds);
    const ps_svg_scale whole = {0, fmax(f->parts.step_seconds, 1e-9), PS_SVG_LEFT, PS_SVG_WIDTH - PS_SVG_RIGHT};
    const ps_svg_scale pairs = {0, most, PS_SVG_LEFT, PS_SVG_WIDTH - PS_SVG_RIGHT - 130};
    int rows[PS_REPORT_N_LANES + 1], n = 0;
    bool is_predicted = p->predicted.step_seconds >= 0;
    rows[n++] = PS_REPORT_STEPS;
    for (int i = PS_REPORT_COMPUTE; i < PS_REPORT_N_LANES; i++) {
        is_predicted |= p->predicted.busy_seconds[i] >= 0;
        if (p->predicted.busy_seconds[i] > 0 || p->measured.busy_seconds[i] > 0) rows[n++] = i;
    }
    const int row_height = is_predicted ? PAIR_HEIGHT : ROW_HEIGHT,
              top = BAR_TOP + BAR_HEIGHT + 22 + parts_height(f) + 10;
    ps_svg_begin(o, top + 26 + n * row_height + 4, "Where the time of a step went", is_alone);
    ps_svg_text(o, PS_SVG_LEFT, 24, "start", "text", "One step, parts one behind the other (average)");
    ps_svg_text(o, PS_SVG_LEFT - 8, BAR_TOP + 21, "end", "text", measured);
    stacked_bar(o, f, &whole);
    ps_svg_text(o, PS_SVG_LEFT, top + 14, "start", "text", "Time that each row is busy in a step");
    for (int i = 0; i < n; i++) {
        const double y = top + 26 + i * row_height;
        const bool is_step = rows[i] == PS_REPORT_STEPS;
        ps_svg_text(o, PS_SVG_LEFT - 8, y + (is_predicted ? 19 : 11), "end", "text",
                    is_step ? "whole step" : ps_report_profile_lane_names[rows[i]]);
        account_bar(o, &pairs, y, is_step ? p->predicted.step_seconds : p->predicted.busy_seconds[rows[i]], "host",
                    "predicted");
        account_bar(o, &pairs, is_predicted ? y + 16 : y,
                    is_step ? p->measured.step_seconds : p->measured.busy_seconds[rows[i]], "device", measured);
    }
    ps_svg_end(o);
}

ps_status ps_report_write_svg(const ps_figures *f, const char *folder)
{
    static const struct {
        const char *name;
        void (*draw)(ps_text_out *o, const ps_figures *f, bool is_alone);
    } figures[] = {{"memory.svg", ps_figure_memory},
                   {"chunks.svg", ps_figure_chunks},
                   {"timeline.svg", ps_figure_timeline},
                   {"time.svg", ps_figure_time}};
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return PS_FAIL(PS_EIO, "%s: cannot create the folder: %s", folder, strerror(errno));
    for (size_t i = 0; i < PS_ARRAY_LEN(figures); i++) {
        char *path = NULL;
        ps_text_out o;
        PS_TRY(ps_folder_join(folder, figures[i].name, &path));
        ps_status st = ps_text_out_open(&o, path);
        if (st == PS_OK) {
            figures[i].draw(&o, f, true);
            st = ps_text_out_close(&o);
        }
        ps_mem_free(path);
        PS_TRY(st);
    }
    return PS_OK;
}
