/* config_state.c - the state of a configuration: values, and where they were given. */
#include "config/config_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const ps_options *ps_config_options(const ps_config *config)
{
    return &config->options;
}

const char *ps_config_name(const ps_config *config)
{
    return config->name != NULL ? config->name : "";
}

bool ps_config_gives(const ps_config *config, ps_option_id id)
{
    return config->origin[id].given;
}

ps_status ps_config_fail_for(const ps_config *config, ps_option_id id, const char *format, ...)
{
    char message[768];
    const ps_config_origin *origin = &config->origin[id];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    if (origin->alias != NULL && strstr(message, origin->alias->key) == NULL) {
        const size_t n = strlen(message);
        snprintf(message + n, sizeof message - n, " (given as %s)", origin->alias->key);
    }
    if (origin->line == 0) return PS_FAIL(PS_EINVAL, "%s", message);
    return PS_FAIL(PS_EINVAL, "%s:%d:%d: %s", config->name, origin->line, origin->column, message);
}

const char *ps_config_key(const ps_config *config, ps_option_id id)
{
    const ps_option_alias *alias = config->origin[id].alias;
    return alias != NULL ? alias->key : ps_option_table[id].key;
}

bool ps_config_has_default(const ps_config *config, ps_option_id id)
{
    const ps_option *option = &ps_option_table[id];
    return ps_option_is_equal(option, ps_option_load(option, &config->options), option->value);
}
