#include "train/state/snapshot.h"

#include "base/mem.h"
#include "base/split.h"
#include "device/blocking.h"
#include "train/state/values.h"

/* Do all of its tensors stay out of checkpoints? */
static bool is_left_out(const ps_model_state *s, int32_t chunk)
{
    bool is = s->tensors != NULL;
    for (int32_t i = s->pieces->first[chunk]; i < s->pieces->first[chunk + 1] && is; i++)
        is = s->tensors[s->pieces->all[i].tensor].is_left_out;
    return is;
}

ps_status ps_snapshot_begin(ps_snapshot *x, const ps_model_state *s, const bool *pending, const ps_snapshot_sink *sink)
{
    const int32_t n_chunks = s->layout->n_chunks;
    PS_ASSERT(x->when == NULL);
    PS_TRY(ps_mem_alloc((size_t)n_chunks, sizeof *x->when, &x->when));
    x->n_left = 0;
    for (int32_t c = 0; c < n_chunks; c++) {
        x->when[c] = pending != NULL && pending[c] ? PS_SNAPSHOT_AFTER : PS_SNAPSHOT_BEFORE;
        if (is_left_out(s, c)) x->when[c] = PS_SNAPSHOT_DONE;
        x->n_left += ps_state_owns(s, c) && x->when[c] != PS_SNAPSHOT_DONE;
    }
    x->sink = *sink;
    return PS_OK;
}

/* For a pinned chunk. Memory that the host cannot access is copied by the compute queue, a part at a time. */
static ps_status hand_out(const ps_snapshot *x, const ps_model_state *s, const ps_piece *piece, ps_list list,
                          ps_tier tier)
{
    enum { AT_ONCE_BYTES = 65536 };
    const ps_snapshot_sink *sink = &x->sink;
    const ps_item item = s->lists->list[list].item;
    ps_queue *q = s->tiers->compute[tier];
    const char *values = ps_state_element(s, list, piece->chunk, piece->chunk_offset);
    if (ps_device_host_can_touch(s->tiers->ram[tier])) {
        PS_TRY(ps_event_wait_as(ps_queue_event(q), PS_BLOCK_READ));
        sink->take(sink->user, list, item, piece->tensor, piece->tensor_offset, values, piece->n);
        return PS_OK;
    }
    _Alignas(64) char values_now[AT_ONCE_BYTES];
    const int64_t at_once = ps_item_elements(item, AT_ONCE_BYTES);
    for (int64_t done = 0; done < piece->n; done += at_once) {
        const int64_t n = ps_min_i64(at_once, piece->n - done);
        PS_TRY(ps_queue_get(q, values_now, values + ps_item_offset(item, done), ps_item_bytes(item, n)));
        sink->take(sink->user, list, item, piece->tensor, piece->tensor_offset + done, values_now, n);
    }
    return PS_OK;
}

/* Rounded values as floats, which is exact. */
static ps_status take_rounded(const ps_snapshot *x, const ps_model_state *s, const ps_piece *piece, int64_t done,
                              const void *rounded, int64_t n)
{
    enum { AT_ONCE = 8192 };
    _Alignas(64) float values[AT_ONCE];
    const ps_dtype dtype = s->settings->dtype;
    const ps_snapshot_sink *sink = &x->sink;
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        const int64_t here = ps_min_i64(AT_ONCE, n - i);
        const void *at = (const char *)rounded + i * (int64_t)ps_dtype_bytes(dtype);
        PS_TRY(ps_values_cast(s, values, PS_DTYPE_F32, at, dtype, here));
        sink->take(sink->user, PS_LIST_MASTER, (ps_item){(int32_t)sizeof *values, 1}, piece->tensor,
                   piece->tensor_offset + done + i, values, here);
    }
    return PS_OK;
}

/* A part of a payload as the host can read it: where it lies, or copied to `room`. */
static ps_status fetch(const ps_model_state *s, ps_tier tier, const char *payload, void *room, int64_t bytes,
                       const void **out)
{
    *out = room;
    if (!ps_device_host_can_touch(s->tiers->ram[tier]))
        return ps_queue_get(s->tiers->compute[tier], room, payload, bytes);
    *out = payload;
    return ps_event_wait_as(ps_queue_event(s->tiers->compute[tier]), PS_BLOCK_READ);
}

/* Quantized values as floats; a snapshot has them as such. */
static void take_records(const ps_snapshot *x, ps_quant quant, const ps_piece *piece, int64_t done, const void *records,
                         int64_t n)
{
    enum { AT_ONCE = 8192 };
    _Alignas(64) float values[AT_ONCE];
    const ps_snapshot_sink *sink = &x->sink;
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        const int64_t here = ps_min_i64(AT_ONCE, n - i);
        ps_dequantize(quant, records, i, values, here);
        sink->take(sink->user, PS_LIST_MASTER, (ps_item){(int32_t)sizeof *values, 1}, piece->tensor,
                   piece->tensor_offset + done + i, values, here);
    }
}

