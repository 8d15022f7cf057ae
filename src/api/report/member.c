#include "api/report/member.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *describe(const json_t *json, char text[64])
{
    if (json == NULL) return "nothing";
    switch (json_typeof(json)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: snprintf(text, 64, "'%.40s'", json_string_value(json)); return text;
    case JSON_INTEGER: snprintf(text, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(json)); return text;
    case JSON_REAL: snprintf(text, 64, "%g", json_real_value(json)); return text;
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    }
    return "nothing";
}

ps_status ps_member_unexpected(const ps_member_place *at, const char *key, const char *expected, const json_t *found)
{
    char text[64];
    return PS_FAIL(PS_EFORMAT, "%s: %s: \"%s\": expected %s, found %s; is this a file of profile.path?", at->path,
                   at->where, key, expected, describe(found, text));
}

ps_status ps_member_object(const ps_member_place *at, const json_t *parent, const char *key, const json_t **out)
{
    *out = json_object_get(parent, key);
    return json_is_object(*out) ? PS_OK : ps_member_unexpected(at, key, "an object", *out);
}

ps_status ps_member_array(const ps_member_place *at, const json_t *parent, const char *key, const json_t **out)
{
    *out = json_object_get(parent, key);
    return json_is_array(*out) ? PS_OK : ps_member_unexpected(at, key, "an array", *out);
}

ps_status ps_member_string(const ps_member_place *at, const json_t *parent, const char *key, const char **out)
{
    const json_t *json = json_object_get(parent, key);
    *out = json_string_value(json);
    return *out != NULL ? PS_OK : ps_member_unexpected(at, key, "a string", json);
}

ps_status ps_member_check_integer(const ps_member_place *at, const json_t *json, const char *key, int64_t min,
                                  int64_t max, int64_t *out)
{
    char expected[96];
    *out = json_integer_value(json);
    if (json_is_integer(json) && *out >= min && *out <= max) return PS_OK;
    snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, min, max);
    return ps_member_unexpected(at, key, expected, json);
}

ps_status ps_member_integer(const ps_member_place *at, const json_t *parent, const char *key, int64_t min, int64_t max,
                            int64_t *out)
{
    return ps_member_check_integer(at, json_object_get(parent, key), key, min, max, out);
}

ps_status ps_member_int(const ps_member_place *at, const json_t *parent, const char *key, int min, int max, int *out)
{
    int64_t value;
    const ps_status st = ps_member_integer(at, parent, key, min, max, &value);
    *out = st == PS_OK ? (int)value : min;
    return st;
}

ps_status ps_member_number(const ps_member_place *at, const json_t *parent, const char *key, double max, double *out)
{
    char expected[64];
    const json_t *json = json_object_get(parent, key);
    *out = json_number_value(json);
    if (json_is_number(json) && isfinite(*out) && *out >= 0 && *out <= max) return PS_OK;
    snprintf(expected, sizeof expected, "a number from 0 to %g", max);
    return ps_member_unexpected(at, key, expected, json);
}

ps_status ps_member_name(const ps_member_place *at, const json_t *parent, const char *key, const char *const *names,
                         int n, int *out)
{
    char expected[160] = "one of ";
    const char *name;
    PS_TRY(ps_member_string(at, parent, key, &name));
    for (*out = 0; *out < n; ++*out)
        if (strcmp(names[*out], name) == 0) return PS_OK;
    for (int i = 0; i < n; i++) {
        const size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    *out = 0;
    return ps_member_unexpected(at, key, expected, json_object_get(parent, key));
}

bool ps_member_is_given(const json_t *json)
{
    return json != NULL && !json_is_null(json);
}

ps_status ps_member_short(const ps_member_place *at, const json_t *parent, const char *key, char *out, size_t bytes)
{
    const char *name;
    PS_TRY(ps_member_string(at, parent, key, &name));
    if (name[0] == '\0' || strlen(name) >= bytes)
        return ps_member_unexpected(at, key, "a short name", json_object_get(parent, key));
    strcpy(out, name);
    return PS_OK;
}
