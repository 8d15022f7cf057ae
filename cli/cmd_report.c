/* cmd_report.c - pstar report: writes a profile as an HTML page. */
#include <stdio.h>

#include "api/report/report.h"
#include "cli.h"

typedef struct report_arguments {
    const char *profile, *page;
} report_arguments;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    report_arguments *a = state->input;
    switch (key) {
    case 'o': a->page = arg; return 0;
    case ARGP_KEY_ARG:
        if (a->profile != NULL) argp_usage(state);
        a->profile = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->profile == NULL) argp_error(state, "which profile?");
        if (a->page == NULL) argp_error(state, "-o FILE is needed");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static ps_status write_report(const report_arguments *a)
{
    ps_status st = PS_OK;
    ps_report_profile *p = NULL;
    ps_figures *f = NULL;
    PS_TRY_GOTO(ps_report_profile_read(a->profile, &p));
    PS_TRY_GOTO(ps_figures_create(p, &f));
    PS_TRY_GOTO(ps_report_write_html(f, a->page));
out:
    ps_figures_destroy(f);
    ps_report_profile_destroy(p);
    return st;
}

int cmd_report(int argc, char **argv)
{
    static const struct argp_option options[] = {{"output", 'o', "FILE", 0, "The HTML file to write", 0}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "PROFILE",
                                     .doc =
                                         "Show a profile (profile.path of pstar train) as a page that needs nothing "
                                         "else: memory over time, where each "
                                         "chunk is, computing, copies and waits, and where the time of a step went."};
    report_arguments a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    const int code = program_report("report", write_report(&a));
    if (code == 0) printf("%s\n", a.page);
    return code;
}
