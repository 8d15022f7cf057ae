/* cli.h - what the commands of pstar share, beside train/program.h. */
#ifndef PSTAR_CLI_H
#define PSTAR_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "train/commands.h"
#include "train/program.h"

/* Each command gets its own arguments, argv[0] being its name, and returns an exit code. */
int cmd_tokenize(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_info(int argc, char **argv);

#endif
