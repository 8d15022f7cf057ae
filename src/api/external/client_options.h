/* client_options.h - options of a configuration that have no effect in a client. */
#ifndef PS_EXTERNAL_CLIENT_OPTIONS_H
#define PS_EXTERNAL_CLIENT_OPTIONS_H

#include "config/config.h"

/* PS_EINVAL naming an option that only the framework can implement, and how. Other options that are set without effect
 * are listed in one warning of the log: configurations are shared with pstar. */
PS_NODISCARD ps_status ps_client_check_options(const ps_config *config);

#endif
