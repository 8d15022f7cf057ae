/* cmd_info.c - pstar info: prints the machine, the features that this build can use, and its measured throughput. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/status.h"
#include "cli.h"
#include "device/cuda/open.h"
#include "kernel/cpu_kind.h"
#include "machine_file.h"
#include "machine_info.h"
#include "train/measure/measure.h"

#define MEASURE_SECONDS 12.0
#define QUICK_SECONDS 0.5

enum { OPTION_FORMAT = 256, OPTION_THREADS, OPTION_ISA, OPTION_FORGET, OPTION_BACKEND };

typedef enum whose { WHOSE_BEST, WHOSE_PROCESSOR, WHOSE_GPU } whose;

typedef struct options {
    const char *measure;   /* the file to write, "-" for stdout, or NULL */
    const char *disk_path; /* NULL: the default folder */
    bool quick, forget, json;
    whose computes;
    bool one_format;
    ps_dtype format;
    int n_threads;
    ps_cpu_isa isa;
} options;

static const char *disk_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp";
}

/* "212.0", "0.350": four digits, so that a column can be read. */
static void show_number(double x)
{
    printf("  %9.*f", x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : 3, x);
}

static void show_reached(const char *format, const ps_hardware_matrix *m)
{
    if (m->present) printf(" %.0f%% (%s)", 100 * m->achievable_fraction, format);
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
    printf("\na training step reaches ");
    show_reached("f32", &d->f32);
    show_reached("bf16", &d->bf16);
    show_reached("fp16", &d->fp16);
    printf(" of the fastest matrix multiplication\n");
}

/* gpu->backend NULL: measure the CPU. */
static ps_status open_gpu(const options *o, ps_cuda_found *found, ps_measure_gpu *gpu)
{
    ps_backend *host;
    *gpu = (ps_measure_gpu){.backend = NULL};
    if (o->computes == WHOSE_PROCESSOR || (o->computes == WHOSE_BEST && !ps_cuda_is_expected())) return PS_OK;
    const ps_status st = ps_cuda_find(0, PS_CUDA_ATTENTION_AUTO, found);
    if (st != PS_OK) return o->computes == WHOSE_GPU ? st : PS_OK;
    PS_TRY(ps_backend_create_cpu(o->isa, o->n_threads, &host));
    *gpu = (ps_measure_gpu){.name = found->info.name,
                            .total_bytes = found->info.total_bytes,
                            .usable_bytes = found->usable_bytes,
                            .product_workspace_bytes = ps_cuda_get_parts()->gemm_bytes};
    return ps_backend_open_cuda(0, PS_CUDA_ATTENTION_AUTO, host, &gpu->backend);
}

static ps_status measure_as_asked(const options *o, const char *folder, ps_measure_report *out)
{
    ps_cuda_found found;
    ps_measure_gpu gpu;
    PS_TRY(open_gpu(o, &found, &gpu));
    const ps_measure_options how = {.gpu = gpu.backend != NULL ? &gpu : NULL,
                                    .disk_folder = folder[0] != '\0' ? folder : NULL,
                                    .seconds = o->quick ? QUICK_SECONDS : MEASURE_SECONDS,
                                    .n_samples_least = o->quick ? 1 : 5,
                                    .one_format = o->one_format,
                                    .format = o->format,
                                    .isa = o->isa,
                                    .n_threads = o->n_threads};
    const ps_status st = ps_measure_machine(&how, out);
    ps_backend_destroy(gpu.backend);
    return st;
}

/* On stderr, where measuring.c reads it. */
static void tell_of_others(const ps_measure_report *r)
{
    if (r->is_busy)
        fputs("other programs were running, or the processor changed its clock: measured again it may be faster\n",
              stderr);
}

static ps_status measure(const options *o, const char *folder)
{
    ps_measure_report report;
    ps_file_writer *trial = NULL; /* an unwritable file is reported before measuring */
    PS_TRY(ps_file_writer_open(o->measure, &trial));
    ps_file_writer_cancel(trial);
    PS_TRY(measure_as_asked(o, folder, &report));
    show_report(&report);
    tell_of_others(&report);
    PS_TRY(ps_hardware_save(&report.hardware, o->measure));
    printf("written to %s, for pstar plan --hardware\n", o->measure);
    return PS_OK;
}

