/* measure.h - a hardware description of the machine at hand, from short measurements.
 *
 * What is measured is what training does: the kernels of the table that training uses, copies through queues of the
 * device, transfers through the disk tier. All of it in turn, on a machine that should do nothing else
 * meanwhile; medians are kept, so that a disturbance now and then does no harm. */
#ifndef PS_MEASURE_MEASURE_H
#define PS_MEASURE_MEASURE_H

#include "config/hardware.h"
#include "kernel/backend.h"
#include "tensor/dtype.h"

/* A GPU to describe; nothing else uses it meanwhile. */
typedef struct ps_measure_gpu {
    ps_backend *backend; /* of it */
    const char *name;
    int64_t total_bytes, usable_bytes;
    int64_t product_workspace_bytes;
} ps_measure_gpu;

typedef struct ps_measure_options {
    const ps_measure_gpu *gpu; /* NULL: the processor computes */
    const char *
        disk_folder; /* or several, as memory.disk_path has them: where to try the disk tier; NULL: the description gets no disk */
    double seconds;      /* about how long in all, > 0 */
    int n_samples_least; /* of each figure, >= 1, however long they take */
    bool one_format;     /* products of `format` only: the description offers no other */
    ps_dtype format;
    ps_cpu_isa isa; /* of the kernels; at most what the processor has */
    int n_threads;  /* that compute, >= 1 */
} ps_measure_options;

/* One measured quantity, of n samples. */
typedef struct ps_measure_figure {
    char what[64];
    const char *unit; /* "GFLOP/s", "GB/s", "us", "ms", "" */
    double median, least, most;
    int n;
} ps_measure_figure;

enum { PS_MEASURE_FIGURES_MAX = 48 };

typedef struct ps_measure_report {
    ps_hardware hardware;
    /* Somebody else took processor time, or speeds changed within moments: another measurement may find better rates. */
    bool is_busy;
    ps_measure_figure figures[PS_MEASURE_FIGURES_MAX];
    int n_figures;
} ps_measure_report;

/* Uses n_threads cores, a quarter of the memory that is available but at most 256 MiB (1 GiB beside a GPU, and some GB of
 * the GPU's), and at most 128 MiB of disk. PS_EIO when the disk
 * folder cannot be used, PS_ENOMEM_DEV when memory is short;
 * PS_ENOSYS: isa or n_threads. On failure *out is unspecified. */
PS_NODISCARD ps_status ps_measure_machine(const ps_measure_options *options, ps_measure_report *out);

#endif
