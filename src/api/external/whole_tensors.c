/* whole_tensors.c - matrices that the optimizer updates as a whole (ps_optimizer_has_whole): which they are, which states
 * chunks have for them, the scratch of their updates, and the chunks of one that has several, which are updated together.
 * exec_plan.c has the same for the engine. */
#include "api/external/client_budget.h"

void ps_client_find_whole(ps_client *c)
{
    for (int32_t t = 0; t < c->n_tensors; t++) {
        ps_client_tensor_state *x = &c->tensors[t];
        x->is_whole = !x->is_dropped && ps_settings_updates_whole(&c->settings, x->name, x->n_dims);
    }
}

/* In chunks; NULL: none. */
static const ps_client_tensor_state *largest(const ps_client *c)
{
    const ps_client_tensor_state *most = NULL;
    for (int32_t t = 0; t < c->n_tensors; t++) {
        const ps_client_tensor_state *x = &c->tensors[t];
        if (x->is_whole && !x->is_unmanaged && (most == NULL || x->elements > most->elements)) most = x;
    }
    return most;
}

int64_t ps_client_least_chunk_elements(const ps_client *c)
{
    const ps_client_tensor_state *most = largest(c);
    return c->settings.ranks.n > 1 && most != NULL ? most->elements : 0;
}

ps_status ps_client_check_chunk_size(const ps_client *c, int64_t chunk_elements)
{
    const int64_t least = ps_client_least_chunk_elements(c);
    if (least <= chunk_elements) return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "optimizer.type = %s updates %.200s, a matrix of %lld elements, as a whole, on the rank that has its "
        "chunk, but chunks have %lld elements: with several ranks set default_chunk_size to at least %lld, "
        "or 0 for a size that suits; or add the name to optimizer.params.adamw_names",
        c->settings.optimizer.optimizer->name, largest(c)->name, (long long)least, (long long)chunk_elements,
        (long long)least);
}

void ps_client_find_states(ps_client *c)
{
    for (int32_t i = 0; i < c->pieces.n; i++)
        c->chunk_states[c->pieces.all[i].chunk] |=
            ps_optimizer_states_of(&c->settings.optimizer, c->tensors[c->pieces.all[i].tensor].is_whole);
}

ps_status ps_client_measure_update_scratch(ps_client *c)
{
    c->update_scratch = (ps_update_scratch){0};
    for (int32_t t = 0; t < c->n_tensors; t++) {
        const ps_client_tensor_state *x = &c->tensors[t];
        if (x->is_whole) PS_TRY(ps_settings_count_scratch(&c->settings, x->name, x->shape, &c->update_scratch));
    }
    return PS_OK;
}

/* The run that a matrix fills, of which the chunk is one; NULL: none. It begins at the run's first element. */
static const ps_run *run_of(const ps_client *c, int32_t chunk, const ps_client_tensor_state **matrix)
{
    if (c->layout->run_of_chunk[chunk] < 0) return NULL;
    const ps_run *run = &c->layout->runs[c->layout->run_of_chunk[chunk]];
    *matrix = &c->tensors[c->pieces.all[c->pieces.first[run->first]].tensor];
    return (*matrix)->is_whole ? run : NULL;
}

bool ps_client_is_in_whole_run(const ps_client *c, int32_t chunk)
{
    const ps_client_tensor_state *matrix;
    return run_of(c, chunk, &matrix) != NULL;
}

ps_run ps_client_updated_with(const ps_client *c, int32_t chunk)
{
    const ps_client_tensor_state *matrix;
    const ps_run *run = run_of(c, chunk, &matrix);
    const bool is_updated = run != NULL && ps_client_place_of_gradient(c, matrix, 0) != PS_GRADIENT_NONE;
    return is_updated ? *run : (ps_run){.first = chunk, .n_chunks = 1};
}
