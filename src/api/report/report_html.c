/* report_html.c - the page of a profile: assets/report.html with profile.html, numbers and the data that profile.js
 * draws.
 *
 * The data are one JSON object, which python/patrickstar/visualize.py reads out of the page. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "api/report/assets.h"
#include "api/report/page.h"
#include "api/report/report.h"
#include "base/base.h"
#include "base/bytes.h"
#include "base/text_out.h"

/* Names of tensors that the page shows of a chunk; how many more there are is said. */
enum { NAMES_MAX = 4 };

static double seconds_of(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* ---- data ---- */

static void put_names(ps_text_out *o, const char *key, const char *const *names, int n)
{
    ps_text_out_format(o, "\"%s\":[", key);
    for (int i = 0; i < n; i++) {
        if (i > 0) ps_text_out_string(o, ",");
        ps_text_out_json(o, names[i]);
    }
    ps_text_out_string(o, "],\n");
}

static void put_lists(ps_text_out *o, const ps_report_profile *p)
{
    const char *names[PS_REPORT_LISTS_MAX];
    for (int i = 0; i < PS_REPORT_LISTS_MAX; i++) names[i] = p->list_names[i];
    put_names(o, "lists", names, PS_REPORT_LISTS_MAX);
}

static void put_chunks(ps_text_out *o, const ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    ps_text_out_string(o, "\"chunks\":[");
    for (int i = 0; i < p->n_chunks; i++) {
        const ps_report_profile_chunk *c = &p->chunks[i];
        ps_text_out_format(o, "%s{\"list\":%d,\"index\":%d,\"bytes\":%" PRId64 ",\"tensors\":%d,\"names\":[",
                           i > 0 ? ",\n" : "\n", c->list, c->index, c->bytes, c->n_tensors);
        for (int k = 0; k < c->n_tensors && k < NAMES_MAX; k++) {
            if (k > 0) ps_text_out_string(o, ",");
            ps_text_out_json(o, c->tensors[k]);
        }
        ps_text_out_string(o, "]}");
    }
    ps_text_out_string(o, "],\n\"rows\":[");
    for (int i = 0; i < p->n_chunks; i++) ps_text_out_format(o, "%s%d", i > 0 ? "," : "", f->rows[i]);
    ps_text_out_string(o, "],\n");
}

/* One column of the samples of a tier. */
static void put_column(ps_text_out *o, const ps_report_profile *p, int tier, const char *key, size_t offset)
{
    const char *comma = "";
    ps_text_out_format(o, "\"%s\":[", key);
    for (int i = 0; i < p->n_samples; i++) {
        const ps_report_profile_sample *s = &p->samples[i];
        if ((int)s->tier != tier) continue;
        int64_t value;
        memcpy(&value, (const char *)s + offset, sizeof value);
        if (offset == offsetof(ps_report_profile_sample, at_ns))
            ps_text_out_format(o, "%s%.7f", comma, seconds_of(value));
        else
            ps_text_out_format(o, "%s%" PRId64, comma, value);
        comma = ",";
    }
    ps_text_out_string(o, "]");
}

static void put_memory(ps_text_out *o, const ps_report_profile *p)
{
    ps_text_out_string(o, "\"memory\":[");
    for (int tier = 0; tier < PS_REPORT_N_TIERS; tier++) {
        ps_text_out_string(o, tier > 0 ? ",\n{" : "\n{");
        put_column(o, p, tier, "t", offsetof(ps_report_profile_sample, at_ns));
        ps_text_out_string(o, ",");
        put_column(o, p, tier, "chunks", offsetof(ps_report_profile_sample, chunk_bytes));
        ps_text_out_string(o, ",");
        put_column(o, p, tier, "non_model", offsetof(ps_report_profile_sample, non_model_bytes));
        ps_text_out_string(o, ",");
        put_column(o, p, tier, "other", offsetof(ps_report_profile_sample, other_bytes));
        ps_text_out_string(o, "}");
    }
    ps_text_out_string(o, "],\n");
}

static void put_lanes(ps_text_out *o, const ps_figures *f)
{
    ps_text_out_string(o, "\"lanes\":[");
    for (int i = PS_REPORT_COMPUTE; i < PS_REPORT_N_LANES; i++) {
        ps_text_out_format(o, "%s{\"id\":%d,\"slots\":%d,\"name\":", i > PS_REPORT_COMPUTE ? "," : "", i,
                           f->n_slots[i]);
        ps_text_out_json(o, ps_report_profile_lane_names[i]);
        ps_text_out_string(o, "}");
    }
    ps_text_out_string(o, "],\n");
}

/* Phases as [begin, end, phase], steps as [begin, end, name]. */
static void put_background(ps_text_out *o, const ps_report_profile *p)
{
    const char *comma = "";
    ps_text_out_string(o, "\"phases\":[");
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        if (s->lane != PS_REPORT_PHASES) continue;
        ps_text_out_format(o, "%s[%.7f,%.7f,%d]", comma, seconds_of(s->begin_ns), seconds_of(s->end_ns), (int)s->phase);
        comma = ",";
    }
    ps_text_out_string(o, "],\n\"steps\":[");
    comma = "";
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        if (s->lane != PS_REPORT_STEPS) continue;
        ps_text_out_format(o, "%s[%.7f,%.7f,", comma, seconds_of(s->begin_ns), seconds_of(s->end_ns));
        ps_text_out_json(o, s->name);
        ps_text_out_string(o, "]");
        comma = ",";
    }
    ps_text_out_string(o, "],\n");
}

