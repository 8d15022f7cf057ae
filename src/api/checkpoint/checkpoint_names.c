#include "api/checkpoint/checkpoint_names.h"

#include <stdio.h>

ps_status ps_checkpoint_tensor_name(const char *parameter, const char *suffix, char name[PS_CHECKPOINT_TENSOR_NAME_MAX])
{
    const int n = snprintf(name, PS_CHECKPOINT_TENSOR_NAME_MAX, "%s%s", parameter, suffix);
    if (n >= PS_CHECKPOINT_TENSOR_NAME_MAX)
        return PS_FAIL(PS_EINVAL, "the name of parameter %.64s... is too long for a checkpoint", parameter);
    return PS_OK;
}
