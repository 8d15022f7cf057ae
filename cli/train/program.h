/* program.h - what a program around these commands has to give them: exit codes, its words for a failure, and what it
 * knows of the machine. pstar's are in the folder above; another program would have its own, or ones that do nothing. */
#ifndef PSTAR_PROGRAM_H
#define PSTAR_PROGRAM_H

#include "client.h"

/* Exit codes: 0 done, 2 bad input, a budget too small, or what this build or machine lacks, 3 I/O, 1 anything else;
 * 128 + the signal's number when a signal stopped the command (stop.h). */
enum { EXIT_OTHER = 1, EXIT_INPUT = 2, EXIT_IO = 3 };

/* The exit code for a status. */
int program_exit_code(ps_status st);

/* Print "pstar <command>: <last error>" unless st is PS_OK; returns the exit code. */
int program_report(const char *command, ps_status st);

/* ---- the machine ---- */

/* Where the configuration says auto of the option `hardware`, or nothing, tells it a description of this machine, to plan
 * with; pstar's is that of the user's cache folder. Where there is none yet, or it cannot be used, a process of its own
 * measures for some two seconds, and what it found is kept; one line on stderr says so. What was measured while the
 * machine was busy is measured again at the next start, up to three times in all, and the best of it is kept. Starts at
 * the same time wait for one that measures. PSTAR_HARDWARE (a file, auto, none) counts where the configuration does not
 * give the option. After it the configuration says what was taken.
 *
 * With several ranks (comm not NULL; all call) it is rank 0's machine, with the cores of all of them; n_ranks: that
 * would share this machine, where comm is NULL; 0: one. A machine that cannot be measured is not known, which is said,
 * and no failure. PS_EIO, PS_EFORMAT, PS_EINVAL: PSTAR_HARDWARE names no description. PS_ECOMM. */
PS_NODISCARD ps_status program_tell_machine(ps_config *config, ps_comm *comm, int n_ranks);

/* ps_config_set_cache_folder of the user's cache folder, which is made. Does nothing where the user has none. */
PS_NODISCARD ps_status program_tell_cache(ps_config *config);

#endif
