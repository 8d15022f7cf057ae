/* param_groups.h - optimizer.param_groups: what each group has for optimizer.params. */
#ifndef PS_CONFIG_PARAM_GROUPS_H
#define PS_CONFIG_PARAM_GROUPS_H

#include "config/config.h"

/* Beside the one of all other parameters. */
#define PS_PARAM_GROUPS_MAX 31

typedef struct ps_param_group {
    char *patterns;     /* of full names (base/glob.h), with commas between them */
    ps_options options; /* the configuration's, with the group's own in place; valid as long as the configuration */
    bool gives_weight_decay;
} ps_param_group;

typedef struct ps_param_groups {
    ps_param_group *group;
    int32_t n;
} ps_param_groups;

/* PS_EINVAL naming group and key. On failure *out is empty. */
PS_NODISCARD ps_status ps_param_groups_read(const ps_config *config, ps_param_groups *out);
void ps_param_groups_free(ps_param_groups *g); /* an empty one is accepted */

#endif
