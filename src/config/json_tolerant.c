#include "config/json_tolerant.h"

#include <stdbool.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"

enum { INTEGER_DIGITS_MAX = 18 }; /* all integers of this many digits fit 64 bits */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *p, const char *end)
{
    while (p < end && is_digit(*p)) p++;
    return p;
}

/* The end of the JSON number at p, p itself where there is none. *is_short_integer: jansson can hold it. */
static const char *skip_number(const char *p, const char *end, bool *is_short_integer)
{
    const char *first = p + (*p == '-'), *at = skip_digits(first, end);
    *is_short_integer = at - first <= INTEGER_DIGITS_MAX;
    if (at == first || (*first == '0' && at > first + 1)) return p;
    if (at + 1 < end && *at == '.' && is_digit(at[1])) {
        *is_short_integer = false;
        at = skip_digits(at + 1, end);
    }
    if (at + 1 < end && (*at == 'e' || *at == 'E')) {
        const char *exponent = at + 1 + (at[1] == '+' || at[1] == '-');
        if (exponent == end || !is_digit(*exponent)) return p;
        *is_short_integer = false;
        at = skip_digits(exponent, end);
    }
    return at;
}

/* The end of one of Python's literals (NaN, Infinity) at p, or p. */
static const char *skip_word(const char *p, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < PS_ARRAY_LEN(words); i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(end - p) >= n && memcmp(p, words[i], n) == 0) return p + n;
    }
    return p;
}

static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\') p++;
    return p < end ? p + 1 : end;
}

/* Whether [p, after) is a whole value, not part of malformed text. */
static bool stands_alone(const char *text, const char *p, const char *after, const char *end)
{
    return (p == text || strchr(" \t\r\n:,[", p[-1]) != NULL) && (after == end || strchr(" \t\r\n,]}", *after) != NULL);
}

/* Replaces such numbers by "0.0" and spaces. No such number is shorter, so positions in messages stay valid. */
static void mask_numbers(char *text, size_t n_bytes)
{
    const char *end = text + n_bytes;
    for (size_t i = 0; i < n_bytes;) {
        const char *p = text + i, *after = skip_word(p, end);
        bool is_short_integer = false;
        if (*p == '"') {
            i += (size_t)(skip_string(p, end) - p);
            continue;
        }
        if (after == p && (*p == '-' || is_digit(*p))) after = skip_number(p, end, &is_short_integer);
        const size_t n = (size_t)(after - p);
        if (n > 0 && !is_short_integer && stands_alone(text, p, after, end)) {
            memset(text + i, ' ', n);
            memcpy(text + i, "0.0", 3);
        }
        i += n > 0 ? n : 1;
    }
}

ps_status ps_json_load_tolerant(const char *text, size_t n_bytes, size_t flags, json_t **root, json_error_t *error)
{
    *root = json_loadb(text, n_bytes, flags, error);
    if (*root != NULL) return PS_OK;
    const enum json_error_code code = json_error_code(error);
    if (code == json_error_out_of_memory) return PS_FAIL(PS_ENOMEM_HOST, "no memory for %zu bytes of JSON", n_bytes);
    if (code != json_error_numeric_overflow && code != json_error_invalid_syntax) return PS_OK;
    char *copy;
    PS_TRY(ps_mem_alloc(n_bytes, 1, &copy));
    memcpy(copy, text, n_bytes);
    mask_numbers(copy, n_bytes);
    *root = json_loadb(copy, n_bytes, flags, error);
    ps_mem_free(copy);
    return PS_OK;
}
