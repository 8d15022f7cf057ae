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

/* Where operators compute, and what they compute on lies. */
typedef struct ps_measure_place {
    ps_backend *backend;
    ps_queue *queue; /* that they are issued to; NULL: they compute when called */
    ps_device *memory;
} ps_measure_place;

/* How much is computed and copied: as much as is usual in training, so that rates are those of training. */
typedef struct ps_measure_sizes {
    int64_t stream_n;       /* elements of arrays that stream through memory: far more than caches hold */
    int64_t adam_n;         /* parameters */
    int64_t products[3][3]; /* rows, n_in, n_out */
    int64_t copy_bytes;     /* of one copy */
    int64_t B, T, C, H, V;  /* of a block of a transformer and its loss */
    int n_calls;            /* of an operator before its end is waited for */
    int n_copies;           /* each way in a pass */
} ps_measure_sizes;

typedef struct ps_measuring {
    const ps_measure_options *options;
    ps_measure_report *report;
    const ps_measure_sizes *sizes;
    ps_measure_place device, host; /* without a GPU the same */
    double slice_s;                /* time for one figure */
    double spread;                 /* the most that a typical sample of computing fell behind the best one, >= 1 */
    struct {
        ps_device *of;
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

/* Of one figure of computing: see ps_measuring.spread. */
void ps_measuring_spread(ps_measuring *m, double best, double median);

/* A measured number as it is written down: rounded to four digits, which is more than it is worth. */
double ps_measured(double x);

/* Was the machine busy with other things? processor_s: of n_threads that computed for wall_s, on n_cores. */
bool ps_measure_is_busy(double spread, double processor_s, double wall_s, int n_threads, int n_cores);

/* Processor time of this process so far. */
double ps_processor_seconds(void);

/* ---- places: place.c ---- */

extern const ps_measure_sizes ps_measure_sizes_processor;
/* What a processor is measured in of this much memory: room for its sizes, at most a quarter. PS_ENOMEM_DEV: too little. */
PS_NODISCARD ps_status ps_measure_room(int64_t available_bytes, int64_t *bytes, const ps_measure_sizes **sizes);
/* For this much memory. */
const ps_measure_sizes *ps_measure_sizes_of_gpu(int64_t usable_bytes);

/* The two places: processor and RAM; or the GPU of the options, with page-locked memory beside it. Ended by close, after
 * a failure too. */
PS_NODISCARD ps_status ps_measure_open_places(ps_measuring *m);
void ps_measure_close_places(ps_measuring *m);

/* Zeroed memory, whose pages are there, in *out_pointer (a pointer of any type); kept until the release. Errors as of
 * ps_device_alloc. */
PS_NODISCARD ps_status ps_measuring_take(ps_measuring *m, const ps_measure_place *at, int64_t bytes, void *out_pointer);
void ps_measuring_release(ps_measuring *m);

/* The operator n times, to its end. *seconds (may be NULL): of one. */
PS_NODISCARD ps_status ps_measure_run(const ps_measure_place *at, ps_op op, const void *args, size_t workspace_bytes,
                                      int n, double *seconds);
/* Values to the place's memory. */
PS_NODISCARD ps_status ps_measure_put(const ps_measure_place *at, void *dst, const void *src, int64_t bytes);

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

/* ---- a GPU's memory: measure_gpu.c ---- */

/* What it costs to page-lock host memory and to map device memory: figures for people. */
PS_NODISCARD ps_status ps_measure_taking(ps_measuring *m);

/* ---- moving: measure_copy.c ---- */

/* Seconds of computing lost for a second of transfers, [0, 1], that keep n_busy processors busy: what n_threads that
 * compute on n_cores must give up for them. */
double ps_measure_interference(double n_busy, int n_threads, int n_cores);

PS_NODISCARD ps_status ps_measure_link(ps_measuring *m);
PS_NODISCARD ps_status ps_measure_disk(ps_measuring *m);

#endif
