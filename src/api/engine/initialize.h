/* initialize.h - engines of the public calls: created by the layer below, with the weights that their configuration
 * names. */
#ifndef PS_ENGINE_INITIALIZE_H
#define PS_ENGINE_INITIALIZE_H

#include <stdbool.h>

#include "config/config.h"

/* Will ps_engine_begin_weights load weights, so that the engine may be created empty? */
bool ps_config_names_weights(const ps_config *model, const ps_config *config);

#endif
