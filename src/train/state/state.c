#include "train/state/state.h"

#include <string.h>
#include <xxhash.h>

#include "base/split.h"

ps_backend *ps_state_backend(const ps_model_state *s, ps_tier tier)
{
    ps_backend *b = s->settings->backend;
    return tier == PS_TIER_HOST ? ps_backend_host(b) : b;
}

void *ps_state_element(const ps_model_state *s, ps_list list, int32_t chunk, int64_t offset)
{
    char *payload = ps_store_payload(s->tiers->store, ps_store_chunk(s->layout, list, chunk));
    return payload + ps_item_offset(s->lists->list[list].item, offset);
}

ps_dtype ps_state_dtype(const ps_model_state *s, ps_list list)
{
    return list == PS_LIST_PARAM16 || list == ps_lists_kept_grad(s->lists) ? s->settings->dtype : PS_DTYPE_F32;
}

ps_format ps_state_format(const ps_model_state *s, ps_list list)
{
    const ps_optimizer_setup *o = &s->settings->optimizer;
    const int32_t i = list - PS_LIST_STATES;
    return i >= 0 && i < o->n_states ? ps_optimizer_state_format(o, i) : PS_FORMAT_F32;
}

ps_status ps_state_cast(const ps_model_state *s, ps_tier tier, void *dst, ps_dtype dst_dtype, const void *src,
                        ps_dtype src_dtype, int64_t n)
{
    return ps_run_cast(ps_state_backend(s, tier), s->tiers->compute[tier],
                       &(ps_cast_args){.dst = dst, .src = src, .n = n, .dst_dtype = dst_dtype, .src_dtype = src_dtype},
                       0);
}

/* Where the host cannot access the device fills may be in flight. */
ps_status ps_state_put(const ps_model_state *s, ps_tier tier, void *dst, ps_dtype dst_dtype, const void *src,
                       ps_dtype src_dtype, int64_t n)
{
    enum { AT_ONCE = 16384 };
    _Alignas(64) char rounded[AT_ONCE * sizeof(float)];
    ps_backend *host = ps_backend_host(s->settings->backend);
    const bool is_reached = ps_device_host_can_touch(s->tiers->ram[PS_TIER_DEVICE]);
    const int64_t at_once = is_reached ? n : AT_ONCE, dst_item = (int64_t)ps_dtype_bytes(dst_dtype);
    for (int64_t done = 0; done < n; done += at_once) {
        const int64_t here = ps_min_i64(at_once, n - done);
        char *to = (char *)dst + done * dst_item;
        const ps_cast_args a = {.dst = is_reached ? (void *)to : rounded,
                                .src = (const char *)src + done * (int64_t)ps_dtype_bytes(src_dtype),
                                .n = here,
                                .dst_dtype = dst_dtype,
                                .src_dtype = src_dtype};
        PS_TRY(ps_run_cast(host, NULL, &a, 0));
        if (!is_reached) PS_TRY(ps_queue_put(s->tiers->compute[tier], to, rounded, here * dst_item));
    }
    return PS_OK;
}

/* Bytes from the host's memory to a pinned payload. */
static ps_status put_bytes(const ps_model_state *s, ps_tier tier, void *dst, const void *src, int64_t bytes)
{
    if (!ps_device_host_can_touch(s->tiers->ram[PS_TIER_DEVICE]))
        return ps_queue_put(s->tiers->compute[tier], dst, src, bytes);
    memcpy(dst, src, (size_t)bytes);
    return PS_OK;
}

static ps_status put_split(const ps_model_state *s, ps_tier tier, int32_t chunk, int64_t offset, const float *values,
                           int64_t n)
{
    enum { AT_ONCE = 8192 };
    _Alignas(64) uint16_t params[AT_ONCE], lows[AT_ONCE];
    for (int64_t done = 0; done < n; done += AT_ONCE) {
        const int64_t here = ps_min_i64(AT_ONCE, n - done), bytes = here * (int64_t)sizeof *params;
        ps_split_all(values + done, params, lows, here);
        PS_TRY(put_bytes(s, tier, ps_state_element(s, PS_LIST_PARAM16, chunk, offset + done), params, bytes));
        PS_TRY(put_bytes(s, tier, ps_state_element(s, PS_LIST_MASTER, chunk, offset + done), lows, bytes));
    }
    return PS_OK;
}

