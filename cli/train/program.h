/* program.h - what the rest of pstar does for these commands: arguments, the machine at hand, and what lies in folders
 * of runs. Its functions are in the folder above, which knows the library from inside; another program would have its
 * own. */
#ifndef PSTAR_PROGRAM_H
#define PSTAR_PROGRAM_H

#include <argp.h>

#include "client.h"

/* Exit codes: 0 done, 2 bad input, a budget too small, or what this build or machine lacks, 3 I/O, 1 anything else. */
enum { EXIT_OTHER = 1, EXIT_INPUT = 2, EXIT_IO = 3 };

/* The exit code for a status. */
int cli_exit_code(ps_status st);

/* Print "pstar <command>: <last error>" unless st is PS_OK; returns the exit code. */
int cli_report(const char *command, ps_status st);

/* Load a configuration with "key=value" overrides, which win over what the file says of these keys:
 * ps_config_load_assigned; and count the tokens of a tokenizer where the model is to have as many. */
PS_NODISCARD ps_status cli_load_config(const char *path, char *const *overrides, int n_overrides, ps_config **out);

/* The commands that are here. Each gets its own arguments, argv[0] being its name, and returns an exit code. */
int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_generate(int argc, char **argv);

/* ---- the machine ---- */

/* Where the configuration says auto, or nothing, tells it the description that the user's cache folder has of this
 * machine in this use (machine_file.h). Where there is none yet, or it cannot be used, a process of its own measures
 * for some two seconds, and what it found is kept; one line on stderr says so. What was measured while the machine was
 * busy is measured again at the next start, up to three times in all, and the best of it is kept. Starts at the same time
 * wait for one that measures. PSTAR_HARDWARE (a file, auto, none) counts where the configuration does not give the
 * option. After it the configuration says what was taken: known_machine_name.
 *
 * With several ranks (comm not NULL; all call) it is rank 0's machine, with the cores of all of them; n_ranks: that
 * would share this machine, where comm is NULL; 0: one. A machine that cannot be measured is not known, which is said,
 * and no failure. PS_EIO, PS_EFORMAT, PS_EINVAL: PSTAR_HARDWARE names no description. PS_ECOMM. */
PS_NODISCARD ps_status known_machine_tell(ps_config *config, ps_comm *comm, int n_ranks);

/* ps_config_know_cache of the user's cache folder, which is made. Does nothing where the user has none. */
PS_NODISCARD ps_status known_machine_tell_cache(ps_config *config);

/* ---- folders of runs ---- */

/* Remove what killed runs left among checkpoints. */
void program_clean_checkpoints(const char *folder);
/* Whether the folder has a checkpoint that is complete, and `latest`, which names it. PS_EIO. */
PS_NODISCARD ps_status program_has_checkpoints(const char *folder, bool *has_latest, bool *has_any);

/* The path of the weights to use, valid as long as config and given: `given` (a file, a checkpoint, a run, a Hugging
 * Face model), or when it is NULL train.output_dir, or where the user did not name it and nothing was trained there
 * model.from_pretrained, which a line on stderr then says. PS_EIO when there are none. */
PS_NODISCARD ps_status cli_choose_weights(const ps_config *config, const char *given, const char **path);

/* Before the feed is opened for weights that were trained already: names are numbered as their folder says, or the one
 * that they lie in. PS_EINVAL when the user gives other numbers. */
PS_NODISCARD ps_status cli_take_labels(ps_config *config, const char *weights);
/* After: a line on stderr where neither those weights nor the user name the classes that the data name. */
void cli_note_labels(const ps_config *config, const ps_feed *feed, const char *weights);

#endif
