/* ranks.h - several ranks of a command: the communicator, consistency checks, and output of one rank. */
#ifndef PSTAR_RANKS_H
#define PSTAR_RANKS_H

#include "client.h"

/* Load the configuration as client_load_config, connect to the other ranks by its section comm, check that all have the
 * same program and configuration (ps_comm_check_same), and plan for rank 0's machine (program_report_machine). From
 * here on only rank 0 prints; stdout of the others is discarded. When one rank cannot read its input, all fail; *comm
 * is then valid for the report and the close, unless the rendezvous failed. */
PS_NODISCARD ps_status ranks_open(const char *path, char *const *overrides, int n_overrides, ps_config **config,
                                  ps_comm **comm);
/* Report a local failure to the other ranks before this rank closes. After a failure on which all ranks have agreed,
 * they close in order, so that no launcher kills rank 0 before it has printed the reason. c NULL: single rank. */
void ranks_send_failure(ps_comm *c, ps_status st);

/* As program_report; with is_verbose the use of memory precedes the message after an out-of-memory failure. Failures on
 * which all ranks have agreed are printed by rank 0 only; local failures follow a prefix "[rank 2 host]". c NULL:
 * single rank. */
int ranks_report(const ps_comm *c, const char *command, ps_status st, int is_verbose);
/* "[rank 2 host] "; "" for rank 0 and for a single rank. */
const char *ranks_prefix(const ps_comm *c, char text[300]);

/* Whether any rank passes true. */
PS_NODISCARD ps_status ranks_any(ps_comm *c, bool *yes);

#endif
