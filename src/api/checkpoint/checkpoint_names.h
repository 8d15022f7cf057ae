/* checkpoint_names.h - names of tensors in the files of a checkpoint. */
#ifndef PS_CHECKPOINT_NAMES_H
#define PS_CHECKPOINT_NAMES_H

#include "base/status.h"

#define PS_CHECKPOINT_TENSOR_NAME_MAX 256

/* A parameter's state: "<parameter><suffix>", "wte.weight.exp_avg". suffix "": the parameter itself. PS_EINVAL when it
 * is too long. */
PS_NODISCARD ps_status ps_checkpoint_tensor_name(const char *parameter, const char *suffix,
                                                 char name[PS_CHECKPOINT_TENSOR_NAME_MAX]);

#endif