/* Stays as [chunk, begin, end, tiers], spans as [row, slot, begin, end, phase or reason, name, chunk, bytes]. */
static void put_rectangles(ps_text_out *o, const ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    const char *comma = "\n";
    ps_text_out_string(o, "\"stays\":[");
    for (int i = 0; i < f->n_stays; i++) {
        const ps_figure_stay *s = &f->stays[i];
        ps_text_out_format(o, "%s[%d,%.7f,%.7f,%u]", i > 0 ? "," : "", s->chunk, seconds_of(s->begin_ns),
                           seconds_of(s->end_ns), s->tiers);
    }
    ps_text_out_string(o, "],\n\"spans\":[");
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        const bool is_computing = s->lane == PS_REPORT_COMPUTE || s->lane == PS_REPORT_HOST_COMPUTE;
        if (s->lane < PS_REPORT_COMPUTE) continue;
        ps_text_out_format(o, "%s[%d,%d,%.7f,%.7f,%d,", comma, (int)s->lane, f->slots[i], seconds_of(s->begin_ns),
                           seconds_of(s->end_ns), is_computing ? (int)s->phase : (int)s->reason);
        ps_text_out_json(o, s->name);
        ps_text_out_format(o, ",%d,%" PRId64 "]", s->chunk, s->bytes);
        comma = ",\n";
    }
    ps_text_out_string(o, "]\n");
}

static void put_part(ps_text_out *o, const char *separator, const char *prefix, const char *name, double seconds)
{
    ps_text_out_format(o, "%s[\"%s%s\",%.9f]", separator, prefix, name, seconds);
}

/* Where the time went: parts as [name, seconds], rows as [name, predicted, measured], below 0: not known. */
static void put_time(ps_text_out *o, const ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    const ps_report_profile_account *a = &p->predicted, *b = &p->measured;
    const ps_figure_parts *parts = &f->parts;
    ps_text_out_format(o, "\"measured\":\"%s\",\n\"parts\":", p->is_simulated ? "simulated" : "measured");
    for (int i = 0; i < PS_REPORT_N_PHASES; i++)
        put_part(o, i > 0 ? "," : "[", "", ps_figure_phase_names[i], parts->compute_seconds[i]);
    for (int i = 0; i < PS_REPORT_N_LANES; i++)
        if (parts->wait_seconds[i] > 0)
            put_part(o, ",", "wait: ", ps_report_profile_lane_names[i], parts->wait_seconds[i]);
    put_part(o, ",", "", "other", parts->rest_seconds);
    ps_text_out_format(o, "],\n\"busy\":[[\"whole step\",%.9f,%.9f]", a->step_seconds, b->step_seconds);
    for (int i = PS_REPORT_COMPUTE; i < PS_REPORT_N_LANES; i++)
        if (a->busy_seconds[i] > 0 || b->busy_seconds[i] > 0)
            ps_text_out_format(o, ",[\"%s\",%.9f,%.9f]", ps_report_profile_lane_names[i], a->busy_seconds[i],
                               b->busy_seconds[i]);
    ps_text_out_string(o, "],\n");
}

