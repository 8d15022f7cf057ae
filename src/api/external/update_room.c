/* update_room.c - is there room for the updates of a step next to tensors that the program has in use? Checked before
 * the step changes anything: an update without room halfway would leave tensors inconsistent. And whether updates may
 * be deferred to the next forward pass, or made within the backward pass. */
#include "api/external/client_budget.h"

#include "base/bytes.h"

static int64_t id_bytes(const ps_client *c, ps_chunk_id id)
{
    return ps_round_up(ps_client_id_bytes(c, id), ps_settings_page_bytes(&c->settings));
}

static int64_t unpinned_bytes(const ps_client *c, ps_list list, int32_t chunk)
{
    return ps_client_is_pinned(c, list, chunk) ? 0 : id_bytes(c, ps_store_chunk(c->layout, list, chunk));
}

/* Over the lists that the update of a chunk needs in one memory at once: those that are not in use there already.
 * *is_held: some are. Where ranks reduce gradients they may have to be separate. */
static int64_t missing_of_one(const ps_client *c, int32_t chunk, bool *is_held)
{
    const ps_list grad = ps_lists_grad(&c->lists);
    const bool is_separate = c->comm != NULL || ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_SEPARATE);
    int64_t bytes = 0;
    for (ps_list list = 0; list <= grad; list++) {
        *is_held = *is_held || ps_client_is_pinned(c, list, chunk);
        if ((list < grad || is_separate) && ps_client_has_list(c, list, chunk)) bytes += unpinned_bytes(c, list, chunk);
    }
    if (ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_KEPT))
        bytes += unpinned_bytes(c, ps_lists_kept_grad(&c->lists), chunk);
    return bytes;
}

static int64_t missing_bytes(const ps_client *c, ps_run chunks, bool *is_held)
{
    int64_t bytes = 0;
    *is_held = false;
    for (int32_t k = chunks.first; k < chunks.first + chunks.n_chunks; k++) bytes += missing_of_one(c, k, is_held);
    return bytes;
}

static ps_status refuse_update(const ps_client *c, int64_t wanted, int64_t held, int64_t room)
{
    const char *name = "";
    for (int32_t i = c->n_tensors - 1; i >= 0; i--)
        if (c->pin_counts[i] > 0 || c->tensors[i].pins[PS_CLIENT_MASTER] > 0) name = c->tensors[i].name;
    char advice[PS_CLIENT_ADVICE_TEXT_MAX], text[3][PS_BYTES_TEXT_MAX];
    const int64_t budget = c->settings.budgets.bytes[PS_TIER_DEVICE];
    return PS_FAIL(
        PS_EBUDGET,
        "ps_client_step: tensors that are in use (%.200s) keep %s of chunks of the %s that budgets leave to them, "
        "beside which an update that takes %s finds no room: let them go before the step, or give it %s; nothing has "
        "changed",
        name, ps_bytes_format(held, text[0]), ps_bytes_format(budget, text[1]), ps_bytes_format(wanted, text[2]),
        ps_client_advice(c, budget + wanted - room, advice));
}

/* After writes to a parameter or its fp32 value, the other one is updated on the device; the sums of a gradient that
 * was written to are computed there. */
static int64_t widest_follow(ps_client *c)
{
    int64_t widest = 0;
    for (int32_t t = 0; t < c->n_tensors; t++) {
        ps_client_tensor_state *x = &c->tensors[t];
        if (!x->has_gradient || x->is_unmanaged) continue;
        const bool is_written = ps_client_is_written(c, t);
        for (int32_t k = 0; k < x->n_pieces; k++) {
            const int32_t chunk = ps_client_piece_of(c, x, k)->chunk;
            if (is_written)
                widest = ps_max_i64(widest, unpinned_bytes(c, PS_LIST_PARAM16, chunk) +
                                                unpinned_bytes(c, PS_LIST_MASTER, chunk));
            if (x->is_gradient_changed) widest = ps_max_i64(widest, unpinned_bytes(c, ps_lists_grad(&c->lists), chunk));
        }
    }
    return widest;
}

ps_status ps_client_check_update_room(ps_client *c)
{
    const int64_t *b = c->settings.budgets.bytes, page = ps_settings_page_bytes(&c->settings);
    int64_t blocks[PS_RAM_TIER_COUNT], held = 0;
    if (c->pinned.n == 0) return PS_OK;
    for (int32_t i = 0; i < c->pinned.n; i++) held += id_bytes(c, c->pinned.ids[i]);
    ps_client_count_blocks(c, blocks);
    const int64_t framework = ps_round_up(c->steps.step_bytes, page);
    const int64_t room = b[PS_TIER_DEVICE] / page * page - blocks[PS_TIER_DEVICE] - framework - held;
    const int64_t host = b[PS_TIER_HOST] / page * page - blocks[PS_TIER_HOST];
    int64_t wanted = widest_follow(c);
    if (c->comm != NULL) wanted = ps_max_i64(wanted, ps_client_separate_fp32_bytes(c));
    if (wanted > room) return refuse_update(c, wanted, held, room);
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        bool is_held;
        const bool has_any = ps_client_chunk_has_any_gradient(c, k);
        if (!ps_client_owns(c, k) || (!has_any && c->comm == NULL)) continue;
        const ps_run chunks = ps_client_updated_with(c, k);
        if (chunks.first < k) continue;
        wanted = missing_bytes(c, chunks, &is_held);
        if (wanted > room && (is_held || wanted > host || !ps_client_may_update_on(c, PS_TIER_HOST)))
            return refuse_update(c, wanted, held, room);
    }
    return PS_OK;
}

/* An update on the device next to the chunks that a moment of the step's forward pass had there. On the host nothing
 * else is in use then. */
static bool has_room_in_forward(const ps_client *c)
{
    const ps_trace *t = c->steps.trace;
    const int64_t page = ps_settings_page_bytes(&c->settings), update = ps_client_update_bytes(c);
    const int64_t room = ps_client_device_room(c);
    for (int32_t i = 0; i < t->n_moments; i++) {
        const ps_moment *m = &t->moments[i];
        if (m->phase != PS_PHASE_FORWARD) continue;
        if (m->non_model_bytes + update + ps_client_moment_bytes(c, t, i, page) > room) return false;
    }
    return true;
}

bool ps_client_may_defer(const ps_client *c)
{
    const ps_client_steps *s = &c->steps;
    if (!c->settings.defer_updates || s->trace == NULL) return false;
    return !ps_client_has_room_for_all(c, s->peak_bytes) && has_room_in_forward(c);
}

bool ps_client_may_update_after(const ps_client *c, int32_t chunk, int32_t moment)
{
    if (ps_client_update_tier(c, chunk) == PS_TIER_HOST) return true;
    const int64_t taken = c->steps.trace->moments[moment].non_model_bytes + ps_client_update_bytes(c);
    return taken <= ps_client_device_room(c);
}
