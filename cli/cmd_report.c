/* cmd_report.c - pstar report: writes a profile, or the log of a run, as an HTML page. */
#include <stdio.h>

#include "api/report/report.h"
#include "base/mem.h"
#include "cli.h"

typedef struct report_arguments {
    const char *path, *page;
} report_arguments;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    report_arguments *a = state->input;
    switch (key) {
    case 'o': a->page = arg; return 0;
    case ARGP_KEY_ARG:
        if (a->path != NULL) argp_usage(state);
        a->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->path == NULL) argp_error(state, "which profile, metrics.jsonl or folder of a run?");
        if (a->page == NULL) argp_error(state, "-o FILE is needed");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static ps_status write_profile(const char *path, const char *page)
{
    ps_status st = PS_OK;
    ps_report_profile *p = NULL;
    ps_figures *f = NULL;
    PS_TRY_GOTO(ps_report_profile_read(path, &p));
    PS_TRY_GOTO(ps_figures_create(p, &f));
    PS_TRY_GOTO(ps_report_write_html(f, page));
out:
    ps_figures_destroy(f);
    ps_report_profile_destroy(p);
    return st;
}

static ps_status write_log(const char *path, const char *page)
{
    ps_report_log *m = NULL;
    PS_TRY(ps_report_log_read(path, &m));
    const ps_status st = ps_report_write_log(m, page);
    ps_report_log_destroy(m);
    return st;
}

static ps_status write_report(const report_arguments *a)
{
    char *metrics;
    PS_TRY(ps_report_log_find(a->path, &metrics));
    const ps_status st = metrics != NULL ? write_log(metrics, a->page) : write_profile(a->path, a->page);
    ps_mem_free(metrics);
    return st;
}

int cmd_report(int argc, char **argv)
{
    static const struct argp_option options[] = {{"output", 'o', "FILE", 0, "The HTML file to write", 0}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "PROFILE|RUN",
        .doc = "Show a profile (profile.path of pstar train), or the log of a run (its folder "
               "or metrics.jsonl), as a page that needs nothing else. Of a profile: memory "
               "over time, where each chunk is, computing, copies and waits, and where the "
               "time of a step went. Of a log: loss, learning rate, norm of the gradients, "
               "throughput and memory over steps."};
    report_arguments a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    const int code = program_report("report", write_report(&a));
    if (code == 0) printf("%s\n", a.page);
    return code;
}