static void put_data(ps_text_out *o, const ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    ps_text_out_format(o, "{\"begin\":%.7f,\"end\":%.7f,\"budgets\":[%" PRId64 ",%" PRId64 ",%" PRId64 "],\n",
                       seconds_of(f->begin_ns), seconds_of(f->end_ns), p->budget_bytes[0], p->budget_bytes[1],
                       p->budget_bytes[2]);
    put_names(o, "tiers", ps_report_profile_tier_names, PS_REPORT_N_TIERS);
    put_lists(o, p);
    put_names(o, "reasons", ps_report_profile_reason_names, PS_REPORT_N_REASONS);
    put_chunks(o, f);
    put_memory(o, p);
    put_lanes(o, f);
    put_background(o, p);
    put_time(o, f);
    put_rectangles(o, f);
    ps_text_out_string(o, "}");
}

/* ---- words and numbers ---- */

static void put_title(ps_text_out *o, const ps_figures *f)
{
    ps_text_out_xml(o, f->profile->title[0] != '\0' ? f->profile->title : "Profile");
}

static void put_head(ps_text_out *o, const ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    char text[PS_BYTES_TEXT_MAX];
    ps_text_out_string(o, "<h1>");
    put_title(o, f);
    ps_text_out_format(o, "</h1>\n<p class=\"facts\">%s steps %" PRId64 " to %" PRId64,
                       p->is_simulated ? "Simulated:" : "Measured:", p->first_step, p->last_step);
    if (p->n_ranks > 1) ps_text_out_format(o, ", rank %d of %d", p->rank, p->n_ranks);
    if (f->parts.step_seconds > 0) ps_text_out_format(o, ", %.3g s a step", f->parts.step_seconds);
    ps_text_out_string(o, ".</p>\n<p class=\"facts\">Budgets:");
    for (int i = 0; i < PS_REPORT_N_TIERS; i++)
        ps_text_out_format(o, "%s %s %s", i > 0 ? "," : "", ps_report_profile_tier_names[i],
                           ps_bytes_format(p->budget_bytes[i], text));
    ps_text_out_format(o, ". %d chunks of %" PRId64 " elements", p->n_chunks - p->n_standalone_chunks,
                       p->chunk_elements);
    if (p->waste >= 0) ps_text_out_format(o, ", %.2f %% of them unused", 100 * p->waste);
    if (p->n_standalone_chunks > 0) ps_text_out_format(o, "; %d of INPUTS", p->n_standalone_chunks);
    ps_text_out_string(o, ".</p>\n");
}

/* A row of the table, in seconds ("s") or bytes ("B"); negative numbers are not known. */
static void put_row(ps_text_out *o, const char *name, double predicted, double measured, const char *format)
{
    char text[48];
    if (predicted < 0 && measured < 0) return;
    ps_text_out_string(o, "<tr><td>");
    ps_text_out_xml(o, name);
    for (int i = 0; i < 2; i++) {
        const double value = i == 0 ? predicted : measured;
        snprintf(text, sizeof text, "–");
        if (value >= 0 && strcmp(format, "s") == 0) snprintf(text, sizeof text, "%.4f s", value);
        if (value >= 0 && strcmp(format, "B") == 0) ps_bytes_format((int64_t)value, text);
        ps_text_out_format(o, "</td><td>%s", text);
    }
    if (predicted > 0 && measured >= 0)
        ps_text_out_format(o, "</td><td>%.2f</td></tr>\n", measured / predicted);
    else
        ps_text_out_string(o, "</td><td>–</td></tr>\n");
}

static void put_table(ps_text_out *o, const ps_report_profile *p)
{
    const ps_report_profile_account *a = &p->predicted, *b = &p->measured;
    char name[64];
    ps_text_out_format(o, "<table><tr><th>a step</th><th>predicted</th><th>%s</th><th>ratio</th></tr>\n",
                       p->is_simulated ? "simulated" : "measured");
    put_row(o, "time", a->step_seconds, b->step_seconds, "s");
    for (int i = 0; i < PS_REPORT_N_LANES; i++) {
        snprintf(name, sizeof name, "busy: %s", ps_report_profile_lane_names[i]);
        put_row(o, name, a->busy_seconds[i], b->busy_seconds[i], "s");
    }
    for (int i = 0; i < PS_REPORT_N_LANES; i++) {
        snprintf(name, sizeof name, "moved: %s", ps_report_profile_lane_names[i]);
        put_row(o, name, (double)a->moved_bytes[i], (double)b->moved_bytes[i], "B");
    }
    for (int i = 0; i < PS_REPORT_N_TIERS; i++) {
        snprintf(name, sizeof name, "peak: %s", ps_report_profile_tier_names[i]);
        put_row(o, name, (double)a->peak_bytes[i], (double)b->peak_bytes[i], "B");
    }
    if (a->critical != NULL || b->critical != NULL) {
        ps_text_out_string(o, "<tr><td>busiest</td><td>");
        ps_text_out_xml(o, a->critical != NULL ? a->critical : "–");
        ps_text_out_string(o, "</td><td>");
        ps_text_out_xml(o, b->critical != NULL ? b->critical : "–");
        ps_text_out_string(o, "</td><td></td></tr>\n");
    }
    ps_text_out_string(o, "</table>");
}

