/* gpu_row.c - the rows of the tables of tool/gpu_bench.sh (make gpu-bench): of a configuration what was planned, what runs of pstar
 * and of peers took, and what of the roofline (roofline.h) that is.
 *
 * usage: gpu_row --head
 *        gpu_row NAME PLAN.json HARDWARE.json CONFIG [KEY=VALUE...] [--run FOLDER]... [--peer LABEL FILE]... [--failed LABEL WHY]...
 *
 * PLAN.json is of `pstar plan --json` with that hardware, FOLDER a train.output_dir, FILE a line of JSON: "seconds" (of steps that count)
 * and "peak_bytes". Several runs, or files of one label, are one row: the median of all their steps, in turn with the others. The first
 * WARM_UP steps of a run do not count. Without any run the row is the plan's own. */
#include <jansson.h>
#include <stdarg.h>
#include <string.h>

#include "base/file.h"
#include "bench.h"
#include "config/config.h"
#include "roofline.h"

enum { WARM_UP = 3, ROWS_MAX = 8, TEXT_MAX = 160 };

/* Adam with 16-bit parameters on the host: gradient read, parameter written, master and two moments both. */
#define UPDATE_BYTES_A_PARAMETER 28.0

typedef struct row {
    const char *who;
    bench_samples steps;
    int64_t peak_bytes; /* of the device, 0: not known */
    const char *failed; /* why; NULL: it has not */
} row;

typedef struct table {
    const char *name;
    json_t *plan, *hardware, *summary; /* summary: of the last run; NULL: none */
    const ps_options *options;
    row rows[ROWS_MAX];
    int n_rows;
} table;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fputs("gpu_row: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

static json_t *read_json(const char *path)
{
    json_error_t error;
    json_t *o = json_load_file(path, JSON_DISABLE_EOF_CHECK, &error);
    if (o == NULL) die("%s, line %d: %s", path, error.line, error.text);
    return o;
}

/* The value at "a.b.c"; NULL where there is none. */
static json_t *at(json_t *o, const char *path)
{
    char name[64];
    while (o != NULL && *path != '\0') {
        const size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        o = json_object_get(o, name);
        path += n + (path[n] == '.');
    }
    return o;
}

/* 0 where there is none, as of a disk. */
static double number(json_t *o, const char *path)
{
    return json_number_value(at(o, path));
}

/* ---- what was measured ---- */

static row *row_of(table *t, const char *who)
{
    for (int i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].who, who) == 0) return &t->rows[i];
    if (t->n_rows == ROWS_MAX) die("more than %d rows", ROWS_MAX);
    t->rows[t->n_rows] = (row){.who = who};
    return &t->rows[t->n_rows++];
}

static int count_steps(FILE *f, const char *path)
{
    char line[8192];
    int n = 0;
    while (fgets(line, sizeof line, f) != NULL) n += strstr(line, "\"step_s\"") != NULL;
    if (n == 0) die("%s has no step", path);
    rewind(f);
    return n;
}

static void read_run(table *t, const char *folder)
{
    char path[4096], line[8192];
    row *r = row_of(t, "ours");
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    FILE *f = fopen(path, "r");
    if (f == NULL) die("%s cannot be read", path);
    const int n = count_steps(f, path), n_skipped = n > WARM_UP ? WARM_UP : n - 1;
    for (int i = 0; fgets(line, sizeof line, f) != NULL;) {
        json_t *step = json_loads(line, 0, NULL);
        if (json_object_get(step, "step_s") != NULL && i++ >= n_skipped) bench_add(&r->steps, number(step, "step_s"));
        json_decref(step);
    }
    fclose(f);
    json_decref(t->summary);
    snprintf(path, sizeof path, "%s/summary.json", folder);
    t->summary = ps_file_exists(path) ? read_json(path) : NULL; /* a run that was ended has none */
}

static void read_peer(table *t, const char *label, const char *path)
{
    row *r = row_of(t, label);
    json_t *o = read_json(path), *seconds = json_object_get(o, "seconds");
    if (json_array_size(seconds) == 0) die("%s has no \"seconds\"", path);
    for (size_t i = 0; i < json_array_size(seconds); i++)
        bench_add(&r->steps, json_number_value(json_array_get(seconds, i)));
    r->peak_bytes = (int64_t)number(o, "peak_bytes");
    json_decref(o);
}

/* ---- what is known ---- */

static roofline_model model_of(const table *t)
{
    return (roofline_model){.parameters = number(t->plan, "parameters"),
                            .layers = (double)t->options->model_num_hidden_layers,
                            .width = (double)t->options->model_hidden_size,
                            .sequence = number(t->plan, "sequence_length")};
}

