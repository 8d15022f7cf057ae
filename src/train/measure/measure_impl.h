/* measure_impl.h - shared by the files of measure*.c. */
#ifndef PS_MEASURE_MEASURE_IMPL_H
#define PS_MEASURE_MEASURE_IMPL_H

#include "device/disk.h"
#include "kernel/backend.h"
#include "train/measure/measure.h"

enum { PS_SAMPLES_MAX = 101, PS_MEASURING_BLOCKS_MAX = 64 };

/* Repetitions of one measurement: while (ps_samples_want(&s)) { begin = clock; work; ps_samples_add(&s, ...); } */
typedef struct ps_samples {
    double value[PS_SAMPLES_MAX];
    int n, n_least;
    int64_t end_ns; /* after this only until there are n_least samples */
} ps_samples;

/* Where operators compute, and the memory of their arguments. */
typedef struct ps_measure_place {
    ps_backend *backend;
    ps_queue *queue; /* for operators; NULL: they compute when called */
    ps_device *memory;
} ps_measure_place;

/* Sizes of computations and copies: as usual in training, so that throughput and bandwidth are those of training. */
typedef struct ps_measure_sizes {
    int64_t stream_n;      /* elements of arrays that stream through memory: far more than caches hold */
    int64_t adam_n;        /* parameters */
    int64_t gemms[3][3];   /* rows, n_in, n_out */
    int64_t copy_bytes;    /* of one copy */
    int64_t B, T, C, H, V; /* of a block of a transformer and its loss */
    int n_calls;           /* of an operator before waiting */
    int n_copies;          /* each way in a pass */
} ps_measure_sizes;

typedef struct ps_measuring {
    const ps_measure_options *options;
    ps_measure_report *report;
    const ps_measure_sizes *sizes;
    ps_measure_place device, host; /* the same without a GPU */
    double slice_s;                /* time for one figure */
    double spread;                 /* the largest ratio of a typical sample of computing to the best one, >= 1 */
    struct {
        ps_device *of;
        void *p;
        int64_t bytes;
    } blocks[PS_MEASURING_BLOCKS_MAX]; /* freed by ps_measuring_release */
    int n_blocks;
    char origin[PS_HARDWARE_SOURCE_MAX / 2]; /* "measured on ...", for the sources */
} ps_measuring;

/* ---- samples.c ---- */

bool ps_samples_want(const ps_samples *s);
void ps_samples_add(ps_samples *s, double value);
double ps_samples_median(ps_samples *s); /* sorts; at least one sample */

/* Seconds since a reading of ps_clock_ns. */
double ps_seconds_since(int64_t begin_ns);

/* Begin a figure, which may use `share` slices of the time. */
void ps_samples_begin(const ps_measuring *m, double share, ps_samples *s);

/* Enter a figure into the report; returns its median. unit must be a literal. */
__attribute__((format(printf, 4, 5))) double ps_measuring_report(ps_measuring *m, ps_samples *s, const char *unit,
                                                                 const char *what, ...);

/* For a figure of computing: updates ps_measuring.spread. */
void ps_measuring_spread(ps_measuring *m, double best, double median);

/* A measured number as it is written: rounded to four digits, more than its precision. */
double ps_measured(double x);

/* Was the machine busy with other work? processor_s: of n_threads that computed for wall_s, on n_cores. */
bool ps_measure_is_busy(double spread, double processor_s, double wall_s, int n_threads, int n_cores);

/* Processor time of this process so far. */
double ps_processor_seconds(void);

/* ---- places: place.c ---- */

extern const ps_measure_sizes ps_measure_sizes_processor;
/* Sizes for measuring a processor with this much memory: at most a quarter of it. PS_ENOMEM_DEV: too little. */
PS_NODISCARD ps_status ps_measure_room(int64_t available_bytes, int64_t *bytes, const ps_measure_sizes **sizes);
/* Sizes for this much memory. */
const ps_measure_sizes *ps_measure_sizes_of_gpu(int64_t usable_bytes);

/* The two places: processor and RAM; or the GPU of the options, and page-locked memory of the host. Ended by close,
 * after a failure too. */
PS_NODISCARD ps_status ps_measure_open_places(ps_measuring *m);
void ps_measure_close_places(ps_measuring *m);

/* Zeroed memory with its pages resident, in *out_pointer (a pointer of any type); kept until the release. Errors as
 * ps_device_alloc. */
PS_NODISCARD ps_status ps_measuring_take(ps_measuring *m, const ps_measure_place *at, int64_t bytes, void *out_pointer);
void ps_measuring_release(ps_measuring *m);

/* Runs the operator n times and waits. *seconds (may be NULL): of one. */
PS_NODISCARD ps_status ps_measure_run(const ps_measure_place *at, ps_op op, const void *args, size_t workspace_bytes,
                                      int n, double *seconds);
/* Copies values to the place's memory. */
PS_NODISCARD ps_status ps_measure_put(const ps_measure_place *at, void *dst, const void *src, int64_t bytes);

/* ---- computing: measure_compute.c ---- */

/* Fill in the description's figures of memory, Adam and latency, then of matrix multiplications. */
PS_NODISCARD ps_status ps_measure_memory(ps_measuring *m);
PS_NODISCARD ps_status ps_measure_gemms(ps_measuring *m);

/* ---- a block of a transformer: measure_block.c ---- */

/* Efficiency of the operators of a training step by kind: the figures with which the cost model predicts the measured
 * times in a block of a transformer, forward and backward. *reached: of matrix multiplications, in FLOP/s; at most a
 * few times flop_per_s, that of large ones. Fills in the device's share of the memory bandwidth, and times of scores
 * and logits, of the format measured last. Memory and latency must be measured already. */
PS_NODISCARD ps_status ps_measure_block(ps_measuring *m, ps_dtype t, double flop_per_s, double *reached);

/* ---- moving: measure_copy.c ---- */

/* Seconds of computing lost for a second of transfers, [0, 1], that keep n_busy processors busy while n_threads compute
 * on n_cores. */
double ps_measure_interference(double n_busy, int n_threads, int n_cores);

PS_NODISCARD ps_status ps_measure_link(ps_measuring *m);
PS_NODISCARD ps_status ps_measure_disk(ps_measuring *m);

#endif
