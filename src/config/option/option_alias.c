/* option_alias.c - aliases of options, with other units. */
#include <math.h>

#include "config/option/option.h"

/* The alias's integers whose option value is in min .. max; factor is above 0. */
static void scale_ints(ps_option *option, const ps_option_alias *alias)
{
    option->int_min = (int64_t)ceil(((double)option->int_min - alias->offset) / alias->factor);
    option->int_max = (int64_t)floor(((double)option->int_max - alias->offset) / alias->factor);
}

static void scale_doubles(ps_option *option, const ps_option_alias *alias)
{
    const double a = (option->double_min - alias->offset) / alias->factor + 0.0; /* no -0 */
    const double b = (option->double_max - alias->offset) / alias->factor + 0.0;
    /* inclusive or exclusive as before */
    static const char *const turned[2][2] = {{"()", "[)"}, {"(]", "[]"}};
    const bool first = option->ends[0] == '[', last = option->ends[1] == ']';
    option->double_min = alias->factor < 0 ? b : a;
    option->double_max = alias->factor < 0 ? a : b;
    if (alias->factor < 0) option->ends = turned[first][last];
}

ps_option ps_option_under(const ps_option *option, const ps_option_alias *alias)
{
    ps_option o = *option;
    if (alias == NULL) return o;
    o.key = alias->key;
    if (!alias->is_scaled) return o;
    switch (o.type) {
    case PS_OPTION_BYTES: /* a plain number: "64MB" in an option in MB would apply the unit twice */
        o.type = PS_OPTION_INT;
        scale_ints(&o, alias);
        break;
    case PS_OPTION_INT: scale_ints(&o, alias); break;
    case PS_OPTION_DOUBLE: scale_doubles(&o, alias); break;
    case PS_OPTION_BOOL:
    case PS_OPTION_PAIR:
    case PS_OPTION_RANGE:
    case PS_OPTION_STRING:
    case PS_OPTION_ENUM: break; /* only numbers have a scale; test_config holds aliases.def to it */
    }
    return o;
}

bool ps_option_read_under(const ps_option *option, const ps_option_alias *alias, const json_t *json,
                          ps_option_value *value, char *problem, size_t problem_bytes)
{
    const ps_option under = ps_option_under(option, alias);
    if (!ps_option_read(&under, json, value, problem, problem_bytes)) return false;
    if (alias == NULL || !alias->is_scaled || json_is_null(json)) return true; /* null is the option's default */
    if (under.type == PS_OPTION_DOUBLE)
        value->d[0] = alias->factor * value->d[0] + alias->offset;
    else
        value->i = value->i * (int64_t)alias->factor + (int64_t)alias->offset;
    return true;
}

bool ps_option_leaves(const ps_option_alias *alias, const json_t *json)
{
    return alias != NULL && json_is_number(json) && json_number_value(json) == alias->unset;
}
