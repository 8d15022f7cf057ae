/* program.h - functions that the program must define for these commands: exit codes, reports of failures, and the
 * description of the machine. pstar's are in the parent folder; another program defines its own, or empty ones. */
#ifndef PSTAR_PROGRAM_H
#define PSTAR_PROGRAM_H

#include "client.h"

/* Exit codes: 0 success, 2 bad input, a budget that is too small, or a feature that this build or machine lacks, 3 I/O,
 * 4 nothing went on for train.stall_s, 1 other errors; 128 + the signal's number when a signal stopped the command (stop.h).
 */
enum { EXIT_OTHER = 1, EXIT_INPUT = 2, EXIT_IO = 3, EXIT_STALLED = 4 };

/* The exit code for a status. */
int program_exit_code(ps_status st);

/* Print "pstar <command>: <last error>" unless st is PS_OK; returns the exit code. */
int program_report(const char *command, ps_status st);

/* ---- the machine ---- */

/* Where the option `hardware` is auto or not given, set the configuration's description of this machine for plans.
 * pstar reads it from the user's cache folder. If there is none yet, or it cannot be used, a separate process measures
 * for about two seconds, and the result is stored; one line on stderr reports this, and whether the machine was busy.
 * Concurrent starts wait for the one that measures. PSTAR_HARDWARE (a file, auto, none) applies where the option is not
 * given. Afterwards the configuration names the description in use.
 *
 * With several ranks (comm not NULL; all call) it is rank 0's machine, with the cores of all ranks. n_ranks, where comm
 * is NULL: ranks that would share this machine; 0: one. A machine that cannot be measured is reported and treated as
 * unknown, without a failure. PS_EIO, PS_EFORMAT, PS_EINVAL: PSTAR_HARDWARE names no description. PS_ECOMM. */
PS_NODISCARD ps_status program_report_machine(ps_config *config, ps_comm *comm, int n_ranks);

enum { PROGRAM_CHANGE_MAX = 160 };

/* A change of the configuration that makes training faster. */
typedef struct program_change {
    char text[PROGRAM_CHANGE_MAX]; /* "memory.device=180MB"; "": none was found */
    double gain;                   /* how many times as fast training is with it */
    const char *price;             /* what else changes, static; NULL: nothing but memory and time */
} program_change;

/* The change with which n_ranks on this machine train fastest, of those that can be simulated within so many seconds.
 * memory: of the engine that has trained; its budgets are the ones that changes are compared in. Nothing is found where
 * the machine's speed is not known. */
void program_find_change(const ps_config *config, const ps_memory_info *memory, int n_ranks, double seconds,
                         program_change *out);

#endif
