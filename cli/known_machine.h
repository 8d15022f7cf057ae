/* known_machine.h - the machine at hand, measured once: what hardware = auto means to pstar. */
#ifndef PSTAR_KNOWN_MACHINE_H
#define PSTAR_KNOWN_MACHINE_H

#include "train/program.h"

/* program_tell_machine and program_tell_cache are declared there, for the commands that train too. */

/* Where the configuration does not give `hardware`, gives it what pstar takes: PSTAR_HARDWARE's word, else auto. */
PS_NODISCARD ps_status known_machine_name(ps_config *config);

#endif
