/* client_profile.c - a profile of a client: the store records chunks, copies and memory, and this file operators and
 * steps. Chunks are listed as far as they are in the records, so that a list of gradients that was never needed has no
 * rows. */
#include "api/external/client_calls.h"
#include "train/record/profile_write.h"

static ps_status list_chunks(const ps_client *c, ps_profile_chunks *out)
{
    const int32_t n_ids = ps_lists_n_ids(&c->lists, c->layout);
    PS_TRY(ps_profile_chunks_init(c->layout, &c->lists, ps_settings_page_bytes(&c->settings), out));
    for (int32_t i = 0; i < c->layout->n_tensors; i++) out->names[i] = c->tensors[c->in_order[i]].name;
    /* Parameters exist; chunks of other lists are listed if recorded. */
    for (ps_chunk_id id = c->layout->n_chunks; id < n_ids; id++) out->is_there[id] = false;
    for (int64_t i = 0; i < ps_profile_count(c->profile); i++) {
        const ps_profile_record *r = ps_profile_at(c->profile, i);
        if (r->chunk >= 0) out->is_there[r->chunk] = true;
    }
    return PS_OK;
}

static ps_status save(ps_client *c, const char *path)
{
    ps_profile_chunks chunks;
    if (ps_profile_count(c->profile) == 0)
        return PS_FAIL(PS_ESTATE, "ps_client_save_profile: nothing was recorded; ps_client_start_profile begins");
    if (ps_profile_is_on(c->profile)) ps_store_profile_synchronize(c->tiers.store);
    PS_TRY(list_chunks(c, &chunks));
    const ps_status st = ps_profile_write(c->profile,
                                          &(ps_profile_facts){.title = c->settings.config_name,
                                                              .rank = c->settings.ranks.rank,
                                                              .n_ranks = c->settings.ranks.n,
                                                              .budgets = c->settings.budgets,
                                                              .chunks = &chunks},
                                          path);
    ps_profile_chunks_deinit(&chunks);
    return st;
}

/* ---- public ---- */

ps_status ps_client_start_profile(ps_client *c)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_start_profile", PS_CLIENT_IS_READY));
    ps_status st = PS_OK;
    if (c->recording.is_asked) {
        st = PS_FAIL(PS_ESTATE, "ps_client_start_profile: recording already; ps_client_stop_profile ends it");
    } else {
        c->recording = (ps_client_profiling){.is_asked = true};
        ps_profile_clear(c->profile);
        ps_profile_start(c->profile);
        ps_store_profile_start(c->tiers.store);
        if (c->comm != NULL) ps_comm_set_profile(c->comm, c->profile, PS_LINK_COLLECTIVES);
    }
    return ps_client_leave(c, st);
}

ps_status ps_client_stop_profile(ps_client *c)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_stop_profile", PS_CLIENT_IS_READY));
    ps_status st = PS_OK;
    if (c->recording.is_asked)
        ps_client_stop_recording(c); /* unless the recorder was full before */
    else
        st = PS_FAIL(PS_ESTATE, "ps_client_stop_profile: nothing is being recorded");
    c->recording.is_asked = false;
    return ps_client_leave(c, st);
}

ps_status ps_client_save_profile(ps_client *c, const char *path)
{
    PS_TRY(PS_NEED("client path", c, path));
    if (path[0] == '\0')
        return PS_FAIL(PS_EINVAL, "ps_client_save_profile: path is empty, expected the name of a file");
    PS_TRY(ps_client_enter(c, "ps_client_save_profile", PS_CLIENT_IS_READY));
    return ps_client_leave(c, save(c, path));
}
