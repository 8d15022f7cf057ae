/* printable.h - text of others in messages: what a terminal would obey is not shown to it. */
#ifndef PS_BASE_PRINTABLE_H
#define PS_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Is this well-formed character of `length` bytes one that controls? */
bool ps_is_control(const char *character, int length);

/* In place: control characters (those of Latin-1 too) and bytes that are no UTF-8 become '?', one for each character or
 * cut-off part of one. Returns it. */
char *ps_printable(char *text);

/* Copy text for use in a message, printable; what does not fit becomes "...". out_bytes >= 4. Returns out. */
const char *ps_printable_copy(const char *text, char *out, size_t out_bytes);

#endif