/* For programs: the description alone. */
static ps_status measure_for_stdout(const options *o, const char *folder)
{
    ps_measure_report report;
    PS_TRY(measure_as_asked(o, folder, &report));
    tell_of_others(&report);
    return ps_hardware_write(&report.hardware, stdout);
}

/* ---- stored descriptions of this machine ---- */

/* of_disk: only the disk section of the file is used. */
static void show_throughput(const ps_hardware *hw, bool of_disk)
{
    static const char *const names[] = {"f32", "bf16", "fp16"};
    const ps_hardware_matrix *const gemms[] = {&hw->device.f32, &hw->device.bf16, &hw->device.fp16};
    const ps_hardware_disk *d = &hw->disk;
    printf("                   ");
    for (size_t i = 0; i < PS_ARRAY_LEN(gemms); i++)
        if (gemms[i]->present && !of_disk)
            printf(" training reaches %.0f GFLOP/s in %s,", 1e-9 * gemms[i]->flop_per_s * gemms[i]->achievable_fraction,
                   names[i]);
    if (!of_disk) printf(" RAM %.3g GB/s", 1e-9 * hw->host.memory_bytes_per_s);
    if (of_disk)
        printf(" disk reads %.3g GB/s, writes %.3g GB/s, both at once %.3g + %.3g GB/s", 1e-9 * d->read_bytes_per_s,
               1e-9 * d->write_bytes_per_s, 1e-9 * d->read_both_ways_bytes_per_s,
               1e-9 * d->write_both_ways_bytes_per_s);
    printf("\n");
}

/* "measured 2026-11-22 18:03 UTC", if the file has it. */
static void show_kept(const char *path)
{
    ps_hardware hw;
    if (ps_hardware_load(path, &hw) != PS_OK) {
        printf("measured speed      %s: cannot be used, and will be measured again: %s\n", path, ps_last_error());
        return;
    }
    const char *by = strstr(hw.device.source, " by pstar");
    printf("measured speed      %s: %.*s\n", path, by != NULL ? (int)(by - hw.device.source) : 0, hw.device.source);
    show_throughput(&hw, machine_file_is_of_disk(path));
}

/* Show, or remove, this machine's files in the user's cache folder. */
static ps_status go_through_kept(bool forget)
{
    char folder[MACHINE_FOLDER_BYTES], path[MACHINE_PATH_BYTES];
    ps_folder_list files;
    int n = 0;
    if (!machine_file_folder(folder) || !ps_folder_exists(folder)) folder[0] = '\0';
    if (folder[0] != '\0') {
        PS_TRY(ps_folder_list_read(folder, &files));
        for (int i = 0; i < files.n; i++) {
            if (!machine_file_is_of_this_machine(files.names[i])) continue;
            if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, files.names[i]) >= sizeof path) continue;
            n++;
            if (!forget)
                show_kept(path);
            else if (unlink(path) == 0)
                printf("forgotten: %s\n", path);
            else
                fprintf(stderr, "%s cannot be removed: %s\n", path, strerror(errno));
        }
        ps_folder_list_free(&files);
    }
    if (n == 0) printf("measured speed      not yet: the first plan or run measures it\n");
    return PS_OK;
}

