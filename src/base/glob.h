/* glob.h - names against patterns, as a shell matches file names.
 *
 *     *        any characters, none too, dots as well
 *     ?        any one character
 *     [a-c7]   one of these; [!a-c7] any other
 *     others   themselves
 *
 * Of whole names: "wte" does not match "wte.weight". Bytes, whatever the locale. */
#ifndef PS_BASE_GLOB_H
#define PS_BASE_GLOB_H

#include <stdbool.h>

/* A '[' without its ']' is itself. */
bool ps_glob_matches(const char *pattern, const char *name);

/* Does any of the patterns, with commas between them, match? *which (may be NULL): its number, from 0. */
bool ps_glob_any_matches(const char *patterns, const char *name, int *which);

/* Copy pattern number i of a list to `out`, cut to n - 1 bytes; false when there are fewer. */
bool ps_glob_get(const char *patterns, int i, char *out, int n);

#endif
