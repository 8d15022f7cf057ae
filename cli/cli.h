/* cli.h - what the commands of pstar share. */
#ifndef PSTAR_CLI_H
#define PSTAR_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "patrickstar.h"

/* Exit codes: 0 done, 2 bad input, an infeasible budget, or what this build or machine lacks, 3 I/O, 1 anything else. */
enum { EXIT_OTHER = 1, EXIT_INPUT = 2, EXIT_IO = 3 };

/* The exit code for a status. */
int cli_exit_code(ps_status st);

/* Print "pstar <command>: <last error>" unless st is PS_OK; returns the exit code. */
int cli_report(const char *command, ps_status st);

/* Load a configuration with "key=value" overrides, which win over what the file says of these keys:
 * ps_config_load_assigned. */
PS_NODISCARD ps_status cli_load_config(const char *path, char *const *overrides, int n_overrides, ps_config **out);

/* Each command gets its own arguments, argv[0] being its name, and returns an exit code. */
int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_info(int argc, char **argv);

#endif
