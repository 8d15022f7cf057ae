/* main.c - pstar: finds and calls the command. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/status.h"
#include "cli.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command;

static const command commands[] = {
    {"train", cmd_train, "train the model of a configuration within its memory budgets"},
    {"eval", cmd_eval, "measure loss, perplexity and accuracy of trained weights"},
    {"generate", cmd_generate, "continue a text with a trained model"},
    {"tokenize", cmd_tokenize, "encode text files to a token file, or decode one"},
    {"inspect", cmd_inspect, "list the tensors of a file or folder of weights"},
    {"export", cmd_export, "write a checkpoint as a folder for Hugging Face's transformers"},
    {"merge", cmd_merge, "write the weights of all ranks of a checkpoint into one file"},
    {"config", cmd_config, "print the current configuration as JSON, which is a valid CONFIG"},
    {"plan", cmd_plan, "report whether a configuration fits, how fast it will be, and what to change"},
    {"report", cmd_report, "show a profile as a page or as numbers: memory, chunks, timeline, time by activity"},
    {"info", cmd_info, "show the machine, what this build can use of it, and its limits"},
};

int program_exit_code(ps_status st)
{
    switch (st) {
    case PS_OK: return 0;
    case PS_EINVAL:
    case PS_EFORMAT:
    case PS_EBUDGET:
    case PS_ENOSYS: return EXIT_INPUT; /* the request needs another build or machine */
    case PS_EIO: return EXIT_IO;
    case PS_ENOMEM_HOST:
    case PS_ENOMEM_DEV:
    case PS_EDEVICE:
    case PS_ENUMERIC:
    case PS_ESTATE:
    case PS_ECOMM:
    case PS_ECANCELED: return EXIT_OTHER;
    }
    return EXIT_OTHER;
}

int program_report(const char *name, ps_status st)
{
    if (st != PS_OK) fprintf(stderr, "pstar %s: %s\n", name, ps_last_error());
    return program_exit_code(st);
}

static void print_usage(FILE *out)
{
    fprintf(out, "Usage: pstar COMMAND [ARGUMENT...]\n"
                 "Train transformers whose model data does not fit in memory.\n\n");
    for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(
        out,
        "\npstar COMMAND --help has the details. Exit status: 0 success, 2 bad input, a budget that is too small or a\n"
        "feature that this build or machine lacks, 3 reading or writing failed, 4 nothing went on for train.stall_s,\n"
        "1 other errors; stopped by a signal, 128 + its number: 130 after Ctrl-C, 143 after SIGTERM.\n");
}

static int exit_status; /* of the command, after it has returned */

/* At exit, as argp itself exits after --help. A command that failed has printed the reason. */
static void check_output(void)
{
    errno = 0;
    const bool had_error = ferror(stdout) != 0;
    if ((fflush(stdout) == 0 && !had_error) || exit_status != 0) return;
    fprintf(stderr, "pstar: cannot write to the standard output: %s\n",
            errno != 0 ? strerror(errno) : "some of it is missing");
    _exit(EXIT_IO);
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_INPUT;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("pstar %d.%d.%d\n", PS_VERSION_MAJOR, PS_VERSION_MINOR, PS_VERSION_PATCH);
        return 0;
    }
    for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        char name[64]; /* argp prints it in its messages */
        snprintf(name, sizeof name, "pstar %s", commands[i].name);
        argv[1] = name;
        return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "pstar: no command '%s'; pstar --help lists them\n", argv[1]);
    return EXIT_INPUT;
}

int main(int argc, char **argv)
{
    argp_err_exit_status = EXIT_INPUT;
    if (atexit(check_output) != 0) return EXIT_OTHER;
    exit_status = run_command(argc, argv);
    return exit_status;
}
