#include "train/record/profile_chunks.h"

#include "base/mem.h"

ps_status ps_profile_chunks_init(const ps_layout *layout, const ps_lists *lists, int64_t page_bytes,
                                 ps_profile_chunks *c)
{
    ps_status st = PS_OK;
    *c = (ps_profile_chunks){.layout = layout, .lists = *lists, .page_bytes = page_bytes};
    PS_TRY_GOTO(ps_mem_alloc((size_t)ps_lists_n_ids(lists, layout), sizeof *c->is_there, &c->is_there));
    PS_TRY_GOTO(ps_mem_alloc((size_t)layout->n_tensors, sizeof *c->names, &c->names));
    PS_TRY_GOTO(ps_pieces_cut(layout, NULL, &c->pieces));
    for (int32_t t = 0; t < layout->n_tensors; t++) c->names[t] = "";
    for (ps_list list = 0; list < ps_lists_n_all(lists); list++)
        for (int32_t i = 0; ps_lists_exists(lists, list) && i < ps_lists_length(lists, layout, list); i++)
            c->is_there[ps_store_chunk(layout, list, i)] = true;
out:
    if (st != PS_OK) ps_profile_chunks_deinit(c);
    return st;
}

ps_status ps_profile_chunks_init_planned(const ps_exec_plan *b, ps_profile_chunks *c)
{
    PS_TRY(ps_profile_chunks_init(b->layout, &b->lists, ps_settings_page_bytes(b->settings), c));
    for (int32_t t = 0; t < b->layout->n_tensors; t++) c->names[t] = b->program->params[t].name;
    for (ps_list list = 0; list < ps_lists_n_all(&b->lists); list++)
        for (int32_t i = 0; i < ps_lists_length(&b->lists, b->layout, list); i++)
            c->is_there[ps_store_chunk(b->layout, list, i)] = ps_exec_plan_has_chunk(b, list, i);
    return PS_OK;
}

void ps_profile_chunks_deinit(ps_profile_chunks *c)
{
    ps_mem_free(c->is_there);
    ps_mem_free(c->names);
    ps_pieces_deinit(&c->pieces);
    *c = (ps_profile_chunks){0};
}
