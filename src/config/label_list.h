/* label_list.h - class names as one text, the value of data.labels: "negative,positive", or, where a name has a comma,
 * a JSON array: ["no, never","yes"]. */
#ifndef PS_CONFIG_LABEL_LIST_H
#define PS_CONFIG_LABEL_LIST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ps_label_list {
    char **names; /* [n]: name of class i */
    int32_t n;
} ps_label_list;

/* "": none. PS_EINVAL, with the text, for an empty name, a duplicate name, and an array with anything but names. On
 * failure *l is empty. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_label_list_parse(const char *text, ps_label_list *l);
PS_PRIVATE_API void ps_label_list_deinit(ps_label_list *l); /* an empty one is accepted */

/* Class of the name, -1: none. */
PS_PRIVATE_API int32_t ps_label_list_find(const ps_label_list *l, const char *name, int64_t n_bytes);

/* Append a class. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_label_list_add(ps_label_list *l, const char *name, int64_t n_bytes);

/* Classes by name, for many look-ups: an object of integers, for json_decref. *a and *b are the first two classes with
 * the same name, which is in the object once; else -1. */
PS_NODISCARD ps_status ps_label_list_index(const ps_label_list *l, json_t **index, int32_t *a, int32_t *b);

/* The text, for ps_free. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_label_list_format(const ps_label_list *l, char **text);

/* "0 'negative', 1 'positive'", cut with "..." where it exceeds `bytes`; returns out. */
PS_PRIVATE_API const char *ps_label_list_describe(const ps_label_list *l, char *out, size_t bytes);

/* Whether a name of `given`, the value of data.labels, has another number in `theirs`. `out` then has a message with
 * the list; `whose` names the owner of that list. */
bool ps_label_list_contradicts(const ps_label_list *given, const ps_label_list *theirs, const char *whose, char *out,
                               size_t bytes);

#endif