/* Less may be chance. */
#define FASTER_THAN_BOUND 0.9

/* "Bound: 0.4809 s a step, by computing (the disk 0.2320 s). Measured: 1.27 x that; ..." */
static void put_bound(ps_text_out *o, const ps_figures *f)
{
    const ps_report_profile *p = f->profile;
    const ps_report_profile_bound *b = &p->bound;
    const ps_figure_parts *parts = &f->parts;
    const char *separator = " (";
    if (b->n == 0 || b->seconds[b->by] <= 0) return;
    ps_text_out_format(o, "<p class=\"facts\">Bound: %.4f s a step by ", b->seconds[b->by]);
    ps_text_out_xml(o, b->names[b->by]);
    for (int i = 0; i < b->n; i++) {
        if (i == b->by) continue;
        ps_text_out_string(o, separator);
        ps_text_out_xml(o, b->names[i]);
        ps_text_out_format(o, " %.4f s", b->seconds[i]);
        separator = ", ";
    }
    ps_text_out_format(o, "%s, at the rates that were reckoned with.", b->n > 1 ? ")" : "");
    if (parts->step_seconds > 0) {
        double computing = 0;
        for (int i = 0; i < PS_REPORT_N_PHASES; i++) computing += parts->compute_seconds[i];
        ps_text_out_format(o, " A step took %.2f x that long: computing %.4f s",
                           parts->step_seconds / b->seconds[b->by], computing);
        for (int i = 0; i < PS_REPORT_N_LANES; i++)
            if (parts->wait_seconds[i] > 0)
                ps_text_out_format(o, ", waiting for %s %.4f s", ps_report_profile_lane_names[i],
                                   parts->wait_seconds[i]);
        ps_text_out_format(o, ", the rest %.4f s.", parts->rest_seconds);
        if (!p->is_simulated && parts->step_seconds < FASTER_THAN_BOUND * b->seconds[b->by])
            ps_text_out_string(o, " Faster than its bound: the rates that were reckoned with are too low (pstar info "
                                  "--forget where they were measured).");
    }
    ps_text_out_string(o, "</p>\n");
}

/* Which of the rates that the plan reckoned with was off. */
static void put_throughput(ps_text_out *o, const ps_report_profile *p)
{
    if (p->n_throughputs == 0) return;
    ps_text_out_string(o, "<table><tr><th>rate</th><th>reckoned with</th><th>seen</th><th>ratio</th></tr>\n");
    for (int i = 0; i < p->n_throughputs; i++) {
        const ps_report_profile_throughput *r = &p->throughput[i];
        ps_text_out_string(o, "<tr><td>");
        ps_text_out_xml(o, r->of);
        ps_text_out_format(o, "</td><td>%.2f G", r->reckoned * 1e-9);
        ps_text_out_xml(o, r->unit);
        ps_text_out_format(o, "</td><td>%.2f G", r->seen * 1e-9);
        ps_text_out_xml(o, r->unit);
        if (r->reckoned > 0)
            ps_text_out_format(o, "</td><td>%.2f</td></tr>\n", r->seen / r->reckoned);
        else
            ps_text_out_string(o, "</td><td>–</td></tr>\n");
    }
    ps_text_out_string(o, "</table>");
}

/* ---- the page ---- */

ps_status ps_report_write_html(const ps_figures *f, const char *path)
{
    ps_text_out o;
    ps_page page = ps_page_begin(ps_asset_profile_figures, ps_asset_profile_script);
    PS_TRY(ps_text_out_open(&o, path));
    for (const char *mark; (mark = ps_page_next(&page, &o)) != NULL;) {
        if (strcmp(mark, "title") == 0) put_title(&o, f);
        if (strcmp(mark, "head") == 0) put_head(&o, f);
        if (strcmp(mark, "data") == 0) put_data(&o, f);
        if (strcmp(mark, "table") != 0) continue;
        put_bound(&o, f);
        put_table(&o, f->profile);
        put_throughput(&o, f->profile);
    }
    return ps_text_out_close(&o);
}
