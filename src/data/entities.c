#include "data/entities.h"

#include <string.h>

#include "base/mem.h"

ps_status ps_entity_names_init(ps_entity_names *e, const ps_data_loader *loader, int64_t n, bool *are_entities)
{
    *e = (ps_entity_names){.n = n};
    *are_entities = true;
    PS_TRY(ps_mem_alloc((size_t)n, 1, &e->letter));
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *e->type, &e->type));
    for (int64_t i = 0; i < n; i++) {
        const char *name = ps_data_loader_label_name(loader, (int32_t)i);
        const bool is_outside = name != NULL && strcmp(name, "O") == 0;
        const bool is_inside = name != NULL && (name[0] == 'B' || name[0] == 'I') && name[1] == '-';
        *are_entities = *are_entities && (is_outside || is_inside);
        if (!*are_entities) return PS_OK;
        e->letter[i] = name[0];
        e->type[i] = (int32_t)i;
        for (int64_t k = 0; k < i && is_inside; k++) /* that of the first class with the same */
            if (e->letter[k] != 'O' && strcmp(ps_data_loader_label_name(loader, (int32_t)k) + 2, name + 2) == 0) {
                e->type[i] = e->type[k];
                break;
            }
    }
    return PS_OK;
}

void ps_entity_names_deinit(ps_entity_names *e)
{
    ps_mem_free(e->letter);
    ps_mem_free(e->type);
    *e = (ps_entity_names){0};
}

static bool begins(const ps_entity_names *e, const int32_t *labels, int64_t i)
{
    const int32_t label = labels[i];
    if (e->letter[label] == 'O') return false;
    if (e->letter[label] == 'B' || i == 0) return true;
    return e->letter[labels[i - 1]] == 'O' || e->type[labels[i - 1]] != e->type[label];
}

/* End (exclusive) of the entity that begins at i. */
static int64_t end_of(const ps_entity_names *e, const int32_t *labels, int64_t i, int64_t n)
{
    int64_t end = i + 1;
    while (end < n && e->letter[labels[end]] != 'O' && !begins(e, labels, end)) end++;
    return end;
}

ps_entity_counts ps_entities_count(const ps_entity_names *e, const int32_t *labels, const int32_t *predicted, int64_t n)
{
    ps_entity_counts c = {0};
    for (int64_t i = 0; i < n; i++) {
        const bool is_true = begins(e, labels, i), is_predicted = begins(e, predicted, i);
        c.n_true += is_true;
        c.n_predicted += is_predicted;
        c.n_both += is_true && is_predicted && e->type[labels[i]] == e->type[predicted[i]] &&
                    end_of(e, labels, i, n) == end_of(e, predicted, i, n);
    }
    return c;
}
