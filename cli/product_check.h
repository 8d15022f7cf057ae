/* product_check.h - before a command computes: a processor that has not been met yet has to show that products work on it. */
#ifndef PSTAR_PRODUCT_CHECK_H
#define PSTAR_PRODUCT_CHECK_H

#include "config/config.h"

/* Tries products with the instruction set of train.isa in a child process, unless they have worked before on such a processor with this
 * program: $XDG_CACHE_HOME/patrickstar (or ~/.cache/patrickstar) remembers. Without a folder to write to it is tried each time. Before
 * MPI is started, and before threads are. PS_EDEVICE, with ways out, when the child died or computed something else. */
PS_NODISCARD ps_status product_check(const ps_options *o);

/* The same for the best instruction set there is. */
PS_NODISCARD ps_status product_check_best(void);

#endif
