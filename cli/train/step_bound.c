#include "step_bound.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_FIRST = 3 };

/* A step this much faster than its bound shows that rates are wrong; less may be chance. */
#define FASTER_THAN_BOUND 0.9

ps_status step_times_add(step_times *t, double seconds, double waiting_s)
{
    TRY(client_reserve(&t->step, (int64_t)t->n + 1, sizeof *t->step));
    t->step[t->n++] = (struct step_time){.seconds = seconds, .waiting_s = waiting_s};
    return PS_OK;
}

void step_times_deinit(step_times *t)
{
    free(t->step);
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
    *out = (step_bound){.plan.struct_size = sizeof out->plan};
    /* the configuration has been read before */
    out->is_known = t->n > 0 && ps_engine_get_bound_info(e, config, &out->plan) == PS_OK && out->plan.by[0] != '\0';
    if (out->is_known) find_measured(t, out);
}

void step_bound_print(const step_bound *b)
{
    const ps_bound_info *p = &b->plan;
    if (!b->is_known || p->bound_s <= 0) return;
    printf("bound     %s\n", p->text);
    printf("          a step took %.4f s, %.2f x that long; planned were %.4f s\n", b->measured_s,
           b->measured_s / p->bound_s, p->planned_s);
    printf("          of it waiting %.4f s, planned %.4f s; the rest, computing, %.4f s, planned %.4f s\n",
           b->waiting_s, p->planned_wait_s, b->measured_s - b->waiting_s, p->planned_compute_s);
    if (b->measured_s < FASTER_THAN_BOUND * p->bound_s)
        printf("          faster than the rates kept of this machine allow: pstar info --forget, and the next run "
               "measures them again\n");
    if (p->between[0] != '\0') printf("          as planned, %s\n", p->between);
}

json_t *step_bound_json(const step_bound *b)
{
    const ps_bound_info *p = &b->plan;
    if (!b->is_known) return NULL;
    return json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:f}", "bound_s", p->bound_s, "by", p->by, "disk_phases_s",
                     p->disk_phases_s, "step_s", b->measured_s, "planned_step_s", p->planned_s, "waiting_s",
                     b->waiting_s, "planned_waiting_s", p->planned_wait_s);
}
