/* cmd_config.c - pstar config: prints the current configuration. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "cli.h"
#include "config/config.h"
#include "known_machine.h"
#include "train/config_arguments.h"

typedef struct show_arguments {
    config_arguments config;
    bool given;
} show_arguments;

static ps_status print(const show_arguments *a)
{
    ps_config *config = NULL;
    char *text = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(client_load_config(a->config.path, a->config.overrides, a->config.n_overrides, &config));
    if (!a->given) PS_TRY_GOTO(known_machine_name(config));
    PS_TRY_GOTO(a->given ? ps_config_dump_given_json(config, &text) : ps_config_dump_json(config, &text));
    if (fputs(text, stdout) == EOF || fflush(stdout) != 0) st = PS_FAIL(PS_EIO, "cannot write the configuration");
out:
    ps_free(text);
    ps_config_destroy(config);
    return st;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    show_arguments *a = state->input;
    switch (key) {
    case 'g': a->given = true; return 0;
    case CONFIG_MEMORY_KEY: config_arguments_take_memory(&a->config, arg); return 0;
    case ARGP_KEY_ARG: config_arguments_take(&a->config, arg); return 0;
    case ARGP_KEY_END:
        if (a->config.path == NULL)
            argp_error(state, "no CONFIG given: name a JSON file, or a Hugging Face model folder");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_config(int argc, char **argv)
{
    static const struct argp_option options[] = {
        CONFIG_MEMORY_OPTION,
        {"given", 'g', NULL, 0,
         "Only the options that CONFIG and the command line give, not those left to their defaults", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "CONFIG [key=value ...]",
        .doc = "Print the current configuration as JSON: values of CONFIG, of the command line and of the "
               "folder of model.from_pretrained, and defaults. Every command accepts it as CONFIG."};
    show_arguments a = {0};
    if (!config_arguments_init(&a.config, argc)) return EXIT_OTHER;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &a);
    const int code = program_report("config", print(&a));
    config_arguments_deinit(&a.config);
    return code;
}
