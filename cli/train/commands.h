/* commands.h - the commands that are here. */
#ifndef PSTAR_COMMANDS_H
#define PSTAR_COMMANDS_H

/* Each gets its own arguments, argv[0] being its name, and returns an exit code (program.h). */
int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_generate(int argc, char **argv);

#endif
