/* printable.h - external text in messages, without control characters for the terminal. */
#ifndef PS_BASE_PRINTABLE_H
#define PS_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether this well-formed character of `length` bytes is a control character. */
bool ps_is_control(const char *character, int length);

/* Replaces in place: control characters (those of Latin-1 too) and bytes that are not UTF-8 become '?', one for each
 * character or truncated character. Returns text. */
char *ps_printable(char *text);

/* Copy text for use in a message, printable; text that does not fit ends in "...". out_bytes >= 4. Returns out. */
const char *ps_printable_copy(const char *text, char *out, size_t out_bytes);

#endif