static ps_status print_json(const char *folder)
{
    machine_info machine;
    PS_TRY(machine_info_find(folder, &machine));
    json_t *root = machine_info_json(&machine);
    json_dumpf(root, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(root);
    return PS_OK;
}

/* ---- arguments ---- */

static int read_threads(const char *word, struct argp_state *state)
{
    char *end;
    const long n = strtol(word, &end, 10);
    if (end == word || *end != '\0' || n < 1 || n > 4096) argp_error(state, "--threads '%s' is not 1 to 4096", word);
    return (int)n;
}

static ps_dtype read_format(const char *word, struct argp_state *state)
{
    for (ps_dtype t = 0; t < PS_DTYPE_COUNT; t++)
        if (strcmp(word, ps_dtype_name(t)) == 0) return t;
    argp_error(state, "--format '%s' is not f32, bf16 or f16", word);
    return PS_DTYPE_F32;
}

static ps_cpu_isa read_isa(const char *word, struct argp_state *state)
{
    for (ps_cpu_isa isa = 0; isa < PS_CPU_ISA_COUNT; isa++)
        if (strcmp(word, ps_cpu_isa_name(isa)) == 0) return isa;
    argp_error(state, "--isa '%s' is no instruction set of pstar's (train.isa in doc/config.md)", word);
    return PS_CPU_PORTABLE;
}

static whose read_backend(const char *word, struct argp_state *state)
{
    static const char *const words[] = {[WHOSE_BEST] = "auto", [WHOSE_PROCESSOR] = "cpu", [WHOSE_GPU] = "cuda"};
    for (size_t i = 0; i < PS_ARRAY_LEN(words); i++)
        if (strcmp(word, words[i]) == 0) return (whose)i;
    argp_error(state, "--backend '%s' is not auto, cpu or cuda", word);
    return WHOSE_BEST;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    options *o = state->input;
    switch (key) {
    case 'm': o->measure = arg; return 0;
    case 'd': o->disk_path = arg; return 0;
    case 'q': o->quick = true; return 0;
    case OPTION_FORMAT: o->one_format = true, o->format = read_format(arg, state); return 0;
    case OPTION_THREADS: o->n_threads = read_threads(arg, state); return 0;
    case OPTION_ISA: o->isa = read_isa(arg, state); return 0;
    case OPTION_BACKEND: o->computes = read_backend(arg, state); return 0;
    case OPTION_FORGET: o->forget = true; return 0;
    case 'j': o->json = true; return 0;
    case ARGP_KEY_ARG: argp_usage(state); return 0;
    case ARGP_KEY_END:
        if (o->json && (o->forget || o->measure != NULL)) argp_error(state, "--json is not for --forget or --measure");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_info(int argc, char **argv)
{
    static const struct argp_option argp_options[] = {
        {"measure", 'm', "OUT.json", 0,
         "measure this machine for some seconds and write a hardware description; - is stdout", 0},
        {"disk-path", 'd', "FOLDER", 0, "folder of the disk tier (TMPDIR or /tmp when not given); '' measures no disk",
         0},
        {"backend", OPTION_BACKEND, "NAME", 0,
         "measure what computes with train.backend = NAME: auto (a GPU where one can be used), cpu or cuda", 0},
        {"format", OPTION_FORMAT, "FORMAT", 0,
         "measure matrix multiplication of one number format only: f32, bf16 or f16", 0},
        {"threads", OPTION_THREADS, "N", 0, "measure with N threads (one a core)", 0},
        {"isa", OPTION_ISA, "NAME", 0, "measure kernels of this instruction set (the highest)", 0},
        {"quick", 'q', NULL, 0, "measure each figure as few times as can be: some two seconds", 0},
        {"json", 'j', NULL, 0, "print the machine as JSON, sizes in bytes", 0},
        {"forget", OPTION_FORGET, NULL, 0,
         "forget the measured speed of this machine and its GPU: the next plan or run measures it again", 0},
        {0}};
    static const struct argp argp = {
        .options = argp_options,
        .parser = parse,
        .doc = "Show the machine, the features that this build can use, and stored measurements.\v"
               "Measuring uses all cores; results are valid for an otherwise idle machine. doc/hardware.md "
               "describes the file, doc/plan.md what pstar stores."};
    options o = {.n_threads = ps_cpu_threads(), .isa = ps_cpu_isa_detect()};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    const char *const folder = o.disk_path != NULL ? o.disk_path : disk_folder();
    if (o.measure != NULL && strcmp(o.measure, "-") == 0) return program_report("info", measure_for_stdout(&o, folder));
    if (o.forget) return program_report("info", go_through_kept(true));
    if (o.json) return program_report("info", print_json(folder));
    machine_info machine;
    ps_status st = machine_info_find(folder, &machine);
    if (st == PS_OK) machine_info_show(&machine);
    if (st == PS_OK) st = go_through_kept(false);
    if (st == PS_OK && o.measure != NULL) st = measure(&o, folder);
    return program_report("info", st);
}