static ps_status hand_out_records(const ps_snapshot *x, const ps_model_state *s, const ps_piece *piece, ps_tier tier)
{
    enum { AT_ONCE = 64 * PS_QUANT_RECORD };
    _Alignas(64) char room[AT_ONCE / PS_QUANT_RECORD * sizeof(ps_int8_record)]; /* the larger one */
    const ps_quant quant = ps_state_quant(s, piece->tensor);
    const char *const records = ps_state_element(s, PS_LIST_PARAM16, piece->chunk, piece->chunk_offset);
    for (int64_t done = 0; done < piece->n; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, piece->n - done);
        const ps_item item = ps_quant_item(quant);
        const void *at;
        PS_TRY(fetch(s, tier, records + ps_item_offset(item, done), room, ps_item_bytes(item, n), &at));
        take_records(x, quant, piece, done, at, n);
    }
    return PS_OK;
}

static ps_status hand_out_rounded(const ps_snapshot *x, const ps_model_state *s, const ps_piece *piece, ps_tier tier)
{
    enum { AT_ONCE_BYTES = 65536 };
    if (ps_state_quant(s, piece->tensor) != PS_QUANT_NONE) return hand_out_records(x, s, piece, tier);
    _Alignas(64) char room[AT_ONCE_BYTES];
    const int64_t item = (int64_t)ps_dtype_bytes(s->settings->dtype);
    ps_queue *q = s->tiers->compute[tier];
    const char *values = ps_state_element(s, PS_LIST_PARAM16, piece->chunk, piece->chunk_offset);
    if (ps_device_host_can_touch(s->tiers->ram[tier])) {
        PS_TRY(ps_event_wait_as(ps_queue_event(q), PS_BLOCK_READ));
        return take_rounded(x, s, piece, 0, values, piece->n);
    }
    for (int64_t done = 0; done < piece->n; done += AT_ONCE_BYTES / item) {
        const int64_t n = ps_min_i64(AT_ONCE_BYTES / item, piece->n - done);
        PS_TRY(ps_queue_get(q, room, values + done * item, n * item));
        PS_TRY(take_rounded(x, s, piece, done, room, n));
    }
    return PS_OK;
}

/* Masters of which PARAM16 has a part, as floats: their bytes are those of both lists. */
static ps_status hand_out_split(const ps_snapshot *x, const ps_model_state *s, const ps_piece *piece, ps_tier tier)
{
    enum { AT_ONCE = 8192 };
    _Alignas(64) float values[AT_ONCE];
    _Alignas(64) uint16_t rooms[2][AT_ONCE];
    const int64_t item = (int64_t)sizeof rooms[0][0];
    const char *const params = ps_state_element(s, PS_LIST_PARAM16, piece->chunk, piece->chunk_offset);
    const char *const lows = ps_state_element(s, PS_LIST_MASTER, piece->chunk, piece->chunk_offset);
    for (int64_t done = 0; done < piece->n; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, piece->n - done);
        const void *p, *low;
        PS_TRY(fetch(s, tier, params + done * item, rooms[0], n * item, &p));
        PS_TRY(fetch(s, tier, lows + done * item, rooms[1], n * item, &low));
        ps_split_join_all(p, low, values, n);
        x->sink.take(x->sink.user, PS_LIST_MASTER, (ps_item){(int32_t)sizeof *values, 1}, piece->tensor,
                     piece->tensor_offset + done, values, n);
    }
    return PS_OK;
}

static ps_status hand_out_list(const ps_snapshot *x, const ps_model_state *s, const ps_piece *piece, ps_list list,
                               ps_tier tier)
{
    if (ps_state_is_split(s, list)) return hand_out_split(x, s, piece, tier);
    if (!ps_lists_exists(s->lists, list)) return hand_out_rounded(x, s, piece, tier); /* parameters are the masters */
    return hand_out(x, s, piece, list, tier);
}

static void finish_chunk(ps_snapshot *x, int32_t chunk)
{
    x->when[chunk] = PS_SNAPSHOT_DONE;
    if (--x->n_left > 0) return;
    x->sink.end(x->sink.user);
    ps_snapshot_drop(x);
}

ps_status ps_snapshot_visit(ps_snapshot *x, const ps_model_state *s, int32_t chunk, ps_tier tier, ps_snapshot_when when)
{
    if (x->when == NULL || x->when[chunk] != when) return PS_OK;
    for (int32_t i = s->pieces->first[chunk]; i < s->pieces->first[chunk + 1]; i++)
        for (ps_list list = PS_LIST_MASTER; list < ps_lists_grad(s->lists); list++)
            if (ps_state_has_list(s, list, chunk)) PS_TRY(hand_out_list(x, s, &s->pieces->all[i], list, tier));
    finish_chunk(x, chunk);
    return PS_OK;
}

