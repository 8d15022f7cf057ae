/* bench.h - what the programs of bench/ share: ending on a failure, samples and their order. */
#ifndef PS_BENCH_H
#define PS_BENCH_H

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/machine.h"
#include "kernel/kernel.h"
#include "patrickstar.h"

#define BENCH_SAMPLES_MAX 256

typedef struct bench_samples {
    double seconds[BENCH_SAMPLES_MAX];
    int n;
} bench_samples;

static inline void bench_check(ps_status st)
{
    if (st == PS_OK) return;
    fprintf(stderr, "%s: %s\n", ps_status_name(st), ps_last_error());
    exit(1);
}

static inline double bench_now(void)
{
    return (double)ps_clock_ns() * 1e-9;
}

/* A full set takes no more. */
static inline void bench_add(bench_samples *s, double seconds)
{
    if (s->n < BENCH_SAMPLES_MAX) s->seconds[s->n++] = seconds;
}

static inline int bench_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the samples; at least one. */
static inline double bench_median(bench_samples *s)
{
    qsort(s->seconds, (size_t)s->n, sizeof *s->seconds, bench_by_value);
    return s->n % 2 ? s->seconds[s->n / 2] : 0.5 * (s->seconds[s->n / 2 - 1] + s->seconds[s->n / 2]);
}

static inline double bench_least(const bench_samples *s)
{
    double least = s->seconds[0];
    for (int i = 1; i < s->n; i++) least = s->seconds[i] < least ? s->seconds[i] : least;
    return least;
}

/* Gives this thread's kernels and parallel regions one thread a core, and returns how many threads such a region really
 * has: what is printed must be what ran. */
static inline int bench_threads(void)
{
    int n = 0;
    ps_kernels_set_threads(ps_machine_cores(NULL));
#pragma omp parallel
#pragma omp single
    n = omp_get_num_threads();
    return n;
}

#endif
