/* regex.h - runs the regular expressions of tokenizer files by PCRE2, with the results of their own engine.
 *
 * tokenizer.json is written for Oniguruma (Ruby's syntax, Unicode). Most of its syntax means the same in PCRE2; the
 * rest is translated (\s, \w, script names) or refused by name, so that a pattern never splits differently:
 *
 *     \s \S   Unicode's White_Space, which PCRE2's \s is not quite (it has U+180E)
 *     \w      Alphabetic, marks, Nd and Pc, and the fractions and powers below U+0100, where PCRE2 10.42 has letters,
 *             numbers and "_"; \W only outside of [...]
 *     \p{..}  general categories, Alphabetic, and the scripts of a list
 *     ^ $     at every line, as Ruby has it
 *     refused: \b \h \G \K and other letters, named and conditional groups, options within a pattern, [a&&b], [[...]],
 *             {,n}, {n}+, (*VERB)
 *
 * A match that needs more than 64 MiB or ten million steps is an error, never a wrong split. The limit is per match,
 * not per text: a pattern with look-ahead to the end for each word takes quadratic time. Threads: one at a time. */
#ifndef PS_DATA_REGEX_H
#define PS_DATA_REGEX_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ps_regex ps_regex;

/* literal: match the pattern as plain text. PS_EFORMAT with the column in the pattern and the reason; `where` begins
 * the message. */
PS_NODISCARD ps_status ps_regex_create(const char *pattern, bool literal, const char *where, ps_regex **out);
void ps_regex_destroy(ps_regex *r); /* NULL is accepted */

/* The first match in text [from, n) to [*begin, *end), or *begin = n + 1 when there is none. The text is well-formed
 * UTF-8, and `from` is at the start of a character. */
PS_NODISCARD ps_status ps_regex_find(ps_regex *r, const char *text, int64_t n, int64_t from, int64_t *begin,
                                     int64_t *end);

#endif
