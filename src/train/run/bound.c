#include "train/run/bound.h"

#include <stdarg.h>
#include <stdio.h>

/* Below this share of a step a cause is not mentioned. */
#define WORTH_SAYING 0.005

const char *ps_bound_part_name(ps_bound_part p)
{
    static const char *const names[PS_BOUND_COUNT] = {[PS_BOUND_COMPUTE] = "computing",
                                                      [PS_BOUND_HOST] = "host updates",
                                                      [PS_BOUND_RAM] = "copies between device and host",
                                                      [PS_BOUND_DISK] = "the disk",
                                                      [PS_BOUND_COLLECTIVES] = "collectives"};
    return names[p];
}

const char ps_bound_phases_name[] = "the disk's phases";

/* ---- the bound ---- */

/* A second of both directions at once does what takes 2 - contention seconds in sequence; and neither direction is
 * faster than alone. */
static int64_t bytes_both_ways_ns(const ps_link_bandwidths *throughput, ps_link l, int64_t bytes,
                                  int64_t opposite_bytes)
{
    const double a = (double)bytes * 1e9 / throughput->link[l].bytes_per_s;
    const double b = (double)opposite_bytes * 1e9 / throughput->link[ps_link_opposite(l)].bytes_per_s;
    const double longer = a > b ? a : b, at_once = (a + b) / (2 - ps_link_contention(throughput, l));
    return (int64_t)(longer > at_once ? longer : at_once);
}

/* A link without time has no transfers. */
static int64_t moved_bytes(const ps_forecast *f, ps_link l)
{
    return f->step.busy_ns[l] > 0 ? f->mean_bytes[l] : 0;
}

static int64_t both_ways_ns(const ps_link_bandwidths *throughput, const ps_forecast *f, ps_link l)
{
    return bytes_both_ways_ns(throughput, l, moved_bytes(f, l), moved_bytes(f, ps_link_opposite(l)));
}

/* The duration of a collective follows from ranks and topology: chunk/comm/topology.h. */
ps_bound ps_bound_of(const ps_link_bandwidths *throughput, const ps_forecast *f)
{
    ps_bound b = {.part_ns = {[PS_BOUND_COMPUTE] = f->step.compute_ns,
                              [PS_BOUND_HOST] = f->step.host_ns,
                              [PS_BOUND_RAM] = both_ways_ns(throughput, f, PS_LINK_HOST_TO_DEVICE),
                              [PS_BOUND_DISK] = both_ways_ns(throughput, f, PS_LINK_DISK_READ),
                              [PS_BOUND_COLLECTIVES] = f->step.busy_ns[PS_LINK_COLLECTIVES]}};
    for (ps_bound_part p = 0; p < PS_BOUND_COUNT; p++)
        if (b.part_ns[p] > b.part_ns[b.by]) b.by = p;
    return b;
}

/* ---- the disk's phases ---- */

/* t(bytes) of bound.h; 0 for a negative number. */
static int64_t disk_ns(const ps_link_bandwidths *throughput, int64_t bytes)
{
    return bytes > 0 ? bytes_both_ways_ns(throughput, PS_LINK_DISK_READ, bytes, bytes) : 0;
}

int64_t ps_bound_phases_ns(const ps_link_bandwidths *throughput, const ps_bound_windows *w, int64_t memory_bytes)
{
    const int64_t away = w->early_bytes + w->other_bytes - memory_bytes;
    if (away <= 0) return 0;
    const int64_t backward = ps_max_i64(w->last_backward_ns, disk_ns(throughput, w->early_bytes - memory_bytes));
    const int64_t forward = ps_max_i64(w->first_forward_ns, disk_ns(throughput, w->other_bytes - memory_bytes));
    return w->between_ns + ps_max_i64(backward + forward, disk_ns(throughput, away));
}

/* Of this rank, without gradients and frozen parameters, which need not be written. */
static void add_bytes(const ps_exec_plan *b, ps_bound_windows *w)
{
    for (ps_list l = 0; l < ps_lists_grad(&b->lists); l++)
        for (int32_t c = 0; c < ps_lists_length(&b->lists, b->layout, l); c++) {
            if (!ps_exec_plan_owns(b, c) || !ps_exec_plan_trains(b, c) || !ps_exec_plan_has_chunk(b, l, c)) continue;
            const int64_t bytes = ps_item_bytes(b->lists.list[l].item, b->layout->used_elements[c]);
            *(b->is_early[c] ? &w->early_bytes : &w->other_bytes) += bytes;
        }
}

/* Computing on the device. */
static void add_computing(const ps_exec_plan *b, ps_bound_windows *w)
{
    const ps_code *code = b->code;
    const int32_t last = (int32_t)(b->settings->accumulation - 1) * code->n_instrs;
    const int32_t first_ends = b->instr_moment[code->n_forward], last_begins = b->instr_moment[last + code->n_forward];
    for (int32_t m = 0; m < b->trace->n_moments; m++) {
        const ps_moment *const moment = &b->trace->moments[m];
        if (moment->phase == PS_PHASE_UPDATE || ps_trace_tier_of(b->trace, moment) != PS_TIER_DEVICE) continue;
        *(m < first_ends    ? &w->first_forward_ns
          : m < last_begins ? &w->between_ns
                            : &w->last_backward_ns) += moment->cost_ns;
    }
}