ps_status ps_state_put_values(const ps_model_state *s, ps_tier tier, int32_t chunk, int64_t offset, const float *values,
                              int64_t n)
{
    const ps_list list = ps_state_value_list(s, chunk);
    if (ps_state_is_split(s, list)) return put_split(s, tier, chunk, offset, values, n);
    if (list == PS_LIST_MASTER)
        PS_TRY(ps_state_put(s, tier, ps_state_element(s, list, chunk, offset), PS_DTYPE_F32, values, PS_DTYPE_F32, n));
    return ps_state_put(s, tier, ps_state_element(s, PS_LIST_PARAM16, chunk, offset), s->settings->dtype, values,
                        PS_DTYPE_F32, n);
}

ps_status ps_state_put_quantized(const ps_model_state *s, ps_tier tier, const ps_piece *p, int64_t first,
                                 const float *values, int64_t n)
{
    enum { AT_ONCE = 32 * PS_QUANT_RECORD };
    _Alignas(64) char room[AT_ONCE / PS_QUANT_RECORD * sizeof(ps_int8_record)]; /* the larger one */
    const ps_quant quant = ps_state_quant(s, p->tensor);
    const ps_item item = ps_quant_item(quant);
    char *const records = ps_state_element(s, PS_LIST_PARAM16, p->chunk, p->chunk_offset);
    for (int64_t done = 0; done < n; done += AT_ONCE) {
        const int64_t here = ps_min_i64(AT_ONCE, n - done);
        ps_quantize(quant, room, values + done, here);
        PS_TRY(put_bytes(s, tier, records + ps_item_offset(item, first + done), room, ps_item_bytes(item, here)));
    }
    return PS_OK;
}

ps_status ps_state_round_master(const ps_model_state *s, ps_tier tier, const ps_piece *p)
{
    if (!ps_optimizer_has_whole_masters(&s->settings->optimizer)) return PS_OK;
    return ps_state_cast(s, tier, ps_state_element(s, PS_LIST_PARAM16, p->chunk, p->chunk_offset), s->settings->dtype,
                         ps_state_element(s, PS_LIST_MASTER, p->chunk, p->chunk_offset), PS_DTYPE_F32, p->n);
}

ps_rng_key ps_state_rounding_key(const ps_settings *s, int64_t step, const char *name)
{
    const uint64_t hash = XXH3_64bits_withSeed(name, strlen(name), (uint64_t)step);
    return (ps_rng_key){.seed = s->seed, .stream = PS_STREAMS_ROUNDING + (hash >> 2)};
}

ps_status ps_state_update_piece(const ps_model_state *s, ps_tier tier, const ps_piece *p, const ps_piece_update *u)
{
    if (u->skips)
        return ps_state_round_master(s, tier, p); /* an update writes PARAM16 again, whatever it held
                                                             * before */
    ps_optimizer_piece x = {.param = ps_state_element(s, PS_LIST_PARAM16, p->chunk, p->chunk_offset),
                            .grad = ps_state_element(s, u->gradients, p->chunk, p->chunk_offset),
                            .n = p->n,
                            .first = p->tensor_offset,
                            .rounding = u->rounding,
                            .weight_decay = u->weight_decay,
                            .param_dtype = s->settings->dtype,
                            .grad_dtype = ps_state_dtype(s, u->gradients)};
    const uint32_t states = ps_optimizer_states_of(u->optimizer, u->rows > 0);
    void *const master = ps_lists_exists(s->lists, PS_LIST_MASTER)
                             ? ps_state_element(s, PS_LIST_MASTER, p->chunk, p->chunk_offset)
                             : NULL;
    if (ps_state_is_split(s, PS_LIST_MASTER))
        x.low = master;
    else
        x.master = master;
    for (int32_t i = 0; i < s->settings->optimizer.n_states; i++)
        if (states >> i & 1) x.state[i] = ps_state_element(s, PS_LIST_STATES + i, p->chunk, p->chunk_offset);
    ps_backend *b = ps_state_backend(s, tier);
    ps_queue *queue = s->tiers->compute[tier];
    if (u->rows == 0) return ps_optimizer_update(b, queue, u->optimizer, &u->step, &x);
    const ps_optimizer_matrix m = {
        .all = x, .rows = u->rows, .cols = u->cols, .scratch = s->tiers->update_scratch[tier]};
    PS_ASSERT(p->tensor_offset == 0 && p->n == u->rows * u->cols);
    return ps_optimizer_update_whole(b, queue, u->optimizer, &u->step, &m);
}
