/* regex.h - the regular expressions of tokenizer files, run by PCRE2 as their own engine would.
 *
 * tokenizer.json is written for Oniguruma (Ruby's syntax, Unicode). Most of what is used there means the same in PCRE2;
 * what does not is spelled out (\s, \w, script names) or refused by name, so that a pattern never splits differently:
 *
 *     \s \S   Unicode's White_Space, which PCRE2's \s is not quite (it has U+180E)
 *     \w      Alphabetic, marks, Nd and Pc, and the fractions and powers below U+0100, where PCRE2 10.42 has letters,
 *             numbers and "_"; \W only outside of [...]
 *     \p{..}  general categories, Alphabetic, and the scripts of a list
 *     ^ $     at every line, as Ruby has it
 *     refused: \b \h \G \K and other letters, named and conditional groups, options within a pattern, [a&&b], [[...]],
 *             {,n}, {n}+, (*VERB)
 *
 * A match that wants more than 64 MiB or ten million steps is an error, never a wrong split. That bounds one match and
 * not a text: a pattern that looks ahead to the end for each word takes time by the square of the length. Threads: one
 * at a time. */
#ifndef PS_DATA_REGEX_H
#define PS_DATA_REGEX_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ps_regex ps_regex;

/* literal: find the pattern as it stands. PS_EFORMAT with the column in the pattern and the reason; `where` opens the
 * message. */
PS_NODISCARD ps_status ps_regex_create(const char *pattern, bool literal, const char *where, ps_regex **out);
void ps_regex_destroy(ps_regex *r); /* NULL is accepted */

/* The first match in text [from, n) to [*begin, *end), or *begin = n + 1 when there is none. The text is well-formed
 * UTF-8 and `from` stands at a character. */
PS_NODISCARD ps_status ps_regex_find(ps_regex *r, const char *text, int64_t n, int64_t from, int64_t *begin,
                                     int64_t *end);

#endif
