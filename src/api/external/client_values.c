/* client_values.c - access to fp32 values and states of tensors on their current tiers; and counts of updates and the
 * loss scaler. */
#include <jansson.h>

#include "api/external/client_calls.h"
#include "base/mem.h"
#include "train/state/values.h"

/* ---- arguments ---- */

const char *ps_client_get_state_name(const ps_client *c, int32_t i)
{
    return c != NULL && ps_client_is_here(c) ? ps_optimizer_state_name(&c->settings.optimizer, i) : NULL;
}

static ps_status find_list(const ps_client *c, const char *call, int32_t tensor, const char *state, ps_list *out)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    *out = PS_VALUE_LIST;
    if (state == NULL) return PS_OK;
    PS_TRY(ps_values_find_list(&c->settings, call, state, out));
    return ps_values_expect_state(&c->settings, t->name, t->is_whole, *out);
}

/* ---- unmanaged tensors ---- */

static float *unmanaged_list(const ps_client_tensor_state *t, ps_list list)
{
    return ps_client_unmanaged(t, list == PS_VALUE_LIST ? PS_LIST_MASTER : list);
}

static ps_status read_unmanaged(ps_client *c, const ps_client_tensor_state *t, ps_list list, int64_t first, int64_t n,
                                float *out)
{
    const float *src = unmanaged_list(t, list);
    return ps_queue_get(c->tiers.compute[PS_TIER_DEVICE], out, src + first, n * (int64_t)sizeof *out);
}

static ps_status write_unmanaged(ps_client *c, const ps_client_tensor_state *t, ps_list list, int64_t first, int64_t n,
                                 const float *in)
{
    float *dst = unmanaged_list(t, list);
    return ps_queue_put(c->tiers.compute[PS_TIER_DEVICE], dst + first, in, n * (int64_t)sizeof *in);
}

/* ---- public calls ---- */

/* The tier on which chunks of the tensor without content are created. */
static void choose_tiers(ps_client *c, int32_t tensor)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++) c->update_tier[p.chunk + k] = ps_client_update_tier(c, p.chunk + k);
}

static ps_status read_range(ps_client *c, int32_t tensor, const char *name, int64_t first, int64_t n, float *out)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    ps_list list;
    PS_TRY(find_list(c, "ps_client_read_state", tensor, name, &list));
    PS_TRY(ps_values_check_range(t->name, t->elements, first, n));
    if (t->is_unmanaged) return read_unmanaged(c, t, list, first, n, out);
    PS_TRY(ps_client_check_not_updated_early(c, tensor, "its value or a state is read"));
    PS_TRY(ps_client_flush_tensor(c, tensor));
    const ps_client_message m = {.kind = PS_CLIENT_READ_VALUE, .number = tensor, .tensor = tensor};
    PS_TRY(ps_client_announce(c, &m, NULL, 0));
    if (list == PS_VALUE_LIST) PS_TRY(ps_client_sync_value(c, tensor));
    choose_tiers(c, tensor);
    return ps_values_read(&c->state, list, t->in_layout, first, n, out);
}

ps_status ps_client_read_state(ps_client *c, int32_t tensor, const char *state, int64_t first, int64_t n, float *out)
{
    PS_TRY(PS_NEED("client out", c, PS_NEED_IF(n > 0, out)));
    PS_TRY(ps_client_enter_with(c, "ps_client_read_state", PS_CLIENT_IS_READY, tensor));
    return ps_client_leave(c, ps_client_break_ranks(c, read_range(c, tensor, state, first, n, out)));
}

/* The parameter follows its master, in the part of [first, first + n) that the piece has. A parameter that is
 * overwritten by its gradient does after that has moved. */
static ps_status write_param(ps_client *c, const ps_piece *p, int64_t first, int64_t n, const float *in)
{
    const int64_t begin = ps_max_i64(first, p->tensor_offset), end = ps_min_i64(first + n, p->tensor_offset + p->n);
    if (begin >= end || !c->has_master[p->chunk] || ps_client_gradient_of(c, p)->place == PS_GRADIENT_IN_PLACE)
        return PS_OK;
    return ps_values_write(&c->state, PS_LIST_PARAM16, c->tensors[p->tensor].in_layout, begin, end - begin,
                           in + (begin - first));
}

ps_status ps_client_put(ps_client *c, int32_t tensor, ps_list list, int64_t first, int64_t n, const float *in)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    const bool is_value = list == PS_VALUE_LIST, was_master_newer = t->is_master_newer;
    if (t->is_unmanaged) return write_unmanaged(c, t, list, first, n, in);
    PS_TRY(ps_client_save_tensor_first(c, tensor));
    t->is_master_newer = was_master_newer || is_value; /* until the parameter has all of it too */
    choose_tiers(c, tensor);
    PS_TRY(ps_values_write(&c->state, list, t->in_layout, first, n, in));
    const bool has_own_param = !ps_settings_separates_gradients(&c->settings); /* else it is written already */
    for (int32_t k = 0; k < t->n_pieces && is_value && has_own_param; k++)
        PS_TRY(write_param(c, ps_client_piece_of(c, t, k), first, n, in));
    t->is_master_newer = was_master_newer;
    return PS_OK;
}

