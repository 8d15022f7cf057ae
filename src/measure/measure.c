#include "measure/measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "measure/measure_impl.h"

enum { FIGURES_EXPECTED = 26 }; /* the time is divided among so many */

#define RAM_BYTES (1 * PS_GIB)

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

double ps_measured(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", x);
    return strtod(text, NULL);
}

ps_status ps_measuring_take(ps_measuring *m, int64_t bytes, void *out_pointer)
{
    PS_ASSERT(m->n_blocks < PS_MEASURING_BLOCKS_MAX);
    void *p = NULL;
    PS_TRY(ps_device_alloc(m->ram, bytes, &p));
    memset(p, 0, (size_t)bytes);
    m->blocks[m->n_blocks].p = p;
    m->blocks[m->n_blocks++].bytes = bytes;
    memcpy(out_pointer, &p, sizeof p);
    return PS_OK;
}

void ps_measuring_release(ps_measuring *m)
{
    while (m->n_blocks > 0) {
        m->n_blocks--;
        ps_device_free(m->ram, m->blocks[m->n_blocks].p, m->blocks[m->n_blocks].bytes);
    }
}

/* What can be had without measuring. */
static ps_status describe(ps_measuring *m)
{
    ps_hardware *hw = &m->report->hardware;
    ps_machine_memory_info memory;
    char cpu[96];
    PS_TRY(ps_machine_memory(NULL, &memory));
    ps_machine_cpu_name(NULL, cpu, sizeof cpu);
    snprintf(m->origin, sizeof m->origin, "Measured by pstar info --measure on %s, %d threads, kernels %s.", cpu,
             ps_cpu_threads(), ps_backend_name(m->backend));
    snprintf(hw->name, sizeof hw->name, "%.70s", cpu);
    hw->n_nodes = 1;
    hw->gpus_per_node = 0;
    hw->host.bytes = hw->device.bytes = memory.total_bytes;
    hw->host.reserved_bytes = hw->device.reserved_bytes = memory.total_bytes - memory.available_bytes;
    strcpy(hw->device.source, m->origin);
    strcpy(hw->host.source, m->origin);
    strcpy(hw->link.source, m->origin);
    return PS_OK;
}

/* All measurements; memory comes back after each. */
static ps_status measure_all(ps_measuring *m)
{
    PS_TRY(describe(m));
    PS_TRY(ps_measure_memory(m));
    PS_TRY(ps_measure_products(m));
    PS_TRY(ps_measure_link(m));
    if (m->options->disk_folder != NULL) PS_TRY(ps_measure_disk(m));
    return ps_hardware_check(&m->report->hardware);
}

/* Whether the disk tier can be tried at all, before time is spent on the rest. */
static ps_status check_disk(const char *folder)
{
    ps_disk *d = NULL;
    if (folder == NULL) return PS_OK;
    PS_TRY(ps_disk_open(folder, PS_DISK_AUTO, 1, &d));
    ps_disk_close(d);
    return PS_OK;
}

ps_status ps_measure_machine(const ps_measure_options *options, ps_measure_report *out)
{
    ps_measuring m = {.options = options, .report = out, .slice_s = options->seconds / FIGURES_EXPECTED};
    *out = (ps_measure_report){0};
    PS_TRY(check_disk(options->disk_folder));
    ps_status st = ps_backend_create_cpu(ps_cpu_isa_detect(), ps_cpu_threads(), &m.backend);
    if (st == PS_OK) st = ps_device_create(&ps_device_cpu_ops, "memory for measuring", RAM_BYTES, &m.ram);
    if (st == PS_OK) st = measure_all(&m);
    ps_measuring_release(&m);
    ps_device_destroy(m.ram);
    ps_backend_destroy(m.backend);
    return st;
}
