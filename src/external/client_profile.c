/* client_profile.c - what a client does as a profile: the store records chunks, copies and memory by itself, and here
 * come operators and steps. Chunks are listed as far as the records know of them, so that a list of gradients that the
 * program never needed takes no rows. */
#include "external/client_impl.h"
#include "record/profile_write.h"

/* ---- operators and steps ---- */

static int64_t waited_ns(const ps_client *c)
{
    return ps_store_get_stats(c->tiers.store).wait_ns;
}

static void end_operator(ps_client *c)
{
    ps_client_recording *r = &c->recording;
    if (r->label == NULL) return;
    ps_work_time begin = r->began;
    begin.issued_ns = ps_min_i64(begin.issued_ns + waited_ns(c) - r->waited_ns, ps_profile_now(c->profile));
    ps_work_record(&c->tiers, PS_TIER_DEVICE, &begin,
                   &(ps_profile_record){.kind = PS_PROFILE_OP,
                                        .chunk = -1,
                                        .op = {.label = r->label,
                                               .step = c->n_steps + 1,
                                               .non_model_bytes = r->framework_bytes,
                                               .moment = r->number,
                                               .phase = (int32_t)r->phase}});
    r->label = NULL;
}

static void end_step(ps_client *c)
{
    ps_client_recording *r = &c->recording;
    end_operator(c);
    if (!r->is_in_step) return;
    ps_work_record(&c->tiers, PS_TIER_DEVICE, &r->step_began,
                   &(ps_profile_record){.kind = PS_PROFILE_STEP, .chunk = -1, .step = c->n_steps + 1});
    r->is_in_step = false;
    r->number = 0;
}

void ps_client_record_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes, bool is_in_step)
{
    ps_client_recording *r = &c->recording;
    if (!ps_profile_is_on(c->profile)) return;
    end_operator(c);
    r->label = label;
    r->phase = phase;
    r->framework_bytes = framework_bytes;
    r->waited_ns = waited_ns(c);
    r->began = ps_work_now(&c->tiers, PS_TIER_DEVICE);
    r->number = is_in_step && r->is_in_step ? r->number + 1 : 0;
    if (!is_in_step || r->is_in_step) return;
    r->is_in_step = true;
    r->step_began = r->began;
}

void ps_client_unrecord_moment(ps_client *c)
{
    ps_client_recording *r = &c->recording;
    if (!ps_profile_is_on(c->profile)) return;
    r->label = NULL;
    r->is_in_step = r->number > 0;
    r->number -= r->number > 0;
}

/* What is under way is recorded as far as it came. */
static void stop(ps_client *c)
{
    if (!ps_profile_is_on(c->profile)) return;
    end_step(c);
    ps_store_profile_settle(c->tiers.store);
    ps_profile_stop(c->profile);
    if (c->comm != NULL) ps_comm_set_profile(c->comm, NULL, 0);
}

void ps_client_record_step(ps_client *c)
{
    if (!ps_profile_is_on(c->profile)) return;
    end_step(c);
    if (ps_profile_is_full(c->profile)) stop(c);
}

void ps_client_end_recording(ps_client *c)
{
    if (c->tiers.store != NULL) stop(c);
}

/* ---- the file ---- */

static ps_status list_chunks(const ps_client *c, ps_profile_chunks *out)
{
    const int32_t n_ids = ps_lists_n_ids(&c->lists, c->layout);
    PS_TRY(ps_profile_chunks_init(c->layout, &c->lists, ps_settings_page_bytes(&c->settings), out));
    for (int32_t i = 0; i < c->layout->n_tensors; i++) out->names[i] = c->tensors[c->in_order[i]].name;
    /* Parameters are; of other lists what was seen is. */
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
        return PS_FAIL(PS_ESTATE, "ps_client_profile_save: nothing was recorded; ps_client_profile_start begins");
    if (ps_profile_is_on(c->profile)) ps_store_profile_settle(c->tiers.store);
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

ps_status ps_client_profile_start(ps_client *c)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_profile_start", PS_CLIENT_IS_READY));
    ps_status st = PS_OK;
    if (c->recording.is_asked) {
        st = PS_FAIL(PS_ESTATE, "ps_client_profile_start: recording already; ps_client_profile_stop ends it");
    } else {
        c->recording = (ps_client_recording){.is_asked = true};
        ps_profile_clear(c->profile);
        ps_profile_start(c->profile);
        ps_store_profile_start(c->tiers.store);
        if (c->comm != NULL) ps_comm_set_profile(c->comm, c->profile, PS_LINK_COLLECTIVES);
    }
    ps_client_leave(c);
    return st;
}

ps_status ps_client_profile_stop(ps_client *c)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_profile_stop", PS_CLIENT_IS_READY));
    ps_status st = PS_OK;
    if (c->recording.is_asked)
        stop(c); /* unless the recorder was full before */
    else
        st = PS_FAIL(PS_ESTATE, "ps_client_profile_stop: nothing is being recorded");
    c->recording.is_asked = false;
    ps_client_leave(c);
    return st;
}

ps_status ps_client_profile_save(ps_client *c, const char *path)
{
    PS_TRY(PS_NEED("client path", c, path));
    if (path[0] == '\0')
        return PS_FAIL(PS_EINVAL, "ps_client_profile_save: path is empty, expected the name of a file");
    PS_TRY(ps_client_enter(c, "ps_client_profile_save", PS_CLIENT_IS_READY));
    const ps_status st = save(c, path);
    ps_client_leave(c);
    return st;
}