ps_bound ps_bound_of_plan(const ps_exec_plan *b, const ps_forecast *f)
{
    const ps_link_bandwidths *throughput = &b->settings->throughput.links;
    const int64_t *budget = b->settings->budgets.bytes;
    ps_bound bound = ps_bound_of(throughput, f);
    ps_bound_windows w = {0};
    if (budget[PS_TIER_DISK] == 0 || !b->settings->training) return bound;
    add_bytes(b, &w);
    add_computing(b, &w);
    bound.phases_ns = ps_bound_phases_ns(throughput, &w, budget[PS_TIER_DEVICE] + budget[PS_TIER_HOST]);
    return bound;
}

/* ---- in words ---- */

typedef struct words {
    char *text;
    int n;
} words;

__attribute__((format(printf, 2, 3))) static void say(words *w, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(w->text + w->n, (size_t)(PS_BOUND_TEXT_MAX - w->n), format, ap);
    va_end(ap);
    w->n = (int)ps_min_i64(w->n + ps_max_i64(0, n), PS_BOUND_TEXT_MAX - 1);
}

enum { SECONDS_MAX = 32 };

/* Three digits: "0.0598 s", "1.06 s", "411 s". */
static const char *seconds(int64_t ns, char text[SECONDS_MAX])
{
    const double s = (double)ns * 1e-9;
    snprintf(text, SECONDS_MAX, "%.*f s", s >= 99.95 ? 0 : s >= 9.995 ? 1 : s >= 0.9995 ? 2 : s >= 0.09995 ? 3 : 4, s);
    return text;
}

const char *ps_bound_text(const ps_bound *b, char text[PS_BOUND_TEXT_MAX])
{
    words w = {.text = text};
    char time[SECONDS_MAX];
    const char *separator = "; ";
    say(&w, "%s for %s alone", seconds(ps_bound_ns(b), time), ps_bound_part_name(b->by));
    for (ps_bound_part p = 0; p < PS_BOUND_COUNT; p++) {
        if (p == b->by || b->part_ns[p] == 0) continue;
        say(&w, "%s%s for %s", separator, seconds(b->part_ns[p], time), ps_bound_part_name(p));
        separator = ", ";
    }
    if (b->phases_ns > 0)
        say(&w, "%s%s for passes that wait for the disk traffic of updates", separator, seconds(b->phases_ns, time));
    return text;
}

/* The link that is waited for longest, among those not mentioned yet. */
static ps_link longest_wait(const ps_step_time *t, bool *is_said)
{
    ps_link longest = PS_LINK_COUNT;
    for (ps_link l = 0; l < PS_LINK_COUNT; l++)
        if (!is_said[l] && (longest == PS_LINK_COUNT || t->wait_ns[l] > t->wait_ns[longest])) longest = l;
    is_said[longest] = true;
    return longest;
}

static void say_waits(words *w, const ps_step_time *t, int64_t least_ns)
{
    bool is_said[PS_LINK_COUNT] = {false};
    const char *begin = "computing waits ";
    char time[SECONDS_MAX];
    for (int i = 0; i < PS_LINK_COUNT; i++) {
        const ps_link l = longest_wait(t, is_said);
        if (t->wait_ns[l] <= least_ns) break;
        say(w, "%s%s for %s", begin, seconds(t->wait_ns[l], time), ps_link_name(l));
        begin = ", ";
    }
    const int64_t host_ns = t->host_wait_ns + t->idle_ns;
    if (host_ns > least_ns) say(w, "%s%s for the host", begin, seconds(host_ns, time));
}

const char *ps_bound_between(const ps_bound *b, const ps_step_time *t, char text[PS_BOUND_TEXT_MAX])
{
    words w = {.text = text};
    char time[SECONDS_MAX];
    const int64_t least_ns = (int64_t)(WORTH_SAYING * (double)t->all_ns), rest_ns = t->all_ns - ps_bound_ns(b);
    text[0] = '\0';
    say_waits(&w, t, least_ns);
    if (t->lost_ns > least_ns)
        say(&w, "%scopies slow it by %s", w.n > 0 ? "; " : "computing: ", seconds(t->lost_ns, time));
    if (b->by != PS_BOUND_COMPUTE && rest_ns > least_ns)
        say(&w, "%s%s %s idle%s for %s", w.n > 0 ? "; " : "", ps_bound_part_name(b->by),
            b->by == PS_BOUND_DISK ? "is" : "are",
            b->by == PS_BOUND_DISK || b->by == PS_BOUND_RAM ? ", or busy in one direction only," : "",
            seconds(rest_ns, time));
    return text;
}
