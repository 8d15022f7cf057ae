#include "record/profile_chunks.h"

#include "base/mem.h"

/* Sorts by counting, as pieces of a blueprint are cut: first[i + 1] becomes where chunk i begins, and moves on as its
 * tensors are put there, to where chunk i + 1 begins. */
static void sort_tensors(ps_profile_chunks *c)
{
    const ps_layout *l = c->layout;
    int32_t begin = 0;
    for (int32_t t = 0; t < l->n_tensors; t++)
        for (int32_t k = 0; k < l->places[t].n_chunks; k++) c->first[l->places[t].chunk + k + 1]++;
    for (int32_t i = 0; i < l->n_chunks; i++) {
        const int32_t n = c->first[i + 1];
        c->first[i + 1] = begin;
        begin += n;
    }
    for (int32_t t = 0; t < l->n_tensors; t++)
        for (int32_t k = 0; k < l->places[t].n_chunks; k++) c->tensors[c->first[l->places[t].chunk + k + 1]++] = t;
}

ps_status ps_profile_chunks_init(const ps_layout *layout, const ps_lists *lists, int64_t page_bytes,
                                 ps_profile_chunks *c)
{
    ps_status st = PS_OK;
    size_t n = 0;
    *c = (ps_profile_chunks){.layout = layout, .lists = *lists, .page_bytes = page_bytes};
    for (int32_t t = 0; t < layout->n_tensors; t++) n += (size_t)layout->places[t].n_chunks;
    PS_TRY_GOTO(ps_mem_alloc((size_t)ps_lists_n_ids(lists, layout), sizeof *c->is_there, &c->is_there));
    PS_TRY_GOTO(ps_mem_alloc((size_t)layout->n_tensors, sizeof *c->names, &c->names));
    PS_TRY_GOTO(ps_mem_alloc((size_t)layout->n_chunks + 1, sizeof *c->first, &c->first));
    PS_TRY_GOTO(ps_mem_alloc(n, sizeof *c->tensors, &c->tensors));
    sort_tensors(c);
    for (int32_t t = 0; t < layout->n_tensors; t++) c->names[t] = "";
    for (ps_list list = 0; list < ps_lists_n_all(lists); list++)
        for (int32_t i = 0; ps_lists_exists(lists, list) && i < ps_lists_length(lists, layout, list); i++)
            c->is_there[ps_store_chunk(layout, list, i)] = true;
out:
    if (st != PS_OK) ps_profile_chunks_deinit(c);
    return st;
}

ps_status ps_profile_chunks_init_planned(const ps_blueprint *b, ps_profile_chunks *c)
{
    PS_TRY(ps_profile_chunks_init(b->layout, &b->lists, ps_settings_page_bytes(b->settings), c));
    for (int32_t t = 0; t < b->layout->n_tensors; t++) c->names[t] = b->program->params[t].name;
    for (ps_list list = 0; list < ps_lists_n_all(&b->lists); list++)
        for (int32_t i = 0; i < ps_lists_length(&b->lists, b->layout, list); i++)
            c->is_there[ps_store_chunk(b->layout, list, i)] = ps_blueprint_has_chunk(b, list, i);
    return PS_OK;
}

void ps_profile_chunks_deinit(ps_profile_chunks *c)
{
    ps_mem_free(c->is_there);
    ps_mem_free(c->names);
    ps_mem_free(c->first);
    ps_mem_free(c->tensors);
    *c = (ps_profile_chunks){0};
}
