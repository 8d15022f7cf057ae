/* known_machine.h - the machine at hand, measured once: what hardware = auto means to pstar. */
#ifndef PSTAR_KNOWN_MACHINE_H
#define PSTAR_KNOWN_MACHINE_H

#include "comm/comm.h"
#include "config/config.h"

/* Where the configuration says auto, or nothing, tells it the description that the user's cache folder has of this
 * machine in this use (machine_file.h). Where there is none yet, or it cannot be used, a process of its own measures for
 * some two seconds, and what it found is kept; one line on stderr says so. What was measured while the machine was busy
 * is measured again at the next start, up to three times in all, and the best of it is kept. Starts at the same time
 * wait for one that measures. PSTAR_HARDWARE (a file, auto, none) counts where the configuration does not give the
 * option. After it the configuration says what was taken: known_machine_name.
 *
 * With several ranks (comm not NULL; all call) it is rank 0's machine, with the cores of all of them; n_ranks: that
 * would share this machine, where comm is NULL; 0: one. A machine that cannot be measured is not known, which is said,
 * and no failure. PS_EIO, PS_EFORMAT, PS_EINVAL: PSTAR_HARDWARE names no description. PS_ECOMM. */
PS_NODISCARD ps_status known_machine_tell(ps_config *config, ps_comm *comm, int n_ranks);

/* Where the configuration does not give `hardware`, gives it what pstar takes: PSTAR_HARDWARE's word, else auto. */
PS_NODISCARD ps_status known_machine_name(ps_config *config);

#endif
