#include "step_bound.h"

#include <stdlib.h>

enum { N_FIRST = 3 };

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
    out->is_steady = t->n > 2 * N_FIRST;
    const size_t n_skipped = out->is_steady ? N_FIRST : 0, n = t->n - n_skipped;
    struct step_time *const s = t->step + n_skipped;
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
    if (t->n == 0) return;
    find_measured(t, out);
    /* the configuration has been read before */
    out->is_known = ps_engine_get_bound_info(e, config, &out->plan) == PS_OK && out->plan.by[0] != '\0';
}

json_t *step_bound_json(const step_bound *b)
{
    const ps_bound_info *p = &b->plan;
    if (!b->is_known) return NULL;
    return json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:s}", "bound_s", p->bound_s, "by", p->by,
                     "disk_phases_s", p->disk_phases_s, "step_s", b->measured_s, "planned_step_s", p->planned_s,
                     "planned_computing_s", p->planned_compute_s, "waiting_s", b->waiting_s, "planned_waiting_s",
                     p->planned_wait_s, "text", p->text, "between", p->between);
}
