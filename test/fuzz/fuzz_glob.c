/* Patterns of names, with a NUL before the name: the matcher finds what a table of all beginnings of both finds, and each
 * pattern of a list can be had by its number. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                                \
    if (!(condition)) abort()

enum { MOST = 64 };

/* Length of what stands at p and matches one character, 0 for a star; *matches: c is that character. */
static size_t one(const char *p, char c, int *matches)
{
    const unsigned char u = (unsigned char)c;
    const char *close;
    *matches = *p == '?' || *p == c;
    if (*p == '*') return 0;
    const int is_negated = p[0] == '[' && p[1] == '!';
    const char *const first = p + 1 + is_negated;
    if (*p != '[' || *first == '\0' || (close = strchr(first + 1, ']')) == NULL) return 1;
    int is_in = 0;
    for (const char *at = first; at < close;) {
        const int is_range = at + 2 < close && at[1] == '-';
        const unsigned char low = (unsigned char)at[0], high = (unsigned char)at[is_range ? 2 : 0];
        is_in |= low <= u && u <= high;
        at += is_range ? 3 : 1;
    }
    *matches = is_in != is_negated;
    return (size_t)(close - p) + 1;
}

/* By all beginnings of pattern and name: reached[j]: what was read of the pattern matches the first j of the name. */
static int matches_by_table(const char *pattern, const char *name)
{
    const size_t n = strlen(name);
    char reached[MOST + 1] = {1}, next[MOST + 1];
    for (const char *p = pattern; *p != '\0';) {
        size_t length = 1;
        int is_one;
        memset(next, 0, sizeof next);
        for (size_t j = 0; j <= n; j++) {
            length = one(p, j > 0 ? name[j - 1] : '\0', &is_one);
            if (length == 0)
                next[j] = reached[j] || (j > 0 && next[j - 1]);
            else if (j > 0)
                next[j] = reached[j - 1] && is_one;
        }
        memcpy(reached, next, sizeof reached);
        p += length == 0 ? 1 : length;
    }
    return reached[n];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char text[2 * MOST + 2] = "", pattern[MOST + 1];
    if (n > 2 * MOST) return 0;
    memcpy(text, data, n);
    const char *name = text + strlen(text) + (strlen(text) < n);
    if (strlen(text) > MOST || strlen(name) > MOST) return 0;
    int which = -1, i = 0, first = -1;
    const bool any = ps_glob_any_matches(text, name, &which);
    for (; ps_glob_get(text, i, pattern, sizeof pattern); i++) {
        const int expected = matches_by_table(pattern, name);
        MUST(ps_glob_matches(pattern, name) == expected);
        if (expected && first < 0) first = i;
    }
    MUST(any == (first >= 0));
    MUST(!any || which == first);
    return 0;
}
