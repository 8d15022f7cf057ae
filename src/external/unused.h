/* unused.h - options of a configuration that have no effect in a client. */
#ifndef PS_EXTERNAL_UNUSED_H
#define PS_EXTERNAL_UNUSED_H

#include "config/config.h"

/* PS_EINVAL naming an option whose wish only the framework can carry out, and how. Others that are given, and have no
 * effect, are told in one warning of the log: configurations are shared with pstar. */
PS_NODISCARD ps_status ps_client_check_options(const ps_config *config);

#endif
