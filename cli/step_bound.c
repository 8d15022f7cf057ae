#include "step_bound.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/mem.h"

enum { N_FIRST = 3 };

/* A step this much faster than its bound shows that rates are wrong; less may be chance. */
#define FASTER_THAN_BOUND 0.9

ps_status step_times_add(step_times *t, double seconds, double waiting_s)
{
    PS_TRY(ps_mem_reserve(&t->step, t->n + 1, sizeof *t->step));
    t->step[t->n++] = (struct step_time){.seconds = seconds, .waiting_s = waiting_s};
    return PS_OK;
}

void step_times_deinit(step_times *t)
{
    ps_mem_free(t->step);
    *t = (step_times){0};
}

static int by_size(const void *a, const void *b)
{
    const double x = ((const struct step_time *)a)->seconds, y = ((const struct step_time *)b)->seconds;
    return (x > y) - (x < y);
}

/* Without the first steps. */
static void find_measured(step_times *t, step_bound *out)
{
    const size_t skipped = t->n > 2 * N_FIRST ? N_FIRST : 0, n = t->n - skipped;
    struct step_time *const s = t->step + skipped;
    double seconds = 0, waiting_s = 0;
    for (size_t i = 0; i < n; i++) seconds += s[i].seconds, waiting_s += s[i].waiting_s;
    qsort(s, n, sizeof *s, by_size);
    out->measured_s = n % 2 == 1 ? s[n / 2].seconds : 0.5 * (s[n / 2 - 1].seconds + s[n / 2].seconds);
    /* the same part of a step of median length as of all */
    out->waiting_s = seconds > 0 ? out->measured_s * waiting_s / seconds : 0;
}

void step_bound_find(const ps_engine *e, const ps_config *config, step_times *t, step_bound *out)
{
    ps_hardware room;
    const ps_hardware *hw = NULL;
    *out = (step_bound){.planned = e->shape->forecast.step};
    /* a file has been read before */
    out->is_known = t->n > 0 && ps_config_hardware(config, &room, &hw) == PS_OK && hw != NULL;
    if (!out->is_known) return;
    out->bound = ps_bound_of_plan(e->blueprint, &e->shape->forecast);
    find_measured(t, out);
}

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

static int64_t planned_waiting_ns(const ps_step_time *t)
{
    return t->all_ns - t->compute_ns - t->lost_ns;
}

void step_bound_print(const step_bound *b)
{
    char text[PS_BOUND_TEXT_MAX];
    if (!b->is_known || ps_bound_ns(&b->bound) == 0) return;
    printf("bound     %s\n", ps_bound_text(&b->bound, text));
    printf("          a step took %.4f s, %.2f x that long; planned were %.4f s\n", b->measured_s,
           b->measured_s / seconds(ps_bound_ns(&b->bound)), seconds(b->planned.all_ns));
    printf("          of it waiting %.4f s, planned %.4f s; the rest, computing, %.4f s, planned %.4f s\n",
           b->waiting_s, seconds(planned_waiting_ns(&b->planned)), b->measured_s - b->waiting_s,
           seconds(b->planned.compute_ns + b->planned.lost_ns));
    if (b->measured_s < FASTER_THAN_BOUND * seconds(ps_bound_ns(&b->bound)))
        printf("          which cannot be: the rates kept of this machine are too low (pstar info --forget)\n");
    if (ps_bound_between(&b->bound, &b->planned, text)[0] != '\0') printf("          as planned, %s\n", text);
}

json_t *step_bound_json(const step_bound *b)
{
    if (!b->is_known) return NULL;
    return json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:f}", "bound_s", seconds(ps_bound_ns(&b->bound)), "by",
                     ps_bound_part_name(b->bound.by), "disk_phases_s", seconds(b->bound.phases_ns), "step_s",
                     b->measured_s, "planned_step_s", seconds(b->planned.all_ns), "waiting_s", b->waiting_s,
                     "planned_waiting_s", seconds(planned_waiting_ns(&b->planned)));
}
