/* log_html.c - the page of a run's log: assets/report.html with log.html, numbers and the data that log.js
 * draws. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/report/assets.h"
#include "api/report/page.h"
#include "api/report/report.h"
#include "base/base.h"
#include "base/bytes.h"
#include "base/mem.h"

/* ---- data ---- */

/* JSON has no infinity and no NaN. */
static void put_number(ps_text_out *o, double value)
{
    if (isfinite(value))
        ps_text_out_format(o, "%.9g", value);
    else
        ps_text_out_string(o, "null");
}

static void put_values(ps_text_out *o, const ps_report_log *m)
{
    ps_text_out_string(o, "\"values\":{");
    for (int k = 0; k < PS_REPORT_LOG_N; k++) {
        ps_text_out_format(o, "%s\"%s\":[", k > 0 ? ",\n" : "\n", ps_report_log_keys[k]);
        for (int64_t i = 0; i < m->n_steps; i++) {
            if (i > 0) ps_text_out_string(o, ",");
            put_number(o, m->steps[i].values[k]);
        }
        ps_text_out_string(o, "]");
    }
    ps_text_out_string(o, "},\n");
}

static void put_text(ps_text_out *o, const char *text)
{
    if (text != NULL)
        ps_text_out_json(o, text);
    else
        ps_text_out_string(o, "null");
}

static void put_saves(ps_text_out *o, const ps_report_log *m)
{
    ps_text_out_string(o, "\"saves\":[");
    for (int64_t i = 0; i < m->n_saves; i++) {
        const ps_report_log_save *s = &m->saves[i];
        ps_text_out_format(o, "%s{\"step\":%" PRId64 ",\"name\":", i > 0 ? ",\n" : "\n", s->step);
        put_text(o, s->name);
        ps_text_out_string(o, ",\"error\":");
        put_text(o, s->error);
        ps_text_out_string(o, "}");
    }
    ps_text_out_string(o, "]}");
}

/* A single step gets room on both sides. */
static void put_data(ps_text_out *o, const ps_report_log *m)
{
    const int64_t first = m->steps[0].step, last = m->steps[m->n_steps - 1].step;
    const char *margin = first == last ? ".5" : "", *comma = "";
    ps_text_out_format(o, "{\"begin\":%" PRId64 "%s,\"end\":%" PRId64 "%s,\"ranks\":%d,\n\"steps\":[",
                       first == last ? first - 1 : first, margin, last, margin, m->n_ranks);
    for (int64_t i = 0; i < m->n_steps; i++) ps_text_out_format(o, "%s%" PRId64, i > 0 ? "," : "", m->steps[i].step);
    ps_text_out_string(o, "],\n\"skipped\":[");
    for (int64_t i = 0; i < m->n_steps; i++) {
        if (!m->steps[i].is_skipped) continue;
        ps_text_out_format(o, "%s%" PRId64, comma, m->steps[i].step);
        comma = ",";
    }
    ps_text_out_string(o, "],\n");
    put_values(o, m);
    put_saves(o, m);
}

/* ---- words and numbers ---- */

static void put_title(ps_text_out *o, const ps_report_log *m)
{
    ps_text_out_xml(o, m->title);
}

static void put_head(ps_text_out *o, const ps_report_log *m)
{
    ps_text_out_string(o, "<h1>");
    put_title(o, m);
    ps_text_out_format(o, "</h1>\n<p class=\"facts\">The log of steps %" PRId64 " to %" PRId64, m->steps[0].step,
                       m->steps[m->n_steps - 1].step);
    if (m->n_ranks > 1) ps_text_out_format(o, ", %d ranks", m->n_ranks);
    ps_text_out_string(o, ".</p>\n");
}

__attribute__((format(printf, 3, 4))) static void put_row(ps_text_out *o, const char *name, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ps_text_out_string(o, "<tr><td>");
    ps_text_out_xml(o, name);
    ps_text_out_string(o, "</td><td>");
    ps_text_out_xml(o, text);
    ps_text_out_string(o, "</td></tr>\n");
}

/* Sum, and extremes with their steps, of the values that are there. */
typedef struct column {
    int64_t n, min_step;
    double sum, min, max, first, last;
} column;