ps_status ps_snapshot_visit_frozen(ps_snapshot *x, const ps_model_state *s, int32_t chunk, ps_tier tier)
{
    if (x->when == NULL || x->when[chunk] == PS_SNAPSHOT_DONE) return PS_OK;
    for (int32_t i = s->pieces->first[chunk]; i < s->pieces->first[chunk + 1]; i++)
        PS_TRY(hand_out_rounded(x, s, &s->pieces->all[i], tier));
    finish_chunk(x, chunk);
    return PS_OK;
}

static ps_status read_split(const ps_snapshot *x, const ps_model_state *s, const ps_piece *piece)
{
    enum { AT_ONCE = 8192 };
    _Alignas(64) float values[AT_ONCE];
    for (int64_t done = 0; done < piece->n; done += AT_ONCE) {
        ps_piece p = *piece;
        p.chunk_offset += done, p.tensor_offset += done, p.n = ps_min_i64(AT_ONCE, piece->n - done);
        PS_TRY(ps_values_join(s, &p, values));
        x->sink.take(x->sink.user, PS_LIST_MASTER, (ps_item){(int32_t)sizeof *values, 1}, p.tensor, p.tensor_offset,
                     values, p.n);
    }
    return PS_OK;
}

/* As ps_values_func. */
static ps_status take_values(void *user, ps_dtype dtype, void *values, const ps_piece *p)
{
    const ps_snapshot_sink *sink = user;
    PS_ASSERT(dtype == PS_DTYPE_F32);
    (void)dtype;
    sink->take(sink->user, PS_LIST_MASTER, (ps_item){(int32_t)sizeof(float), 1}, p->tensor, p->tensor_offset, values,
               p->n);
    return PS_OK;
}

static ps_status read_piece(ps_snapshot *x, const ps_model_state *s, const ps_piece *piece, ps_list list)
{
    if (ps_state_is_split(s, list)) return read_split(x, s, piece);
    if (list == PS_LIST_PARAM16 && ps_state_quant(s, piece->tensor) != PS_QUANT_NONE)
        return ps_values_each(s, list, piece->tensor, piece->tensor_offset, piece->n, PS_ACCESS_READ, take_values,
                              &x->sink);
    const ps_item item = s->lists->list[list].item;
    for (int64_t done = 0; done < piece->n; done += PS_VALUES_ELEMENTS) {
        const int64_t n = ps_min_i64(PS_VALUES_ELEMENTS, piece->n - done);
        ps_view v;
        PS_TRY(ps_view_open(s->tiers->store, ps_store_chunk(s->layout, list, piece->chunk),
                            s->update_tier[piece->chunk], ps_item_offset(item, piece->chunk_offset + done),
                            ps_item_bytes(item, n), PS_ACCESS_READ, &v));
        ps_status st = PS_OK;
        if (list == PS_LIST_PARAM16)
            st = take_rounded(x, s, piece, done, v.bytes, n);
        else
            x->sink.take(x->sink.user, list, item, piece->tensor, piece->tensor_offset + done, v.bytes, n);
        const ps_status closed = ps_view_close(s->tiers->store, &v);
        PS_TRY(st);
        PS_TRY(closed);
    }
    return PS_OK;
}

/* On its current tier: there may be no room to move it. */
static ps_status read_chunk(ps_snapshot *x, const ps_model_state *s, int32_t chunk)
{
    const bool is_trained = ps_state_trains(s, chunk);
    const ps_list first = ps_state_value_list(s, chunk), end = is_trained ? ps_lists_grad(s->lists) : PS_LIST_MASTER;
    for (ps_list list = first; list < end; list++)
        for (int32_t i = s->pieces->first[chunk]; i < s->pieces->first[chunk + 1] && ps_state_has_list(s, list, chunk);
             i++)
            if (ps_lists_exists(s->lists, list)) PS_TRY(read_piece(x, s, &s->pieces->all[i], list));
    finish_chunk(x, chunk);
    return PS_OK;
}

ps_status ps_snapshot_take(ps_snapshot *x, const ps_model_state *s, int32_t chunk)
{
    if (x->when == NULL || !ps_state_owns(s, chunk) || x->when[chunk] == PS_SNAPSHOT_DONE) return PS_OK;
    return read_chunk(x, s, chunk);
}

ps_status ps_snapshot_finish(ps_snapshot *x, const ps_model_state *s, const int32_t *order, int32_t n)
{
    if (x->when == NULL) return PS_OK;
    for (int32_t i = 0; i < n; i++) PS_TRY(ps_snapshot_take(x, s, order[i]));
    for (int32_t c = 0; c < s->layout->n_chunks; c++) PS_TRY(ps_snapshot_take(x, s, c));
    if (x->when == NULL) return PS_OK;
    x->sink.end(x->sink.user); /* a rank without chunks */
    ps_snapshot_drop(x);
    return PS_OK;
}

void ps_snapshot_drop(ps_snapshot *x)
{
    ps_mem_free(x->when);
    *x = (ps_snapshot){0};
}
