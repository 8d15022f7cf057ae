/* initialize.h - engines as patrickstar.h gives them: made by the floor below, with the weights that their
 * configuration names. */
#ifndef PS_ENGINE_INITIALIZE_H
#define PS_ENGINE_INITIALIZE_H

#include <stdbool.h>

#include "config/config.h"

/* ps_engine_begin_weights will load some, so the engine may be created empty. */
bool ps_config_names_weights(const ps_config *model, const ps_config *config);

#endif
