/* label_list.h - names of classes as one text, the value of data.labels: "negative,positive", or, where a name has a
 * comma, a JSON array: ["no, never","yes"]. */
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

/* "": none. PS_EINVAL, with the text, for an empty name, one that comes twice, and an array of anything else than
 * names. On failure *l is empty. */
PS_NODISCARD ps_status ps_label_list_parse(const char *text, ps_label_list *l);
void ps_label_list_deinit(ps_label_list *l); /* an empty one is accepted */

/* Class of the name, -1: none. */
int32_t ps_label_list_find(const ps_label_list *l, const char *name, int64_t n_bytes);

/* A further class. */
PS_NODISCARD ps_status ps_label_list_add(ps_label_list *l, const char *name, int64_t n_bytes);

/* Classes by name, for many look-ups: an object of integers, for json_decref. A name that comes twice is in it once,
 * and *a and *b are then the first two classes of one name; else -1. */
PS_NODISCARD ps_status ps_label_list_index(const ps_label_list *l, json_t **index, int32_t *a, int32_t *b);

/* The text, for ps_free. */
PS_NODISCARD ps_status ps_label_list_format(const ps_label_list *l, char **text);

/* "0 'negative', 1 'positive'", cut with "..." where `bytes` are too few; returns out. */
const char *ps_label_list_describe(const ps_label_list *l, char *out, size_t bytes);

/* Has a name of `given`, the value of data.labels, another number in `theirs`? Then `out` says so, with the list;
 * `whose` is what has that list. */
bool ps_label_list_contradicts(const ps_label_list *given, const ps_label_list *theirs, const char *whose, char *out,
                               size_t bytes);

#endif
