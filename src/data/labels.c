#include "data/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

ps_status ps_labels_add(ps_labels *l, const char *name, int64_t n_bytes)
{
    PS_ASSERT(!l->is_fixed && l->list.n < l->n_max);
    return ps_label_list_add(&l->list, name, n_bytes);
}

ps_status ps_labels_init(ps_labels *l, const char *list, int32_t n_max)
{
    *l = (ps_labels){.n_max = n_max};
    if (list == NULL || list[0] == '\0') return PS_OK;
    PS_TRY(ps_label_list_parse(list, &l->list));
    if (l->list.n > n_max) {
        ps_labels_deinit(l);
        return PS_FAIL(PS_EINVAL, "data.labels = \"%.200s\" has more than the model's %d classes", list, n_max);
    }
    l->is_fixed = true;
    return PS_OK;
}

void ps_labels_deinit(ps_labels *l)
{
    ps_label_list_deinit(&l->list);
    *l = (ps_labels){0};
}

int32_t ps_labels_find(const ps_labels *l, const char *name, int64_t n_bytes)
{
    return ps_label_list_find(&l->list, name, n_bytes);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void ps_labels_fix(ps_labels *l, int32_t *new_id)
{
    const int32_t n = l->list.n;
    char **names = l->list.names;
    /* names are distinct, so the number of smaller ones is the new id */
    for (int32_t i = 0; i < n; i++) {
        new_id[i] = 0;
        for (int32_t k = 0; k < n; k++) new_id[i] += strcmp(names[k], names[i]) < 0;
    }
    if (n > 0) qsort(names, (size_t)n, sizeof *names, compare_names);
    l->is_fixed = true;
}
