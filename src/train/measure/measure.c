#include "train/measure/measure.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/machine.h"
#include "kernel/cpu_kind.h"
#include "train/measure/measure_impl.h"

/* Share of the time; most figures take one, a few of them more or less. A format takes seven. */
enum { N_SLICES = 14, N_FORMAT_SLICES = 7 };

static void describe_device(ps_measuring *m, const ps_machine_memory_info *memory)
{
    const ps_measure_gpu *gpu = m->options->gpu;
    ps_hardware_device *d = &m->report->hardware.device;
    if (gpu != NULL) {
        d->bytes = gpu->total_bytes;
        d->reserved_bytes = gpu->total_bytes - gpu->usable_bytes;
        d->page_bytes = ps_device_page_bytes(m->device.memory);
        d->product_workspace_bytes = gpu->product_workspace_bytes;
    } else {
        d->page_bytes = PS_PAGE_BYTES;
        d->bytes = memory->total_bytes;
        d->reserved_bytes = memory->total_bytes - memory->available_bytes;
    }
}

/* The processor kind of kernels of `isa` on this processor. */
static ps_status describe_isa(ps_cpu_isa isa, ps_hardware_isa *out)
{
    ps_cpu_kind kind;
    PS_TRY(ps_cpu_kind_detect(&kind));
    kind.isa = isa;
    *out = PS_HARDWARE_ISA_AUTO;
    for (int i = 0; i < PS_HARDWARE_ISA_COUNT; i++)
        if (strcmp(ps_hardware_isa_names[i], ps_cpu_kind_name(&kind)) == 0) *out = (ps_hardware_isa)i;
    return PS_OK;
}

/* The part of the description that needs no measurement. */
static ps_status describe(ps_measuring *m)
{
    ps_hardware *hw = &m->report->hardware;
    ps_machine_memory_info memory;
    char cpu[96], date[32];
    PS_TRY(ps_machine_memory(NULL, &memory));
    ps_machine_cpu_name(NULL, cpu, sizeof cpu);
    const time_t now = time(NULL);
    struct tm utc = {0};
    (void)gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    const ps_measure_gpu *gpu = m->options->gpu;
    snprintf(m->origin, sizeof m->origin,
             "Measured %s by pstar info --measure on %.60s%s%.60s, %d threads, kernels %s.", date,
             gpu != NULL ? gpu->name : "", gpu != NULL ? " with " : "", cpu, m->options->n_threads,
             ps_backend_name(m->device.backend));
    snprintf(hw->name, sizeof hw->name, "%.70s", gpu != NULL ? gpu->name : cpu);
    hw->n_nodes = 1;
    hw->gpus_per_node = gpu != NULL ? 1 : 0;
    PS_TRY(describe_isa(m->options->isa, &hw->host.isa));
    hw->host.cores = m->options->n_threads;
    hw->host.bytes = memory.total_bytes;
    hw->host.reserved_bytes = memory.total_bytes - memory.available_bytes;
    describe_device(m, &memory);
    strcpy(hw->device.source, m->origin);
    strcpy(hw->host.source, m->origin);
    strcpy(hw->link.source, m->origin);
    return PS_OK;
}

/* Computing is disturbed most, and uses all cores: any other processor time is that of other processes. */
static ps_status measure_gemms(ps_measuring *m)
{
    const double processor_s = ps_processor_seconds();
    const int64_t begin = ps_clock_ns();
    PS_TRY(ps_measure_gemms(m));
    const int n_threads = m->options->gpu != NULL ? 0 : m->options->n_threads;
    m->report->is_busy = ps_measure_is_busy(m->spread, ps_processor_seconds() - processor_s, ps_seconds_since(begin),
                                            n_threads, ps_machine_cores(NULL));
    return PS_OK;
}

/* All measurements; memory is freed after each. */
static ps_status measure_all(ps_measuring *m)
{
    PS_TRY(describe(m));
    PS_TRY(ps_measure_memory(m));
    PS_TRY(measure_gemms(m));
    PS_TRY(ps_measure_link(m));
    if (m->options->disk_folder != NULL) PS_TRY(ps_measure_disk(m));
    return ps_hardware_check(&m->report->hardware);
}

/* Can the disk tier be used at all? Checked before time is spent on the rest. */
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
    const int n_formats = options->one_format ? 1 : PS_DTYPE_COUNT;
    ps_measuring m = {
        .options = options, .report = out, .slice_s = options->seconds / (N_SLICES + n_formats * N_FORMAT_SLICES)};
    *out = (ps_measure_report){0};
    PS_TRY(check_disk(options->disk_folder));
    ps_status st = ps_measure_open_places(&m);
    if (st == PS_OK) st = measure_all(&m);
    ps_measure_close_places(&m);
    return st;
}
