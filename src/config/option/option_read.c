/* option_read.c - converts a JSON value or a word of the command line to the value of an option. */
#include "base/printable.h"
#include "config/option/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool equal_in_any_case(const char *a, const char *b)
{
    for (; lower(*a) == lower(*b); a++, b++)
        if (*a == '\0') return true;
    return false;
}

/* A few numbers. */
static const char *describe_array(const json_t *json, char *text, size_t text_bytes)
{
    for (size_t i = 0; i < json_array_size(json); i++)
        if (!json_is_number(json_array_get(json, i))) return "an array";
    const size_t n = json_dumpb(json, text, text_bytes - 1, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (n == 0 || n >= text_bytes) return "an array";
    text[n] = '\0';
    return text;
}

/* The actual value for a message: "an object", "17", the string "abc". */
static const char *describe(const json_t *json, char *text, size_t text_bytes)
{
    char word[48];
    switch (json_typeof(json)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return describe_array(json, text, text_bytes);
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    case JSON_INTEGER: snprintf(text, text_bytes, "%lld", (long long)json_integer_value(json)); break;
    case JSON_REAL: snprintf(text, text_bytes, "%g", json_real_value(json)); break;
    case JSON_STRING:
        snprintf(text, text_bytes, "\"%s\"", ps_printable_copy(json_string_value(json), word, sizeof word));
        break;
    }
    return text;
}

/* Integers, and reals that are exact integers (1e6). Above 2^53 a real does not identify one integer. */
static bool read_int(const ps_option *option, const json_t *json, int64_t *value)
{
    if (json_is_integer(json)) {
        *value = json_integer_value(json);
    } else {
        if (!json_is_real(json)) return false;
        const double real = json_real_value(json);
        if (!(real >= -0x1p53 && real <= 0x1p53) || real != (double)(int64_t)real) return false;
        *value = (int64_t)real;
    }
    return *value >= option->int_min && *value <= option->int_max;
}

static bool read_double(const ps_option *option, const json_t *json, double *value)
{
    if (!json_is_number(json)) return false;
    *value = json_number_value(json);
    const bool above = option->ends[0] == '[' ? *value >= option->double_min : *value > option->double_min;
    const bool below = option->ends[1] == ']' ? *value <= option->double_max : *value < option->double_max;
    return above && below;
}

static bool read_pair(const ps_option *option, const json_t *json, double value[2])
{
    return json_is_array(json) && json_array_size(json) == 2 &&
           read_double(option, json_array_get(json, 0), &value[0]) &&
           read_double(option, json_array_get(json, 1), &value[1]);
}

static bool read_range(const ps_option *option, const json_t *json, int64_t value[2])
{
    return json_is_array(json) && json_array_size(json) == 2 && read_int(option, json_array_get(json, 0), &value[0]) &&
           read_int(option, json_array_get(json, 1), &value[1]) && value[0] <= value[1];
}

/* A name may be "true", which is then written as a string or not. */
static bool read_enum(const ps_option *option, const json_t *json, int64_t *value)
{
    const char *const text = json_is_true(json) ? "true" : json_string_value(json);
    if (text == NULL) return false;
    for (*value = 0; *value < option->n_names; (*value)++)
        if (equal_in_any_case(text, option->names[*value])) return true;
    return false;
}

static bool read_bytes(const ps_option *option, const json_t *json, int64_t *value)
{
    if (!json_is_string(json)) return read_int(option, json, value);
    if (equal_in_any_case(json_string_value(json), "auto")) {
        *value = PS_BYTES_AUTO;
        return option->auto_allowed;
    }
    return ps_bytes_parse(json_string_value(json), value) == PS_OK && *value >= option->int_min &&
           *value <= option->int_max;
}

static bool are_objects(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!json_is_object(json_array_get(array, i))) return false;
    return json_is_array(array);
}

/* "name=1,name=2", with numbers that json has, too. */
static bool are_counts(const char *text)
{
    if (text[0] == '\0') return true;
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        const char *digits = at + n;
        while (digits > at && digits[-1] >= '0' && digits[-1] <= '9') digits--;
        const size_t n_digits = (size_t)(at + n - digits);
        if (n_digits < 1 || n_digits > 9 || digits[0] == '0' || digits - at < 2 || digits[-1] != '=') return false;
        at += n;
        if (*at == '\0') return true;
    }
}

static bool read_string(const ps_option *option, const json_t *json, const char **value)
{
    *value = json_string_value(json);
    if (*value != NULL && option->is_counts) return are_counts(*value);
    if (*value == NULL || !option->is_objects || (*value)[0] == '\0') return *value != NULL;
    json_t *objects = json_loads(*value, JSON_REJECT_DUPLICATES, NULL);
    const bool are = are_objects(objects);
    json_decref(objects);
    return are;
}

