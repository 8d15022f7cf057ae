/* client_begin.c - chunks are laid out, memory is opened, and initial values move there: a chunk at a time, and their former
 * memory is freed, so that the model never exists twice. */
#include <string.h>

#include "api/external/client_calls.h"
#include "base/log.h"
#include "base/mem.h"
#include "chunk/comm/agree.h"

/* ---- memory ---- */

static ps_status open_tiers(ps_client *c)
{
    PS_TRY(ps_settings_watch(&c->settings, &c->watch));
    if (c->settings.checks_order) PS_TRY(ps_order_create(false, &c->order));
    const ps_tiers_desc o = ps_client_tiers(c);
    int64_t sums;
    (void)ps_client_results_bytes(c, &sums);
    const size_t n_ids = (size_t)ps_lists_n_ids(&c->lists, c->layout);
    PS_TRY(ps_mem_alloc(n_ids, sizeof *c->pinned.ids, &c->pinned.ids));
    PS_TRY(ps_tiers_open(&o, &c->tiers));
    c->n_margin = ps_client_least_margin(c);
    if (c->tiers.results != NULL) { /* not accessible to the host */
        c->sums = c->tiers.results;
        c->scratch = (float *)(void *)((char *)c->tiers.results + sums);
        return PS_OK;
    }
    PS_TRY(ps_mem_alloc((size_t)sums, 1, &c->sums));
    return ps_mem_alloc(2 * (size_t)PS_CLIENT_SCRATCH_ELEMENTS, sizeof *c->scratch, &c->scratch);
}

/* ---- initial values ---- */

/* Copies n elements of the given values to the device or the host. */
static ps_status move_values(ps_client *c, const ps_client_tensor_state *t, int64_t first, int64_t n, ps_tier tier,
                             void *dst, ps_dtype dst_dtype)
{
    const char *src = (const char *)t->given.address + first * (int64_t)ps_dtype_bytes(t->given_dtype);
    return ps_state_put(&c->state, tier, dst, dst_dtype, src, t->given_dtype, n);
}

/* Of masters of which parameters are a part. */
static ps_status split_values(ps_client *c, const ps_client_tensor_state *t, const ps_piece *p, ps_tier tier)
{
    enum { AT_ONCE = 4096 };
    _Alignas(64) float values[AT_ONCE];
    for (int64_t done = 0; done < p->n; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, p->n - done);
        ps_to_floats(t->given_dtype, t->given.address, p->tensor_offset + done, n, values);
        PS_TRY(ps_state_put_values(&c->state, tier, p->chunk, p->chunk_offset + done, values, n));
    }
    return PS_OK;
}

static ps_status fill_piece(ps_client *c, const ps_piece *p, ps_tier tier)
{
    ps_client_tensor_state *t = &c->tensors[p->tensor];
    if (c->has_master[p->chunk] && ps_state_is_split(&c->state, PS_LIST_MASTER)) return split_values(c, t, p, tier);
    if (ps_state_value_list(&c->state, p->chunk) == PS_LIST_PARAM16) {
        void *param = ps_state_element(&c->state, PS_LIST_PARAM16, p->chunk, p->chunk_offset);
        PS_TRY(move_values(c, t, p->tensor_offset, p->n, tier, param, c->settings.dtype));
    } else {
        void *master = ps_state_element(&c->state, PS_LIST_MASTER, p->chunk, p->chunk_offset);
        PS_TRY(move_values(c, t, p->tensor_offset, p->n, tier, master, PS_DTYPE_F32));
        PS_TRY(ps_state_round_master(&c->state, tier, p));
    }
    return PS_OK;
}

/* For a chunk that has been filled, or is another rank's. */
static void give_back(ps_client *c, int32_t chunk)
{
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++) {
        ps_client_tensor_state *t = &c->tensors[c->pieces.all[i].tensor];
        if (c->pieces.all[i].tensor_offset + c->pieces.all[i].n < t->elements) continue;
        ps_staging_file_give(c->staging_file, &t->given);
        t->given.address = NULL;
    }
}

static ps_status fill_chunk(ps_client *c, int32_t chunk)
{
    const ps_tier tier = ps_client_update_tier(c, chunk);
    c->has_master[chunk] = !c->tensors[c->pieces.all[c->pieces.first[chunk]].tensor].is_frozen;
    PS_TRY(ps_client_pin_chunk(c, PS_LIST_PARAM16, chunk, tier, PS_ACCESS_WRITE));
    ps_status st = PS_OK;
    const bool has_both = ps_state_value_list(&c->state, chunk) == PS_LIST_MASTER;
    if (has_both) st = ps_client_pin_chunk(c, PS_LIST_MASTER, chunk, tier, PS_ACCESS_WRITE);
    if (st == PS_OK) {
        for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1] && st == PS_OK; i++)
            st = fill_piece(c, &c->pieces.all[i], tier);
        if (has_both) ps_client_unpin_chunk(c, PS_LIST_MASTER, chunk);
    }
    ps_client_unpin_chunk(c, PS_LIST_PARAM16, chunk);
    return st;
}

