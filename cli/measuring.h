/* measuring.h - this machine measured by a process of its own, which ends with the memory that it took. */
#ifndef PSTAR_MEASURING_H
#define PSTAR_MEASURING_H

#include "machine_file.h"

/* Runs `pstar info --measure -` for some two seconds, with all cores that this process may use, and takes what it
 * prints. *was_busy: with other things, so that another time may find better rates. PS_EIO when it cannot be started,
 * takes more than ten (thirty of a GPU), or says nothing that can be read; else what it failed with, its words. */
PS_NODISCARD ps_status measuring_run(const machine_use *use, ps_hardware *out, bool *was_busy);

#endif
