/* ranks.h - what several ranks of a command have between them: the communicator, sameness, who prints. */
#ifndef PSTAR_RANKS_H
#define PSTAR_RANKS_H

#include "client.h"

/* Loads the configuration as client_load_config, meets the other ranks as its section comm says, and makes sure that all
 * have the same program and configuration (ps_comm_check_same) and plan for rank 0's machine (program_tell_machine). From
 * here on only rank 0 prints: stdout of the others goes nowhere. What one rank cannot read, all refuse; *comm is then
 * there to be reported and closed, unless meeting failed. */
PS_NODISCARD ps_status ranks_open(const char *path, char *const *overrides, int n_overrides, ps_config **config,
                                  ps_comm **comm);
/* Tells the others of a failure that they do not know of, before this rank closes. After one that all have agreed on
 * they close in order, so that no launcher ends rank 0 before it has said why. c NULL: no other ranks. */
void ranks_tell(ps_comm *c, ps_status st);

/* As program_report; with is_verbose who took which memory stands before the message when there was too little. Of what all
 * ranks have agreed on only rank 0 tells; what a rank alone knows stands behind "[rank 2 host]". c NULL: no other
 * ranks. */
int ranks_report(const ps_comm *c, const char *command, ps_status st, int is_verbose);
/* "[rank 2 host] " for ranks but the first, "" for that and for a single one. */
const char *ranks_prefix(const ps_comm *c, char text[300]);

/* Did any rank say yes? */
PS_NODISCARD ps_status ranks_any(ps_comm *c, bool *yes);

#endif
