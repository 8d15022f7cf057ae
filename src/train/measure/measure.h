/* measure.h - a hardware description of this machine, from short measurements.
 *
 * The measurements are of what training uses: the kernels of its backend, copies through queues of the device,
 * transfers through the disk tier. They run one after the other, on a machine that should be idle otherwise; medians
 * are kept, so that occasional disturbances do no harm. */
#ifndef PS_MEASURE_MEASURE_H
#define PS_MEASURE_MEASURE_H

#include "base/dtype.h"
#include "config/hardware.h"
#include "kernel/backend.h"

/* A GPU to describe; no other work uses it meanwhile. */
typedef struct ps_measure_gpu {
    ps_backend *backend; /* of the GPU */
    const char *name;
    int64_t total_bytes, usable_bytes;
    int64_t product_workspace_bytes;
} ps_measure_gpu;

typedef struct ps_measure_options {
    const ps_measure_gpu *gpu; /* NULL: the processor */
    const char
        *disk_folder; /* or several, as in memory.disk_path: folders for measuring the disk tier; NULL: no disk in the
                      * description */
    double seconds;   /* approximate total duration, > 0 */
    int n_samples_least; /* of each figure, >= 1, regardless of `seconds` */
    bool one_format;     /* multiplications of `format` only: the description has no other */
    ps_dtype format;
    ps_cpu_isa isa; /* of the kernels; at most what the processor has */
    int n_threads;  /* compute threads, >= 1 */
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
    /* Other processes used the processor, or its speed changed within moments: another measurement may give higher
     * values. */
    bool is_busy;
    ps_measure_figure figures[PS_MEASURE_FIGURES_MAX];
    int n_figures;
} ps_measure_report;

/* Uses n_threads cores, a quarter of the available memory but at most 256 MiB (1 GiB with a GPU, and some GB of the
 * GPU's), and at most 128 MiB of disk. PS_EIO when the disk folder cannot be used, PS_ENOMEM_DEV when memory is short;
 * PS_ENOSYS: isa or n_threads. On failure *out is unspecified. */
PS_NODISCARD ps_status ps_measure_machine(const ps_measure_options *options, ps_measure_report *out);

#endif