static column sum_up(const ps_report_log *m, ps_report_log_metric metric)
{
    column c = {.min = INFINITY, .max = -INFINITY, .first = NAN, .last = NAN};
    for (int64_t i = 0; i < m->n_steps; i++) {
        const double value = m->steps[i].values[metric];
        if (!isfinite(value)) continue;
        if (value < c.min) c.min_step = m->steps[i].step;
        c.min = fmin(c.min, value);
        c.max = fmax(c.max, value);
        if (c.n == 0) c.first = value;
        c.sum += value;
        c.last = value;
        c.n++;
    }
    return c;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the times of steps; NaN: there are none. */
static ps_status find_median(const ps_report_log *m, double *out)
{
    double *times = NULL;
    size_t n = 0;
    PS_TRY(ps_mem_alloc((size_t)m->n_steps, sizeof *times, &times));
    for (int64_t i = 0; i < m->n_steps; i++)
        if (isfinite(m->steps[i].values[PS_REPORT_LOG_STEP_S])) times[n++] = m->steps[i].values[PS_REPORT_LOG_STEP_S];
    qsort(times, n, sizeof *times, by_value);
    *out = n > 0 ? times[n / 2] : NAN;
    ps_mem_free(times);
    return PS_OK;
}

static void put_losses(ps_text_out *o, const ps_report_log *m)
{
    const column loss = sum_up(m, PS_REPORT_LOG_LOSS), eval = sum_up(m, PS_REPORT_LOG_EVAL_LOSS);
    if (loss.n > 0)
        put_row(o, "loss", "%.4f to %.4f, least %.4f at step %" PRId64, loss.first, loss.last, loss.min, loss.min_step);
    if (eval.n > 0)
        put_row(o, "validation loss", "%.4f at last, least %.4f at step %" PRId64, eval.last, eval.min, eval.min_step);
    int64_t n_skipped = 0, n_taken_back = 0;
    for (int64_t i = 0; i < m->n_steps; i++) {
        n_skipped += m->steps[i].is_skipped;
        n_taken_back += m->steps[i].is_taken_back;
    }
    if (n_skipped > 0) put_row(o, "skipped steps", "%" PRId64, n_skipped);
    if (n_taken_back > 0) put_row(o, "steps with updates taken back", "%" PRId64, n_taken_back);
    if (loss.n < m->n_steps) put_row(o, "losses that are not finite", "%" PRId64, m->n_steps - loss.n);
}

static void put_times(ps_text_out *o, const ps_report_log *m, double median)
{
    const column step = sum_up(m, PS_REPORT_LOG_STEP_S), wait = sum_up(m, PS_REPORT_LOG_WAIT_S),
                 tokens = sum_up(m, PS_REPORT_LOG_TOKENS);
    if (step.n == 0 || step.sum <= 0) return;
    put_row(o, "time of steps", "%.4g s, median %.4g s", step.sum, median);
    if (wait.n > 0) put_row(o, "waiting for copies", "%.4g s, %.1f %%", wait.sum, 100 * wait.sum / step.sum);
    if (tokens.n > 0) put_row(o, "tokens", "%.0f, %.4g/s", tokens.sum, tokens.sum / step.sum);
}

static void put_peaks(ps_text_out *o, const ps_report_log *m)
{
    static const char *const tiers[] = {"device", "host", "disk"};
    char text[PS_BYTES_TEXT_MAX], name[32];
    for (int i = 0; i < 3; i++) {
        const column bytes = sum_up(m, (ps_report_log_metric)(PS_REPORT_LOG_DEVICE_BYTES + i));
        if (bytes.n == 0 || bytes.max <= 0 || bytes.max >= 0x1p62) continue;
        snprintf(name, sizeof name, "peak: %s", tiers[i]);
        put_row(o, name, "%s", ps_bytes_format((int64_t)bytes.max, text));
    }
}

static void put_checkpoints(ps_text_out *o, const ps_report_log *m)
{
    int64_t n = 0;
    double stall = 0;
    for (int64_t i = 0; i < m->n_saves; i++) {
        if (m->saves[i].error != NULL) {
            put_row(o, "checkpoint failed", "step %" PRId64 ": %.400s", m->saves[i].step, m->saves[i].error);
            continue;
        }
        n++;
        if (isfinite(m->saves[i].stall_seconds)) stall += m->saves[i].stall_seconds;
    }
    if (n > 0) put_row(o, "checkpoints", "%" PRId64 ", training waited %.4g s for them", n, stall);
}

static void put_table(ps_text_out *o, const ps_report_log *m, double median)
{
    ps_text_out_string(o, "<table>\n");
    put_row(o, "steps", "%" PRId64, m->n_steps);
    put_losses(o, m);
    put_times(o, m, median);
    put_peaks(o, m);
    put_checkpoints(o, m);
    ps_text_out_string(o, "</table>");
}

ps_status ps_report_write_log(const ps_report_log *m, const char *path)
{
    ps_text_out o;
    double median;
    ps_page page = ps_page_begin(ps_asset_log_figures, ps_asset_log_script);
    PS_TRY(find_median(m, &median));
    PS_TRY(ps_text_out_open(&o, path));
    for (const char *mark; (mark = ps_page_next(&page, &o)) != NULL;) {
        if (strcmp(mark, "title") == 0) put_title(&o, m);
        if (strcmp(mark, "head") == 0) put_head(&o, m);
        if (strcmp(mark, "table") == 0) put_table(&o, m, median);
        if (strcmp(mark, "data") == 0) put_data(&o, m);
    }
    return ps_text_out_close(&o);
}