/* At the start of its part of the block, whose size is *at so far. */
static ps_status fill_unmanaged(ps_client *c, ps_client_tensor_state *t, int64_t *at)
{
    const int64_t bytes = ps_client_unmanaged_bytes(c, t);
    ps_queue *q = c->tiers.compute[PS_TIER_DEVICE];
    t->unmanaged = (float *)(void *)((char *)c->tiers.unmanaged + *at);
    *at += bytes;
    PS_TRY(ps_queue_fill(q, t->unmanaged, 0, bytes));
    PS_TRY(ps_event_wait(ps_queue_event(q)));
    PS_TRY(move_values(c, t, 0, t->elements, PS_TIER_DEVICE, t->unmanaged, PS_DTYPE_F32));
    ps_staging_file_give(c->staging_file, &t->given);
    t->given.address = NULL;
    return PS_OK;
}

static ps_status fill(ps_client *c)
{
    int64_t at = 0;
    for (int32_t t = 0; t < c->n_tensors; t++)
        if (c->tensors[t].is_unmanaged && !c->tensors[t].is_dropped) PS_TRY(fill_unmanaged(c, &c->tensors[t], &at));
    for (int32_t i = 0; i < c->layout->n_chunks; i++) {
        if (ps_client_owns(c, i)) PS_TRY(fill_chunk(c, i));
        give_back(c, i);
    }
    return PS_OK;
}

/* ---- ps_client_begin ---- */

static ps_status prepare(ps_client *c)
{
    PS_TRY(ps_client_freeze(c));
    if (c->settings.names_updated_by_elements)
        PS_TRY(ps_client_check_patterns(c, "optimizer.params.adamw_names", c->settings.updated_by_elements));
    ps_client_find_whole(c);
    PS_TRY(ps_client_measure_update_scratch(c));
    PS_TRY(ps_client_create_layout(c));
    PS_TRY(ps_client_cut_pieces(c));
    ps_client_set_keeping(c, false);
    c->state = (ps_model_state){.settings = &c->settings,
                                .layout = c->layout,
                                .lists = &c->lists,
                                .pieces = &c->pieces,
                                .tiers = &c->tiers,
                                .update_tier = c->update_tier,
                                .has_master = c->has_master,
                                .chunk_states = c->chunk_states};
    PS_TRY(ps_client_deal_groups(c));
    PS_TRY(ps_client_sharding_init(c));
    ps_client_choose_save_buffer(c);
    return ps_client_check_budgets(c);
}

/* On rank 0: the others choose the same. */
static void tell_memory(const ps_client *c)
{
    char text[PS_SETTINGS_MEMORY_TEXT_MAX], *rest = text;
    if (c->settings.ranks.rank != 0) return;
    ps_settings_describe_memory(&c->settings, text);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (line[0] != '\0') ps_log(PS_LOG_INFO, "%s", line);
}

/* Budgets that suffice without speculative updates are not refused for them. What they forbid between the last backward
 * pass and the step is the same on all ranks. */
static ps_status choose_speculation(ps_client *c, bool is_wanted)
{
    if (!is_wanted) return PS_OK;
    const bool has_room = ps_client_choose_keeping(c);
    double is_possible = has_room;
    if (c->comm != NULL) PS_TRY(ps_comm_all_reduce(c->comm, &is_possible, 1, PS_COMM_MIN));
    if (has_room && is_possible < 1)
        ps_log(PS_LOG_WARNING,
               "memory.update_in_backward = speculate: without effect, as another rank has no room for it");
    ps_client_set_keeping(c, is_possible > 0);
    if (is_possible <= 0) return PS_OK;
    const ps_status st = ps_client_check_budgets(c); /* the machine may lack what the budgets have */
    is_possible = st == PS_OK;
    if (c->comm != NULL) PS_TRY(ps_comm_all_reduce(c->comm, &is_possible, 1, PS_COMM_MIN));
    if (is_possible > 0) return PS_OK;
    ps_log(PS_LOG_WARNING, "memory.update_in_backward = speculate: without effect: %s",
           st != PS_OK ? ps_last_error() : "another rank has no room for it");
    ps_client_set_keeping(c, false);
    return ps_comm_agree(c->comm, ps_client_check_budgets(c));
}

static ps_status begin(ps_client *c)
{
    const bool wants_speculation = c->settings.may_speculate;
    PS_TRY(ps_client_broadcast_values(c));
    PS_TRY(ps_comm_agree(c->comm, prepare(c)));
    PS_TRY(choose_speculation(c, wants_speculation));
    tell_memory(c);
    PS_TRY(ps_comm_agree(c->comm, open_tiers(c)));
    PS_TRY(ps_comm_agree(c->comm, ps_group_collectives_open(&c->between_ranks, &c->state, true)));
    PS_TRY(ps_comm_agree(c->comm, ps_group_collectives_join(&c->between_ranks)));
    ps_store_limit_chunks(c->tiers.store, PS_TIER_DEVICE, ps_client_first_limit(c));
    PS_TRY(ps_comm_agree(c->comm, fill(c)));
    return ps_client_begin_measuring(c);
}

/* After a failure: tensors whose values are no longer in the memory of ps_client_add. */
static void drop_what_moved(ps_client *c)
{
    for (int32_t t = 0; t < c->n_tensors; t++)
        if (c->tensors[t].given.address == NULL) c->tensors[t].is_dropped = true;
}

ps_status ps_client_begin(ps_client *c)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_begin", PS_CLIENT_IS_BUILDING));
    const ps_status st = begin(c);
    if (st == PS_OK) {
        c->stage = PS_CLIENT_IS_READY;
    } else {
        (void)ps_client_break(c, st);
        drop_what_moved(c);
    }
    return ps_client_leave(c, st);
}
