/* measure_impl.h - what the files of measure*.c share. */
#ifndef PS_MEASURE_MEASURE_IMPL_H
#define PS_MEASURE_MEASURE_IMPL_H

#include "device/disk.h"
#include "kernel/backend.h"
#include "measure/measure.h"

enum { PS_SAMPLES_MAX = 101, PS_MEASURING_BLOCKS_MAX = 64 };

/* Repetitions of one measurement: while (ps_samples_want(&s)) { begin = clock; work; ps_samples_add(&s, ...); } */
typedef struct ps_samples {
    double value[PS_SAMPLES_MAX];
    int n, n_least;
    int64_t end_ns; /* no more than n_least samples after this */
} ps_samples;

typedef struct ps_measuring {
    const ps_measure_options *options;
    ps_measure_report *report;
    ps_backend *backend;
    double slice_s; /* time for one figure */
    ps_device *ram;
    struct {
        void *p;
        int64_t bytes;
    } blocks[PS_MEASURING_BLOCKS_MAX]; /* held, given back by ps_measuring_release */
    int n_blocks;
    char origin[PS_HARDWARE_SOURCE_MAX / 2]; /* "measured on ...", for the sources */
} ps_measuring;

/* ---- samples.c ---- */

bool ps_samples_want(const ps_samples *s);
void ps_samples_add(ps_samples *s, double value);
double ps_samples_median(ps_samples *s); /* sorts; at least one sample */

/* Seconds since a reading of ps_clock_ns. */
double ps_seconds_since(int64_t begin_ns);

/* Begin a figure, which may take `share` slices of the time. */
void ps_samples_begin(const ps_measuring *m, double share, ps_samples *s);

/* Enter a figure into the report; returns its median. unit must be a literal. */
__attribute__((format(printf, 4, 5))) double ps_measuring_report(ps_measuring *m, ps_samples *s, const char *unit,
                                                                 const char *what, ...);

/* A measured number as it is written down: rounded to four digits, which is more than it is worth. */
double ps_measured(double x);

/* Zeroed memory, whose pages are there, in *out_pointer (a pointer of any type); kept until the release.
 * PS_ENOMEM_DEV. */
PS_NODISCARD ps_status ps_measuring_take(ps_measuring *m, int64_t bytes, void *out_pointer);
void ps_measuring_release(ps_measuring *m);

/* ---- computing: measure_compute.c ---- */

/* Fill in what the description says of memory, Adam and latency, then of products. */
PS_NODISCARD ps_status ps_measure_memory(ps_measuring *m);
PS_NODISCARD ps_status ps_measure_products(ps_measuring *m);

/* ---- a block of a transformer: measure_block.c ---- */

/* What the operators of a training step reach, by kind: the rates with which the cost model predicts the times that they
 * were measured to take in a block of a transformer, forward and backward. *reached: of products, in FLOP/s; at most a
 * few times flop_per_s, that of large products. The device's share of the memory's rate, and times of scores and logits,
 * are filled in: those of the format measured last. Memory and latency must be there. */
PS_NODISCARD ps_status ps_measure_block(ps_measuring *m, ps_dtype t, double flop_per_s, double *reached);

/* ---- moving: measure_copy.c ---- */

PS_NODISCARD ps_status ps_measure_link(ps_measuring *m);
PS_NODISCARD ps_status ps_measure_disk(ps_measuring *m);

#endif
