/* client_layout.c - trained tensors, their places in chunks, and the pieces of a chunk. */
#include "api/external/client_calls.h"
#include "base/glob.h"
#include "base/mem.h"
#include "train/state/chunk_size.h"

/* ---- trained tensors ---- */

static bool matches_any(const ps_client *c, const char *pattern)
{
    for (int32_t t = 0; t < c->n_tensors; t++)
        if (!c->tensors[t].is_dropped && ps_glob_matches(pattern, c->tensors[t].name)) return true;
    return false;
}

ps_status ps_client_check_patterns(const ps_client *c, const char *key, const char *patterns)
{
    char pattern[256];
    for (int i = 0; ps_glob_get(patterns, i, pattern, sizeof pattern); i++)
        if (!matches_any(c, pattern))
            return PS_FAIL(PS_EINVAL, "%s: '%.200s' matches none of the %d tensors", key, pattern, c->n_tensors);
    return PS_OK;
}

ps_status ps_client_freeze(ps_client *c)
{
    PS_TRY(ps_client_check_patterns(c, "train.freeze", c->settings.frozen));
    for (int32_t t = 0; t < c->n_tensors; t++) {
        ps_client_tensor_state *x = &c->tensors[t];
        if (x->is_dropped || !ps_glob_any_matches(c->settings.frozen, x->name, NULL)) continue;
        x->is_frozen = true;
    }
    return PS_OK;
}

/* ---- layout ---- */

/* Frozen tensors may be trained later, so their chunks are in all lists; but they have separate chunks, which need no
 * memory in the other lists until then. Matrices that are updated as a whole come after other tensors, as they have other
 * states. */
static ps_status lay_out(ps_client *c, int64_t *sizes, bool *in_first_list_only)
{
    const ps_settings *s = &c->settings;
    const int64_t *budget = s->budgets.bytes;
    int64_t total = 0, size = s->chunk_elements;
    int32_t n = 0;
    for (int is_whole = 0; is_whole < 2; is_whole++)
        for (int32_t t = 0; t < c->n_tensors; t++) {
            ps_client_tensor_state *x = &c->tensors[t];
            if (x->is_dropped || x->is_unmanaged || x->is_whole != (is_whole == 1)) continue;
            x->in_layout = n;
            c->in_order[n] = t;
            in_first_list_only[n] = x->is_frozen;
            sizes[n++] = x->elements;
            total += x->elements;
        }
    if (n == 0)
        return PS_FAIL(
            PS_EINVAL,
            "ps_client_begin: there is no tensor for chunks: each of the %d that were added is unmanaged or was "
            "dropped; add one that is not (is_unmanaged = 0)",
            c->n_tensors);
    const ps_chunk_limits l =
        ps_chunk_limits_of(s, total, budget[PS_TIER_DEVICE], ps_max_i64(budget[PS_TIER_DEVICE], budget[PS_TIER_HOST]));
    int64_t most = ps_max_i64(l.most, l.unit); /* small chunks rather than none that fit */
    const int64_t least = ps_max_i64(ps_min_i64(l.least, most), ps_client_least_chunk_elements(c));
    most = ps_max_i64(most, least);
    if (size == 0) PS_TRY(ps_layout_search(sizes, in_first_list_only, n, l.unit, least, most, &size));
    PS_TRY(ps_client_check_chunk_size(c, size));
    PS_TRY(ps_layout_create(sizes, in_first_list_only, n, ps_round_up(size, l.unit), &c->layout));
    c->layout->n_mirrored = c->layout->n_chunks;
    return PS_OK;
}

ps_status ps_client_create_layout(ps_client *c)
{
    int64_t *sizes = NULL;
    bool *in_first_list_only = NULL;
    const size_t n = (size_t)c->n_tensors;
    ps_status st = ps_mem_alloc(n, sizeof *c->in_order, &c->in_order);
    if (st == PS_OK) st = ps_mem_alloc(n, sizeof *c->pin_counts, &c->pin_counts);
    if (st == PS_OK) st = ps_mem_alloc(n, sizeof *sizes, &sizes);
    if (st == PS_OK) st = ps_mem_alloc(n, sizeof *in_first_list_only, &in_first_list_only);
    if (st == PS_OK) st = lay_out(c, sizes, in_first_list_only);
    ps_mem_free(in_first_list_only);
    ps_mem_free(sizes);
    return st;
}

ps_status ps_client_cut_pieces(ps_client *c)
{
    const ps_layout *l = c->layout;
    PS_TRY(ps_pieces_cut(l, c->in_order, &c->pieces));
    for (int32_t i = 0; i < l->n_tensors; i++) c->tensors[c->in_order[i]].n_pieces = l->places[i].n_chunks;
    PS_TRY(ps_mem_alloc((size_t)c->pieces.n, sizeof *c->gradients, &c->gradients));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks, sizeof *c->update_tier, &c->update_tier));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks, sizeof *c->updates.is_waiting, &c->updates.is_waiting));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks, sizeof *c->updates.could_follow, &c->updates.could_follow));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks, sizeof *c->updates.may_keep, &c->updates.may_keep));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks, sizeof *c->updates.is_unvalidated, &c->updates.is_unvalidated));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks, sizeof *c->updates.writes_ahead, &c->updates.writes_ahead));
    PS_TRY(ps_mem_alloc((size_t)l->n_chunks, sizeof *c->chunk_states, &c->chunk_states));
    ps_client_find_states(c);
    for (int32_t k = 0; k < l->n_chunks; k++) c->updates.could_follow[k] = -1;
    return ps_mem_alloc((size_t)l->n_chunks, sizeof *c->has_master, &c->has_master);
}
