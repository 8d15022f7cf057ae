/* checkpoint_names.h - what tensors are called in the files of a checkpoint. */
#ifndef PS_CHECKPOINT_NAMES_H
#define PS_CHECKPOINT_NAMES_H

#include "base/status.h"

#define PS_CHECKPOINT_TENSOR_NAME_MAX 256

/* Adam's moment 0 or 1 of a parameter: "<parameter>.exp_avg", "<parameter>.exp_avg_sq". PS_EINVAL when it is too long. */
PS_NODISCARD ps_status ps_checkpoint_moment_name(const char *parameter, int moment,
                                                 char name[PS_CHECKPOINT_TENSOR_NAME_MAX]);

#endif
