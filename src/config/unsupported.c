/* unsupported.c - the keys of unsupported.def, which other programs have and this one has not. */
#include "config/config_state.h"

#include <string.h>

static const ps_unsupported unsupported[] = {
#define UNSUPPORTED(key_, accept_, reason_) {.key = key_, .accept = PS_ACCEPT_##accept_, .reason = reason_},
#include "config/unsupported.def"
#undef UNSUPPORTED
};

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
    if (json_is_object(json)) json = json_object_get(json, "enabled");
    switch (entry->accept) {
    case PS_ACCEPT_NEVER: break;
    case PS_ACCEPT_FALSE: return json_is_false(json);
    case PS_ACCEPT_TRUE: return json_is_true(json);
    case PS_ACCEPT_EITHER: return json_is_boolean(json);
    }
    return false;
}
