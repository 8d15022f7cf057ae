/* samples.c - repetitions of a measurement, and the resulting figure. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/machine.h"
#include "train/measure/measure_impl.h"

/* An idle machine gives compute threads all but a few hundredths of its cores, and its samples are within a few
 * hundredths of each other; varying clock rates cause a tenth. */
#define PROCESSOR_LEAST 0.85
#define SPREAD_MOST 1.25

void ps_samples_begin(const ps_measuring *m, double share, ps_samples *s)
{
    s->n = 0;
    s->n_least = (int)ps_min_i64(m->options->n_samples_least, PS_SAMPLES_MAX);
    s->end_ns = ps_clock_ns() + (int64_t)(share * m->slice_s * 1e9);
}

bool ps_samples_want(const ps_samples *s)
{
    return s->n < s->n_least || (s->n < PS_SAMPLES_MAX && ps_clock_ns() < s->end_ns);
}

void ps_samples_add(ps_samples *s, double value)
{
    PS_ASSERT(s->n < PS_SAMPLES_MAX);
    s->value[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ps_samples_median(ps_samples *s)
{
    qsort(s->value, (size_t)s->n, sizeof *s->value, by_value);
    return s->n % 2 ? s->value[s->n / 2] : 0.5 * (s->value[s->n / 2 - 1] + s->value[s->n / 2]);
}

double ps_seconds_since(int64_t begin_ns)
{
    return (double)ps_max_i64(1, ps_clock_ns() - begin_ns) * 1e-9;
}

double ps_measuring_report(ps_measuring *m, ps_samples *s, const char *unit, const char *what, ...)
{
    PS_ASSERT(m->report->n_figures < PS_MEASURE_FIGURES_MAX);
    ps_measure_figure *f = &m->report->figures[m->report->n_figures++];
    va_list ap;
    va_start(ap, what);
    vsnprintf(f->what, sizeof f->what, what, ap);
    va_end(ap);
    f->unit = unit;
    f->median = ps_samples_median(s);
    f->least = s->value[0];
    f->most = s->value[s->n - 1];
    f->n = s->n;
    return f->median;
}

void ps_measuring_spread(ps_measuring *m, double best, double median)
{
    const double spread = best > median ? best / median : median / best;
    if (spread > m->spread) m->spread = spread;
}

bool ps_measure_is_busy(double spread, double processor_s, double wall_s, int n_threads, int n_cores)
{
    return spread > SPREAD_MOST || processor_s < PROCESSOR_LEAST * wall_s * (n_threads < n_cores ? n_threads : n_cores);
}

double ps_processor_seconds(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double ps_measured(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", x);
    return strtod(text, NULL);
}
