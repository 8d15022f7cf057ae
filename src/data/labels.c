#include "data/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"

ps_status ps_labels_add(ps_labels *l, const char *name, int64_t n_bytes)
{
    PS_ASSERT(!l->is_fixed && l->n_names < l->n_max);
    char *copy = NULL;
    PS_TRY(ps_mem_alloc((size_t)n_bytes + 1, 1, &copy));
    memcpy(copy, name, (size_t)n_bytes);
    const ps_status st = ps_mem_grow(&l->names, (size_t)l->n_names, (size_t)l->n_names + 1, sizeof *l->names);
    if (st != PS_OK) {
        ps_mem_free(copy);
        return st;
    }
    l->names[l->n_names++] = copy;
    return PS_OK;
}

static ps_status labels_add_listed(ps_labels *l, const char *name, int64_t n_bytes, const char *list)
{
    if (n_bytes == 0) return PS_FAIL(PS_EINVAL, "data.labels = \"%s\" has an empty name", list);
    if (ps_labels_find(l, name, n_bytes) >= 0)
        return PS_FAIL(PS_EINVAL, "data.labels = \"%s\" has '%.*s' twice", list, (int)n_bytes, name);
    if (l->n_names == l->n_max)
        return PS_FAIL(PS_EINVAL, "data.labels = \"%s\" has more than the model's %d classes", list, l->n_max);
    return ps_labels_add(l, name, n_bytes);
}

ps_status ps_labels_init(ps_labels *l, const char *list, int32_t n_max)
{
    *l = (ps_labels){.n_max = n_max};
    if (list == NULL || list[0] == '\0') return PS_OK;
    for (const char *at = list;;) {
        const size_t n_bytes = strcspn(at, ",");
        const ps_status st = labels_add_listed(l, at, (int64_t)n_bytes, list);
        if (st != PS_OK) {
            ps_labels_deinit(l);
            return st;
        }
        if (at[n_bytes] == '\0') break;
        at += n_bytes + 1;
    }
    l->is_fixed = true;
    return PS_OK;
}

void ps_labels_deinit(ps_labels *l)
{
    for (int32_t i = 0; i < l->n_names; i++) ps_mem_free(l->names[i]);
    ps_mem_free(l->names);
    *l = (ps_labels){0};
}

int32_t ps_labels_find(const ps_labels *l, const char *name, int64_t n_bytes)
{
    for (int32_t i = 0; i < l->n_names; i++)
        if (strncmp(l->names[i], name, (size_t)n_bytes) == 0 && l->names[i][n_bytes] == '\0') return i;
    return -1;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void ps_labels_fix(ps_labels *l, int32_t *new_id)
{
    /* names are distinct, so the number of smaller ones is the new id */
    for (int32_t i = 0; i < l->n_names; i++) {
        new_id[i] = 0;
        for (int32_t k = 0; k < l->n_names; k++) new_id[i] += strcmp(l->names[k], l->names[i]) < 0;
    }
    if (l->n_names > 0) qsort(l->names, (size_t)l->n_names, sizeof *l->names, compare_names);
    l->is_fixed = true;
}