static ps_status write_range(ps_client *c, int32_t tensor, const char *name, int64_t first, int64_t n, const float *in)
{
    ps_client_tensor_state *t = &c->tensors[tensor];
    ps_list list;
    PS_TRY(find_list(c, "ps_client_write_state", tensor, name, &list));
    PS_TRY(ps_values_check_range(t->name, t->elements, first, n));
    PS_TRY(ps_client_check_not_updated_early(c, tensor, "its value or a state is written"));
    PS_TRY(ps_client_flush_tensor(c, tensor));
    if (!t->is_unmanaged && list != PS_VALUE_LIST) PS_TRY(ps_client_need_master(c, tensor));
    if (list == PS_VALUE_LIST) PS_TRY(ps_client_sync_value(c, tensor));
    PS_TRY(ps_client_reshard_all(c)); /* drops copies of other ranks */
    return ps_client_put(c, tensor, list, first, n, in);
}

ps_status ps_client_write_state(ps_client *c, int32_t tensor, const char *state, int64_t first, int64_t n,
                                const float *in)
{
    PS_TRY(PS_NEED("client in", c, PS_NEED_IF(n > 0, in)));
    PS_TRY(ps_client_enter_with(c, "ps_client_write_state", PS_CLIENT_IS_READY, tensor));
    return ps_client_leave(c, ps_client_break_ranks(c, write_range(c, tensor, state, first, n, in)));
}

/* ---- counts and the loss scaler ---- */

ps_status ps_client_set_update_count(ps_client *c, int32_t tensor, int64_t steps)
{
    const char *call = "ps_client_set_update_count";
    PS_TRY(PS_NEED("client", c));
    if (steps < 0 || steps > (int64_t)1 << 40)
        return PS_FAIL(PS_EINVAL, "%s: %lld steps, expected 0 to 2^40", call, (long long)steps);
    PS_TRY(tensor == -1 ? ps_client_enter(c, call, PS_CLIENT_IS_READY)
                        : ps_client_enter_with(c, call, PS_CLIENT_IS_READY, tensor));
    ps_status st = tensor >= 0 ? ps_client_check_not_updated_early(c, tensor, "its count of updates is set") : PS_OK;
    if (st == PS_OK && tensor >= 0) st = ps_client_break_ranks(c, ps_client_flush_tensor(c, tensor));
    if (st == PS_OK && tensor == -1) c->n_updates = steps;
    if (st == PS_OK && tensor >= 0) c->tensors[tensor].steps = steps;
    return ps_client_leave(c, st);
}

int64_t ps_client_get_update_count(const ps_client *client, int32_t tensor)
{
    ps_client *c;
    int64_t steps = 0;
    if (!ps_client_lock(client, &c)) return 0;
    if (tensor == -1) steps = c->n_updates;
    if (tensor >= 0 && tensor < c->n_tensors) steps = c->tensors[tensor].steps;
    (void)ps_client_leave(c, PS_OK);
    return steps;
}

double ps_client_get_loss_scale(const ps_client *client)
{
    ps_client *c;
    if (!ps_client_lock(client, &c)) return 1;
    const double scale = (double)c->scaler.scale;
    (void)ps_client_leave(c, PS_OK);
    return scale;
}

ps_status ps_client_get_scaler(const ps_client *client, char **out)
{
    PS_TRY(PS_NEED_FOR(out, "client json", client, out));
    ps_client *c = (ps_client *)(uintptr_t)client; /* for its lock */
    PS_TRY(ps_client_enter(c, "ps_client_get_scaler", PS_CLIENT_ANY_STAGE));
    const ps_loss_scaler s = c->scaler;
    (void)ps_client_leave(c, PS_OK);
    json_t *j =
        json_pack("{s:f, s:I, s:i, s:I}", "loss_scale", (double)s.scale, "clean_steps", (json_int_t)s.n_clean_steps,
                  "hysteresis_left", s.hysteresis_left, "skipped_steps", (json_int_t)s.n_skipped_steps);
    char *text = j != NULL ? json_dumps(j, JSON_REAL_PRECISION(17)) : NULL;
    json_decref(j);
    if (text == NULL) return PS_FAIL(PS_ENOMEM_HOST, "ps_client_get_scaler: no memory for the text");
    const ps_status st = ps_mem_strdup(text, out);
    free(text);
    return st;
}

static ps_status set_scaler(ps_client *c, const char *text)
{
    json_error_t e;
    double scale;
    json_int_t clean, skipped;
    int hysteresis;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (j == NULL) return PS_FAIL(PS_EFORMAT, "ps_client_set_scaler: %s", e.text);
    const int rc = json_unpack_ex(j, &e, JSON_STRICT, "{s:F, s:I, s:i, s:I}", "loss_scale", &scale, "clean_steps",
                                  &clean, "hysteresis_left", &hysteresis, "skipped_steps", &skipped);
    json_decref(j);
    if (rc != 0) return PS_FAIL(PS_EFORMAT, "ps_client_set_scaler: %s", e.text);
    ps_loss_scaler s = c->scaler;
    s.scale = (float)scale;
    s.n_clean_steps = clean;
    s.hysteresis_left = hysteresis;
    s.n_skipped_steps = skipped;
    PS_TRY(ps_loss_scaler_check(&s));
    c->scaler = s;
    return PS_OK;
}

ps_status ps_client_set_scaler(ps_client *c, const char *json)
{
    PS_TRY(PS_NEED("client json", c, json));
    PS_TRY(ps_client_enter(c, "ps_client_set_scaler", PS_CLIENT_IS_READY));
    ps_status st = ps_client_check_gradients_complete(c, "ps_client_set_scaler");
    if (st == PS_OK) st = set_scaler(c, json);
    return ps_client_leave(c, st);
}
