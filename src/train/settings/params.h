/* params.h - configuration of single parameters, by patterns of their names (base/glob.h). */
#ifndef PS_SETTINGS_PARAMS_H
#define PS_SETTINGS_PARAMS_H

#include "train/graph/program.h"
#include "train/settings/settings.h"

/* ps_program_build, then train.freeze: the parameters that it names are frozen, in addition to those that the model
 * function declares so (ps_set_trainable), and quantized as model.frozen_format says. Without training none is frozen,
 * but the same ones are quantized. PS_EINVAL for a pattern that matches no parameter,
 * naming the nearest, and where no parameter is left to train. Then optimizer.param_groups: each parameter gets the
 * number of its group; and of optimizers of whole tensors, whether it is one. PS_EINVAL likewise, and for a group without a parameter. */
PS_NODISCARD ps_status ps_settings_build_program(const ps_settings *s, ps_model_func model, void *user, int64_t B,
                                                 int64_t T, ps_program **out);

/* The group of optimizer.param_groups for a parameter of this name: the first one that matches, else 0. */
int32_t ps_settings_group_of(const ps_settings *s, const char *name);

/* Is a trained parameter of this name and so many dimensions updated as a whole? Matrices are by optimizers of whole
 * tensors, except those that the configuration leaves to the other optimizer. */
bool ps_settings_updates_whole(const ps_settings *s, const char *name, int n_dims);

/* PS_EINVAL naming an option given for the group that none of its parameters has, n_whole of which are updated as a
 * whole, and n_others by elements. */
PS_NODISCARD ps_status ps_settings_check_group(const ps_settings *s, int32_t group, int32_t n_whole, int32_t n_others);

/* Scratch for updates of whole matrices, on each tier where they may run: of the matrix that takes most. */
typedef struct ps_update_scratch {
    int64_t bytes;
    const char *matrix; /* its name; NULL: none is updated as a whole */
} ps_update_scratch;

/* *most counts a matrix of this name and shape [2], too: on the settings' backend and on its host. */
PS_NODISCARD ps_status ps_settings_count_scratch(const ps_settings *s, const char *name, const int64_t *shape,
                                                 ps_update_scratch *most);

#endif
