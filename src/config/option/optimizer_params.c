#include "config/option/optimizer_params.h"

/* A bit for each option from optimizer.type on. */
#define PARAM(name) | (uint64_t)1 << (PS_OPTION_optimizer_params_##name - PS_OPTION_optimizer_type)
#define XX(value, text, optimizer, params) [value] = 0 params,
static const uint64_t optimizer_params[] = {PS_CONFIG_OPTIMIZER_MAP(XX)};
#undef XX
#undef PARAM

static uint64_t unused_params(ps_config_optimizer type)
{
    uint64_t external = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(optimizer_params); i++)
        external |= optimizer_params[i] & ~optimizer_params[type];
    return external;
}

bool ps_optimizer_has_param(ps_config_optimizer type, ps_option_id id)
{
    return !(unused_params(type) >> ((int)id - (int)PS_OPTION_optimizer_type) & 1);
}