static bool read_value(const ps_option *option, const json_t *json, ps_option_value *value)
{
    switch (option->type) {
    case PS_OPTION_BOOL: value->b = json_is_true(json); return json_is_boolean(json);
    case PS_OPTION_INT: return read_int(option, json, &value->i);
    case PS_OPTION_DOUBLE: return read_double(option, json, &value->d[0]);
    case PS_OPTION_PAIR: return read_pair(option, json, value->d);
    case PS_OPTION_RANGE: return read_range(option, json, value->r);
    case PS_OPTION_STRING: return read_string(option, json, &value->s);
    case PS_OPTION_ENUM: return read_enum(option, json, &value->i);
    case PS_OPTION_BYTES: return read_bytes(option, json, &value->i);
    }
    return false;
}

bool ps_option_read(const ps_option *option, const json_t *json, ps_option_value *value, char *problem,
                    size_t problem_bytes)
{
    if (json_is_null(json)) {
        *value = option->value;
        return true;
    }
    *value = (ps_option_value){0};
    if (read_value(option, json, value)) return true;
    char expected[PS_OPTION_TEXT_MAX], found[64];
    snprintf(problem, problem_bytes, "%s must be %s, not %s", option->key, ps_option_expectation(option, expected),
             describe(json, found, sizeof found));
    return false;
}

static bool are_names(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *name = json_string_value(json_array_get(array, i));
        if (name == NULL || name[0] == '\0' || strchr(name, ',') != NULL) return false;
    }
    return json_is_array(array);
}

static bool are_numbers(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!json_is_number(json_array_get(array, i))) return false;
    return json_is_array(array);
}

/* As their text: [1, 2.5] as "1,2.5", with as many digits as any decimal number keeps. */
static json_t *join_numbers(const json_t *array)
{
    char *dumped = json_dumps(array, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_t *text = dumped != NULL ? json_stringn(dumped + 1, strlen(dumped) - 2) : NULL;
    free(dumped);
    return text;
}

/* NULL: it is no object of counts. */
static json_t *join_counts(json_t *object)
{
    json_t *text = json_string("");
    const char *name;
    json_t *number;
    json_object_foreach(object, name, number)
    {
        const json_int_t n = json_integer_value(number);
        json_t *longer = NULL;
        if (json_is_integer(number) && n >= 1 && name[0] != '\0' && strchr(name, ',') == NULL && text != NULL)
            longer = json_sprintf("%s%s%s=%lld", json_string_value(text), json_string_length(text) > 0 ? "," : "", name,
                                  (long long)n);
        json_decref(text);
        if ((text = longer) == NULL) return NULL;
    }
    return text;
}

/* An empty array is "", the default. */
static json_t *join_objects(const json_t *array)
{
    if (json_array_size(array) == 0) return json_string("");
    char *dumped = json_dumps(array, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_t *text = dumped != NULL ? json_string(dumped) : NULL;
    free(dumped);
    return text;
}

json_t *ps_option_join_names(const ps_option *option, json_t *json)
{
    if (option->is_objects && are_objects(json)) return join_objects(json);
    json_t *counts = option->is_counts && json_is_object(json) ? join_counts(json) : NULL;
    if (counts != NULL) return counts;
    if (option->is_numbers && are_numbers(json)) return join_numbers(json);
    if (!option->is_names || !are_names(json)) return json_incref(json);
    json_t *text = json_string("");
    for (size_t i = 0; text != NULL && i < json_array_size(json); i++) {
        json_t *longer = json_sprintf("%s%s%s", json_string_value(text), i > 0 ? "," : "",
                                      json_string_value(json_array_get(json, i)));
        json_decref(text);
        text = longer;
    }
    return text;
}

json_t *ps_option_json_from_word(const ps_option *option, const char *word, char *problem, size_t problem_bytes)
{
    const bool is_word =
        option->type == PS_OPTION_STRING || option->type == PS_OPTION_ENUM || option->type == PS_OPTION_BYTES;
    json_t *json = NULL;
    const bool is_list = option->is_names || option->is_numbers || option->is_objects;
    const bool is_two = option->type == PS_OPTION_PAIR || option->type == PS_OPTION_RANGE;
    if (is_two && word[0] != '[') { /* 0.9,0.95 */
        char array[128];
        if ((size_t)snprintf(array, sizeof array, "[%s]", word) < sizeof array) json = json_loads(array, 0, NULL);
    } else if (!is_word || word[0] == '"' || (is_list && word[0] == '[') || (option->is_counts && word[0] == '{')) {
        json_error_t error;
        json = json_loads(word, JSON_DECODE_ANY, &error);
        if (json == NULL && is_list && word[0] == '[') {
            snprintf(problem, problem_bytes, "%s begins with [ and is no JSON array (%.80s): \"%.80s\"", option->key,
                     ps_printable(error.text), word);
            return NULL;
        }
    }
    if (json == NULL) json = json_string(word);
    if (json == NULL) snprintf(problem, problem_bytes, "the value of %s is not valid UTF-8", option->key);
    return json;
}
