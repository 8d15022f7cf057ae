/* measuring.h - measures this machine in a separate process, whose end frees all memory. */
#ifndef PSTAR_MEASURING_H
#define PSTAR_MEASURING_H

#include "machine_file.h"

/* Run `pstar info --measure -` for about two seconds, with all cores that this process may use, and parse its output.
 * *was_busy: the machine was busy, so a later measurement may be faster. PS_EIO when it cannot be started, needs more
 * than ten seconds (with a GPU thirty), or has no valid output; else its own failure and message. */
PS_NODISCARD ps_status measuring_run(const machine_use *use, ps_hardware *out, bool *was_busy);

#endif
