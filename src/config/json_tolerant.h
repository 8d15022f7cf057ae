/* json_tolerant.h - JSON as Python writes it. Python's json module writes NaN, Infinity and integers of any size, which
 * jansson refuses. Files of other programs may have such numbers in values that this library does not use.
 *
 * Such a number becomes a real number with an arbitrary value, so a reader that expects an integer finds none. Files
 * whose numbers are used are read by jansson itself, where a number out of range is an error. */
#ifndef PS_CONFIG_JSON_TOLERANT_H
#define PS_CONFIG_JSON_TOLERANT_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* As json_loadb: for text that is not JSON, *root is NULL, and *error has the reason and the position in `text`. The
 * status is PS_ENOMEM_HOST or PS_OK. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_json_load_tolerant(const char *text, size_t n_bytes, size_t flags,
                                                            json_t **root, json_error_t *error);

#endif
