/* optimizer_params.h - which options of optimizer.params each optimizer has. */
#ifndef PS_OPTION_OPTIMIZER_PARAMS_H
#define PS_OPTION_OPTIMIZER_PARAMS_H

#include <stdbool.h>

#include "config/option/options.h"

/* Whether the optimizer has the option. id: of the section optimizer, before optimizer.param_groups. */
bool ps_optimizer_has_param(ps_config_optimizer type, ps_option_id id);

#endif
