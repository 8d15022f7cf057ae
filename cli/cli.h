/* cli.h - shared by the commands of pstar, in addition to train/program.h. */
#ifndef PSTAR_CLI_H
#define PSTAR_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "train/commands.h"
#include "train/program.h"

/* A command gets its own arguments, with its name as argv[0], and returns an exit code. */
int cmd_tokenize(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_info(int argc, char **argv);

#endif
