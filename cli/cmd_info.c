/* cmd_info.c - pstar info: the machine, what this build can use of it, and how fast it is. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/status.h"
#include "cli.h"
#include "device/disk.h"
#include "kernel/backend.h"
#include "measure/measure.h"

#define MEASURE_SECONDS 12.0
#define QUICK_SECONDS 0.5

typedef struct options {
    const char *measure;   /* the file to write, or NULL */
    const char *disk_path; /* NULL: the default folder */
    bool quick;
} options;

static const char *disk_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp";
}

static void show_disk(const char *folder)
{
    char free_text[PS_BYTES_TEXT_MAX] = "unknown";
    struct statvfs fs;
    if (statvfs(folder, &fs) == 0) (void)ps_bytes_format((int64_t)fs.f_bavail * (int64_t)fs.f_frsize, free_text);
    ps_disk *d = NULL;
    if (ps_disk_open(folder, PS_DISK_AUTO, 4, &d) != PS_OK) {
        printf("disk tier           %s: %s\n", folder, ps_last_error());
        return;
    }
    const ps_disk_stats s = ps_disk_get_stats(d);
    printf("disk tier           %s: %s, %s, %s free\n", folder, s.backend,
           s.direct ? "O_DIRECT" : "through the page cache", free_text);
    ps_disk_close(d);
}

/* "212.0", "0.350": four digits, so that a column can be read. */
static void show_number(double x)
{
    printf("  %9.*f", x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : 3, x);
}

static void show_report(const ps_measure_report *r)
{
    printf("\n%-48s  %9s  %9s  %9s  unit     samples\n", "measured", "median", "least", "most");
    for (int i = 0; i < r->n_figures; i++) {
        const ps_measure_figure *f = &r->figures[i];
        printf("%-48s", f->what);
        show_number(f->median);
        show_number(f->least);
        show_number(f->most);
        printf("  %-7s  %d\n", f->unit, f->n);
    }
    const ps_hardware_device *d = &r->hardware.device;
    printf("\na training step reaches  %.0f%% (f32), %.0f%% (bf16), %.0f%% (fp16) of the fastest product\n",
           100 * d->f32.achievable_fraction, 100 * d->bf16.achievable_fraction, 100 * d->fp16.achievable_fraction);
}

static ps_status measure(const options *o, const char *folder)
{
    ps_measure_report report;
    const ps_measure_options how = {.disk_folder = folder[0] != '\0' ? folder : NULL,
                                    .seconds = o->quick ? QUICK_SECONDS : MEASURE_SECONDS,
                                    .n_samples_least = o->quick ? 1 : 5};
    ps_file_writer *trial = NULL; /* a file that cannot be written is said before the measuring */
    PS_TRY(ps_file_writer_open(o->measure, &trial));
    ps_file_writer_cancel(trial);
    PS_TRY(ps_measure_machine(&how, &report));
    show_report(&report);
    PS_TRY(ps_hardware_save(&report.hardware, o->measure));
    printf("%s has them for planning\n", o->measure);
    return PS_OK;
}

static bool has_nvidia_driver(void)
{
    return access("/proc/driver/nvidia/version", F_OK) == 0;
}

static ps_status show_machine(const char *folder)
{
    char name[128], total[PS_BYTES_TEXT_MAX], available[PS_BYTES_TEXT_MAX];
    ps_machine_memory_info memory;
    PS_TRY(ps_machine_memory(NULL, &memory));
    ps_machine_cpu_name(NULL, name, sizeof name);
    printf("pstar               %d.%d.%d\n", PS_VERSION_MAJOR, PS_VERSION_MINOR, PS_VERSION_PATCH);
    printf("processor           %s, %d cores usable\n", name, ps_machine_cores(NULL));
    printf("instruction set     %s\n", ps_cpu_isa_name(ps_cpu_isa_detect()));
    printf("memory              %s, %s available (least of the machine and its control groups)\n",
           ps_bytes_format(memory.total_bytes, total), ps_bytes_format(memory.available_bytes, available));
    if (folder[0] != '\0') show_disk(folder);
    printf("GPU                 %s\n", has_nvidia_driver()
                                           ? "an NVIDIA driver is there, but this version computes on the processor"
                                           : "none: no NVIDIA driver");
    printf("kernel backends     cpu %s; ref (plain C, for checking)\n", ps_cpu_isa_name(ps_cpu_isa_detect()));
    printf("number formats      f32, bf16 (multiplied %s), fp16 (multiplied in f32)\n",
           ps_cpu_bf16_products(ps_cpu_isa_detect()));
    printf("limits              no GPU in this version\n");
    return PS_OK;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    options *o = state->input;
    switch (key) {
    case 'm': o->measure = arg; return 0;
    case 'd': o->disk_path = arg; return 0;
    case 'q': o->quick = true; return 0;
    case ARGP_KEY_ARG: argp_usage(state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_info(int argc, char **argv)
{
    static const struct argp_option argp_options[] = {
        {"measure", 'm', "OUT.json", 0, "measure this machine for some seconds and write a hardware description", 0},
        {"disk-path", 'd', "FOLDER", 0, "folder of the disk tier (TMPDIR or /tmp when not given); '' measures no disk",
         0},
        {"quick", 'q', NULL, 0, "measure each figure as few times as can be: for trying it out", 0},
        {0}};
    static const struct argp argp = {
        .options = argp_options,
        .parser = parse,
        .doc = "Show the machine, what this build can use of it, and its limits.\v"
               "Measuring uses all cores; results hold for a machine that does nothing else meanwhile. doc/hardware.md "
               "describes the file."};
    options o = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    const char *const folder = o.disk_path != NULL ? o.disk_path : disk_folder();
    ps_status st = show_machine(folder);
    if (st == PS_OK && o.measure != NULL) st = measure(&o, folder);
    return cli_report("info", st);
}
