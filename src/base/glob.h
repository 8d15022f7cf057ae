/* glob.h - matches names against patterns, as a shell matches file names.
 *
 *     *        zero or more characters, dots included
 *     ?        any one character
 *     [a-c7]   one of these characters; [!a-c7] any other
 *     others   themselves
 *
 * Patterns match whole names: "wte" does not match "wte.weight". Characters are bytes in every locale. */
#ifndef PS_BASE_GLOB_H
#define PS_BASE_GLOB_H

#include <stdbool.h>
#include <stdint.h>

/* A '[' without a ']' matches itself. */
bool ps_glob_matches(const char *pattern, const char *name);

/* Whether any of the comma-separated patterns matches. *which (may be NULL): its number, from 0. */
bool ps_glob_any_matches(const char *patterns, const char *name, int *which);

/* Copy pattern number i of a list to `out`, cut to n - 1 bytes; false when there are fewer. */
bool ps_glob_get(const char *patterns, int i, char *out, int n);

/* Does the pattern match the name, or its end from a dot on? So "q_proj" and "0.q_proj" match "layers.0.q_proj". */
bool ps_glob_matches_end(const char *pattern, const char *name);
bool ps_glob_any_matches_end(const char *patterns, const char *name);

/* Entry i of a list "pattern=number,pattern=number": its pattern, as by ps_glob_get, and its number. False: there are
 * fewer. */
bool ps_glob_get_number(const char *list, int i, char *out, int n, int64_t *number);
/* The number of the first entry that matches the name, or its end from a dot on. False: none does. */
bool ps_glob_find_number(const char *list, const char *name, int64_t *number);

#endif
