/* params.h - what the configuration says of single parameters, by patterns of their names (base/glob.h). */
#ifndef PS_SETTINGS_PARAMS_H
#define PS_SETTINGS_PARAMS_H

#include "graph/program.h"
#include "settings/settings.h"

/* ps_program_build, then train.freeze: parameters that it names are frozen, beside those that the model function
 * declares so (ps_set_trainable). Without training none is. PS_EINVAL for a pattern that matches no parameter, naming
 * the nearest, and where nothing is left to train. And optimizer.param_groups: each parameter gets the number of its group.
 * PS_EINVAL likewise, and for a group without a parameter. */
PS_NODISCARD ps_status ps_settings_build_program(const ps_settings *s, ps_model_func model, void *user, int64_t B,
                                                 int64_t T, ps_program **out);

/* The group of optimizer.param_groups that has a parameter of this name: the first one that names it, else 0. */
int32_t ps_settings_group_of(const ps_settings *s, const char *name);

#endif
