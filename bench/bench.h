/* bench.h - what the programs of bench/ share: ending on a failure, samples and their order. */
#ifndef PS_BENCH_H
#define PS_BENCH_H

#include <stdio.h>
#include <stdlib.h>

#include "base/machine.h"
#include "kernel/backend.h"
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

/* The backend of this processor, with one thread a core. */
static inline ps_backend *bench_backend(int *n_threads)
{
    ps_backend *b;
    *n_threads = ps_cpu_threads();
    bench_check(ps_backend_create_cpu(ps_cpu_isa_detect(), *n_threads, &b));
    return b;
}

#endif
