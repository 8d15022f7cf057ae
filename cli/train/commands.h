/* commands.h - the commands of this folder. */
#ifndef PSTAR_COMMANDS_H
#define PSTAR_COMMANDS_H

/* A command gets its own arguments, with its name as argv[0], and returns an exit code (program.h). */
int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_generate(int argc, char **argv);

#endif
