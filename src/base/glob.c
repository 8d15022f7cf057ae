#include "base/glob.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The set that begins at p, '[' of pattern [p, end): *last is its ']'. False when there is no ']', so no set. */
static bool find_set_end(const char *p, const char *end, const char **last)
{
    const char *at = p + 1;
    if (at < end && *at == '!') at++;
    if (at < end) at++; /* a leading ']' is a member of the set */
    while (at < end && *at != ']') at++;
    *last = at;
    return at < end;
}

static bool is_in_set(const char *p, const char *last, char c)
{
    const bool is_negated = p[1] == '!';
    bool is_in = false;
    for (const char *at = p + 1 + is_negated; at < last; at++) {
        if (at + 2 < last && at[1] == '-') {
            is_in |= (unsigned char)at[0] <= (unsigned char)c && (unsigned char)c <= (unsigned char)at[2];
            at += 2;
        } else {
            is_in |= *at == c;
        }
    }
    return is_in != is_negated;
}

/* Match one character of the name against the pattern element at p, which is not '*'; *next: past the element. */
static bool matches_one(const char *p, const char *end, char c, const char **next)
{
    const char *last;
    *next = p + 1;
    if (*p == '?') return true;
    if (*p != '[' || !find_set_end(p, end, &last)) return *p == c;
    *next = last + 1;
    return is_in_set(p, last, c);
}

/* After a mismatch the last '*' matches one character more; earlier ones need not be tried again. */
static bool matches(const char *p, const char *end, const char *name)
{
    const char *star = NULL, *resume = NULL, *next;
    while (*name != '\0') {
        if (p < end && *p == '*') {
            star = ++p;
            resume = name;
        } else if (p < end && matches_one(p, end, *name, &next)) {
            p = next;
            name++;
        } else if (star != NULL) {
            p = star;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*') p++;
    return p == end;
}

bool ps_glob_matches(const char *pattern, const char *name)
{
    return matches(pattern, pattern + strlen(pattern), name);
}

bool ps_glob_any_matches(const char *patterns, const char *name, int *which)
{
    int i = 0;
    for (const char *at = patterns; *at != '\0'; i++) {
        const size_t n = strcspn(at, ",");
        if (matches(at, at + n, name)) {
            if (which != NULL) *which = i;
            return true;
        }
        at += n + (at[n] == ',');
    }
    return false;
}

bool ps_glob_get(const char *patterns, int i, char *out, int n)
{
    const char *at = patterns;
    for (; *at != '\0' && i > 0; i--) {
        at += strcspn(at, ",");
        at += *at == ',';
    }
    if (*at == '\0') return false;
    size_t length = strcspn(at, ",");
    if (length > (size_t)n - 1) length = (size_t)n - 1;
    memcpy(out, at, length);
    out[length] = '\0';
    return true;
}

static bool matches_end(const char *p, const char *end, const char *name)
{
    for (const char *at = name; at != NULL; at = strchr(at, '.') != NULL ? strchr(at, '.') + 1 : NULL)
        if (matches(p, end, at)) return true;
    return false;
}

bool ps_glob_matches_end(const char *pattern, const char *name)
{
    return matches_end(pattern, pattern + strlen(pattern), name);
}

bool ps_glob_any_matches_end(const char *patterns, const char *name)
{
    for (const char *at = patterns; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        if (matches_end(at, at + n, name)) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* An entry without a number has 0. */
bool ps_glob_get_number(const char *list, int i, char *out, int n, int64_t *number)
{
    if (!ps_glob_get(list, i, out, n)) return false;
    char *const equals = strrchr(out, '=');
    *number = equals != NULL ? strtoll(equals + 1, NULL, 10) : 0;
    if (equals != NULL) *equals = '\0';
    return true;
}

bool ps_glob_find_number(const char *list, const char *name, int64_t *number)
{
    for (const char *at = list; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        const char *equals = at + n;
        while (equals > at && *equals != '=') equals--;
        if (*equals == '=' && matches_end(at, equals, name)) {
            *number = strtoll(equals + 1, NULL, 10);
            return true;
        }
        at += n + (at[n] == ',');
    }
    return false;
}
