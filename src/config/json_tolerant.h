/* json_tolerant.h - JSON as Python writes it: its json module puts down NaN, Infinity and integers of any size, and
 * jansson refuses them. Files of other programs are full of values that nobody here asks for, and those must not
 * matter.
 *
 * Such a number becomes a real number, so that who wants an integer sees that there is none; its value is lost.
 * For files whose numbers are used, jansson alone: there a number that cannot be held is an error. */
#ifndef PS_CONFIG_JSON_TOLERANT_H
#define PS_CONFIG_JSON_TOLERANT_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* As json_loadb: *root is NULL, and *error says why with a position in `text`, where it is no JSON. The status only
 * tells whether there was memory (PS_ENOMEM_HOST). */
PS_NODISCARD ps_status ps_json_load_tolerant(const char *text, size_t n_bytes, size_t flags, json_t **root,
                                             json_error_t *error);

#endif
