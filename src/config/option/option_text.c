/* option_text.c - formats values and ranges of options, independent of the locale. */
#include "config/option/option.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT_MAX = 40 };

/* The shortest text of 15 to 17 digits that reads back as the same bits, with '.' in every locale. */
static const char *double_text(double value, char text[NUMBER_TEXT_MAX])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, NUMBER_TEXT_MAX, "%.*g", digits, value);
        const double again = strtod(text, NULL);
        if (memcmp(&again, &value, sizeof value) == 0) break;
    }
    const char *point = localeconv()->decimal_point;
    char *at = strcmp(point, ".") != 0 ? strstr(text, point) : NULL;
    if (at != NULL) {
        *at = '.';
        memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
    }
    return text;
}

static void write_string(const char *s, FILE *out)
{
    fputc('"', out);
    for (; *s != '\0'; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

void ps_option_write_value(const ps_option *option, ps_option_value value, FILE *out)
{
    char a[NUMBER_TEXT_MAX], b[NUMBER_TEXT_MAX];
    switch (option->type) {
    case PS_OPTION_BOOL: fputs(value.b ? "true" : "false", out); break;
    case PS_OPTION_INT: fprintf(out, "%lld", (long long)value.i); break;
    case PS_OPTION_DOUBLE: fputs(double_text(value.d[0], a), out); break;
    case PS_OPTION_PAIR: fprintf(out, "[%s, %s]", double_text(value.d[0], a), double_text(value.d[1], b)); break;
    case PS_OPTION_RANGE: fprintf(out, "[%lld, %lld]", (long long)value.r[0], (long long)value.r[1]); break;
    case PS_OPTION_STRING:
        if (option->is_objects && value.s[0] != '\0')
            fputs(value.s, out); /* the string is JSON */
        else
            write_string(value.s, out);
        break;
    case PS_OPTION_ENUM: write_string(option->names[value.i], out); break;
    case PS_OPTION_BYTES:
        if (value.i == PS_BYTES_AUTO)
            write_string("auto", out);
        else
            fprintf(out, "%lld", (long long)value.i);
    }
}

/* " in [0, 1)", " of at least 0", " above 0", "" */
static const char *double_range(const ps_option *option, char *text, size_t text_bytes)
{
    char a[NUMBER_TEXT_MAX], b[NUMBER_TEXT_MAX];
    text[0] = '\0';
    if (isfinite(option->double_max))
        snprintf(text, text_bytes, " in %c%s, %s%c", option->ends[0], double_text(option->double_min, a),
                 double_text(option->double_max, b), option->ends[1]);
    else if (isfinite(option->double_min))
        snprintf(text, text_bytes, option->ends[0] == '[' ? " of at least %s" : " above %s",
                 double_text(option->double_min, a));
    return text;
}

/* Exact: 64KiB, 1EiB; what is no multiple of such a unit, in bytes. */
static const char *bytes_text(int64_t n, char text[NUMBER_TEXT_MAX])
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    for (; n > 0 && n % 1024 == 0 && unit + 1 < sizeof units / sizeof units[0]; unit++) n /= 1024;
    snprintf(text, NUMBER_TEXT_MAX, "%lld%s", (long long)n, units[unit]);
    return text;
}

const char *ps_option_expectation(const ps_option *option, char text[PS_OPTION_TEXT_MAX])
{
    char range[3 * NUMBER_TEXT_MAX];
    size_t n;
    switch (option->type) {
    case PS_OPTION_BOOL: return "true or false";
    case PS_OPTION_STRING:
        if (option->is_objects) return "an array of objects";
        if (option->is_counts)
            return "an object of names without commas and whole numbers from 1 on, or a string NAME=NUMBER,NAME=NUMBER";
        if (option->is_numbers) return "an array of numbers, or a string of such with commas";
        return option->is_names ? "a string, or an array of strings that are not empty and have no commas" : "a string";
    case PS_OPTION_INT:
        if (option->int_max == INT64_MAX)
            snprintf(text, PS_OPTION_TEXT_MAX, "an integer of at least %lld", (long long)option->int_min);
        else
            snprintf(text, PS_OPTION_TEXT_MAX, "an integer from %lld to %lld", (long long)option->int_min,
                     (long long)option->int_max);
        break;
    case PS_OPTION_DOUBLE:
        snprintf(text, PS_OPTION_TEXT_MAX, "a number%s", double_range(option, range, sizeof range));
        break;
    case PS_OPTION_PAIR:
        snprintf(text, PS_OPTION_TEXT_MAX, "two numbers%s", double_range(option, range, sizeof range));
        break;
    case PS_OPTION_RANGE:
        snprintf(text, PS_OPTION_TEXT_MAX, "two integers from %lld to %lld, the first not above the last",
                 (long long)option->int_min, (long long)option->int_max);
        break;
    case PS_OPTION_BYTES:
        n = (size_t)snprintf(text, PS_OPTION_TEXT_MAX, "a size (64MB, 1.5GiB, bytes) of at least %s",
                             bytes_text(option->int_min, range));
        if (option->int_max != INT64_MAX)
            n += (size_t)snprintf(text + n, PS_OPTION_TEXT_MAX - n, " and at most %s",
                                  bytes_text(option->int_max, range));
        snprintf(text + n, PS_OPTION_TEXT_MAX - n, "%s", option->auto_allowed ? ", or auto" : "");
        break;
    case PS_OPTION_ENUM:
        n = (size_t)snprintf(text, PS_OPTION_TEXT_MAX, "%s", option->n_names > 1 ? "one of " : "");
        for (int i = 0; i < option->n_names && n < PS_OPTION_TEXT_MAX; i++)
            n += (size_t)snprintf(text + n, PS_OPTION_TEXT_MAX - n, "%s%s", i > 0 ? ", " : "", option->names[i]);
    }
    return text;
}
