/* unsupported.c - the keys of unsupported.def, which only other programs and earlier versions have. */
#include "config/config_state.h"

#include <stdio.h>
#include <string.h>

static const ps_unsupported unsupported[] = {
#define UNSUPPORTED(key_, accept_, reason_) {.key = key_, .accept = PS_ACCEPT_##accept_, .reason = reason_},
#define IGNORED(key_, value_, reason_) {.key = key_, .accept = PS_ACCEPT_IGNORED, .value = value_, .reason = reason_},
#include "config/unsupported.def"
};
_Static_assert(PS_ARRAY_LEN(unsupported) <= PS_UNSUPPORTED_MAX, "ps_config.ignored has room for each");

const ps_unsupported *ps_unsupported_find(const char *key)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(unsupported); i++) {
        const size_t n = strlen(unsupported[i].key);
        if (strncmp(unsupported[i].key, key, n) == 0 && (key[n] == '\0' || key[n] == '.')) return &unsupported[i];
    }
    return NULL;
}

const ps_unsupported *ps_unsupported_at(size_t i)
{
    return i < PS_ARRAY_LEN(unsupported) ? &unsupported[i] : NULL;
}

bool ps_unsupported_is_harmless(const ps_unsupported *entry, const json_t *json)
{
    if (entry->accept == PS_ACCEPT_NOTHING)
        return json_is_null(json) || (json_is_object(json) && json_object_size(json) == 0) ||
               (json_is_array(json) && json_array_size(json) == 0);
    if (json_is_object(json)) json = json_object_get(json, "enabled");
    switch (entry->accept) {
    case PS_ACCEPT_NEVER:
    case PS_ACCEPT_NOTHING:
    case PS_ACCEPT_IGNORED: break;
    case PS_ACCEPT_NONE: return json_is_string(json) && strcmp(json_string_value(json), "none") == 0;
    case PS_ACCEPT_FALSE: return json_is_false(json);
    case PS_ACCEPT_TRUE: return json_is_true(json);
    case PS_ACCEPT_EITHER: return json_is_boolean(json);
    }
    return false;
}

static bool is_alike(const json_t *a, const json_t *b)
{
    return (json_is_boolean(a) && json_is_boolean(b)) || json_typeof(a) == json_typeof(b);
}

bool ps_config_ignores(ps_config *config, const ps_unsupported *entry, const json_t *json)
{
    if (entry->accept != PS_ACCEPT_IGNORED) return false;
    json_t *holds = json_loads(entry->value, JSON_DECODE_ANY, NULL);
    const bool is_accepted = holds != NULL && (json_is_null(json) || is_alike(json, holds));
    config->ignored[entry - unsupported] = is_accepted && !json_is_null(json) && !json_equal(json, holds);
    json_decref(holds);
    return is_accepted;
}

/* A folder for a disk tier, which a budget of RAM without one of the disk does without. */
static bool has_idle_disk_path(const ps_config *config)
{
    const ps_options *o = &config->options;
    return o->memory_disk_path[0] != '\0' && !config->origin[PS_OPTION_memory_disk].given && o->memory_disk == 0 &&
           o->zero_tensor_placement_policy != PS_CONFIG_PLACEMENT_CUDA;
}

const char *ps_config_describe_ignored(const ps_config *config, char text[PS_CONFIG_IGNORED_TEXT_MAX])
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < PS_ARRAY_LEN(unsupported) && n < PS_CONFIG_IGNORED_TEXT_MAX; i++) {
        if (!config->ignored[i]) continue;
        const int length = snprintf(text + n, PS_CONFIG_IGNORED_TEXT_MAX - n, "%s%s: without effect, as %s",
                                    n > 0 ? "; " : "", unsupported[i].key, unsupported[i].reason);
        n += length > 0 ? (size_t)length : 0;
    }
    if (has_idle_disk_path(config) && n < PS_CONFIG_IGNORED_TEXT_MAX)
        snprintf(text + n, PS_CONFIG_IGNORED_TEXT_MAX - n,
                 "%smemory.disk_path: without effect, as there is no disk tier: memory.disk is 0 where it is left out "
                 "beside memory.device or memory.host. memory.disk = auto, or a size, makes one",
                 n > 0 ? "; " : "");
    return text;
}
