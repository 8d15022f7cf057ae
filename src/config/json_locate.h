/* json_locate.h - finds the position of a value in JSON text for messages, as jansson does not keep positions.
 *
 * The text must be accepted by jansson; for other text the result may be wrong, but no byte outside it is read. */
#ifndef PS_CONFIG_JSON_LOCATE_H
#define PS_CONFIG_JSON_LOCATE_H

#include <stdbool.h>
#include <stddef.h>

/* A path from the root, linked from its end, so that recursive walks can build it on their stack. NULL is the root. */
typedef struct ps_json_path {
    const struct ps_json_path *parent;
    const char *key; /* member of an object, UTF-8; NULL: element `index` of an array */
    size_t index;
} ps_json_path;

typedef struct ps_json_position {
    size_t key_offset;   /* of the opening quote of the member's name; of the value where there is no name */
    size_t value_offset; /* of the value's first byte */
} ps_json_position;

/* Find path in text. False, and *position zero, when text has no such value. Time: linear in n_bytes a level. */
bool ps_json_locate(const char *text, size_t n_bytes, const ps_json_path *path, ps_json_position *position);

/* Line and column of the byte at offset, both from 1; a column is a character of UTF-8. */
void ps_json_line_column(const char *text, size_t offset, int *line, int *column);

#endif