/* Chunks are taken to be equally full. */
static roofline_work work_of(const table *t)
{
    const double on_host = number(t->plan, "chunks.updated_on_host") / number(t->plan, "chunks.of_a_rank");
    return (roofline_work){.tokens = number(t->plan, "micro_batch") * number(t->plan, "sequence_length"),
                           .micro_batches = number(t->plan, "gradient_accumulation_steps"),
                           .recomputes = t->options->activation_checkpointing_enabled,
                           .to_device_bytes = number(t->plan, "moved.host->device.bytes"),
                           .to_host_bytes = number(t->plan, "moved.device->host.bytes"),
                           .disk_read_bytes = number(t->plan, "moved.disk read.bytes"),
                           .disk_write_bytes = number(t->plan, "moved.disk write.bytes"),
                           .updated_on_host_bytes = UPDATE_BYTES_A_PARAMETER * number(t->plan, "parameters") * on_host};
}

/* as_in_a_step: at the rate that products of a training step reach, not at that of large ones. */
static roofline_throughput throughput_of(const table *t, bool as_in_a_step)
{
    json_t *const hw = t->hardware, *const device = json_object_get(hw, "device");
    const char *const format = t->options->bf16_enabled ? "bf16" : t->options->fp16_enabled ? "fp16" : "f32";
    json_t *const gemms = json_object_get(device, format);
    const roofline_throughput r = {.flop_per_s = number(gemms, "flop_per_s") *
                                                 (as_in_a_step ? number(gemms, "achievable_fraction") : 1),
                                   .host_memory_bytes_per_s = number(hw, "host.memory_bytes_per_s"),
                                   .link = {.in_bytes_per_s = number(hw, "link.to_device_bytes_per_s"),
                                            .out_bytes_per_s = number(hw, "link.to_host_bytes_per_s"),
                                            .in_both_bytes_per_s = number(hw, "link.to_device_both_ways_bytes_per_s"),
                                            .out_both_bytes_per_s = number(hw, "link.to_host_both_ways_bytes_per_s"),
                                            .full_duplex = json_is_true(at(hw, "link.full_duplex"))},
                                   .disk = {.in_bytes_per_s = number(hw, "disk.read_bytes_per_s"),
                                            .out_bytes_per_s = number(hw, "disk.write_bytes_per_s"),
                                            .in_both_bytes_per_s = number(hw, "disk.read_both_ways_bytes_per_s"),
                                            .out_both_bytes_per_s = number(hw, "disk.write_both_ways_bytes_per_s"),
                                            .full_duplex = json_is_true(at(hw, "disk.full_duplex"))}};
    if (r.flop_per_s <= 0) die("%s: the hardware has no products of %s", t->name, format);
    return r;
}

/* ---- rows ---- */

static const char *peak_text(char text[TEXT_MAX], json_t *summary, const char *tier)
{
    char is[64], planned[64];
    snprintf(is, sizeof is, "%s_peak_bytes", tier);
    snprintf(planned, sizeof planned, "planned_%s_peak_bytes", tier);
    const double a = number(summary, is), b = number(summary, planned);
    if (summary == NULL)
        snprintf(text, TEXT_MAX, "not told: it was ended");
    else if (a == b)
        snprintf(text, TEXT_MAX, "%.4g GB, as planned", a * 1e-9);
    else
        snprintf(text, TEXT_MAX, "**%.0f bytes, planned %.0f**", a, b);
    return text;
}

static void print_speed(const table *t, const char *who, double step_s, const char *spread)
{
    const roofline_model model = model_of(t);
    const roofline_work work = work_of(t);
    const double tokens = work.tokens * work.micro_batches;
    const double peak = roofline_data_sheet_flop_per_s(json_string_value(at(t->hardware, "name")));
    printf("| %s | %s | %.0f | %.4f%s | %.0f | ", t->name, who, tokens, step_s, spread, tokens / step_s);
    if (peak > 0)
        printf("%.1f %% |", 100 * roofline_flop_a_token(&model) * tokens / step_s / peak);
    else
        printf("- |");
}

