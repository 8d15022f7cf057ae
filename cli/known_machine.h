/* known_machine.h - the measured description of this machine, which pstar uses for hardware = auto. */
#ifndef PSTAR_KNOWN_MACHINE_H
#define PSTAR_KNOWN_MACHINE_H

#include "train/program.h"

/* train/program.h declares program_report_machine. */

/* Set `hardware`, if it is not given, to pstar's default: PSTAR_HARDWARE, else auto. */
PS_NODISCARD ps_status known_machine_name(ps_config *config);

#endif
