/* known_machine.h - the machine at hand, measured once: what hardware = auto means to pstar. */
#ifndef PSTAR_KNOWN_MACHINE_H
#define PSTAR_KNOWN_MACHINE_H

#include "comm/comm.h"
#include "config/config.h"

/* Where the configuration says auto, tells it the description that the user's cache folder has of this machine
 * ($XDG_CACHE_HOME, else ~/.cache, patrickstar/machine-*.json): by processor, cores, kernel, number format and the disk
 * of memory.disk_path. Where there is none yet, or it cannot be read, it measures for some two seconds and keeps what it
 * found; one line on stderr says so. PSTAR_HARDWARE (a file, auto, none) counts where the configuration does not give
 * the option.
 *
 * With several ranks (comm not NULL; all call) it is rank 0's machine. A machine that cannot be measured is not known,
 * which is said, and no failure. PS_EIO, PS_EFORMAT, PS_EINVAL: PSTAR_HARDWARE names no description. PS_ECOMM. */
PS_NODISCARD ps_status known_machine_tell(ps_config *config, ps_comm *comm);

#endif