static void print_ours(const table *t, row *r)
{
    const roofline_model model = model_of(t);
    const roofline_work work = work_of(t);
    const roofline_throughput large = throughput_of(t, false), reached = throughput_of(t, true);
    const roofline least = roofline_of(&model, &work, &large), line = roofline_of(&model, &work, &reached);
    const double least_s = least.part_s[least.by], bound_s = line.part_s[line.by];
    const double planned_s = number(t->plan, "step.seconds");
    char spread[TEXT_MAX] = "", device[TEXT_MAX], host[TEXT_MAX];
    double step_s = planned_s;
    if (r != NULL) {
        step_s = bench_median(&r->steps); /* sorts */
        snprintf(spread, sizeof spread, " (%.4f..%.4f)", r->steps.seconds[0], r->steps.seconds[r->steps.n - 1]);
    }
    print_speed(t, r != NULL ? "ours" : "ours, as planned", step_s, spread);
    printf(" %.4f / %.4f, %s | %.2f / %.2f | %.4f | ", least_s, bound_s, roofline_part_name(line.by), least_s / step_s,
           bound_s / step_s, planned_s);
    if (r != NULL)
        printf("%.2f | %s | %s |\n", planned_s / step_s, peak_text(device, t->summary, "device"),
               peak_text(host, t->summary, "host"));
    else
        printf(" | %.4g GB | %.4g GB |\n", number(t->plan, "tiers.device.peak_bytes") * 1e-9,
               number(t->plan, "tiers.host.peak_bytes") * 1e-9);
}

/* ours_s: 0, there is none to compare with */
static void print_peer(const table *t, row *r, double ours_s)
{
    char spread[TEXT_MAX];
    const double step_s = bench_median(&r->steps);
    snprintf(spread, sizeof spread, " (%.4f..%.4f)", r->steps.seconds[0], r->steps.seconds[r->steps.n - 1]);
    print_speed(t, r->who, step_s, spread);
    if (ours_s > 0)
        printf(" ours is %.2f x as fast |", step_s / ours_s);
    else
        printf(" |");
    printf(" | | | %.4g GB | |\n", (double)r->peak_bytes * 1e-9);
}

static void print_table(table *t)
{
    double ours_s = 0;
    for (int i = 0; i < t->n_rows; i++) {
        row *const r = &t->rows[i];
        if (strcmp(r->who, "ours") != 0 || r->steps.n == 0) continue;
        ours_s = bench_median(&r->steps);
        print_ours(t, r);
    }
    if (ours_s <= 0) print_ours(t, NULL);
    for (int i = 0; i < t->n_rows; i++) {
        row *const r = &t->rows[i];
        if (strcmp(r->who, "ours") != 0 && r->steps.n > 0) print_peer(t, r, ours_s);
        if (r->failed != NULL)
            printf("| %s | %s%s: %s | | | | | | | | | | |\n", t->name, r->who,
                   r->steps.n > 0 ? ", one of several times" : "", r->failed);
    }
}

static void print_head(void)
{
    printf("| model | who | tokens a step | s a step | tokens/s | MFU | roofline, s | share of it | planned, s | "
           "planned / measured | "
           "device peak | host peak |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

int main(int argc, char **argv)
{
    table t = {.name = argc > 1 ? argv[1] : ""};
    ps_config *config = NULL;
    if (argc == 2 && strcmp(argv[1], "--head") == 0) {
        print_head();
        return 0;
    }
    if (argc < 5)
        die("usage: gpu_row NAME PLAN.json HARDWARE.json CONFIG [KEY=VALUE...] [--run FOLDER]... "
            "[--peer LABEL FILE]... [--failed LABEL WHY]...");
    t.plan = read_json(argv[2]);
    t.hardware = read_json(argv[3]);
    if (!json_is_true(at(t.plan, "fits"))) die("%s is of a plan that does not fit", argv[2]);
    bench_check(ps_config_load(argv[4], &config));
    for (int i = 5; i < argc; i++) {
        char *const equals = strchr(argv[i], '=');
        if (strcmp(argv[i], "--run") == 0 && i + 1 < argc) {
            read_run(&t, argv[++i]);
        } else if (strcmp(argv[i], "--peer") == 0 && i + 2 < argc) {
            read_peer(&t, argv[i + 1], argv[i + 2]);
            i += 2;
        } else if (strcmp(argv[i], "--failed") == 0 && i + 2 < argc) {
            row_of(&t, argv[i + 1])->failed = argv[i + 2];
            i += 2;
        } else if (equals != NULL && argv[i][0] != '-') {
            *equals = '\0';
            bench_check(ps_config_set(config, argv[i], equals + 1));
        } else {
            die("'%s' is none of KEY=VALUE, --run FOLDER, --peer LABEL FILE, --failed LABEL WHY", argv[i]);
        }
    }
    bench_check(ps_config_validate(config));
    t.options = ps_config_options(config);
    print_table(&t);
    json_decref(t.plan), json_decref(t.hardware), json_decref(t.summary);
    ps_config_destroy(config);
    return 0;
}
