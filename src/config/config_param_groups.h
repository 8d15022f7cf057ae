/* config_param_groups.h - optimizer.param_groups: the optimizer.params of each group. */
#ifndef PS_CONFIG_CONFIG_PARAM_GROUPS_H
#define PS_CONFIG_CONFIG_PARAM_GROUPS_H

#include "config/config.h"

/* In addition to group 0. */
#define PS_PARAM_GROUPS_MAX 31

typedef struct ps_config_param_group {
    char *patterns;     /* for full names (base/glob.h), separated by commas */
    ps_options options; /* the configuration's, overridden by the group's; valid as long as the configuration */
    bool gives_weight_decay;
    const char *of_whole, *of_elements; /* Muon: the key of an option of the group that is for tensors updated as a
                                         * whole only, or for the others only; NULL: it gives none */
} ps_config_param_group;

typedef struct ps_config_param_groups {
    ps_config_param_group *group;
    int32_t n;
} ps_config_param_groups;

/* PS_EINVAL naming group and key. On failure *out is empty. */
PS_NODISCARD ps_status ps_config_param_groups_read(const ps_config *config, ps_config_param_groups *out);
void ps_config_param_groups_free(ps_config_param_groups *g); /* an empty one is accepted */

#endif
