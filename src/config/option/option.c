#include "config/option/option.h"

#include <math.h>
#include <string.h>

/* Enumerations are stored through an int. */
#define XX(type, map) _Static_assert(sizeof(type) == sizeof(int), #type " is stored as int");
PS_CONFIG_ENUMS(XX)
#undef XX

#define SECOND(first, second, ...) second,
#define NAME(...) SECOND(__VA_ARGS__, 0)
#define XX(type, map) const char *const type##_names[] = {map(NAME)};
PS_CONFIG_ENUMS(XX)
#undef XX
#undef NAME
#undef SECOND

#define HEAD(field, key_, type_) .key = key_, .type = PS_OPTION_##type_, .offset = offsetof(ps_options, field)

const ps_option ps_option_table[PS_OPTION_COUNT] = {
#define OPT_BOOL(field, key_, default_, help_) {HEAD(field, key_, BOOL), .value.b = default_, .help = help_},
#define OPT_INT(field, key_, default_, min_, max_, unit_, help_)                                                       \
    {HEAD(field, key_, INT), .value.i = default_, .int_min = min_, .int_max = max_, .unit = unit_, .help = help_},
#define OPT_DOUBLE(field, key_, default_, min_, max_, ends_, unit_, help_)                                             \
    {HEAD(field, key_, DOUBLE),                                                                                        \
     .value.d = {default_},                                                                                            \
     .double_min = (double)(min_),                                                                                     \
     .double_max = (double)(max_),                                                                                     \
     .ends = ends_,                                                                                                    \
     .unit = unit_,                                                                                                    \
     .help = help_},
#define OPT_PAIR(field, key_, default0, default1, min_, max_, ends_, unit_, help_)                                     \
    {HEAD(field, key_, PAIR),                                                                                          \
     .value.d = {default0, default1},                                                                                  \
     .double_min = (double)(min_),                                                                                     \
     .double_max = (double)(max_),                                                                                     \
     .ends = ends_,                                                                                                    \
     .unit = unit_,                                                                                                    \
     .help = help_},
#define OPT_RANGE(field, key_, first_, last_, min_, max_, unit_, help_)                                                \
    {HEAD(field, key_, RANGE),                                                                                         \
     .value.r = {first_, last_},                                                                                       \
     .int_min = min_,                                                                                                  \
     .int_max = max_,                                                                                                  \
     .unit = unit_,                                                                                                    \
     .help = help_},
#define OPT_STRING(field, key_, default_, help_) {HEAD(field, key_, STRING), .value.s = default_, .help = help_},
#define OPT_NAMES(field, key_, default_, help_)                                                                        \
    {HEAD(field, key_, STRING), .value.s = default_, .help = help_, .is_names = true},
#define OPT_NUMBERS(field, key_, default_, help_)                                                                      \
    {HEAD(field, key_, STRING), .value.s = default_, .help = help_, .is_numbers = true},
#define OPT_OBJECTS(field, key_, help_) {HEAD(field, key_, STRING), .value.s = "", .help = help_, .is_objects = true},
#define OPT_COUNTS(field, key_, help_) {HEAD(field, key_, STRING), .value.s = "", .help = help_, .is_counts = true},
#define OPT_ENUM(field, key_, type_, default_, help_)                                                                  \
    {HEAD(field, key_, ENUM), .value.i = default_, .names = type_##_names, .n_names = PS_ARRAY_LEN(type_##_names),     \
     .help = help_},
#define OPT_BYTES(field, key_, default_, min_, max_, auto_allowed_, help_)                                             \
    {HEAD(field, key_, BYTES),      .value.i = default_, .int_min = min_, .int_max = max_,                             \
     .auto_allowed = auto_allowed_, .unit = "bytes",     .help = help_},
#include "config/option/options.def"
};

/* A section has the number of the option after it: the next enumerator continues from one less. */
enum {
#define OPT_SECTION(name, ...) FIRST_##name, FIRST_##name##_less_one = FIRST_##name - 1,
#define OPT_BOOL(field, ...) AT_##field,
#define OPT_INT(field, ...) AT_##field,
#define OPT_DOUBLE(field, ...) AT_##field,
#define OPT_PAIR(field, ...) AT_##field,
#define OPT_RANGE(field, ...) AT_##field,
#define OPT_STRING(field, ...) AT_##field,
#define OPT_ENUM(field, ...) AT_##field,
#define OPT_BYTES(field, ...) AT_##field,
#include "config/option/options.def"
};

const ps_option_section ps_option_sections[] = {
#define OPT_SECTION(name, title_, text_) {.title = title_, .text = text_, .first_id = (ps_option_id)FIRST_##name},
#include "config/option/options.def"
};
const int ps_option_n_sections = PS_ARRAY_LEN(ps_option_sections);

void ps_option_store(const ps_option *option, ps_option_value value, void *fields)
{
    void *field = (char *)fields + option->offset;
    const int name = (int)value.i;
    switch (option->type) {
    case PS_OPTION_BOOL: memcpy(field, &value.b, sizeof value.b); break;
    case PS_OPTION_INT:
    case PS_OPTION_BYTES: memcpy(field, &value.i, sizeof value.i); break;
    case PS_OPTION_DOUBLE: memcpy(field, &value.d[0], sizeof value.d[0]); break;
    case PS_OPTION_PAIR: memcpy(field, value.d, sizeof value.d); break;
    case PS_OPTION_RANGE: memcpy(field, value.r, sizeof value.r); break;
    case PS_OPTION_STRING: memcpy(field, &value.s, sizeof value.s); break;
    case PS_OPTION_ENUM: memcpy(field, &name, sizeof name); break;
    }
}

ps_option_value ps_option_load(const ps_option *option, const void *fields)
{
    const void *field = (const char *)fields + option->offset;
    ps_option_value value = {0};
    int name = 0;
    switch (option->type) {
    case PS_OPTION_BOOL: memcpy(&value.b, field, sizeof value.b); break;
    case PS_OPTION_INT:
    case PS_OPTION_BYTES: memcpy(&value.i, field, sizeof value.i); break;
    case PS_OPTION_DOUBLE: memcpy(&value.d[0], field, sizeof value.d[0]); break;
    case PS_OPTION_PAIR: memcpy(value.d, field, sizeof value.d); break;
    case PS_OPTION_RANGE: memcpy(value.r, field, sizeof value.r); break;
    case PS_OPTION_STRING: memcpy(&value.s, field, sizeof value.s); break;
    case PS_OPTION_ENUM:
        memcpy(&name, field, sizeof name);
        value.i = name;
        break;
    }
    return value;
}

bool ps_option_is_equal(const ps_option *option, ps_option_value a, ps_option_value b)
{
    if (option->type == PS_OPTION_STRING) return strcmp(a.s, b.s) == 0;
    return a.b == b.b && a.i == b.i && a.d[0] == b.d[0] && a.d[1] == b.d[1] && a.r[0] == b.r[0] && a.r[1] == b.r[1];
}
