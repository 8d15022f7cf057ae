/* ranks.h - what several ranks of a command have between them: the communicator, sameness, who prints. */
#ifndef PSTAR_RANKS_H
#define PSTAR_RANKS_H

#include "comm/agree.h"
#include "config/config.h"
#include "data/feed.h"

/* Loads the configuration as cli_load_config, meets the other ranks as its section comm says, and makes sure that all
 * have the same program and configuration (ranks_check_program) and plan for rank 0's machine (known_machine.h). From
 * here on only rank 0 prints: stdout of the others goes nowhere. What one rank cannot read, all refuse; *comm is then
 * there to be reported and closed, unless meeting failed. */
PS_NODISCARD ps_status ranks_open(const char *path, char *const *overrides, int n_overrides, ps_config **config,
                                  ps_comm **comm);
/* Tells the others of a failure that they do not know of, before this rank closes. After one that all have agreed on
 * they close in order, so that no launcher ends rank 0 before it has said why. c NULL: no other ranks. */
void ranks_tell(ps_comm *c, ps_status st);

/* As cli_report; with is_verbose who took which memory stands before the message when there was too little. Of what all
 * ranks have agreed on only rank 0 tells; what a rank alone knows stands behind "[rank 2 host]". c NULL: no other
 * ranks. */
int ranks_report(const ps_comm *c, const char *command, ps_status st, int is_verbose);
/* "[rank 2 host] " for ranks but the first, "" for that and for a single one. */
const char *ranks_prefix(const ps_comm *c, char text[300]);

/* PS_EINVAL on all ranks, naming rank, machine and what differs, unless all have the same program (version and file)
 * and configuration. Keys that name files and folders of a machine may differ. */
PS_NODISCARD ps_status ranks_check_program(ps_comm *c, const ps_config *config);
/* The same for data: number of samples, and the first and last of them. */
PS_NODISCARD ps_status ranks_check_data(ps_comm *c, uint64_t train_xxh3, const ps_feed *feed);

/* Did any rank say yes? */
PS_NODISCARD ps_status ranks_any(ps_comm *c, bool *yes);

#endif
